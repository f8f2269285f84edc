/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Trackway's events, as a program has them. */
#include "harness.h"

#include <trackway/trackway.h>

TRACKWAY_EVENT(lab, number, TRACKWAY_INFO, (u32, value));
TRACKWAY_EVENT(lab, record, TRACKWAY_INFO, (str, name), (u32, size), (u64, index));

static void number(uint64_t first, uint64_t count)
{
    for (uint64_t i = first; i < first + count; i++)
        trackway(lab, number, (uint32_t)i);
}

static void record(uint64_t first, uint64_t count)
{
    for (uint64_t i = first; i < first + count; i++)
        trackway(lab, record, lab_text(), 42, i);
}

static void print(uint64_t first, uint64_t count)
{
    for (uint64_t i = first; i < first + count; i++)
        trackway_printf("%s (%d)", lab_text(), (int)i);
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
