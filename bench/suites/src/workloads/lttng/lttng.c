/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* LTTng-UST's events, in the program itself rather than in a library that is loaded later. */
#include "harness.h"

#include <lttng/tracef.h>

#include "lttng-provider.h"

static void number(uint64_t first, uint64_t count)
{
    for (uint64_t i = first; i < first + count; i++)
        lttng_ust_tracepoint(lab, number, (uint32_t)i);
}

static void record(uint64_t first, uint64_t count)
{
    for (uint64_t i = first; i < first + count; i++)
        lttng_ust_tracepoint(lab, record, lab_text(), 42, i);
}

static void print(uint64_t first, uint64_t count)
{
    for (uint64_t i = first; i < first + count; i++)
        lttng_ust_tracef("%s (%d)", lab_text(), (int)i);
}

static const struct lab_work works[] = {
    {"number", number},
    {"record", record},
    {"printf", print},
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return lab_main(argc, argv, works);
}
