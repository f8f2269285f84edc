/* SPDX-License-Identifier: MIT OR Apache-2.0 */
// EXPECT: incompatible type|cannot convert|no viable conversion|no matching function
#include <trackway/trackway.h>
TRACKWAY_EVENT(misuse, request, TRACKWAY_INFO, (u32, status));
struct s { int member; };
void f(struct s s);
void f(struct s s) { trackway(misuse, request, s); }
