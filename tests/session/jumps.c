/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A program whose timer's handler jumps out of the interrupted code: jumps MODE
 *
 * It emits events of phase 1, with jumps, until SIGUSR1 arrives ("until"), or until MODE, a number,
 * jumps are made; then 1000 events of phase 2, without jumps. In "nested", handlers emit, too,
 * interrupt each other (SA_NODEFER), and one in seven jumps out. Prints the number of jumps. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <trackway/trackway.h>

enum { EVENTS_AT_ONCE = 500, EVENTS_AFTER = 1000, JUMPS_EACH = 7, PERIOD_US = 200 };

TRACKWAY_EVENT(jumps, number, TRACKWAY_INFO, (u32, phase), (u64, number));
TRACKWAY_EVENT(jumps, handled, TRACKWAY_INFO, (u32, phase), (u64, number));

static sigjmp_buf before;
static volatile sig_atomic_t is_armed, is_told, is_nested;
static volatile unsigned long jumps, handled;

static void on_timer(int number)
{
    (void)number;
    if (is_nested) {
        handled++;
        trackway(jumps, handled, 1, handled);
        if (handled % JUMPS_EACH)
            return;
    }
    if (!is_armed)
        return;
    is_armed = 0;
    jumps++;
    siglongjmp(before, 1);
}

static void on_told(int number)
{
    (void)number;
    is_told = 1;
}

static void set_timer(long period_us)
{
    const struct itimerval timer = {{0, period_us}, {0, period_us}};
    setitimer(ITIMER_REAL, &timer, NULL);
}

int main(int count, char **values)
{
    const char *const mode = count > 1 ? values[1] : "until";
    const unsigned long jumps_max = strtoul(mode, NULL, 10);
    struct sigaction action;
    memset(&action, 0, sizeof action);
    is_nested = !strcmp(mode, "nested");
    action.sa_handler = on_timer;
    action.sa_flags = SA_RESTART | (is_nested ? SA_NODEFER : 0);
    sigaction(SIGALRM, &action, NULL);
    action.sa_handler = on_told;
    sigaddset(&action.sa_mask, SIGALRM); /* no handler jumps out of that */
    action.sa_flags = SA_RESTART;
    sigaction(SIGUSR1, &action, NULL);
    set_timer(PERIOD_US);
    volatile unsigned long number = 0;
    while (jumps_max ? jumps < jumps_max : !is_told) {
        if (sigsetjmp(before, 1))
            continue;
        is_armed = 1;
        for (int i = 0; i < EVENTS_AT_ONCE; i++) {
            number = number + 1;
            trackway(jumps, number, 1, number);
        }
        is_armed = 0;
    }
    is_armed = 0;
    set_timer(0);
    for (unsigned long i = 0; i < EVENTS_AFTER; i++)
        trackway(jumps, number, 2, i);
    printf("%lu jumps\n", jumps);
    return 0;
}
