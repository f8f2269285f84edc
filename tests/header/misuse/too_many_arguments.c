/* SPDX-License-Identifier: MIT OR Apache-2.0 */
// EXPECT: too many arguments|no matching function
// EXPECT: trackway_emit_misuse_DOT_request
#include <trackway/trackway.h>
TRACKWAY_EVENT(misuse, request, TRACKWAY_INFO, (str, path), (u32, status));
void f(void);
void f(void) { trackway(misuse, request, "path", 1, 2); }
