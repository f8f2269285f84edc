/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A probe of <sys/sdt.h> with one number: what ftrace, perf and bpftrace hang a uprobe on. */
#include "harness.h"

#include <sys/sdt.h>

static void number(uint64_t first, uint64_t count)
{
    for (uint64_t i = first; i < first + count; i++)
        DTRACE_PROBE1(lab, number, (uint32_t)i);
}

static const struct lab_work works[] = {
    {"number", number},
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return lab_main(argc, argv, works);
}
