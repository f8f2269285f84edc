/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What all workloads share: threads, pinned one to a CPU, that meet before each batch of events
 * and measure it by the clock.
 *
 *     WORKLOAD nothing                          ends at once
 *     WORKLOAD threads                          prints "threads N": how many there are in it
 *     WORKLOAD idle MILLISECONDS                prints "ready", then waits
 *     WORKLOAD batches WORK THREADS COUNT EVENTS [PAUSE_US]
 *                                               "batch THREAD NUMBER EVENTS NS" for each
 *     WORKLOAD for WORK THREADS MILLISECONDS    "began NS", since 1970, when the first thread did;
 *                                               "emitted THREAD EVENTS NS CPU_NS" for each
 *     WORKLOAD singles WORK WARM TURNS EVENTS PAUSE_US
 *                                               what single events take: see lab_measure_singles
 *     WORKLOAD steps WORK WARM EVENTS           "steps EVENTS INSTRUCTIONS", twice: see steps.h
 *
 * Each thread numbers its events from 0, and they carry their number, so that a reader of the
 * trace can tell whether all of them are there. In batches, the threads' numbers begin a multiple
 * of 2^22 apart, so that it can tell whose they are.
 */
#ifndef LAB_HARNESS_H
#define LAB_HARNESS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "machine.h"
#include "singles.h"
#include "steps.h"

enum { LAB_THREADS_MAX = 1024, LAB_BATCHES_MAX = 10000, LAB_FOR_EVENTS = 10000 };
enum { LAB_PAUSE_US_MAX = 1000000, LAB_THREAD_BITS = 22 };

/* Emits `count` events, numbered from `first`. */
typedef void (*lab_loop)(uint64_t first, uint64_t count);

struct lab_work {
    const char *name;
    lab_loop loop;
};

struct lab_thread {
    pthread_t thread;
    int cpu;
    uint64_t first; /* number of its first event */
    uint64_t emitted;
    uint64_t began_ns; /* since 1970 */
    uint64_t elapsed_ns;
    uint64_t cpu_ns; /* of them, on its CPU */
    uint64_t *batches_ns;
};

static struct {
    lab_loop loop;
    int threads;
    int batches;
    uint64_t events;
    uint64_t duration_ns;
    long pause_us;
    atomic_uint arrived;
} lab;

/* Text of 15 bytes and a terminator; the compiler must not know its length. */
static char lab_name[16] = "a name of 16 by";

static const char *lab_text(void)
{
    const char *text = lab_name;
    __asm__ volatile("" : "+r"(text));
    return text;
}

/* Returns when all threads are here. They spin, because to be woken takes longer than to begin. */
static void lab_meet(void)
{
    const unsigned mine = atomic_fetch_add(&lab.arrived, 1);
    const unsigned all = (mine / (unsigned)lab.threads + 1) * (unsigned)lab.threads;
    for (unsigned spins = 0; atomic_load(&lab.arrived) < all; spins++)
        if (spins > 10000)
            sched_yield();
}

static void lab_pause(void)
{
    const struct timespec time = {lab.pause_us / 1000000, lab.pause_us % 1000000 * 1000};
    if (lab.pause_us > 0)
        nanosleep(&time, NULL);
}

static void *lab_run(void *argument)
{
    struct lab_thread *self = argument;
    lab_pin(self->cpu);
    if (lab.duration_ns > 0) {
        lab_meet();
        const uint64_t cpu_begin = lab_clock_ns(CLOCK_THREAD_CPUTIME_ID);
        self->began_ns = lab_clock_ns(CLOCK_REALTIME);
        const uint64_t begin = lab_now_ns();
        do {
            lab.loop(self->emitted, LAB_FOR_EVENTS);
            self->emitted += LAB_FOR_EVENTS;
            self->elapsed_ns = lab_now_ns() - begin;
        } while (self->elapsed_ns < lab.duration_ns);
        self->cpu_ns = lab_clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_begin;
        return NULL;
    }
    for (int batch = 0; batch < lab.batches; batch++) {
        lab_pause();
        lab_meet();
        const uint64_t begin = lab_now_ns();
        lab.loop(self->first + self->emitted, lab.events);
        self->batches_ns[batch] = lab_now_ns() - begin;
        self->emitted += lab.events;
    }
    return NULL;
}

