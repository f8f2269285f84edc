/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What cyclictest does, with an event in its loop: one thread, of real-time priority where that is
 * permitted, sleeps until a time, and sees how late it is. Its event lies between the wake-up and
 * the second reading of the clock, so that what it takes is in the latency.
 *
 *     LATENCY loop LOOPS INTERVAL_US    "latency NS COUNT" for each, in steps of STEP_NS; "fifo 1",
 *                                       or 0 if it had to do without; "missed N", turns that were
 *                                       over before they were slept for; then
 *                                       "emitted 0 EVENTS NS CPU_NS", and the line of marks.h
 *     LATENCY busy COMMAND…             runs it while a process on each CPU computes, copies, and
 *                                       calls the kernel
 *
 * LAB_EVENT(number) is the event.
 */
#ifndef LAB_LATENCY_H
#define LAB_LATENCY_H

#include "harness.h"
#include "marks.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { PRIORITY = 80, LOOPS_MAX = 1000000, STEP_NS = 100, BUSY_BYTES = 1 << 16 };

static uint32_t latencies_ns[LOOPS_MAX];

static int compare(const void *one, const void *other)
{
    const uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
    return (a > b) - (a < b);
}

static struct timespec at_ns(uint64_t ns)
{
    return (struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
}

/* As cyclictest sets itself up: memory stays, CPUs do not sleep deeply, nobody comes before us.
 * Whether the last could be had. What else cannot be had, it goes without. */
static int set_up(void)
{
    const int32_t awake = 0;
    const struct sched_param parameters = {.sched_priority = PRIORITY};
    (void)mlockall(MCL_CURRENT | MCL_FUTURE);
    /* It holds as long as this is open. */
    const int fd = open("/dev/cpu_dma_latency", O_WRONLY | O_CLOEXEC);
    if (fd >= 0 && write(fd, &awake, sizeof awake) != sizeof awake)
        close(fd);
    return sched_setscheduler(0, SCHED_FIFO, &parameters) == 0;
}

static int loop(int loops, uint64_t interval_ns)
{
    uint64_t missed = 0;
    if (loops < 1 || loops > LOOPS_MAX || interval_ns == 0)
        return 2;
    struct lab_marks marks = lab_marks_begin();
    lab_pin(lab_cpu((int)sysconf(_SC_NPROCESSORS_ONLN) - 1));
    const int is_fifo = set_up();
    const uint64_t cpu_begin = lab_clock_ns(CLOCK_THREAD_CPUTIME_ID), begin = lab_now_ns();
    uint64_t next = begin;
    for (int number = 0; number < loops; number++) {
        next += interval_ns;
        const struct timespec until = at_ns(next);
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
            ;
        LAB_EVENT((uint32_t)number);
        const uint64_t late = lab_now_ns() - next;
        latencies_ns[number] = late < UINT32_MAX ? (uint32_t)late : UINT32_MAX;
        for (uint64_t behind = late; behind > interval_ns; behind -= interval_ns, missed++)
            next += interval_ns;
    }
    const uint64_t end = lab_now_ns(), cpu_end = lab_clock_ns(CLOCK_THREAD_CPUTIME_ID);
    lab_marks_end(&marks);
    qsort(latencies_ns, (size_t)loops, sizeof *latencies_ns, compare);
    for (int i = 0, first = 0; i < loops; i++) {
        if (i + 1 < loops && latencies_ns[i + 1] / STEP_NS == latencies_ns[i] / STEP_NS)
            continue;
        printf("latency %u %d\n", latencies_ns[i] / STEP_NS * STEP_NS, i + 1 - first);
        first = i + 1;
    }
    printf("fifo %d\nmissed %llu\nemitted 0 %d %llu %llu\n", is_fifo, (unsigned long long)missed,
           loops, (unsigned long long)(end - begin), (unsigned long long)(cpu_end - cpu_begin));
    return 0;
}

/* Computes, copies, and calls the kernel, for ever. */
static void be_busy(int cpu)
{
    static char bytes[BUSY_BYTES];
    volatile unsigned sum = 0;
    int both[2];
    lab_pin(cpu);
    if (pipe(both) != 0)
        _exit(3);
    for (;;) {
        for (int i = 0; i < BUSY_BYTES; i++)
            sum = sum * 31 + (unsigned char)bytes[i];
        memset(bytes, (int)sum, sizeof bytes);
        if (write(both[1], bytes, 4096) != 4096 || read(both[0], bytes, 4096) != 4096)
            _exit(3);
    }
}

static int busy(char **command)
{
    enum { BUSY_MAX = 256 };
    pid_t others[BUSY_MAX];
    int status = 1, count = (int)sysconf(_SC_NPROCESSORS_ONLN);
    count = count < BUSY_MAX ? count : BUSY_MAX;
    for (int i = 0; i < count; i++) {
        others[i] = fork();
        if (others[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            be_busy(lab_cpu(i));
        }
    }
    const pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execvp(command[0], command);
        _exit(127);
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        status = 1;
    for (int i = 0; i < count; i++)
        if (others[i] > 0) {
            kill(others[i], SIGKILL);
            waitpid(others[i], NULL, 0);
        }
    return status != 0;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    /* Nothing of this outlives the laboratory, however that ends. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (strcmp(mode, "loop") == 0 && argc == 4)
        return loop(atoi(argv[2]), strtoull(argv[3], NULL, 10) * 1000u);
    if (strcmp(mode, "busy") == 0 && argc > 2)
        return busy(argv + 2);
    return 2;
}

#endif
