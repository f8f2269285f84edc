/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Single events timed by the processor's counter, into a histogram, after Letaief, "Comparative
 * Analysis of Tracing Mechanisms in Linux for Real-Time Systems" (thesis, 2025), 3.3: the counter
 * before, the event, the counter behind, nothing else.
 *
 *     WORKLOAD WORK BURSTS EVENTS PAUSE_US     BURSTS times EVENTS events and a pause
 *
 * prints "emitted N", "rate TICKS NS", "greatest TICKS", and "bucket TICKS COUNT" for each bucket
 * that is not empty, by the least of its ticks. The first burst counts in "emitted" only.
 */
#ifndef LAB_HISTOGRAM_H
#define LAB_HISTOGRAM_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "machine.h"

/* Buckets of one tick each up to 2^12 ticks, above that 64 for each doubling, up to 2^44. */
enum { LAB_EXACT_BITS = 12, LAB_STEP_BITS = 6, LAB_TICKS_BITS = 44 };
enum {
    LAB_EXACT = 1 << LAB_EXACT_BITS,
    LAB_STEPS = 1 << LAB_STEP_BITS,
    LAB_BUCKETS = LAB_EXACT + (LAB_TICKS_BITS - LAB_EXACT_BITS) * LAB_STEPS,
};

/* What is done with events numbered from `first`. */
struct lab_histogram_work {
    const char *name;
    void (*loop)(uint64_t first, uint64_t count);
    /* Of these, none is in `loop`: so many, before it. */
    uint64_t elsewhere;
};

static struct {
    uint64_t counts[LAB_BUCKETS];
    uint64_t greatest;
} lab_histogram;

/* Counts what began at `begin` and ends here. */
static inline __attribute__((always_inline)) void lab_timed(uint64_t begin)
{
    uint64_t ticks = lab_ticks() - begin;
    unsigned bits, step;
    if (ticks > lab_histogram.greatest)
        lab_histogram.greatest = ticks;
    if (ticks < LAB_EXACT) {
        lab_histogram.counts[ticks]++;
        return;
    }
    if (ticks >> LAB_TICKS_BITS)
        ticks = ((uint64_t)1 << LAB_TICKS_BITS) - 1;
    bits = 63 - (unsigned)__builtin_clzll(ticks);
    step = (unsigned)(ticks >> (bits - LAB_STEP_BITS)) & (LAB_STEPS - 1);
    lab_histogram.counts[LAB_EXACT + (bits - LAB_EXACT_BITS) * LAB_STEPS + step]++;
}

/* The thesis's nothing, which no compiler may leave out. */
static inline __attribute__((always_inline)) void lab_relax(void)
{
    __asm__ volatile("" : : : "memory");
}

/* The least ticks of a bucket. */
static uint64_t lab_least(unsigned bucket)
{
    const unsigned above = bucket - LAB_EXACT;
    if (bucket < LAB_EXACT)
        return bucket;
    return (uint64_t)(LAB_STEPS + above % LAB_STEPS)
           << (above / LAB_STEPS + LAB_EXACT_BITS - LAB_STEP_BITS);
}

static void lab_print(uint64_t emitted, uint64_t ticks, uint64_t ns)
{
    printf("emitted %llu\nrate %llu %llu\ngreatest %llu\n", (unsigned long long)emitted,
           (unsigned long long)ticks, (unsigned long long)ns,
           (unsigned long long)lab_histogram.greatest);
    for (unsigned bucket = 0; bucket < LAB_BUCKETS; bucket++)
        if (lab_histogram.counts[bucket] != 0)
            printf("bucket %llu %llu\n", (unsigned long long)lab_least(bucket),
                   (unsigned long long)lab_histogram.counts[bucket]);
}

/* `emit` records an event of this number, wherever the loop has none. */
static int lab_histogram_main(int argc, char **argv, const struct lab_histogram_work *work,
                              void (*emit)(uint64_t number))
{
    uint64_t number = 0, emitted;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (argc == 5 && work->name != NULL && strcmp(work->name, argv[1]) != 0)
        work++;
    if (argc != 5 || work->name == NULL) {
        fprintf(stderr, "usage: see histogram.h\n");
        return 2;
    }
    const uint64_t bursts = strtoull(argv[2], NULL, 10);
    const uint64_t events = strtoull(argv[3], NULL, 10);
    const long pause_us = atol(argv[4]);
    const struct timespec pause = {pause_us / 1000000, pause_us % 1000000 * 1000};
    /* So that whoever drains has another one. */
    lab_pin(lab_cpu(0));
    for (emitted = 0; emitted < work->elsewhere; emitted++)
        emit(emitted);
    const uint64_t begin_ns = lab_now_ns(), begin = lab_ticks();
    for (uint64_t burst = 0; burst <= bursts; burst++) {
        work->loop(number, events);
        number += events;
        if (burst == 0)
            memset(&lab_histogram, 0, sizeof lab_histogram);
        if (pause_us > 0)
            nanosleep(&pause, NULL);
    }
    const uint64_t ticks = lab_ticks() - begin;
    lab_print(work->elsewhere > 0 || emit == NULL ? emitted : number, ticks,
              lab_now_ns() - begin_ns);
    return 0;
}

#endif
