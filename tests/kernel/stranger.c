/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Starts a child straight into the control group whose folder is the argument, and prints its
 * number. stranger FOLDER */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    const int folder = open(argc > 1 ? argv[1] : "", O_PATH | O_DIRECTORY);
    struct clone_args wanted = {
        .flags = CLONE_INTO_CGROUP,
        .exit_signal = SIGCHLD,
        .cgroup = (uint64_t)folder,
    };
    const long child = syscall(SYS_clone3, &wanted, sizeof wanted);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pause();
        return 0;
    }
    printf("%ld\n", child);
    fflush(stdout);
    if (child > 0)
        pause();
    return child < 0;
}
