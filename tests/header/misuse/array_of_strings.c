/* SPDX-License-Identifier: MIT OR Apache-2.0 */
// EXPECT: array names: elements must be scalars
#include <trackway/trackway.h>
TRACKWAY_EVENT(misuse, request, TRACKWAY_INFO, (array, names, str, 3));
