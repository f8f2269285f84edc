/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Short-lived processes: RATE a second, or as many as the machine can start, for so long, with at
 * most ALIVE of them at a time; each has EVENTS events, and goes on numbering where the one before
 * ended. Prints "crowd STARTED FAILED NS".
 */
#ifndef LAB_CROWD_H
#define LAB_CROWD_H

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "machine.h"

/* Starts a process that emits `count` events, numbered from `first`; its id, or -1. */
typedef pid_t (*crowd_start)(const char *program, unsigned long first, unsigned long count);

/* Those that have ended; waits for one if `options` says so. */
static int crowd_reap(int options, int *alive, unsigned long *failed)
{
    int status;
    const pid_t pid = waitpid(-1, &status, options);
    if (pid <= 0)
        return 0;
    (*alive)--;
    *failed += status != 0;
    return 1;
}

/* RATE SECONDS EVENTS ALIVE */
static int crowd_main(char **numbers, crowd_start start, const char *program)
{
    const uint64_t rate = strtoull(numbers[0], NULL, 10);
    const uint64_t whole_ns = strtoull(numbers[1], NULL, 10) * 1000000000u;
    const unsigned long events = strtoul(numbers[2], NULL, 10);
    const int alive_max = atoi(numbers[3]);
    unsigned long started = 0, failed = 0;
    int alive = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (rate == 0 || alive_max < 1)
        return 2;
    const uint64_t begin = lab_now_ns();
    for (uint64_t now = begin; now - begin < whole_ns; now = lab_now_ns()) {
        const uint64_t due = begin + started * (1000000000u / rate);
        while (alive > 0 && crowd_reap(alive < alive_max ? WNOHANG : 0, &alive, &failed))
            ;
        if (due > now) {
            const struct timespec at = {(time_t)(due / 1000000000u), (long)(due % 1000000000u)};
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
        }
        if (start(program, started * events, events) <= 0)
            return 3;
        started++;
        alive++;
    }
    while (alive > 0)
        crowd_reap(0, &alive, &failed);
    printf("crowd %lu %lu %llu\n", started, failed,
           (unsigned long long)(lab_now_ns() - begin));
    return 0;
}

#endif
