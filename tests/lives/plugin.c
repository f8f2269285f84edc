/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A shared object that declares the same event as all other modules, and is loaded and unloaded. */
#include "steps.h"

void plugin_steps(struct steps *memory, unsigned who, long count);

void plugin_steps(struct steps *memory, unsigned who, long count)
{
    steps = memory;
    take_steps(who, count);
}
