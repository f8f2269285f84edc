/* A program with known activity for analyses of its trace: analysed DIR writes, reads, sleeps,
 * starts processes and a thread, and prints its process's number, and the thread's. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long thread_tid;

static void rest(void)
{
    struct timespec moment = { 0, 1000000 };
    nanosleep(&moment, NULL);
}

static void times(int count, long size, int fd)
{
    static char bytes[4096];
    for (int number = 0; number < count; number++)
        if (write(fd, bytes, size) != size)
            abort();
}

static void *other(void *fd)
{
    thread_tid = syscall(SYS_gettid);
    rest();
    times(25, 100, *(int *)fd);
    return NULL;
}

int main(int count, char **arguments)
{
    static char bytes[1000];
    pthread_t thread;
    if (count != 2 || chdir(arguments[1]) != 0)
        return 2;
    rest();
    int fd = open("analysed.data", O_CREAT | O_TRUNC | O_RDWR, 0600);
    times(300, 4096, fd);
    fsync(fd);
    lseek(fd, 0, SEEK_SET);
    for (int number = 0; number < 70; number++)
        if (read(fd, bytes, sizeof bytes) != sizeof bytes)
            return 3;
    for (int number = 0; number < 40; number++)
        syscall(SYS_getppid);
    for (int number = 0; number < 30; number++)
        rest();
    for (int number = 0; number < 8; number++) {
        pid_t child = fork();
        if (child == 0) {
            rest();
            times(10, 50, fd);
            _exit(0);
        }
        waitpid(child, NULL, 0);
    }
    pthread_create(&thread, NULL, other, &fd);
    pthread_join(thread, NULL);
    close(fd);
    printf("%d %ld\n", getpid(), thread_tid);
    return 0;
}
