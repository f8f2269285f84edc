/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* CROWD PROGRAM RATE SECONDS EVENTS ALIVE: starts `PROGRAM few FIRST EVENTS` again and again. */
#define _GNU_SOURCE
#include "crowd.h"

#include <spawn.h>

extern char **environ;

static pid_t start_program(const char *program, unsigned long from, unsigned long events)
{
    char path[4096], few[] = "few", first[24], count[24];
    char *arguments[] = {path, few, first, count, NULL};
    snprintf(path, sizeof path, "%s", program);
    snprintf(first, sizeof first, "%lu", from);
    snprintf(count, sizeof count, "%lu", events);
    pid_t pid;
    return posix_spawn(&pid, path, NULL, NULL, arguments, environ) == 0 ? pid : -1;
}

int main(int argc, char **argv)
{
    return argc == 6 ? crowd_main(argv + 2, start_program, argv[1]) : 2;
}
