// SPDX-License-Identifier: MIT OR Apache-2.0
// EXPECT: no matching function
// EXPECT: trackway_emit_misuse_DOT_request
#include <trackway/trackway.hpp>
TRACKWAY_EVENT(misuse, request, TRACKWAY_INFO, (text, path), (u32, status));
void f() { trackway(misuse, request, "path"); }
