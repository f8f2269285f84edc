/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Events for sessions: with numbers, levels and names. emitter MODE ARGUMENT */
#define _GNU_SOURCE
#include "../lives/steps.h"
#include <pthread.h>

enum { THREADS_MAX = 8, PACE_US = 100 };

#define LEVELS(of)                                                                                 \
    of(EMERG) of(ALERT) of(CRIT) of(ERR) of(WARNING) of(NOTICE) of(INFO) of(DEBUG_SYSTEM)        \
    of(DEBUG_PROGRAM) of(DEBUG_PROCESS) of(DEBUG_MODULE) of(DEBUG_UNIT) of(DEBUG_FUNCTION)         \
    of(DEBUG_LINE) of(DEBUG)
#define DECLARE_LEVEL(level) TRACKWAY_EVENT(level, level, TRACKWAY_##level);
#define EMIT_LEVEL(level) trackway(level, level);
LEVELS(DECLARE_LEVEL)

/* One event for each of 32 sessions, and one for all of them. */
#define EIGHT(of, tens) of(tens##0) of(tens##1) of(tens##2) of(tens##3) of(tens##4) of(tens##5)    \
    of(tens##6) of(tens##7)
#define NUMBERS(of) EIGHT(of, 0) EIGHT(of, 1) EIGHT(of, 2) EIGHT(of, 3)
#define DECLARE_NUMBER(number) TRACKWAY_EVENT(many, e##number, TRACKWAY_INFO);
/* Octal: e00 once, e37 32 times. */
#define EMIT_NUMBER(number)                                                                        \
    for (int i = 0; i <= 0##number; i++)                                                           \
        trackway(many, e##number);
NUMBERS(DECLARE_NUMBER)
TRACKWAY_EVENT(many, all, TRACKWAY_INFO);

static void *emit(void *unused)
{
    const unsigned who = new_stream();
    while (!steps->stop) {
        step(who);
        usleep(PACE_US);
    }
    return unused;
}

/* This number of threads count until the test sets `stop`. */
static void mode_threads(long count)
{
    pthread_t threads[THREADS_MAX];
    for (long i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, emit, NULL) != 0)
            _exit(96);
    steps->ready = 1;
    for (long i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

/* This number of steps at once, each time that the test raises `stop`, until that has its largest
 * value. */
static void mode_bursts(long count)
{
    const unsigned who = new_stream();
    for (unsigned done = 0; done < 1000; done++) {
        take_steps(who, count);
        steps->ready = done + 1;
        while (steps->stop <= done)
            usleep(500);
        if (steps->stop == UINT32_MAX)
            return;
    }
}

int main(int count, char **arguments)
{
    if (count != 3)
        return 2;
    const char *mode = arguments[1];
    const long argument = atol(arguments[2]);
    steps_open();
    steps->pid = (uint32_t)getpid();
    if (strcmp(mode, "threads") == 0) {
        mode_threads(argument);
    } else if (strcmp(mode, "bursts") == 0) {
        mode_bursts(argument);
    } else if (strcmp(mode, "steps") == 0) {
        take_steps(new_stream(), argument);
    } else if (strcmp(mode, "levels") == 0) {
        LEVELS(EMIT_LEVEL)
    } else if (strcmp(mode, "many") == 0) {
        NUMBERS(EMIT_NUMBER)
        for (long i = 0; i < argument; i++)
            trackway(many, all);
    } else if (strcmp(mode, "snapshot") == 0) {
        take_steps(new_stream(), argument);
        printf("%d\n", trackway_snapshot(NULL));
    } else if (strcmp(mode, "crash") == 0) {
        take_steps(new_stream(), argument);
        signal(SIGSEGV, SIG_DFL);
        raise(SIGSEGV);
    } else {
        return 2;
    }
    return 0;
}
