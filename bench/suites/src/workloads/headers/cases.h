/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Single events in a loop, after Letaief, "Comparative Analysis of Tracing Mechanisms in Linux for
 * Real-Time Systems" (thesis, 2025), 3.3: the counter before, the event, the counter behind,
 * nothing else.
 *
 *     WORKLOAD WORK BURSTS EVENTS PAUSE_US     BURSTS times EVENTS events and a pause
 *
 * Before each burst, as many times nothing is measured the same way. Prints "emitted N", and what
 * lab_measure_singles prints; the first burst counts in "emitted" only.
 */
#ifndef LAB_CASES_H
#define LAB_CASES_H

#include "harness.h"

/* What is done with events numbered from `first`; each is counted by lab_timed. */
struct lab_case {
    const char *name;
    lab_loop loop;
    /* Of these, none is in `loop`: so many, before it. */
    uint64_t elsewhere;
};

/* Where lab_timed counts. */
static struct lab_histogram *lab_into = &lab_singles;

/* Counts what began at `begin` and ends here. */
static inline __attribute__((always_inline)) void lab_timed(uint64_t begin)
{
    lab_count(lab_into, lab_ticks() - begin);
}

/* The thesis's nothing, which no compiler may leave out: the bare case, and what is subtracted. */
static void lab_bare(uint64_t first, uint64_t count)
{
    for (uint64_t i = first; i < first + count; i++) {
        const uint64_t begin = lab_ticks();
        __asm__ volatile("" : : : "memory");
        lab_timed(begin);
    }
}

static void lab_burst(lab_loop loop, uint64_t first, uint64_t events, struct lab_histogram *into)
{
    lab_into = into;
    loop(first, events);
}

/* `emit` records an event of this number, wherever the loop has none. */
static int lab_cases_main(int argc, char **argv, const struct lab_case *work,
                          void (*emit)(uint64_t number))
{
    uint64_t numbers[3], number = 0, emitted;
    int are_numbers = argc == 5;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (argc == 5 && work->name != NULL && strcmp(work->name, argv[1]) != 0)
        work++;
    for (int i = 0; i < 3 && are_numbers; i++)
        are_numbers = lab_number(argv[i + 2], (uint64_t)1 << 32, &numbers[i]);
    if (!are_numbers || work->name == NULL || numbers[2] > LAB_PAUSE_US_MAX) {
        fprintf(stderr, "usage: see cases.h\n");
        return 2;
    }
    const uint64_t bursts = numbers[0], events = numbers[1];
    lab.pause_us = (long)numbers[2];
    /* To the first CPU that it may use, so that whoever drains has another one. */
    lab_pin(lab_cpu(0));
    for (emitted = 0; emitted < work->elsewhere; emitted++)
        emit(emitted);
    const uint64_t begin_ns = lab_now_ns(), begin = lab_ticks();
    for (uint64_t burst = 0; burst <= bursts; burst++) {
        lab_burst(lab_bare, number, events, &lab_timing);
        lab_burst(work->loop, number, events, &lab_singles);
        number += events;
        if (burst == 0) {
            memset(&lab_timing, 0, sizeof lab_timing);
            memset(&lab_singles, 0, sizeof lab_singles);
        }
        lab_pause();
    }
    const uint64_t ns = lab_now_ns() - begin_ns, ticks = lab_ticks() - begin;
    const int has_events = work->elsewhere == 0 && emit != NULL;
    printf("emitted %llu\n", (unsigned long long)(has_events ? number : emitted));
    lab_print_singles(ticks, ns);
    return 0;
}

#endif
