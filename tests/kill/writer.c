/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The program that tests/kill steps through: it emits one event for each order of its tracer.
 *
 * Between events it stands at a breakpoint. The tracer writes the next order into registers and
 * continues the program. An order selects the event, and the part of a common pattern that is its
 * text.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <trackway/trackway.h>

TRACKWAY_EVENT(kill, before, TRACKWAY_INFO, (text, text));
TRACKWAY_EVENT(kill, probe, TRACKWAY_INFO, (text, text));
TRACKWAY_EVENT(kill, other, TRACKWAY_INFO, (text, text));
TRACKWAY_EVENT(kill, inner, TRACKWAY_INFO, (text, text));
TRACKWAY_EVENT(kill, empty, TRACKWAY_INFO);

#define PATTERN_BYTES 8192
/* Numbers of the signal handler's text; tests/kill/stage.rs has the same. */
#define INNER_AT 77
#define INNER_BYTES 6

static char pattern[PATTERN_BYTES];

/* Absent where the C library is another or older; then there are no sequences. */
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));

static void on_signal(int number)
{
    (void)number;
    trackway(kill, inner, pattern + INNER_AT, INNER_BYTES);
}

int main(void)
{
    struct sigaction action;
    char *area = NULL;

    for (unsigned i = 0; i < PATTERN_BYTES; i++)
        pattern[i] = (char)('!' + (i * i * 7 + i * 13 + (i >> 3) + (i >> 7)) % 90);
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    sigaction(SIGUSR1, &action, NULL);
    if (&__rseq_offset && &__rseq_size && __rseq_size > 0)
        area = (char *)__builtin_thread_pointer() + __rseq_offset;
    for (;;) {
        unsigned long order, at, size;

        __asm__ volatile("int3"
                         : "=a"(order), "=b"(at), "=c"(size)
                         : "d"(area)
                         : "memory");
        switch (order) {
        case 0: trackway(kill, before, pattern + at, size); break;
        case 1: trackway(kill, probe, pattern + at, size); break;
        case 2: trackway(kill, other, pattern + at, size); break;
        case 4: trackway(kill, empty); break;
        default: return 0;
        }
    }
}
