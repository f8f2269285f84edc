/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The harness around rust/events.rs. */
#include "harness.h"

void rust_number(uint64_t first, uint64_t count);
void rust_record(uint64_t first, uint64_t count);

static const struct lab_work works[] = {
    {"number", rust_number},
    {"record", rust_record},
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return lab_main(argc, argv, works);
}
