// SPDX-License-Identifier: MIT OR Apache-2.0
// EXPECT: trackway_emit_misuse_DOT_work_
#include <trackway/trackway.hpp>
TRACKWAY_EVENT(misuse, work, TRACKWAY_INFO);
void f() { trackway_scope(misuse, work); }
