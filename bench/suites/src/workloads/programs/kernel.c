/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * System calls, for tracers of the kernel.
 *
 *     kernel getppid BATCHES EVENTS SINGLES "batch 0 NUMBER EVENTS NS" for each, on one CPU; then
 *                                           calls one by one: "clock NS", what measuring one
 *                                           takes, and "single NS COUNT" for each time, with it
 *     kernel openat BATCHES EVENTS          the same for names of each length: "batch BYTES …"
 *     kernel paced BURSTS EVENTS PERIOD_US  so many calls each turn: "emitted 0 EVENTS NS CPU_NS"
 *     kernel for THREADS MILLISECONDS       as fast as it goes: "emitted THREAD EVENTS NS CPU_NS"
 *     kernel batches THREADS BATCHES EVENTS calls of getppid in each of several threads, pinned to
 *                                           a CPU each: "batch THREAD NUMBER EVENTS NS"
 *     kernel load PIDS COMMAND…             runs it: "load NS CPU_NS TRACERS_NS", the last of
 *                                           those processes (a,b; 0: who started us) meanwhile,
 *                                           and the lines of marks.h
 *     kernel written FOLDER PIDS COMMAND…   the same, and "written BYTES": what the folder has
 *                                           more when the command has ended
 *     kernel drain PIPE FILE                moves what comes, as trace-cmd does, until it is ended
 */
#include "harness.h"
#include "load.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>

enum { LENGTHS = 6, NAME_MAX_BYTES = 255, PIPE_BYTES = 1 << 16, SINGLES_MAX = 100000 };
static const int lengths[LENGTHS] = {0, 15, 31, 63, 127, NAME_MAX_BYTES};

static void call_getppid(uint64_t first, uint64_t count)
{
    (void)first;
    for (uint64_t i = 0; i < count; i++)
        syscall(SYS_getppid);
}

static int compare(const void *one, const void *other)
{
    const uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
    return (a > b) - (a < b);
}

/* Times of `count` calls, or of nothing, one by one, in order. */
static void measure_singles(uint32_t *ns, int count, int is_call)
{
    for (int i = 0; i < count; i++) {
        const uint64_t begin = lab_now_ns();
        if (is_call)
            syscall(SYS_getppid);
        const uint64_t took = lab_now_ns() - begin;
        ns[i] = took < UINT32_MAX ? (uint32_t)took : UINT32_MAX;
    }
    qsort(ns, (size_t)count, sizeof *ns, compare);
}

static void getppid_singles(int count)
{
    static uint32_t ns[SINGLES_MAX];
    if (count <= 0 || count > SINGLES_MAX)
        return;
    measure_singles(ns, count, 0);
    printf("clock %u\n", ns[count / 2]);
    measure_singles(ns, count, 1);
    for (int i = 0, first = 0; i < count; i++) {
        if (i + 1 < count && ns[i + 1] == ns[i])
            continue;
        printf("single %u %d\n", ns[i], i + 1 - first);
        first = i + 1;
    }
}

static int getppid_batches(int batches, uint64_t events, int singles)
{
    lab_pin(lab_cpu(0));
    for (int number = 0; number < batches; number++) {
        const uint64_t begin = lab_now_ns();
        call_getppid(0, events);
        printf("batch 0 %d %llu %llu\n", number, (unsigned long long)events,
               (unsigned long long)(lab_now_ns() - begin));
    }
    getppid_singles(singles);
    return 0;
}

static int openat_batches(int batches, uint64_t events)
{
    char name[NAME_MAX_BYTES + 1];
    lab_pin(lab_cpu(0));
    for (int number = 0; number < batches; number++) {
        for (int i = 0; i < LENGTHS; i++) {
            memset(name, 'x', sizeof name);
            name[lengths[i]] = 0;
            const uint64_t begin = lab_now_ns();
            for (uint64_t event = 0; event < events; event++)
                if (syscall(SYS_openat, AT_FDCWD, name, O_RDONLY, 0) >= 0)
                    return 1;
            printf("batch %d %d %llu %llu\n", lengths[i], number, (unsigned long long)events,
                   (unsigned long long)(lab_now_ns() - begin));
        }
    }
    return 0;
}

static int paced(uint64_t bursts, uint64_t events, uint64_t period_us)
{
    lab_pin(lab_cpu(0));
    const uint64_t cpu_begin = lab_clock_ns(CLOCK_THREAD_CPUTIME_ID);
    const uint64_t begin = lab_now_ns();
    for (uint64_t burst = 1; burst <= bursts; burst++) {
        call_getppid(0, events);
        const uint64_t next = begin + burst * period_us * 1000;
        const struct timespec until = {(time_t)(next / 1000000000u), (long)(next % 1000000000u)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    }
    printf("emitted 0 %llu %llu %llu\n", (unsigned long long)(bursts * events),
           (unsigned long long)(lab_now_ns() - begin),
           (unsigned long long)(lab_clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_begin));
    return 0;
}

static void end(int signal)
{
    (void)signal;
}

/* Moves what is there, until nothing is. */
static int move_all(int in, const int *both, int out)
{
    for (;;) {
        ssize_t moved =
            splice(in, NULL, both[1], NULL, PIPE_BYTES, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
        if (moved <= 0)
            return moved == 0 || errno == EAGAIN;
        while (moved > 0) {
            const ssize_t written = splice(both[0], NULL, out, NULL, (size_t)moved, SPLICE_F_MOVE);
            if (written <= 0)
                return 0;
            moved -= written;
        }
    }
}

/* Moves a CPU's buffer to a file until SIGTERM, which comes only while there is nothing on its way:
 * a pipe's content would be lost. */
static int drain(const char *from, const char *to)
{
    int both[2];
    const int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const struct sigaction ended = {.sa_handler = end};
    sigset_t term, before;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    if (in < 0 || out < 0 || pipe(both) != 0 || sigprocmask(SIG_BLOCK, &term, &before) != 0
        || sigaction(SIGTERM, &ended, NULL) != 0)
        return 1;
    puts("ready");
    fflush(stdout);
    for (;;) {
        struct pollfd ready = {.fd = in, .events = POLLIN};
        if (ppoll(&ready, 1, NULL, &before) < 0)
            return errno == EINTR ? 0 : 1;
        if (!move_all(in, both, out))
            return 1;
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    const char *second = argc > 2 ? argv[2] : "", *third = argc > 3 ? argv[3] : "";
    /* Nothing of this outlives who runs it. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (strcmp(what, "getppid") == 0)
        return getppid_batches(atoi(second), strtoull(third, NULL, 10),
                               argc > 4 ? atoi(argv[4]) : 0);
    if (strcmp(what, "openat") == 0)
        return openat_batches(atoi(second), strtoull(third, NULL, 10));
    if (strcmp(what, "paced") == 0 && argc > 4)
        return paced(strtoull(second, NULL, 10), strtoull(third, NULL, 10),
                     strtoull(argv[4], NULL, 10));
    if (strcmp(what, "load") == 0 && argc > 3)
        return lab_load(NULL, second, argv + 3);
    if (strcmp(what, "written") == 0 && argc > 4)
        return lab_load(second, third, argv + 4);
    if (strcmp(what, "drain") == 0 && argc > 3)
        return drain(second, third);
    static const struct lab_work works[] = {{"getppid", call_getppid}, {NULL, NULL}};
    if ((strcmp(what, "for") == 0 && argc == 4) || (strcmp(what, "batches") == 0 && argc == 5)) {
        char *arguments[] = {argv[0], argv[1], "getppid", argv[2], argv[3], argv[4], NULL};
        return lab_main(argc + 1, arguments, works);
    }
    return 2;
}
