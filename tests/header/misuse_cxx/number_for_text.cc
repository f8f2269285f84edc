// SPDX-License-Identifier: MIT OR Apache-2.0
// EXPECT: a text field takes a const char *
#include <trackway/trackway.hpp>
TRACKWAY_EVENT(misuse, request, TRACKWAY_INFO, (text, path));
void f(double number) { trackway(misuse, request, number); }
