// SPDX-License-Identifier: MIT OR Apache-2.0
// EXPECT: the array is not as long as the field was declared
#include <trackway/trackway.hpp>
TRACKWAY_EVENT(misuse, color, TRACKWAY_INFO, (array, rgb, u8, 3));
void f(const unsigned char (&rgba)[4]) { trackway(misuse, color, rgba); }
