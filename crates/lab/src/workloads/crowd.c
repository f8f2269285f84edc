/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * CROWD PROGRAM RATE SECONDS EVENTS ALIVE: starts `PROGRAM few FIRST EVENTS` RATE times a second,
 * or as often as the machine can, for so long, with at most ALIVE of them at a time; each goes on
 * numbering where the one before ended. Prints "crowd STARTED FAILED NS".
 */
#define _GNU_SOURCE
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

extern char **environ;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Those that have ended; waits for one if `options` says so. */
static int reap(int options, int *alive, unsigned long *failed)
{
    int status;
    const pid_t pid = waitpid(-1, &status, options);
    if (pid <= 0)
        return 0;
    (*alive)--;
    *failed += status != 0;
    return 1;
}

int main(int argc, char **argv)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (argc != 6)
        return 2;
    const uint64_t rate = strtoull(argv[2], NULL, 10);
    const uint64_t whole_ns = strtoull(argv[3], NULL, 10) * 1000000000u;
    const unsigned long events = strtoul(argv[4], NULL, 10);
    const int alive_max = atoi(argv[5]);
    unsigned long started = 0, failed = 0;
    int alive = 0;
    if (rate == 0 || alive_max < 1)
        return 2;
    const uint64_t begin = now_ns();
    for (uint64_t now = begin; now - begin < whole_ns; now = now_ns()) {
        const uint64_t due = begin + started * (1000000000u / rate);
        while (alive > 0 && reap(alive < alive_max ? WNOHANG : 0, &alive, &failed))
            ;
        if (due > now) {
            const struct timespec at = {(time_t)(due / 1000000000u), (long)(due % 1000000000u)};
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
        }
        char few[] = "few", first[24], count[24];
        char *arguments[] = {argv[1], few, first, count, NULL};
        snprintf(first, sizeof first, "%lu", started * events);
        snprintf(count, sizeof count, "%lu", events);
        pid_t pid;
        if (posix_spawn(&pid, argv[1], NULL, NULL, arguments, environ) != 0)
            return 3;
        started++;
        alive++;
    }
    while (alive > 0)
        reap(0, &alive, &failed);
    printf("crowd %lu %lu %llu\n", started, failed, (unsigned long long)(now_ns() - begin));
    return 0;
}
