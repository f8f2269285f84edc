/* SPDX-License-Identifier: MIT OR Apache-2.0 */
// EXPECT: pointer from integer|incompatible integer|invalid conversion|no matching
#include <trackway/trackway.h>
TRACKWAY_EVENT(misuse, request, TRACKWAY_INFO, (str, path));
void f(int i);
void f(int i) { trackway(misuse, request, i); }
