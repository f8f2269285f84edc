/* SPDX-License-Identifier: MIT OR Apache-2.0 */
// ONLY WITH TRACING ON
// EXPECT: trackway_enum_misuse_DOT_color
// EXPECT: undeclared|not declared
#include <trackway/trackway.h>
TRACKWAY_EVENT(misuse, request, TRACKWAY_INFO, (enum, color, misuse, color, u8));
