// SPDX-License-Identifier: MIT OR Apache-2.0
// EXPECT: a seq field takes what has data() and size(), such as std::vector (not of bool)
#include <vector>
#include <trackway/trackway.hpp>
TRACKWAY_EVENT(misuse, flags, TRACKWAY_INFO, (seq, flags, bool));
void f(const std::vector<bool> &flags) { trackway(misuse, flags, flags); }
