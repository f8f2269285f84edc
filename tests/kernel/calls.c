/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Calls the system COUNT times, with an event just before and just after; their numbers begin
 * with FIRST. calls COUNT [FIRST] */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <trackway/trackway.h>
#include <unistd.h>

TRACKWAY_EVENT(calls, before, TRACKWAY_INFO, (u32, number));
TRACKWAY_EVENT(calls, after, TRACKWAY_INFO, (u32, number));

int main(int argc, char **argv)
{
    const uint32_t count = argc > 1 ? (uint32_t)atol(argv[1]) : 0;
    const uint32_t first = argc > 2 ? (uint32_t)atol(argv[2]) : 0;
    for (uint32_t i = first; i < first + count; i++) {
        trackway(calls, before, i);
        syscall(SYS_getpgid, 1000000000 + i);
        trackway(calls, after, i);
    }
    return 0;
}
