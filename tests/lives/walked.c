/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A program for tools that walk through a traced program's memory: it has live blocks on the heap,
 * and prints how its window is mapped. With "wait" it emits its events at a line on its standard
 * input; with "sandbox", too, and from the start a filter kills it for mprotect(2).
 */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <trackway/trackway.h>

TRACKWAY_EVENT(walked, step, TRACKWAY_INFO, (u32, number));

enum { BLOCKS = 1000, BLOCK_BYTES = 100, EVENTS = 100000 };

static void *first;

static void enter_sandbox(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        exit(77);
}

/* "window: FROM-TO rw-s" for each part of the window. */
static void say_maps(void)
{
    char line[4096], range[64], access[8];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof(line), maps))
        if (strstr(line, "/trackway-") && !strstr(line, "memfd") &&
            sscanf(line, "%63s %7s", range, access) == 2)
            printf("window: %s %s\n", range, access);
    if (maps)
        fclose(maps);
    fflush(stdout);
}

static void wait_for_a_line(void)
{
    char line[16];
    if (!fgets(line, sizeof(line), stdin))
        exit(3);
}

int main(int argc, char **argv)
{
    const int waits = argc > 1;
    for (unsigned i = 0; i < BLOCKS; i++) {
        void **block = malloc(BLOCK_BYTES);
        *block = i % 2 ? first : NULL; /* chains of two; the others are lost */
        first = block;
    }
    first = NULL;
    if (waits && strcmp(argv[1], "sandbox") == 0)
        enter_sandbox();
    say_maps();
    if (waits)
        wait_for_a_line();
    for (unsigned i = 0; i < EVENTS; i++)
        trackway(walked, step, i);
    say_maps();
    if (waits)
        wait_for_a_line();
    return 0;
}
