/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Makes system calls with pointer arguments: addresses of sockets, vectors, times, strings that are
 * not in memory. arguments WHAT FILE, where FILE is writable. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <linux/if_packet.h>
#include <linux/netlink.h>
#include <sys/socket.h>
#include <linux/vm_sockets.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

/* Nothing is there. */
static void *nothing(void)
{
    static volatile size_t address = 16;
    return (void *)address;
}

static void caught(int signal)
{
    (void)signal;
}

static int sockets(void)
{
    /* To a port of this machine without a listener. */
    struct sockaddr_in internet = { .sin_family = AF_INET, .sin_port = htons(4660) };
    inet_pton(AF_INET, "127.1.2.3", &internet.sin_addr);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&internet, sizeof internet))
        return 10;
    struct sockaddr_in6 internet_6 = { .sin6_family = AF_INET6, .sin6_port = htons(258) };
    inet_pton(AF_INET6, "2001:db8::1234", &internet_6.sin6_addr);
    connect(fd, (struct sockaddr *)&internet_6, sizeof internet_6);
    /* Two that are connected, with a name that is no file. */
    struct sockaddr_un named = { .sun_family = AF_UNIX };
    snprintf(named.sun_path + 1, sizeof named.sun_path - 1, "trackway-test-%d", (int)getpid());
    socklen_t length = offsetof(struct sockaddr_un, sun_path) + 1 + strlen(named.sun_path + 1);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&named, length) || listen(listener, 1) ||
        connect(client, (struct sockaddr *)&named, length))
        return 11;
    struct sockaddr_un peer;
    length = sizeof peer;
    if (accept(listener, (struct sockaddr *)&peer, &length) < 0)
        return 12;
    /* A path as long as one may be, without a NUL. */
    struct sockaddr_un file = { .sun_family = AF_UNIX };
    memset(file.sun_path, 'p', sizeof file.sun_path);
    connect(client, (struct sockaddr *)&file, sizeof file);
    /* Invalid ones: an unmapped address, no address, one that is too short. */
    /* Of other families: it does not matter whether it can be done. */
    struct sockaddr_nl netlink = { .nl_family = AF_NETLINK, .nl_pid = 77, .nl_groups = 0x11 };
    bind(fd, (struct sockaddr *)&netlink, sizeof netlink);
    struct sockaddr_vm host = { .svm_family = AF_VSOCK, .svm_port = 1024, .svm_cid = 3 };
    connect(fd, (struct sockaddr *)&host, sizeof host);
    struct sockaddr_ll link = { .sll_family = AF_PACKET, .sll_protocol = htons(0x88b5),
        .sll_ifindex = 2, .sll_halen = 6, .sll_addr = { 2, 0, 0x5e, 0x10, 0, 0xff } };
    bind(fd, (struct sockaddr *)&link, sizeof link);
    bind(fd, (struct sockaddr *)&netlink, 4);
    connect(fd, nothing(), sizeof internet);
    connect(fd, NULL, 16);
    connect(fd, (struct sockaddr *)&internet, 1);
    /* Longer than the limit; with a NUL within a name, and after one; longer than the recorded
     * part. */
    char longer[128] = { 0 };
    memset(longer, 'q', sizeof longer);
    ((struct sockaddr *)longer)->sa_family = AF_UNIX;
    connect(client, (struct sockaddr *)longer, sizeof longer);
    static const char within[] = "\0within\0more", behind[] = "\0behind";
    memcpy(named.sun_path, within, sizeof within);
    connect(client, (struct sockaddr *)&named,
            offsetof(struct sockaddr_un, sun_path) + sizeof within);
    memcpy(named.sun_path, behind, sizeof behind);
    connect(client, (struct sockaddr *)&named,
            offsetof(struct sockaddr_un, sun_path) + sizeof behind - 1);
    char wide[32] = { 0 };
    memcpy(wide, &link, sizeof link);
    connect(fd, (struct sockaddr *)wide, sizeof wide);
    /* Through a message. */
    struct iovec vector = { "x", 1 };
    internet.sin_port = htons(4661);
    struct msghdr message = { .msg_name = &internet, .msg_namelen = sizeof internet,
                              .msg_iov = &vector, .msg_iovlen = 1 };
    sendmsg(fd, &message, 0);
    /* Without an address, and a length that was left. */
    message.msg_name = NULL;
    sendmsg(fd, &message, 0);
    return 0;
}

