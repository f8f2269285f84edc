/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Lives of threads, and of signal handlers in them. */
#define _GNU_SOURCE
#include "steps.h"
#include <pthread.h>
#include <time.h>

enum { DEPTH_MAX = 4, CALLERS = 2 };

static volatile int done;

static void *short_life(void *unused)
{
    take_steps(new_stream(), 20);
    return unused;
}

static void *long_life(void *unused)
{
    const unsigned who = new_stream();
    while (!done)
        step(who);
    return unused;
}

/* Ends by pthread_exit in the middle of things. */
static void *ends_early(void *unused)
{
    take_steps(new_stream(), 20);
    pthread_exit(unused);
}

static pthread_t start(void *(*body)(void *))
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, body, NULL) != 0)
        _exit(96);
    return thread;
}

/* Many threads that live for a few steps, four at a time, while the first goes on. */
static void mode_short(long count)
{
    const unsigned who = new_stream();
    pthread_t threads[4];
    for (long i = 0; i < count; i += 4) {
        for (int k = 0; k < 4; k++)
            threads[k] = start(k % 2 ? short_life : ends_early);
        take_steps(who, 20);
        for (int k = 0; k < 4; k++)
            pthread_join(threads[k], NULL);
    }
}

/* Forks while other threads trace: the child has one thread, and every memory of the others. */
static void mode_fork(long children)
{
    const unsigned who = new_stream();
    pthread_t threads[2] = {start(long_life), start(long_life)};
    for (long i = 0; i < children; i++) {
        step(who);
        const pid_t child = fork();
        if (child == 0) {
            take_steps(new_stream(), 30);
            _exit(5);
        }
        expect(child, 5);
    }
    done = 1;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

/* vfork from two threads at a time, while a third traces. */
static void *vforks(void *argument)
{
    const long children = *(const long *)argument;
    const unsigned who = new_stream(), its = new_stream();
    for (volatile long i = 0; i < children; i++) {
        step(who);
        const pid_t child = vfork();
        if (child == 0) {
            take_steps(its, 3);
            _exit(0);
        }
        step(who);
        expect(child, 0);
    }
    return NULL;
}

static void mode_vfork(long children)
{
    pthread_t threads[CALLERS], tracing = start(long_life);
    for (int i = 0; i < CALLERS; i++)
        if (pthread_create(&threads[i], NULL, vforks, &children) != 0)
            _exit(96);
    for (int i = 0; i < CALLERS; i++)
        pthread_join(threads[i], NULL);
    done = 1;
    pthread_join(tracing, NULL);
}

/* A handler that interrupts whatever the thread does, itself included, DEPTH_MAX deep. */
static __thread volatile int depth;
static __thread unsigned streams_of_depth[DEPTH_MAX];
static volatile long handled, nested;

static void on_timer(int signal)
{
    (void)signal;
    const int mine = depth;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    depth = mine + 1;
    /* The deepest handler keeps the signal blocked, so that the stack is enough. */
    if (mine + 1 < DEPTH_MAX)
        pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    step(streams_of_depth[mine]);
    if (mine > 0)
        nested++;
    else if (++handled % 16 == 0)
        raise(SIGUSR1); /* certainly nested */
    step(streams_of_depth[mine]);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    depth = mine;
}

/* Steps under a timer that fires as often as the machine can, until `count` were interrupted. */
static void mode_storm(long count)
{
    const unsigned who = new_stream();
    struct sigaction action = {.sa_handler = on_timer, .sa_flags = SA_RESTART};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    const struct itimerspec often = {{0, 20000}, {0, 20000}}, never = {{0, 0}, {0, 0}};
    timer_t timer;
    for (int i = 0; i < DEPTH_MAX; i++)
        streams_of_depth[i] = new_stream();
    take_steps(who, 10);
    if (sigaction(SIGUSR1, &action, NULL) != 0 ||
        timer_create(CLOCK_MONOTONIC, &event, &timer) != 0)
        _exit(96);
    timer_settime(timer, 0, &often, NULL);
    while (handled < count)
        step(who);
    timer_settime(timer, 0, &never, NULL);
    take_steps(who, 10);
    if (nested == 0)
        _exit(95);
}

/* Until the test sets `stop`, in two threads. */
static void mode_busy(long unused)
{
    (void)unused;
    steps->pid = (uint32_t)getpid();
    const pthread_t other = start(long_life);
    const unsigned who = new_stream();
    while (!steps->stop) {
        take_steps(who, 10);
        steps->ready = 1;
        usleep(100);
    }
    done = 1;
    pthread_join(other, NULL);
}

/* The program's own end finds it in full flight in two threads. */
static void mode_flight(long unused)
{
    (void)unused;
    steps->pid = (uint32_t)getpid();
    start(long_life);
    steps->ready = 1;
    long_life(NULL);
}

/* Very many threads that live at the same time: steps before all are there, while, and after. */
static pthread_barrier_t all_there;

static void *one_of_many(void *unused)
{
    const unsigned who = new_stream();
    step(who);
    pthread_barrier_wait(&all_there);
    take_steps(who, 2);
    pthread_barrier_wait(&all_there);
    step(who);
    return unused;
}

static void mode_many(long count)
{
    pthread_t *threads = calloc((size_t)count, sizeof(*threads));
    pthread_attr_t attributes;
    const unsigned who = new_stream();
    take_steps(who, 10);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 32 << 10);
    pthread_barrier_init(&all_there, NULL, (unsigned)count + 1);
    for (long i = 0; i < count; i++)
        if (pthread_create(&threads[i], &attributes, one_of_many, NULL) != 0)
            _exit(77);
    pthread_barrier_wait(&all_there);
    take_steps(who, 10);
    pthread_barrier_wait(&all_there);
    for (long i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    take_steps(who, 10);
}

/*
 * Handlers on alternate stacks with 8 KiB of room: half of the threads take the first step of
 * their lives there, in the longest way through the library. Below each stack is a guard page.
 */
static __thread unsigned stream_of_handler;

static void on_alternate_stack(int signal)
{
    (void)signal;
    step(stream_of_handler);
}

static void *on_two_stacks(void *argument)
{
    const size_t size = (size_t)sysconf(_SC_MINSIGSTKSZ) + (8 << 10), page = 4096;
    const size_t bytes = (size + 2 * page - 1) / page * page;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t stack = {.ss_sp = memory + (bytes - size), .ss_size = size};
    const unsigned who = new_stream();
    stream_of_handler = new_stream();
    if (memory == MAP_FAILED || mprotect(memory, page, PROT_NONE) != 0 ||
        sigaltstack(&stack, NULL) != 0)
        _exit(96);
    if ((long)argument % 2 == 0)
        step(who);
    for (int i = 0; i < 50; i++) {
        raise(SIGUSR2);
        step(who);
    }
    return NULL;
}

static void mode_altstack(long threads)
{
    const struct sigaction action = {.sa_handler = on_alternate_stack, .sa_flags = SA_ONSTACK};
    if (sigaction(SIGUSR2, &action, NULL) != 0)
        _exit(96);
    for (long i = 0; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, on_two_stacks, (void *)i) != 0)
            _exit(96);
        pthread_join(thread, NULL);
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(long number);
    } modes[] = {
        {"short", mode_short}, {"fork", mode_fork},     {"vfork", mode_vfork},
        {"storm", mode_storm}, {"flight", mode_flight}, {"many", mode_many},
        {"altstack", mode_altstack}, {"busy", mode_busy},
    };
    steps_open();
    for (size_t i = 0; argc > 2 && i < sizeof(modes) / sizeof(modes[0]); i++)
        if (strcmp(argv[1], modes[i].name) == 0) {
            modes[i].run(atol(argv[2]));
            return 0;
        }
    return 2;
}
