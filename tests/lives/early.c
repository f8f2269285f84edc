/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A library that is initialised before libtrackway.so, and whose signal handler emits from then on:
 * before, during and after libtrackway.so's initialisation. Earlier events are off; after the first
 * recorded event all others are recorded.
 */
#define _GNU_SOURCE
#include "steps.h"
#include <sys/time.h>

void early_main(long count);

static unsigned of_handler, of_main;

static void on_alarm(int signal)
{
    (void)signal;
    step(of_handler);
}

__attribute__((constructor)) static void early(void)
{
    const char *period = getenv("EARLY_US");
    const struct itimerval often = {{0, 30}, {0, period ? atol(period) : 1}};
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    steps_open();
    alarm(0); /* the same timer */
    of_handler = new_stream();
    of_main = new_stream();
    if (sigaction(SIGALRM, &action, NULL) != 0 || setitimer(ITIMER_REAL, &often, NULL) != 0)
        _exit(96);
}

void early_main(long count)
{
    const struct itimerval never = {{0, 0}, {0, 0}};
    take_steps(of_main, count);
    setitimer(ITIMER_REAL, &never, NULL);
    take_steps(of_main, count);
}
