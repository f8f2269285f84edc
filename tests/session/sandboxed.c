/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A program that enters a sandbox which kills for nearly all system calls, and emits there each
 * millisecond until SIGUSR1 comes: sandboxed [before]
 *
 * With "before" it emits once before. Status 77: there are no seccomp filters. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <trackway/trackway.h>
#include <unistd.h>

enum { ALLOWED = 7 };

TRACKWAY_EVENT(sandboxed, step, TRACKWAY_INFO, (u64, number));

static volatile sig_atomic_t is_told;

static void on_told(int number)
{
    (void)number;
    is_told = 1;
}

static int enter(void)
{
    static const unsigned allowed[ALLOWED] = {SYS_write, SYS_exit_group, SYS_nanosleep,
        SYS_clock_nanosleep, SYS_rt_sigreturn, SYS_restart_syscall, SYS_exit};
    struct sock_filter code[2 * ALLOWED + 2];
    unsigned short length = 0;
    code[length++] = (struct sock_filter)BPF_STMT(
        BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < ALLOWED; i++) {
        code[length++] =
            (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], 0, 1);
        code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    const struct sock_fprog program = {length, code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
        && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

int main(int count, char **values)
{
    (void)values;
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_told;
    sigaction(SIGUSR1, &action, NULL);
    unsigned long number = 0;
    if (count > 1)
        trackway(sandboxed, step, number);
    if (!enter())
        return 77;
    while (!is_told) {
        number++;
        trackway(sandboxed, step, number);
        const struct timespec moment = {0, 1000000};
        nanosleep(&moment, NULL);
    }
    _exit(0);
}
