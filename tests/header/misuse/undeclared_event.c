/* SPDX-License-Identifier: MIT OR Apache-2.0 */
// EXPECT: undeclared|not declared|implicit declaration
// EXPECT: misuse_DOT_nothing
#include <trackway/trackway.h>
void f(void);
void f(void) { trackway(misuse, nothing, 1); }
