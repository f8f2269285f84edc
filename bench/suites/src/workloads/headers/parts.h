/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A loop of events for whoever samples it, or steps through it.
 *
 *     WORKLOAD loop BATCHES EVENTS     "batch 0 NUMBER EVENTS NS" for each, then "loop BEGIN END",
 *                                      when they began and ended, in ns of CLOCK_MONOTONIC
 *     WORKLOAD step EVENTS MORE        emits EVENTS, then "step PID GO LOOP AREA", and MORE, one by
 *                                      one, as soon as somebody has written to the word at GO; LOOP
 *                                      is called for each; AREA is the thread's struct rseq, or 0
 *
 * Either prints "module BASE BEGIN END NAME" before, for each that has code in the process. All
 * addresses are in decimal: who reads them has no other numbers.
 */
#ifndef LAB_PARTS_H
#define LAB_PARTS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <link.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "machine.h"

enum { LAB_BATCHES_MAX = 100000 };

/* Where glibc put this thread's restartable sequences, if it did. */
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));

static volatile uint64_t lab_go;

static uint64_t lab_area(void)
{
    if (&__rseq_size == NULL || __rseq_size == 0)
        return 0;
    return (uint64_t)(uintptr_t)__builtin_thread_pointer() + (uint64_t)__rseq_offset;
}

static int lab_module(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    (void)data;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        const uint64_t begin = info->dlpi_addr + header->p_vaddr;
        if (header->p_type == PT_LOAD && (header->p_flags & PF_X) != 0)
            printf("module %llu %llu %llu %s\n", (unsigned long long)info->dlpi_addr,
                   (unsigned long long)begin, (unsigned long long)(begin + header->p_memsz),
                   info->dlpi_name[0] != '\0' ? info->dlpi_name : "program");
    }
    return 0;
}

static int lab_loop(void (*loop)(uint64_t, uint64_t), uint64_t batches, uint64_t events)
{
    static uint64_t ns[LAB_BATCHES_MAX];
    if (batches > LAB_BATCHES_MAX)
        return 2;
    const uint64_t begin = lab_now_ns();
    for (uint64_t batch = 0; batch < batches; batch++) {
        const uint64_t before = lab_now_ns();
        loop(batch * events, events);
        ns[batch] = lab_now_ns() - before;
    }
    const uint64_t end = lab_now_ns();
    for (uint64_t batch = 0; batch < batches; batch++)
        printf("batch 0 %llu %llu %llu\n", (unsigned long long)batch, (unsigned long long)events,
               (unsigned long long)ns[batch]);
    printf("loop %llu %llu\n", (unsigned long long)begin, (unsigned long long)end);
    return 0;
}

static int lab_step(void (*loop)(uint64_t, uint64_t), uint64_t events, uint64_t more)
{
    const struct timespec moment = {0, 1000000};
    loop(0, events);
    printf("step %d %llu %llu %llu\n", (int)getpid(), (unsigned long long)(uintptr_t)&lab_go,
           (unsigned long long)(uintptr_t)loop, (unsigned long long)lab_area());
    fflush(stdout);
    while (lab_go == 0)
        nanosleep(&moment, NULL);
    for (uint64_t number = events; number < events + more; number++)
        loop(number, 1);
    return 0;
}

static int lab_parts_main(int argc, char **argv, void (*loop)(uint64_t first, uint64_t count))
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (argc != 4)
        return 2;
    lab_pin(lab_cpu(0));
    dl_iterate_phdr(lab_module, NULL);
    const uint64_t first = strtoull(argv[2], NULL, 10), second = strtoull(argv[3], NULL, 10);
    if (strcmp(argv[1], "loop") == 0)
        return lab_loop(loop, first, second);
    return strcmp(argv[1], "step") == 0 ? lab_step(loop, first, second) : 2;
}

#endif
