/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Calls getpgid(2) with numbers that count up, on one CPU, some thousands a second, until it is
 * killed. */
#define _GNU_SOURCE
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0)
        return 1;
    for (unsigned number = 0; number < 1000000000; number++) {
        syscall(SYS_getpgid, 1000000000 + number);
        if (number % 64 == 63)
            usleep(1000);
    }
    return 0;
}
