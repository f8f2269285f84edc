/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A program whose signal handler unwinds while events are emitted: unwinding KIND SAMPLES|cancel
 *
 * KIND: numbers, strings. Prints the number of sampled stacks, and of those that led back to
 * main(); with a third argument, also the interrupted places of the others. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>
#include <trackway/trackway.h>

enum { FRAMES_MAX = 64, CALLERS = 3, EVENTS_AT_ONCE = 64, THREADS = 100, PLACES = 64 };

TRACKWAY_EVENT(unwinding, numbers, TRACKWAY_INFO,
    (u32, number), (u64, second), (i64, third), (u16, fourth), (bool, fifth));
TRACKWAY_EVENT(unwinding, strings, TRACKWAY_INFO, (u32, number), (str, path), (seq, words, u16));

static long samples_max;
static int has_timer;
static timer_t timer;
static volatile long samples, whole;
/* Where the functions that are being called go on, the innermost first. */
static void *volatile callers[CALLERS];
/* Where stacks that are not whole were interrupted. */
static struct {
    unsigned long at;
    long count;
} places[PLACES];

static void note(const ucontext_t *interrupted)
{
#ifdef __x86_64__
    const unsigned long at = (unsigned long)interrupted->uc_mcontext.gregs[REG_RIP];
#else
    const unsigned long at = (unsigned long)interrupted->uc_mcontext.pc;
#endif
    for (int i = 0; i < PLACES; i++) {
        if (places[i].count && places[i].at != at)
            continue;
        places[i].at = at;
        places[i].count++;
        return;
    }
}

static void on_signal(int number, siginfo_t *info, void *interrupted)
{
    void *frames[FRAMES_MAX];
    (void)number, (void)info;
    if (samples >= samples_max)
        return; /* the functions are being left */
    const int count = backtrace(frames, FRAMES_MAX);
    int is_whole = 0;
    for (int i = 0; i + CALLERS <= count && !is_whole; i++)
        is_whole = !memcmp(&frames[i], (void *)callers, sizeof callers);
    whole += is_whole;
    if (!is_whole)
        note(interrupted);
    samples++;
}

static uint32_t emitted;

__attribute__((noinline)) static void emit_numbers(void)
{
    for (int i = 0; i < EVENTS_AT_ONCE; i++, emitted++)
        trackway(unwinding, numbers, emitted, emitted * 3ull, -(int64_t)emitted, (uint16_t)i,
            i & 1);
}

__attribute__((noinline)) static void emit_strings(void)
{
    static const char *const PATHS[] = {"/api/v1/users", "/index.html", "/api", "/a/b/c.png"};
    static const uint16_t WORDS[] = {1, 200, 30000, 4};
    for (int i = 0; i < EVENTS_AT_ONCE; i++, emitted++)
        trackway(unwinding, strings, emitted, PATHS[i % 4], WORDS, (size_t)(i % 5));
}

__attribute__((noinline)) static void loop(void (*emit)(void))
{
    callers[0] = __builtin_return_address(0);
    const struct itimerspec often = {{0, 50000}, {0, 50000}};
    if (has_timer && timer_settime(timer, 0, &often, NULL))
        exit(97);
    while (samples < samples_max)
        emit();
    __asm__ volatile("" ::: "memory"); /* no tail call */
}

__attribute__((noinline)) static void middle(void (*emit)(void))
{
    callers[1] = __builtin_return_address(0);
    loop(emit);
    __asm__ volatile("" ::: "memory");
}

__attribute__((noinline)) static void outer(void (*emit)(void))
{
    callers[2] = __builtin_return_address(0);
    middle(emit);
    __asm__ volatile("" ::: "memory");
}

static int sampled(void (*emit)(void), int with_places)
{
    void *frames[FRAMES_MAX];
    backtrace(frames, FRAMES_MAX); /* loads the unwinder, which no handler should */
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_RESTART | SA_SIGINFO};
    sigaction(SIGALRM, &action, NULL);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    if (timer_create(CLOCK_MONOTONIC, &event, &timer))
        return 97;
    has_timer = 1;
    outer(emit);
    timer_delete(timer);
    printf("samples %ld whole %ld\n", samples, whole);
    for (int i = 0; with_places && i < PLACES && places[i].count; i++) {
        Dl_info found;
        unsigned long at = places[i].at;
        const int is_known = dladdr((void *)at, &found);
        at -= is_known ? (unsigned long)found.dli_fbase : 0;
        printf("  %s+%lx: %ld\n", is_known ? found.dli_fname : "?", at, places[i].count);
    }
    return 0;
}

static volatile int begun;
static long cleaned;

static void on_cancel(void *unused)
{
    cleaned++;
    (void)unused;
}

static void *emit_until_cancelled(void *emit)
{
    pthread_cleanup_push(on_cancel, NULL);
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    begun = 1;
    outer((void (*)(void))emit);
    pthread_cleanup_pop(0);
    return NULL;
}

/* Cancels threads wherever they are: each time the C library unwinds from there. */
static int cancelled(void (*emit)(void))
{
    samples_max = 1;
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        void *result;
        begun = 0;
        if (pthread_create(&thread, NULL, emit_until_cancelled, (void *)emit))
            return 96;
        while (!begun)
            sched_yield();
        struct timespec time = {0, 1000 * (i % 50)};
        nanosleep(&time, NULL);
        if (pthread_cancel(thread) || pthread_join(thread, &result) || result != PTHREAD_CANCELED)
            return 95;
    }
    printf("cancelled %d cleaned %ld\n", THREADS, cleaned);
    return 0;
}

int main(int count, char **arguments)
{
    if (count < 3)
        return 98;
    void (*const emit)(void) = strcmp(arguments[1], "strings") ? emit_numbers : emit_strings;
    if (!strcmp(arguments[2], "cancel"))
        return cancelled(emit);
    samples_max = atol(arguments[2]);
    return sampled(emit, count > 3);
}
