// SPDX-License-Identifier: MIT OR Apache-2.0
// EXPECT: the elements are not of the type that the seq field was declared with
#include <vector>
#include <trackway/trackway.hpp>
TRACKWAY_EVENT(misuse, ids, TRACKWAY_INFO, (seq, ids, u32));
void f(const std::vector<int> &numbers) { trackway(misuse, ids, numbers); }
