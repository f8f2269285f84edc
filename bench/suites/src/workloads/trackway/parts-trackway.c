/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* One of Trackway's events, for who looks where its time goes. */
#include "parts.h"

#include <trackway/trackway.h>

TRACKWAY_EVENT(lab, number, TRACKWAY_INFO, (u32, value));

static __attribute__((noinline)) void number(uint64_t first, uint64_t count)
{
    for (uint64_t i = first; i < first + count; i++)
        trackway(lab, number, (uint32_t)i);
}

int main(int argc, char **argv)
{
    return lab_parts_main(argc, argv, number);
}
