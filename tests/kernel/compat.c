/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Makes system calls by their numbers of 32 bits, by int $0x80; 77: the kernel has none. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

static sigjmp_buf otherwise;

static void no_such_call(int signal)
{
    siglongjmp(otherwise, signal);
}

/* The kernel takes the lower halves alone. */
static int call(int number, long b, long c, long d, long s)
{
    const long above = 0x5a5aL << 32;
    long result = number;
    __asm__ volatile("int $0x80"
                     : "+a"(result)
                     : "b"(b | above), "c"(c | above), "d"(d | above), "S"(s | above), "D"(above)
                     : "memory", "r8", "r9", "r10", "r11");
    return (int)result;
}

int main(void)
{
    /* Where addresses have 32 bits. */
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT;
    char *low = mmap(NULL, 8192, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (low == MAP_FAILED)
        return 90;
    signal(SIGSEGV, no_such_call);
    if (sigsetjmp(otherwise, 1))
        return 77;
    long at = (long)low;
    strcpy(low, "/nowhere/narrow");
    call(295, -100, at, 0x80000, 0);
    /* The call of 64 bits with that number is preadv(2), and this one's, of 32, mkdirat(2). */
    syscall(SYS_openat, -100, "/nowhere/wide", 0, 0);
    call(132, 1000000000, 0, 0, 0);
    int *ends = (int *)(low + 256);
    if (call(331, at + 256, 0, 0, 0) != 0)
        return 91;
    printf("%d %d\n", ends[0], ends[1]);
    struct timespec *now = (struct timespec *)(low + 512);
    if (call(403, 1, at + 512, 0, 0) != 0)
        return 92;
    printf("%ld %ld\n", (long)now->tv_sec, now->tv_nsec);
    struct sockaddr_in *to = (struct sockaddr_in *)(low + 1024);
    *to = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(77)};
    to->sin_addr.s_addr = htonl(0x7f000001);
    call(362, -1, at + 1024, sizeof *to, 0);
    /* The recorder has no 32-bit layout of this structure. */
    call(108, -1, at + 2048, 0, 0);
    call(192, 0, 4096, 0, 0x22);
    call(6, ends[0], 0, 0, 0);
    /* Data at 32-bit addresses. */
    unsigned *words = (unsigned *)(low + 3072);
    strcpy(low + 3200, "one");
    strcpy(low + 3210, "two");
    words[0] = (unsigned)at + 3200;
    words[1] = (unsigned)at + 3210;
    words[2] = 0;
    call(11, at, at + 3072, 0, 0);
    words[4] = (unsigned)at + 3200;
    words[5] = 3;
    words[6] = (unsigned)at + 3210;
    words[7] = 4;
    call(146, -1, at + 3088, 2, 0);
    words[8] = (unsigned)at + 1024;
    words[9] = sizeof *to;
    memset(words + 10, 0, 20);
    call(370, -1, at + 3104, 0, 0);
    /* A number that no call has. */
    call(600, 0, 0, 0, 0);
    return 0;
}
