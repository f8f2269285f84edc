/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Marks: by them a tracer's output shows that it was on when a command began, while it ran, and
 * when it ended. Behind harness.h.
 *
 * A mark is a thread `mark-NONCE-N` that asks for the process group of the process NONCE << 16 | N,
 * which is beyond all that there are; for 2^62 + that many bytes, which nobody has; and ends. N
 * counts from 0, in the order of time. "marks NONCE BEGIN DURING END" says how many there were: at
 * the begin and at the end some on each CPU, during the command one every LAB_MARK_MS, anywhere.
 * Each stays on one CPU, so that one buffer has all of it: "mark-cpus CPU…" says on which, of each.
 */
#ifndef LAB_MARKS_H
#define LAB_MARKS_H

#include <errno.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { LAB_MARK_MS = 50, LAB_MARKS_DURING_MAX = 4000, LAB_MARK_CPUS_MAX = 256 };
/* At the end more often than once, with pauses: what was full has been drained by then. */
enum { LAB_MARK_ENDS = 3, LAB_MARK_PAUSE_MS = 20 };
enum { LAB_MARKS_MAX = LAB_MARKS_DURING_MAX + (1 + LAB_MARK_ENDS) * LAB_MARK_CPUS_MAX };
enum { LAB_NONCE_BITS = 14, LAB_MARK_STACK_BYTES = 1 << 17 };

struct lab_marks {
    cpu_set_t cpus;
    int nonce; /* of this run: another bench, or memory of an earlier run, has another */
    int begin, during, end;
    short cpu_of[LAB_MARKS_MAX];
};

struct lab_mark {
    int cpu; /* or -1: wherever it is, and there it stays */
    int nonce, number;
};

static void *lab_mark_thread(void *argument)
{
    struct lab_mark *mark = argument;
    const int value = mark->nonce << 16 | mark->number;
    /* So that no compiler sees that it is too much, or that nobody needs it. */
    volatile size_t bytes = ((size_t)1 << 62) + (size_t)value;
    void *volatile memory;
    char name[32];
    if (mark->cpu < 0)
        mark->cpu = sched_getcpu();
    lab_pin(mark->cpu);
    snprintf(name, sizeof name, "mark-%d-%d", mark->nonce, mark->number);
    prctl(PR_SET_NAME, name);
    syscall(SYS_getpgid, value);
    memory = malloc(bytes);
    free(memory);
    return NULL;
}

/* Makes the next one. If there can be no thread, there is none: its reader will miss it. */
static void lab_mark(struct lab_marks *marks, int cpu)
{
    struct lab_mark mark = {cpu, marks->nonce, marks->begin + marks->during + marks->end};
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, LAB_MARK_STACK_BYTES);
    if (pthread_create(&thread, &attributes, lab_mark_thread, &mark) == 0)
        pthread_join(thread, NULL);
    marks->cpu_of[mark.number] = (short)(mark.cpu < 0 ? 0 : mark.cpu);
    pthread_attr_destroy(&attributes);
}

static void lab_mark_each_cpu(struct lab_marks *marks, int *count)
{
    for (int cpu = 0; cpu < LAB_MARK_CPUS_MAX; cpu++)
        if (CPU_ISSET(cpu, &marks->cpus)) {
            lab_mark(marks, cpu);
            ++*count;
        }
}

static struct lab_marks lab_marks_begin(void)
{
    const int one = 1 << LAB_NONCE_BITS;
    const uint64_t now = lab_now_ns();
    struct lab_marks marks = {.nonce = one | (int)((now >> 10 ^ (uint64_t)getpid()) % one)};
    CPU_ZERO(&marks.cpus);
    sched_getaffinity(0, sizeof marks.cpus, &marks.cpus);
    lab_mark_each_cpu(&marks, &marks.begin);
    return marks;
}

/* Waits for a child, and makes marks meanwhile. Who calls it has blocked SIGCHLD since before the
 * child was there. What wait4(2) returned. */
static pid_t lab_marks_wait(struct lab_marks *marks, pid_t child, int *status, struct rusage *usage)
{
    const struct timespec step = {0, LAB_MARK_MS * 1000000};
    sigset_t ended;
    sigemptyset(&ended);
    sigaddset(&ended, SIGCHLD);
    for (;;) {
        const pid_t pid = wait4(child, status, WNOHANG, usage);
        if (pid != 0)
            return pid;
        if (sigtimedwait(&ended, NULL, &step) < 0 && errno == EAGAIN &&
            marks->during < LAB_MARKS_DURING_MAX) {
            lab_mark(marks, -1);
            marks->during++;
        }
    }
}

static void lab_marks_end(struct lab_marks *marks)
{
    const struct timespec pause = {0, LAB_MARK_PAUSE_MS * 1000000};
    for (int round = 0; round < LAB_MARK_ENDS; round++) {
        nanosleep(&pause, NULL);
        lab_mark_each_cpu(marks, &marks->end);
    }
    printf("marks %d %d %d %d\nmark-cpus", marks->nonce, marks->begin, marks->during, marks->end);
    for (int number = 0; number < marks->begin + marks->during + marks->end; number++)
        printf(" %d", marks->cpu_of[number]);
    printf("\n");
}

#endif
