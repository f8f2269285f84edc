// SPDX-License-Identifier: MIT OR Apache-2.0
// EXPECT: the enumeration is wider than the integer type of the enum field
#include <trackway/trackway.hpp>
enum class Wide : long { one };
TRACKWAY_ENUM(misuse, wide, (one, Wide::one));
TRACKWAY_EVENT(misuse, chosen, TRACKWAY_INFO, (enum, what, misuse, wide, u8));
void f(Wide what) { trackway(misuse, chosen, what); }
