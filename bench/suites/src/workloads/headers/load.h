/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A command with marks around it, and what it took, and others meanwhile. Behind harness.h. */
#ifndef LAB_LOAD_H
#define LAB_LOAD_H

#include <ftw.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "marks.h"

/* Time on CPUs of the processes in `pids`. */
static uint64_t lab_cpu_of(const char *pids)
{
    uint64_t sum = 0;
    for (const char *at = pids; *at;) {
        char *end;
        const long pid = strtol(at, &end, 10);
        clockid_t clock;
        if (end == at)
            break;
        if (clock_getcpuclockid(pid ? (pid_t)pid : getppid(), &clock) == 0)
            sum += lab_clock_ns(clock);
        at = *end == ',' ? end + 1 : end;
    }
    return sum;
}

/* "load NS CPU_NS TRACERS_NS": by the clock, of the command on CPUs, and of its tracers. */
static void lab_print_load(uint64_t ns, const struct rusage *usage, uint64_t tracers_ns)
{
    const struct timeval user = usage->ru_utime, kernel = usage->ru_stime;
    const uint64_t us = (uint64_t)(user.tv_sec + kernel.tv_sec) * 1000000u +
                        (uint64_t)(user.tv_usec + kernel.tv_usec);
    printf("load %llu %llu %llu\n", (unsigned long long)ns, (unsigned long long)(us * 1000),
           (unsigned long long)tracers_ns);
}

/* Bytes of the files that lab_bytes_in has found. */
static uint64_t lab_bytes;

static int lab_add_bytes(const char *path, const struct stat *status, int kind, struct FTW *at)
{
    (void)path;
    (void)at;
    if (kind == FTW_F && S_ISREG(status->st_mode))
        lab_bytes += (uint64_t)status->st_size;
    return 0;
}

/* Of all files in a folder and below. */
static uint64_t lab_bytes_in(const char *folder)
{
    enum { OPEN_FOLDERS_MAX = 16 };
    lab_bytes = 0;
    nftw(folder, lab_add_bytes, OPEN_FOLDERS_MAX, FTW_PHYS);
    return lab_bytes;
}

/* Runs a command, and prints both lines, and, if there is a folder that tracers write to,
 * "written BYTES": by how much it has grown when the command has ended; 0, or 1 if it failed. Marks
 * of its begin and its end are not in its time. */
static int lab_load(const char *folder, const char *pids, char **command)
{
    const uint64_t bytes_before = folder != NULL ? lab_bytes_in(folder) : 0;
    sigset_t ended, before;
    sigemptyset(&ended);
    sigaddset(&ended, SIGCHLD);
    sigprocmask(SIG_BLOCK, &ended, &before);
    struct lab_marks marks = lab_marks_begin();
    const uint64_t cpu_before = lab_cpu_of(pids), begin = lab_now_ns();
    const pid_t child = fork();
    if (child == 0) {
        sigprocmask(SIG_SETMASK, &before, NULL);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execvp(command[0], command);
        _exit(127);
    }
    int status;
    struct rusage usage;
    if (child < 0 || lab_marks_wait(&marks, child, &status, &usage) != child || status != 0)
        return 1;
    const uint64_t end = lab_now_ns(), cpu_after = lab_cpu_of(pids);
    if (folder != NULL)
        printf("written %llu\n", (unsigned long long)(lab_bytes_in(folder) - bytes_before));
    lab_marks_end(&marks);
    lab_print_load(end - begin, &usage, cpu_after - cpu_before);
    return 0;
}

#endif
