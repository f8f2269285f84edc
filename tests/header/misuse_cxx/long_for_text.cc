// SPDX-License-Identifier: MIT OR Apache-2.0
// NULL is a text, other numbers of its type are none.
// EXPECT: no known conversion from|could not convert|cannot convert|no matching function
#include <trackway/trackway.hpp>
TRACKWAY_EVENT(misuse, request, TRACKWAY_INFO, (text, path));
void f(long number) { trackway(misuse, request, number); }
