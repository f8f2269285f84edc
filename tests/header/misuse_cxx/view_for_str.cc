// SPDX-License-Identifier: MIT OR Apache-2.0
// EXPECT: for a std::string_view, declare the field as text
#include <string_view>
#include <trackway/trackway.hpp>
TRACKWAY_EVENT(misuse, request, TRACKWAY_INFO, (str, path));
void f(std::string_view path) { trackway(misuse, request, path); }
