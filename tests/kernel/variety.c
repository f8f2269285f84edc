/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* System calls whose arguments and results are the same in every run, between the marks
 * getpgid(1000000001) and getpgid(1000000002). variety COUNT */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    const int count = argc > 1 ? atoi(argv[1]) : 1;
    syscall(SYS_getpgid, 1000000001);
    for (int i = 0; i < count; i++) {
        syscall(SYS_openat, AT_FDCWD, "/nowhere/variety", O_RDWR | O_CLOEXEC, 0640);
        syscall(SYS_lseek, -1, -7L, SEEK_END);
        syscall(SYS_close, 1000);
        syscall(SYS_dup2, -3, 77);
        syscall(SYS_mkdirat, -5, "relative", 0711);
    }
    const pid_t child = fork();
    if (child == 0) {
        syscall(SYS_lseek, -2, 9L, SEEK_SET);
        _exit(3);
    }
    waitpid(child, NULL, 0);
    syscall(SYS_getpgid, 1000000002);
    return 0;
}
