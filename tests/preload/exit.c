/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * EXIT child|threads [jumped]: exit() while a thread is in a callback of dl_iterate_phdr(), which
 * holds a lock of the loader that exit() does not take. `child`: it is a child of fork that exits,
 * with status 7. `threads`: the callback waits for the thread that exits, with status 5. `jumped`:
 * there was a dlopen() that the dl helper could not come between.
 *
 * SIGALRM ends a process that hangs.
 */
#define _GNU_SOURCE
#include "expect.h"
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>

enum { LONGEST_S = 60 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int is_in;

static int wait_inside(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)info, (void)size, (void)unused;
    __atomic_store_n(&is_in, 1, __ATOMIC_RELEASE);
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    return 1;
}

static void *iterate(void *unused)
{
    dl_iterate_phdr(wait_inside, NULL);
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    pid_t child;
    int status;
    CHECK(argc >= 2);
    alarm(LONGEST_S);
    if (argc > 2)
        CHECK(!dlopen("$ORIGIN/missing.so", RTLD_NOW));
    pthread_mutex_lock(&mutex);
    CHECK(pthread_create(&thread, NULL, iterate, NULL) == 0);
    while (!__atomic_load_n(&is_in, __ATOMIC_ACQUIRE))
        usleep(200);
    if (strcmp(argv[1], "threads") == 0)
        exit(5);
    child = fork();
    if (child == 0) {
        alarm(LONGEST_S);
        exit(7);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    pthread_mutex_unlock(&mutex);
    CHECK(pthread_join(thread, NULL) == 0);
    return 0;
}
