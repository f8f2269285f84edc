// SPDX-License-Identifier: MIT OR Apache-2.0
// EXPECT: the container is not as long as the field was declared
#include <array>
#include <trackway/trackway.hpp>
TRACKWAY_EVENT(misuse, color, TRACKWAY_INFO, (array, rgb, u8, 3));
void f(const std::array<unsigned char, 4> &rgba) { trackway(misuse, color, rgba); }
