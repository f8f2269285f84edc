/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Makes the same system calls COUNT times in each of THREADS threads; then each thread prints its
 * name and number. filtered COUNT [THREADS]. Followed by "search": opens only names of 200 times
 * the same letter, and a "b" or a "c"; by "unread": names that cannot be read, and one that can; by
 * "long": names of 600 and of 2,000 bytes; by "pointers": additional calls with addresses of
 * sockets, structures, vectors and strings, which fail. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <grp.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <time.h>
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

/* No descriptor is -1: calls fail, but are recorded with their arguments. */
static void connects(uint32_t i)
{
    struct sockaddr_in four = { .sin_family = AF_INET, .sin_port = htons(80 + i % 3) };
    four.sin_addr.s_addr = htonl(0x7f000000 + i % 7);
    struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = htons(443) };
    six.sin6_addr.s6_addr[0] = 0xfe;
    six.sin6_addr.s6_addr[15] = (uint8_t)(i % 3);
    struct sockaddr_un file = { .sun_family = AF_UNIX };
    snprintf(file.sun_path + i % 2, 64, "/nowhere/socket-%u", i % 4);
    const void *addresses[] = { &four, &six, &file, (void *)8, NULL };
    const socklen_t lengths[] = { sizeof four, sizeof six, sizeof file, 16, 0 };
    syscall(SYS_connect, -1, addresses[i % 5], lengths[i % 5]);
    struct msghdr message = { .msg_name = &four, .msg_namelen = sizeof four };
    syscall(SYS_sendmsg, -1, i % 7 ? &message : NULL, 0);
}

static void *pointers(void *unused)
{
    for (uint32_t i = 0; i < count; i++) {
        connects(i);
        char long_text[300];
        memset(long_text, 'x', sizeof long_text - 1);
        long_text[sizeof long_text - 1] = 0;
        char *texts[] = { "some", i % 2 ? "-x" : "-y", i % 3 ? long_text : NULL, "end", NULL };
        syscall(SYS_execve, "/nowhere/program", i % 10 ? texts : (char **)8, NULL);
        struct pollfd some[3] = { { .fd = -1, .events = POLLIN }, { .fd = -2 - (int)(i % 4) } };
        some[2] = (struct pollfd){ .fd = -3, .events = (short)(i % 6) };
        syscall(SYS_poll, some, i % 4, 0);
        struct iovec vectors[20] = { { (void *)16, i % 100 }, { (void *)32, 7 } };
        syscall(SYS_writev, -1, vectors, i % 5 == 4 ? 20 : i % 5);
        /* More nanoseconds than a second has. */
        const struct timespec times = { .tv_sec = i, .tv_nsec = 2000000000 };
        syscall(SYS_nanosleep, i % 8 ? &times : NULL, NULL);
        struct utsname name;
        syscall(SYS_uname, i % 9 ? &name : NULL);
        const gid_t groups[64] = { i % 4, i % 5, 1000 };
        syscall(SYS_setgroups, i % 2 ? -1 : 70000, groups);
    }
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
    if (argc > 3 && strcmp(argv[3], "pointers") == 0)
        pointers(NULL);
    for (int i = 0; i < others; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
