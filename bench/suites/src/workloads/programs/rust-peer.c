/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The harness around a crate that others than we have made: rust/fastrace.rs, rust/tracy.rs. When
 * all is over, it says on standard error what has arrived: "arrived EVENTS SUM", the sum being that
 * of their numbers.
 */
#include "harness.h"

void peer_number(uint64_t first, uint64_t count);
void peer_arrived(uint64_t emitted);

static uint64_t emitted;

static void number(uint64_t first, uint64_t count)
{
    peer_number(first, count);
    emitted = first + count;
}

static const struct lab_work works[] = {
    {"number", number},
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    const int status = lab_main(argc, argv, works);
    if (status == 0 && emitted > 0)
        peer_arrived(emitted);
    return status;
}
