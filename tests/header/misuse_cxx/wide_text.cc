// SPDX-License-Identifier: MIT OR Apache-2.0
// EXPECT: a text field takes strings of char
#include <string>
#include <trackway/trackway.hpp>
TRACKWAY_EVENT(misuse, request, TRACKWAY_INFO, (text, path));
void f(const std::wstring &path) { trackway(misuse, request, path); }
