/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Events in a sandbox: after start-up a filter kills the process for nearly every system call that
 * the library could be tempted to make. Then the main thread, new threads and fork children trace.
 */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <trackway/trackway.h>
#include <unistd.h>

TRACKWAY_EVENT(sandbox, step, TRACKWAY_INFO, (u32, who), (u32, number));

enum { EVENTS = 1000 };

static void emit(unsigned who)
{
    for (unsigned number = 0; number < EVENTS; number++)
        trackway(sandbox, step, who, number);
}

static void *thread(void *argument)
{
    (void)argument;
    emit(2);
    return NULL;
}

#define KILL_FOR(number)                                                                          \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1),                                          \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

static void install(struct sock_filter *code, size_t count)
{
    const struct sock_fprog program = {(unsigned short)count, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        exit(77);
}

/* No new memory either: after the start of the threads, whose stacks need some. */
static void enter_without_memory(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        KILL_FOR(SYS_mmap),
        KILL_FOR(SYS_munmap),
        KILL_FOR(SYS_mprotect),
        KILL_FOR(SYS_madvise),
        KILL_FOR(SYS_brk),
        KILL_FOR(SYS_futex),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    install(code, sizeof(code) / sizeof(code[0]));
}

static void enter(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        KILL_FOR(SYS_open),
        KILL_FOR(SYS_openat),
        KILL_FOR(SYS_newfstatat),
        KILL_FOR(SYS_stat),
        KILL_FOR(SYS_prctl),
        KILL_FOR(SYS_read),
        KILL_FOR(SYS_kill),
        KILL_FOR(SYS_sched_getaffinity),
        KILL_FOR(SYS_clock_gettime),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    install(code, sizeof(code) / sizeof(code[0]));
}

int main(int argc, char **argv)
{
    pthread_t other;
    int status;
    (void)argv;
    if (argc > 1)
        emit(0); /* an event before, too */
    if (argc > 2)
        enter_without_memory();
    else
        enter();
    emit(1);
    if (argc <= 2 && pthread_create(&other, NULL, thread, NULL) != 0)
        return 1;
    if (argc <= 2)
        pthread_join(other, NULL);
    const pid_t child = fork();
    if (child == 0) {
        emit(3);
        _exit(0);
    }
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : 2;
}
