/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "shared_events.h"

__attribute__((visibility("default"))) void visit(int number);

/* Runs after the module has announced itself, so that it is recorded. */
__attribute__((constructor)) static void load(void)
{
    trackway(shared, visit, 2, "constructor");
}

void visit(int number)
{
    trackway(shared, visit, (uint8_t)number, "plugin");
}
