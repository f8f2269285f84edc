/* SPDX-License-Identifier: MIT OR Apache-2.0 */
// EXPECT: redefinition of|redeclaration of|previous declaration
#include <trackway/trackway.h>
TRACKWAY_EVENT(misuse, request, TRACKWAY_INFO, (u8, a));
TRACKWAY_EVENT(misuse, request, TRACKWAY_INFO, (u8, a));
