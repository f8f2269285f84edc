/* SPDX-License-Identifier: MIT OR Apache-2.0 */
// ONLY WITH TRACING ON
// EXPECT: redefinition of
#include <trackway/trackway.h>
TRACKWAY_EVENT(misuse, request, TRACKWAY_INFO, (u8, a));
TRACKWAY_EVENT(misuse, request, TRACKWAY_INFO, (u8, a));
