/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What a command took, and others meanwhile. Behind harness.h. */
#ifndef LAB_LOAD_H
#define LAB_LOAD_H

#include <sys/resource.h>

/* Time on CPUs of the processes in `pids`. */
static uint64_t lab_cpu_of(const char *pids)
{
    uint64_t sum = 0;
    for (const char *at = pids; *at;) {
        char *end;
        const long pid = strtol(at, &end, 10);
        clockid_t clock;
        if (end == at)
            break;
        if (clock_getcpuclockid(pid ? (pid_t)pid : getppid(), &clock) == 0)
            sum += lab_clock_ns(clock);
        at = *end == ',' ? end + 1 : end;
    }
    return sum;
}

/* "load NS CPU_NS TRACERS_NS": by the clock, of the command on CPUs, and of its tracers. */
static void lab_print_load(uint64_t ns, const struct rusage *usage, uint64_t tracers_ns)
{
    const struct timeval user = usage->ru_utime, kernel = usage->ru_stime;
    const uint64_t us = (uint64_t)(user.tv_sec + kernel.tv_sec) * 1000000u +
                        (uint64_t)(user.tv_usec + kernel.tv_usec);
    printf("load %llu %llu %llu\n", (unsigned long long)ns, (unsigned long long)(us * 1000),
           (unsigned long long)tracers_ns);
}

#endif
