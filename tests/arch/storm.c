/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Events under the worst conditions for restartable sequences, counted by their writers:
 *
 *   storm threads THREADS EVENTS   threads that move from CPU to CPU, hit by signals whose handler
 *                                  emits, too
 *   storm killed CHILDREN          children that emit for ever, ended by SIGKILL
 *
 * Prints "started S returned R": events begun, and events whose call returned.
 */
#define _GNU_SOURCE
#include <trackway/trackway.h>

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

TRACKWAY_EVENT(storm, step, TRACKWAY_INFO, (u32, who), (u32, number), (str, text));

enum { WHO_MAX = 64, TEXT_MAX = 40, STEPS_ON_A_CPU = 50 };

/* In shared memory: children count, too. */
static struct {
    unsigned started, returned;
} *counts;
static char text[TEXT_MAX + 1];
static long cpus;

/* The text's length follows from the number, so a torn record shows. It is never empty: babeltrace2
 * prints the text before instead. */
static void step(unsigned who)
{
    const unsigned number = counts[who].started++;
    trackway(storm, step, who, number, text + TEXT_MAX - 1 - number % TEXT_MAX);
    counts[who].returned++;
}

/* Each thread's handler has a stream of its own: the thread may be in the middle of its step. */
static __thread unsigned handlers_stream;

static void handle(int signal)
{
    (void)signal;
    step(handlers_stream);
}

static long events;

static void *run(void *argument)
{
    const unsigned who = (unsigned)(size_t)argument;
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
    const struct itimerspec often = {.it_interval.tv_nsec = 700000, .it_value.tv_nsec = 700000};
    const struct itimerspec never = {.it_value.tv_nsec = 0};
    timer_t timer;
    handlers_stream = who + 1;
#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif
    event.sigev_notify_thread_id = (int)syscall(SYS_gettid);
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &often, NULL))
        exit(97);
    for (long i = 0; i < events; i++) {
        if (i % STEPS_ON_A_CPU == 0) {
            cpu_set_t set;
            CPU_ZERO(&set);
            CPU_SET((i / STEPS_ON_A_CPU + who) % (unsigned long)cpus, &set);
            if (sched_setaffinity(0, sizeof(set), &set))
                exit(98);
        }
        step(who);
    }
    timer_settime(timer, 0, &never, NULL);
    timer_delete(timer);
    return NULL;
}

static void threads(long count)
{
    pthread_t all[WHO_MAX / 2];
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    for (long i = 0; i < count; i++)
        if (pthread_create(&all[i], NULL, run, (void *)(size_t)(2 * i)))
            exit(96);
    for (long i = 0; i < count; i++)
        pthread_join(all[i], NULL);
}

static void killed(long count)
{
    for (long i = 0; i < count; i++) {
        const struct timespec pause = {.tv_nsec = 3000000 + 37000 * i};
        const pid_t child = fork();
        if (child == 0)
            for (;;)
                step((unsigned)i);
        while (((volatile unsigned *)&counts[i].returned)[0] == 0)
            sched_yield();
        nanosleep(&pause, NULL);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
}

int main(int argc, char **argv)
{
    const long count = argc > 2 ? atol(argv[2]) : 0;
    unsigned long started = 0, returned = 0;
    memset(text, 'x', TEXT_MAX);
    cpus = sysconf(_SC_NPROCESSORS_ONLN);
    counts = mmap(NULL, WHO_MAX * sizeof(*counts), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (counts == MAP_FAILED)
        return 95;
    events = argc > 3 ? atol(argv[3]) : 0;
    if (argc == 4 && !strcmp(argv[1], "threads") && count > 0 && count <= WHO_MAX / 2)
        threads(count);
    else if (argc == 3 && !strcmp(argv[1], "killed") && count > 0 && count <= WHO_MAX)
        killed(count);
    else
        return 2;
    for (int i = 0; i < WHO_MAX; i++) {
        started += counts[i].started;
        returned += counts[i].returned;
    }
    printf("started %lu returned %lu\n", started, returned);
    return 0;
}
