/* SPDX-License-Identifier: MIT OR Apache-2.0 */
// EXPECT: misuse:wide: more than 32 fields
#include <trackway/trackway.h>
#define EIGHT(p) (u8, p##1), (u8, p##2), (u8, p##3), (u8, p##4), (u8, p##5), (u8, p##6), \
    (u8, p##7), (u8, p##8)
TRACKWAY_EVENT(misuse, wide, TRACKWAY_INFO, EIGHT(a), EIGHT(b), EIGHT(c), EIGHT(d), (u8, e));
