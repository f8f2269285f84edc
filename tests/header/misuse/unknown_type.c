/* SPDX-License-Identifier: MIT OR Apache-2.0 */
// EXPECT: TRACKWAY_I_FIELD_OF_KNOWN_TYPE
#include <trackway/trackway.h>
TRACKWAY_EVENT(misuse, request, TRACKWAY_INFO, (string, path));