static int lab_threads(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    if (tasks == NULL)
        return 3;
    for (struct dirent *entry; (entry = readdir(tasks)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(tasks);
    printf("threads %d\n", count);
    return 0;
}

static int lab_idle(long milliseconds)
{
    const struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    puts("ready");
    fflush(stdout);
    nanosleep(&time, NULL);
    return 0;
}

static uint64_t lab_first(const struct lab_thread *threads)
{
    uint64_t first = threads[0].began_ns;
    for (int i = 1; i < lab.threads; i++)
        if (threads[i].began_ns < first)
            first = threads[i].began_ns;
    return first;
}

static int lab_measure(void)
{
    static struct lab_thread threads[LAB_THREADS_MAX];
    for (int i = 0; i < lab.threads; i++) {
        threads[i].cpu = lab_cpu(i);
        threads[i].first = (uint64_t)i << LAB_THREAD_BITS;
        threads[i].batches_ns = calloc((size_t)lab.batches + 1, sizeof(uint64_t));
        if (threads[i].batches_ns == NULL)
            return 3;
    }
    for (int i = 0; i < lab.threads; i++)
        if (pthread_create(&threads[i].thread, NULL, lab_run, &threads[i]) != 0)
            return 3;
    for (int i = 0; i < lab.threads; i++)
        pthread_join(threads[i].thread, NULL);
    if (lab.duration_ns > 0)
        printf("began %llu\n", (unsigned long long)lab_first(threads));
    for (int i = 0; i < lab.threads; i++) {
        for (int batch = 0; batch < lab.batches; batch++)
            printf("batch %d %d %llu %llu\n", i, batch, (unsigned long long)lab.events,
                   (unsigned long long)threads[i].batches_ns[batch]);
        if (lab.duration_ns > 0)
            printf("emitted %d %llu %llu %llu\n", i, (unsigned long long)threads[i].emitted,
                   (unsigned long long)threads[i].elapsed_ns,
                   (unsigned long long)threads[i].cpu_ns);
    }
    return 0;
}

/*
 * Prints "timing TICKS COUNT" for each difference of two readings with nothing in between, "single
 * TICKS COUNT" for each with an event, the greatest of each as "…-most TICKS", and "ticks TICKS
 * NS": how many there are in so many ns.
 */
static int lab_measure_singles(uint64_t warm, uint64_t turns)
{
    uint64_t emitted = warm;
    lab_pin(lab_cpu(0));
    lab.loop(0, warm);
    const uint64_t begin_ns = lab_now_ns(), begin = lab_ticks();
    for (uint64_t turn = 0; turn < turns; turn++) {
        lab_pause();
        lab_one_by_one(lab_nothing, emitted, lab.events, &lab_timing);
        lab_one_by_one(lab.loop, emitted, lab.events, &lab_singles);
        emitted += lab.events;
    }
    const uint64_t ns = lab_now_ns() - begin_ns, ticks = lab_ticks() - begin;
    lab_print_singles(ticks, ns);
    return 0;
}

static int lab_number(const char *text, uint64_t most, uint64_t *number)
{
    char *end;
    *number = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == 0 && *number <= most;
}

static int lab_main(int argc, char **argv, const struct lab_work *works)
{
    const char *mode = argc > 1 ? argv[1] : "nothing";
    /* Nothing of this outlives the laboratory, however that ends. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (strcmp(mode, "nothing") == 0)
        return 0;
    if (strcmp(mode, "threads") == 0)
        return lab_threads();
    if (strcmp(mode, "idle") == 0 && argc == 3)
        return lab_idle(atol(argv[2]));
    const int is_batches = strcmp(mode, "batches") == 0 && (argc == 6 || argc == 7);
    const int is_for = strcmp(mode, "for") == 0 && argc == 5;
    const int is_singles = strcmp(mode, "singles") == 0 && argc == 7;
    const int is_steps = strcmp(mode, "steps") == 0 && argc == 5;
    const int is_known = is_batches || is_for || is_singles || is_steps;
    for (const struct lab_work *work = works; is_known && work->name; work++)
        if (strcmp(work->name, argv[2]) == 0)
            lab.loop = work->loop;
    uint64_t numbers[4] = {0, 0, 0, 0};
    int are_numbers = lab.loop != NULL;
    for (int i = 3; i < argc && are_numbers; i++)
        are_numbers = lab_number(argv[i], (uint64_t)1 << 40, &numbers[i - 3]);
    lab.pause_us = (long)numbers[3];
    if (!are_numbers || lab.pause_us > LAB_PAUSE_US_MAX) {
        fprintf(stderr, "usage: see harness.h\n");
        return 2;
    }
    if (is_steps) {
        lab_pin(lab_cpu(0));
        return lab_step(lab.loop, numbers[0], numbers[1]);
    }
    if (is_singles) {
        lab.events = numbers[2];
        return lab_measure_singles(numbers[0], numbers[1]);
    }
    if (numbers[0] < 1 || numbers[0] > LAB_THREADS_MAX || numbers[1] > 1u << 31)
        return 2;
    lab.threads = (int)numbers[0];
    if (is_batches) {
        lab.batches = (int)numbers[1];
        lab.events = numbers[2];
    } else {
        lab.duration_ns = numbers[1] * 1000000u;
    }
    if (lab.batches > LAB_BATCHES_MAX)
        return 2;
    return lab_measure();
}

#endif
