/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Calls the system COUNT times in each of THREADS threads, always in the same way; then each thread
 * says which it was. filtered COUNT [THREADS]. With "search" behind it: opens nothing but names of
 * 200 times the same letter, and a "b" or a "c"; with "unread", names that cannot be read, and one
 * that can; with "long", names of 600 and of 2,000 bytes. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *const names[] = {
    "/nowhere/a",
    "/nowhere/a/very/long/way/that/leads/to/nothing/at/all.so",
    "/nowhere/b.so",
    "/nowhere/bb/cc",
    "/nowhere/",
};
static uint32_t count;

static void *calls(void *unused)
{
    char name[64];
    for (uint32_t i = 0; i < count; i++) {
        /* On the stack it is there to be read. */
        strcpy(name, names[i % 5]);
        syscall(SYS_getpgid, 1000000000 + i);
        syscall(SYS_openat, AT_FDCWD, name, O_RDONLY | (i % 2 ? O_CLOEXEC : 0), 0);
        syscall(SYS_lseek, -1, -(int64_t)i, i % 3);
    }
    printf("%ld\n", syscall(SYS_gettid));
    return unused;
}

static int search(void)
{
    char name[256] = "/nowhere/";
    memset(name + 9, 'a', 200);
    for (uint32_t i = 0; i < count; i++) {
        name[209] = i % 2 ? 'b' : 'c';
        syscall(SYS_openat, AT_FDCWD, name, O_RDONLY, 0);
    }
    printf("%ld\n", syscall(SYS_gettid));
    return 0;
}

static int unread(void)
{
    const int folder = -77;
    syscall(SYS_openat, folder, (char *)8, O_RDONLY, 0);
    syscall(SYS_openat, folder, NULL, O_RDONLY, 0);
    char name[64];
    strcpy(name, names[0]);
    syscall(SYS_openat, folder, name, O_RDONLY, 0);
    return 0;
}

static int names_of_any_length(void)
{
    char name[2048];
    memset(name, 'a', sizeof name);
    name[599] = 'b';
    name[600] = 0;
    syscall(SYS_openat, -77, name, O_RDONLY, 0);
    name[599] = name[600] = 'a';
    name[2000] = 0;
    syscall(SYS_openat, -77, name, O_RDONLY, 0);
    return 0;
}

int main(int argc, char **argv)
{
    count = argc > 1 ? (uint32_t)atol(argv[1]) : 0;
    const int others = argc > 2 ? atoi(argv[2]) - 1 : 0;
    pthread_t threads[16];
    if (argc > 3 && strcmp(argv[3], "search") == 0)
        return search();
    if (argc > 3 && strcmp(argv[3], "unread") == 0)
        return unread();
    if (argc > 3 && strcmp(argv[3], "long") == 0)
        return names_of_any_length();
    if (others > 16)
        return 2;
    for (int i = 0; i < others; i++)
        pthread_create(&threads[i], NULL, calls, NULL);
    calls(NULL);
    for (int i = 0; i < others; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
