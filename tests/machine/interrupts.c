/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * interrupts TIMES FIRST: each time makes the other processors print their stacks, by an NMI
 * (Linux, Documentation/admin-guide/sysrq.rst, 'l'), between two calls of getpgid(2), numbered from
 * FIRST on. Prints the number of NMIs: "nmi COUNT".
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of all processors, so far. */
static unsigned long nmis(void)
{
    char line[256];
    unsigned long all = 0;
    FILE *file = fopen("/proc/interrupts", "r");
    while (file && fgets(line, sizeof(line), file)) {
        char *at = strstr(line, "NMI:");
        if (!at)
            continue;
        at += strlen("NMI:");
        for (char *end;; at = end) {
            const unsigned long count = strtoul(at, &end, 10);
            if (end == at)
                break;
            all += count;
        }
    }
    if (file)
        fclose(file);
    return all;
}

int main(int argc, char **argv)
{
    const int times = argc > 2 ? atoi(argv[1]) : 0, first = argc > 2 ? atoi(argv[2]) : 0;
    const int trigger = open("/proc/sysrq-trigger", O_WRONLY);
    const unsigned long before = nmis();
    if (trigger < 0)
        return 1;
    for (int i = 0; i < times; i++) {
        syscall(SYS_getpgid, first + 2 * i);
        if (write(trigger, "l", 1) != 1)
            return 1;
        syscall(SYS_getpgid, first + 2 * i + 1);
    }
    printf("\nnmi %lu\n", nmis() - before);
    return 0;
}
