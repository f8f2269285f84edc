/* SPDX-License-Identifier: MIT OR Apache-2.0 */
// EXPECT: makes pointer from integer|incompatible integer to pointer|invalid conversion|no matching function|cannot initialize
#include <trackway/trackway.h>
TRACKWAY_EVENT(misuse, request, TRACKWAY_INFO, (str, path));
void f(int i);
void f(int i) { trackway(misuse, request, i); }
