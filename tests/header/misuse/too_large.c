/* SPDX-License-Identifier: MIT OR Apache-2.0 */
// ONLY WITH TRACING ON
// EXPECT: the event is too large
#include <trackway/trackway.h>
TRACKWAY_EVENT(misuse, request, TRACKWAY_INFO, (array, a, u64, 400), (array, b, u64, 400));
