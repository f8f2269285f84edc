// SPDX-License-Identifier: MIT OR Apache-2.0
// EXPECT: the array is not as long as the field was declared
#include <trackway/trackway.hpp>
TRACKWAY_SCOPE_EVENT(misuse, paint, TRACKWAY_INFO, (text, what), (array, rgb, u8, 3));
void f()
{
    unsigned char gray[1] = {0};
    trackway_scope(misuse, paint, "sky", 3, gray);
}
