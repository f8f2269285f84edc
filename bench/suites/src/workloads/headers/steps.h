/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Instructions of events, counted one by one: a child of the program steps through it by
 * ptrace(2), while it emits some events and then twice as many. What is not the events' is in both,
 * and goes when one is subtracted from the other.
 *
 * A trap makes the kernel abort a restartable sequence, which then begins anew and never gets
 * through. So `rseq_cs` is cleared after each step: the sequence's instructions are executed and
 * counted as they are, and nobody else emits who could come in between. Instructions of the kernel
 * are not counted; one with a prefix of repetition counts as often as it repeats.
 */
#ifndef LAB_STEPS_H
#define LAB_STEPS_H

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

/* The C library's registration, where it has one: glibc since 2.35. */
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));

/* Of `struct rseq` in linux/rseq.h; and more steps than any number of events takes. */
enum { LAB_RSEQ_CS = 8, LAB_STEPS_MAX = 10000000 };

enum lab_phase { LAB_WARM, LAB_READY, LAB_BEGUN, LAB_SOME, LAB_TWICE, LAB_DONE, LAB_FAILED };

struct lab_steps {
    atomic_int phase;
    atomic_ullong some;  /* instructions of the first events */
    atomic_ullong twice; /* and of twice as many */
    int error;
};

static char *lab_rseq_area(void)
{
    if (&__rseq_size == NULL || __rseq_size == 0)
        return NULL;
    return (char *)__builtin_thread_pointer() + __rseq_offset;
}

static int lab_step_failed(struct lab_steps *steps)
{
    steps->error = errno;
    atomic_store(&steps->phase, LAB_FAILED);
    return 3;
}

/* In the child: steps through `pid`, which has the same areas at the same addresses. */
static int lab_stepper(pid_t pid, struct lab_steps *steps)
{
    char *area = lab_rseq_area();
    int status = 0, signal = 0;
    while (atomic_load(&steps->phase) != LAB_READY)
        if (getppid() != pid)
            return 3;
    if (ptrace(PTRACE_SEIZE, pid, NULL, (void *)PTRACE_O_EXITKILL) != 0 ||
        ptrace(PTRACE_INTERRUPT, pid, NULL, NULL) != 0 || waitpid(pid, &status, __WALL) != pid)
        return lab_step_failed(steps);
    atomic_store(&steps->phase, LAB_BEGUN);
    for (long step = 0;; step++) {
        if (step == LAB_STEPS_MAX) {
            steps->error = EOVERFLOW;
            break;
        }
        if (area != NULL && ptrace(PTRACE_POKEDATA, pid, area + LAB_RSEQ_CS, NULL) != 0)
            return lab_step_failed(steps);
        const int phase = atomic_load(&steps->phase);
        if (phase == LAB_DONE)
            break;
        if (ptrace(PTRACE_SINGLESTEP, pid, NULL, (void *)(intptr_t)signal) != 0 ||
            waitpid(pid, &status, __WALL) != pid)
            return lab_step_failed(steps);
        if (!WIFSTOPPED(status))
            return 3;
        /* Other signals are the program's own. */
        signal = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
        if (signal == 0 && phase == LAB_SOME)
            atomic_fetch_add(&steps->some, 1);
        if (signal == 0 && phase == LAB_TWICE)
            atomic_fetch_add(&steps->twice, 1);
    }
    ptrace(PTRACE_DETACH, pid, NULL, NULL);
    return 0;
}

/* Emits `warm` events, then `events`, then twice as many; the status that the program ends with. */
static int lab_step(void (*loop)(uint64_t, uint64_t), uint64_t warm, uint64_t events)
{
    struct lab_steps *steps =
        mmap(NULL, sizeof *steps, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (steps == MAP_FAILED)
        return 3;
    loop(0, warm);
    const pid_t parent = getpid();
    const pid_t stepper = fork();
    if (stepper == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(lab_stepper(parent, steps));
    }
    if (stepper < 0)
        return 3;
#ifdef PR_SET_PTRACER
    /* Where Yama lets only parents trace; where it is not, this fails, and need not be. */
    prctl(PR_SET_PTRACER, (unsigned long)stepper, 0, 0, 0);
#endif
    atomic_store(&steps->phase, LAB_READY);
    while (atomic_load(&steps->phase) == LAB_READY)
        if (waitpid(stepper, NULL, WNOHANG) != 0)
            atomic_store(&steps->phase, LAB_FAILED);
    if (atomic_load(&steps->phase) == LAB_BEGUN) {
        atomic_store(&steps->phase, LAB_SOME);
        loop(warm, events);
        atomic_store(&steps->phase, LAB_TWICE);
        loop(warm + events, 2 * events);
        atomic_store(&steps->phase, LAB_DONE);
        waitpid(stepper, NULL, 0);
    }
    if (atomic_load(&steps->phase) != LAB_DONE || steps->error != 0) {
        errno = steps->error;
        perror("it cannot be stepped through");
        return 4;
    }
    printf("steps %llu %llu\nsteps %llu %llu\n", (unsigned long long)events,
           (unsigned long long)atomic_load(&steps->some), 2 * (unsigned long long)events,
           (unsigned long long)atomic_load(&steps->twice));
    return 0;
}

#endif
