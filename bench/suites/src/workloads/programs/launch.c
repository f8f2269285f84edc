/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * LAUNCH PROGRAM COUNT: starts `PROGRAM nothing` again and again, waits for its end each time, and
 * prints "start NS". A small program of its own, so that no large address space is copied.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "machine.h"

extern char **environ;

int main(int argc, char **argv)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (argc != 3)
        return 2;
    char nothing[] = "nothing";
    char *arguments[] = {argv[1], nothing, NULL};
    for (int i = atoi(argv[2]); i > 0; i--) {
        pid_t pid;
        int status;
        const uint64_t begin = lab_now_ns();
        if (posix_spawn(&pid, argv[1], NULL, NULL, arguments, environ) != 0 ||
            waitpid(pid, &status, 0) != pid || status != 0)
            return 3;
        printf("start %llu\n", (unsigned long long)(lab_now_ns() - begin));
    }
    return 0;
}
