/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "shared_events.h"

void second_file(void);

void second_file(void)
{
    trackway(shared, visit, 0, "second");
}
