/* SPDX-License-Identifier: MIT OR Apache-2.0 */
// EXPECT: misuse:request: the third item must be a level
#include <trackway/trackway.h>
TRACKWAY_EVENT(misuse, request, 15, (u8, x));
