// SPDX-License-Identifier: MIT OR Apache-2.0
// EXPECT: deleted|call to deleted
// ONLY WITH TRACING ON
#include <trackway/trackway.hpp>
TRACKWAY_SCOPE_EVENT(misuse, work, TRACKWAY_INFO);
using Scope = trackway::scope<trackway_emit_misuse_DOT_work_end>;
Scope f(const Scope &scope);
Scope f(const Scope &scope) { return scope; }
