/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What programs do whose sessions are measured. A tracer's program has the event, and asks whether
 * it is on:
 *
 *     WORKLOAD paced COUNT EVENTS PERIOD_US  COUNT bursts of EVENTS, one beginning PERIOD_US after
 *                                            the other; "batch 0 NUMBER EVENTS NS" for each
 *     WORKLOAD watch COUNT                   prints "ready", then emits as fast as it can; each
 *                                            time that the event is switched on, "seen TURN NS",
 *                                            waits until it is off again, "unseen TURN"; COUNT
 *                                            times
 *     WORKLOAD few FIRST COUNT               emits COUNT events, numbered from FIRST, and ends
 *     WORKLOAD children RATE SECONDS EVENTS ALIVE   forks children that do so: crowd.h
 *
 * and what harness.h has. Events carry their number, those of `watch` their turn. SIGTERM ends
 * the first two early, and they say what they did.
 */
#ifndef LAB_SESSIONS_H
#define LAB_SESSIONS_H

#include "harness.h"

#include "crowd.h"

/* What a tracer's program has. */
static void number(uint64_t first, uint64_t count);
static int is_on(void);

static volatile sig_atomic_t sessions_is_over;

static void sessions_end(int signal)
{
    (void)signal;
    sessions_is_over = 1;
}

static int sessions_paced(int count, uint64_t events, uint64_t period_ns)
{
    static uint64_t batches_ns[LAB_BATCHES_MAX * 10];
    if (count > LAB_BATCHES_MAX * 10)
        return 2;
    uint64_t due_ns = lab_now_ns();
    int batch = 0;
    /* One CPU, hence one stream, in which the numbers have no gap. */
    lab_pin(lab_cpu(0));
    for (; batch < count && !sessions_is_over; batch++) {
        const struct timespec due = {(time_t)(due_ns / 1000000000u), (long)(due_ns % 1000000000u)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
        const uint64_t begin = lab_now_ns();
        number((uint64_t)batch * events, events);
        batches_ns[batch] = lab_now_ns() - begin;
        due_ns += period_ns;
    }
    for (int i = 0; i < batch; i++)
        printf("batch 0 %d %llu %llu\n", i, (unsigned long long)events,
               (unsigned long long)batches_ns[i]);
    return 0;
}

static int sessions_watch(uint64_t count)
{
    const struct timespec nap = {0, 200000};
    puts("ready");
    fflush(stdout);
    for (uint64_t turn = 0; turn < count && !sessions_is_over;) {
        if (!is_on()) {
            /* It may be switched on in between: then this is the turn's first event. */
            number(turn, 1);
            continue;
        }
        const uint64_t seen = lab_now_ns();
        number(turn, 1);
        printf("seen %llu %llu\n", (unsigned long long)turn, (unsigned long long)seen);
        fflush(stdout);
        while (is_on() && !sessions_is_over)
            nanosleep(&nap, NULL);
        printf("unseen %llu\n", (unsigned long long)turn);
        fflush(stdout);
        turn++;
    }
    return 0;
}

/* A child that has no event before this one's. */
static pid_t sessions_start_child(const char *unused, unsigned long first, unsigned long count)
{
    (void)unused;
    const pid_t pid = fork();
    if (pid != 0)
        return pid;
    number(first, count);
    _exit(0);
}

static int sessions_main(int argc, char **argv)
{
    static const struct lab_work works[] = {{"number", number}, {NULL, NULL}};
    const char *mode = argc > 1 ? argv[1] : "";
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (strcmp(mode, "few") == 0 && argc == 4) {
        number(strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10));
        return 0;
    }
    if (strcmp(mode, "children") == 0 && argc == 6)
        return crowd_main(argv + 2, sessions_start_child, NULL);
    const int is_paced = strcmp(mode, "paced") == 0 && argc == 5;
    const int is_watch = strcmp(mode, "watch") == 0 && argc == 3;
    if (is_paced || is_watch)
        signal(SIGTERM, sessions_end);
    if (is_paced)
        return sessions_paced(atoi(argv[2]), strtoull(argv[3], NULL, 10),
                              strtoull(argv[4], NULL, 10) * 1000u);
    if (is_watch)
        return sessions_watch(strtoull(argv[2], NULL, 10));
    return lab_main(argc, argv, works);
}

#endif
