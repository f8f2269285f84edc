/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The machine's clocks, and its CPUs. */
#ifndef LAB_MACHINE_H
#define LAB_MACHINE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static inline uint64_t lab_clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline uint64_t lab_now_ns(void)
{
    return lab_clock_ns(CLOCK_MONOTONIC);
}

/* The counter, when all before it is done, and before anything behind it begins. */
static inline __attribute__((always_inline)) uint64_t lab_ticks(void)
{
#if defined(__x86_64__) || defined(__i386__)
    uint32_t low, high;
    __asm__ volatile("lfence\n\trdtsc\n\tlfence" : "=a"(low), "=d"(high) : : "memory");
    return (uint64_t)high << 32 | low;
#elif defined(__aarch64__)
    uint64_t ticks;
    __asm__ volatile("isb\n\tmrs %0, cntvct_el0\n\tisb" : "=r"(ticks) : : "memory");
    return ticks;
#else
    return lab_now_ns();
#endif
}

static inline void lab_pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) {
        perror("sched_setaffinity");
        exit(3);
    }
}

/* The `number`th CPU of those that the process may use; the first ones again if there are fewer. */
static inline int lab_cpu(int number)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 0;
    number %= CPU_COUNT(&set);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &set) && number-- == 0)
            return cpu;
    return 0;
}

#endif
