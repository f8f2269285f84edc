// SPDX-License-Identifier: MIT OR Apache-2.0
// EXPECT: a seq field takes what has data() and size()
#include <list>
#include <trackway/trackway.hpp>
TRACKWAY_EVENT(misuse, ids, TRACKWAY_INFO, (seq, ids, u32));
void f(const std::list<unsigned> &list) { trackway(misuse, ids, list); }
