/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Children by clone(2) that share the parent's memory and thread-local storage emit while ordinary
 * fork children do: no record may be damaged.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <trackway/trackway.h>
#include <unistd.h>

TRACKWAY_EVENT(clones, step, TRACKWAY_INFO, (u32, who), (u32, number), (str, text));

enum { CHILDREN = 20, EVENTS = 5000 };

static void emit(unsigned who)
{
    for (unsigned number = 0; number < EVENTS; number++)
        trackway(clones, step, who, number, "twenty-four characters ..");
}

static int child(void *argument)
{
    emit((unsigned)(unsigned long)argument);
    _exit(0);
}

int main(void)
{
    static char stack[256 * 1024] __attribute__((aligned(16)));
    int status;
    const pid_t beside = fork();
    if (beside == 0) {
        for (unsigned round = 0; round < CHILDREN; round++)
            emit(1000);
        _exit(0);
    }
    for (unsigned long who = 0; who < CHILDREN; who++) {
        const pid_t pid = clone(child, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD,
                                (void *)who);
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
            return 1;
        emit(2000);
    }
    return waitpid(beside, &status, 0) == beside && status == 0 ? 0 : 2;
}
