/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Steps: events with the expected values of their contexts, counted in memory that the test can
 * read.
 *
 * A stream is a run of steps of one thread (or of one signal handler), numbered from zero. Before
 * and after each event its counters are raised, in a file that the test made and named in STEPS. So
 * the test has the number of events, whatever happened to the program.
 */
#ifndef STEPS_H
#define STEPS_H

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <trackway/trackway.h>
#include <unistd.h>

TRACKWAY_EVENT(life, step, TRACKWAY_INFO, (u32, who), (u64, number), (i32, pid), (i32, tid));

enum { STREAMS = 12000 };

struct stream {
    volatile uint64_t started, returned;
};

/* trackway_tests::steps reads and writes this. */
struct steps {
    volatile uint32_t next;  /* streams taken */
    volatile uint32_t stop;  /* set by the test: end */
    volatile uint32_t pid;   /* of a process for the test */
    volatile uint32_t ready; /* set by the program: as far as the test waits for */
    struct stream streams[STREAMS];
};

static struct steps *steps;

__attribute__((unused)) static void steps_open(void)
{
    const char *path = getenv("STEPS");
    const int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *memory = mmap(NULL, sizeof(struct steps), PROT_READ | PROT_WRITE,
                        file < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) {
        perror("steps");
        _exit(99);
    }
    if (file >= 0)
        close(file);
    steps = memory;
    alarm(50); /* remains of a failed test end by themselves */
}

__attribute__((unused)) static unsigned new_stream(void)
{
    const unsigned who = __atomic_fetch_add(&steps->next, 1, __ATOMIC_RELAXED);
    if (who >= STREAMS)
        _exit(98);
    return who;
}

__attribute__((unused)) static inline void step(unsigned who)
{
    struct stream *stream = &steps->streams[who];
    const uint64_t number = stream->started;
    stream->started = number + 1;
    trackway(life, step, who, number, (int)syscall(SYS_getpid), (int)syscall(SYS_gettid));
    stream->returned = stream->returned + 1;
}

__attribute__((unused)) static inline void take_steps(unsigned who, long count)
{
    for (long i = 0; i < count; i++)
        step(who);
}

/* Waits for a child; ends with 97 unless it ended with `status`. */
__attribute__((unused)) static void expect(pid_t child, int status)
{
    int actual;
    const pid_t done = waitpid(child, &actual, 0);
    if (done != child || !WIFEXITED(actual) || WEXITSTATUS(actual) != status)
        _exit(97);
}

#endif
