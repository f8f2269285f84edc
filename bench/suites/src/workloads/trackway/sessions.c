/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The program whose sessions are measured, with Trackway's event. */
#include "sessions.h"

#include <trackway/trackway.h>

TRACKWAY_EVENT(lab, number, TRACKWAY_INFO, (u32, value));

static void number(uint64_t first, uint64_t count)
{
    for (uint64_t i = first; i < first + count; i++)
        trackway(lab, number, (uint32_t)i);
}

static int is_on(void)
{
    return trackway_enabled(lab, number);
}

int main(int argc, char **argv)
{
    return sessions_main(argc, argv);
}