static int structures(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    char text[64] = "0123456789";
    struct iovec vectors[20];
    for (int i = 0; i < 20; i++)
        vectors[i] = (struct iovec){ text + 4 * (i % 2), i < 2 ? 3 + i : 0 };
    if (fd < 0 || writev(fd, vectors, 2) != 7)
        return 20;
    printf("vectors %p %p\n", vectors[0].iov_base, vectors[1].iov_base);
    writev(fd, vectors, 20);
    writev(fd, nothing(), 2);
    if (lseek(fd, 0, SEEK_SET) || readv(fd, vectors, 2) != 7)
        return 21;
    struct timespec moment = { 0, 1234567 }, left = { 77, 78 };
    if (syscall(SYS_nanosleep, &moment, &left))
        return 22;
    syscall(SYS_nanosleep, nothing(), NULL);
    /* An invalid descriptor: the call writes no remaining time. */
    moment = (struct timespec){ 3, 4000000000 };
    syscall(SYS_nanosleep, &moment, &left);
    struct stat of;
    if (syscall(SYS_newfstatat, fd, "", &of, AT_EMPTY_PATH))
        return 23;
    printf("inode %lu size %ld mode %u\n", (unsigned long)of.st_ino, (long)of.st_size, of.st_mode);
    int ends[2];
    if (pipe(ends))
        return 24;
    printf("pipe %d %d\n", ends[0], ends[1]);
    struct pollfd polled[2] = { { ends[0], POLLIN, 0 }, { ends[1], POLLOUT, 0 } };
    if (poll(polled, 2, 0) != 1)
        return 25;
    struct utsname name;
    if (uname(&name))
        return 26;
    printf("uname %s %s\n", name.sysname, name.release);
    struct timespec times[2] = { { 1000, 1 }, { 2000, 2 } };
    if (syscall(SYS_utimensat, fd, NULL, times, 0))
        return 27;
    fflush(stdout);
    /* A sleep that is interrupted. */
    struct itimerval soon = { { 0, 20000 }, { 0, 20000 } };
    struct sigaction action = { .sa_handler = caught };
    sigaction(SIGALRM, &action, NULL);
    moment = (struct timespec){ 1000, 0 };
    if (setitimer(ITIMER_REAL, &soon, NULL) || syscall(SYS_nanosleep, &moment, &left) == 0)
        return 28;
    return 0;
}

static const char nowhere[4096] = "/nowhere/that/is/in/memory";

/* That, in a file's page that is not in memory yet. */
static const char *not_in_memory(const char *path)
{
    const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || write(fd, nowhere, sizeof nowhere) != sizeof nowhere)
        return NULL;
    const char *text = mmap(NULL, sizeof nowhere, PROT_READ, MAP_PRIVATE, fd, 0);
    return text == MAP_FAILED ? NULL : text;
}

/* Calls access(2), which takes a string: one in a file's page that is not yet in memory; the
 * longest ones; none. The mode is never 4, which the loader uses. */
static int texts(const char *path)
{
    const char *text = not_in_memory(path);
    if (text == NULL || syscall(SYS_access, text, 1) == 0)
        return 31;
    /* And once more, where it is. */
    syscall(SYS_access, text, 2);
    syscall(SYS_access, nothing(), 3);
    syscall(SYS_access, NULL, 5);
    static const int lengths[] = { 0, 1, 255, 256, 1023, 1024, 4095 };
    static char name[8192];
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        memset(name, 'n', sizeof name);
        name[lengths[i]] = 0;
        syscall(SYS_access, name, 100 + (int)i);
    }
    /* In a page that ends before the text does. */
    char *two = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (two == MAP_FAILED || mprotect(two + 4096, 4096, PROT_NONE))
        return 32;
    memcpy(two + 4092, "/end", 4);
    syscall(SYS_access, two + 4092, 6);
    return 0;
}

/* A string that is not in memory yet, of a call whose exit is not recorded; then one that is. */
static int again(const char *path)
{
    const char *text = not_in_memory(path);
    if (text == NULL || syscall(SYS_chdir, text) == 0)
        return 51;
    syscall(SYS_access, nowhere, 1);
    return 0;
}

static int run(void)
{
    static char longest[400], whole[256];
    memset(longest, 'a', sizeof longest - 1);
    memset(whole, 'w', sizeof whole - 1);
    char *fits[] = { whole, NULL };
    char *few[] = { "true", "", "with space", longest, NULL };
    char *environment[] = { "SECRET=secret", NULL };
    char *many[81] = { NULL };
    for (int i = 0; i < 80; i++)
        many[i] = "many";
    syscall(SYS_execve, "/nowhere/many", many, environment);
    syscall(SYS_execve, "/nowhere/fits", fits, environment);
    syscall(SYS_execve, "/nowhere/none", NULL, NULL);
    syscall(SYS_execve, "/nowhere/bad", nothing(), NULL);
    execve("/bin/true", few, environment);
    return 40;
}

int main(int argc, char **argv)
{
    const char *what = argc > 2 ? argv[1] : "";
    if (strcmp(what, "sockets") == 0)
        return sockets();
    if (strcmp(what, "structures") == 0)
        return structures(argv[2]);
    if (strcmp(what, "texts") == 0)
        return texts(argv[2]);
    if (strcmp(what, "again") == 0)
        return again(argv[2]);
    return run();
}
