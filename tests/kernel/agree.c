/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Does the same each time: files, memory, signals, processes and threads. As `agree leaf`, which it
 * runs itself: nothing. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void nothing(int signal)
{
    (void)signal;
}

static void *thread(void *unused)
{
    close(open("/nowhere/of/a/thread", O_RDONLY));
    return unused;
}

static void child(const char *self, int number)
{
    for (int i = 0; i < number; i++)
        raise(SIGUSR1);
    if (number % 3 == 0)
        execl(self, "agree", "leaf", (char *)0);
    _exit(number);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return 0;
    signal(SIGUSR1, nothing);
    for (int i = 0; i < 300; i++)
        close(open(i % 3 ? "/dev/null" : "/nowhere/at/all", O_RDONLY));
    for (int i = 0; i < 40; i++) {
        char *memory = mmap(0, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            return 1;
        for (int at = 0; at < 1 << 16; at += 4096)
            ((volatile char *)memory)[at] = 1;
        munmap(memory, 1 << 16);
    }
    for (int number = 0; number < 12; number++) {
        pid_t pid = fork();
        if (pid == 0)
            child(argv[0], number);
        if (pid < 0 || waitpid(pid, 0, 0) != pid)
            return 1;
    }
    for (int i = 0; i < 5; i++) {
        pthread_t other;
        if (pthread_create(&other, 0, thread, 0) != 0 || pthread_join(other, 0) != 0)
            return 1;
    }
    return 0;
}
