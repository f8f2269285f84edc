/* SPDX-License-Identifier: MIT OR Apache-2.0 */
// EXPECT: expects argument of type|format specifies type
#include <trackway/trackway.h>
void f(void);
void f(void) { trackway_printf("%s", 5); }
