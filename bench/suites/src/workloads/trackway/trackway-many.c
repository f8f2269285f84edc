/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * An event of Trackway's among many: in whatever order they get their ids, more than thirty have
 * smaller ones, so that records have headers with an id of their own.
 */
#include "harness.h"

#include <trackway/trackway.h>

#define OTHER(number) TRACKWAY_EVENT(lab_other, number, TRACKWAY_INFO, (u32, value));
#define OTHERS(ten)                                                                                \
    OTHER(ten##0) OTHER(ten##1) OTHER(ten##2) OTHER(ten##3) OTHER(ten##4)                          \
    OTHER(ten##5) OTHER(ten##6) OTHER(ten##7) OTHER(ten##8) OTHER(ten##9)

OTHERS(a)
OTHERS(b)
OTHERS(c)
OTHERS(d)
TRACKWAY_EVENT(lab, number, TRACKWAY_INFO, (u32, value));
OTHERS(e)
OTHERS(f)
OTHERS(g)
OTHERS(h)

static void number(uint64_t first, uint64_t count)
{
    for (uint64_t i = first; i < first + count; i++)
        trackway(lab, number, (uint32_t)i);
}

static const struct lab_work works[] = {
    {"number", number},
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return lab_main(argc, argv, works);
}
