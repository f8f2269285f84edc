/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* FORK: records of the fork helper, see expect.h; with other arguments it is the program that it
 * executes. */
#define _GNU_SOURCE
#include "expect.h"
#include <fcntl.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>

extern char **environ;
static char *self;

static void exits(int status)
{
    expect("trackway_fork:exit status = %d", status);
}

/* Waits for the end of a process that ends with `status`. */
static void reap(pid_t child, int status)
{
    int found;
    CHECK(child > 0 && waitpid(child, &found, 0) == child);
    CHECK(WIFEXITED(found) && WEXITSTATUS(found) == status);
}

static void forked(pid_t child, int status)
{
    expect("trackway_fork:fork child = %d, error = 0", child);
    reap(child, status);
}

static void forks(void)
{
    pid_t child, parent = getpid();
    int terminal;
    for (int i = 0; i < 4; i++) {
        child = i < 2 ? fork() : i == 2 ? _Fork() : forkpty(&terminal, NULL, NULL, NULL);
        if (child == 0) {
            expect("trackway_fork:child parent = %d", parent);
            exits(i + 1);
            switch (i) {
            case 0: _exit(1);
            case 1: exit(2);
            case 2: _Exit(3);
            default: quick_exit(4);
            }
        }
        forked(child, i + 1);
    }
    close(terminal);
}

static void vforks(void)
{
    for (volatile int i = 0; i < 100; i++) {
        volatile int kept = i;
        const pid_t child = vfork();
        if (child == 0) {
            exits(7);
            _exit(7);
        }
        CHECK(kept == i);
        expect("trackway_fork:vfork ");
        reap(child, 7);
    }
}

static int cloned(void *argument)
{
    exits(*(int *)argument);
    _exit(*(int *)argument);
}

static void clones(void)
{
    static char stack[256 * 1024] __attribute__((aligned(16)));
    static const int kinds[] = {SIGCHLD, CLONE_VM | CLONE_VFORK | SIGCHLD};
    int status = 5;
    pid_t tid = 0, child;
    for (int i = 0; i < 2; i++) {
        child = clone(cloned, stack + sizeof(stack), kinds[i], &status);
        expect("trackway_fork:clone child = %d, error = 0, flags = 0x%X", child,
               (unsigned)kinds[i]);
        reap(child, 5);
    }
    /* The following arguments are passed on. */
    child = clone(cloned, stack + sizeof(stack), CLONE_PARENT_SETTID | SIGCHLD, &status, &tid);
    CHECK(tid == child);
    expect("trackway_fork:clone child = %d, error = 0, flags = 0x%X", child,
           (unsigned)(CLONE_PARENT_SETTID | SIGCHLD));
    reap(child, 5);
    CHECK(clone(cloned, NULL, SIGCHLD, &status) == -1 && errno == EINVAL);
    expect("trackway_fork:clone child = -1, error = %d, flags = 0x%X", EINVAL, (unsigned)SIGCHLD);
}

static void spawned(pid_t child, const char *path)
{
    expect("trackway_fork:spawn child = %d, error = 0, path = \"%s\"", child, path);
    exits(6);
    reap(child, 6);
}

static void spawns(void)
{
    char child_word[] = "child";
    char *argv[] = {self, child_word, NULL};
    pid_t child;
    CHECK(posix_spawn(&child, self, NULL, NULL, argv, environ) == 0);
    spawned(child, self);
    CHECK(posix_spawnp(&child, self, NULL, NULL, argv, environ) == 0);
    spawned(child, self);
    CHECK(posix_spawn(NULL, "/missing", NULL, NULL, argv, environ) == ENOENT);
    expect("trackway_fork:spawn child = -1, error = %d, path = \"/missing\"", ENOENT);
}

static void executes(int dirfd, const char *path, int argc)
{
    expect("trackway_fork:exec dirfd = %d, path = \"%s\", argc = %d", dirfd, path, argc);
    exits(6);
}

/* Replaces the process by ourselves, in one of all the ways. */
static void execute(int way)
{
    char child_word[] = "child";
    char *argv[] = {self, child_word, NULL};
    int fd = -1;
    if (way == 6 || way == 7) {
        fd = open(self, O_RDONLY | O_CLOEXEC);
        executes(fd, "", 2);
    } else {
        executes(AT_FDCWD, self, 2);
    }
    switch (way) {
    case 0: execve(self, argv, environ); break;
    case 1: execv(self, argv); break;
    case 2: execvp(self, argv); break;
    case 3: execvpe(self, argv, environ); break;
    case 4: execl(self, self, "child", (char *)NULL); break;
    case 5: execlp(self, self, "child", (char *)NULL); break;
    case 6: fexecve(fd, argv, environ); break;
    case 7: execveat(fd, "", argv, environ, AT_EMPTY_PATH); break;
    default: execle(self, self, "child", (char *)NULL, environ);
    }
    _exit(99);
}

static void execs(void)
{
    char *argv[] = {self, NULL};
    const pid_t parent = getpid();
    for (int way = 0; way < 9; way++) {
        const pid_t child = fork();
        if (child == 0) {
            expect("trackway_fork:child parent = %d", parent);
            execute(way);
        }
        forked(child, 6);
    }
    CHECK(execv("/missing", argv) == -1 && errno == ENOENT);
    expect("trackway_fork:exec dirfd = %d, path = \"/missing\", argc = 1", AT_FDCWD);
    expect("trackway_fork:exec_failed error = %d, path = \"/missing\"", ENOENT);
}

/* The program gets EFAULT, and the trace no path, or no arguments. */
static void bad_pointers(void)
{
    const char *volatile bad = (const char *)8;
    char *argv[] = {self, NULL};
    char **volatile bad_argv = (char **)8;
    CHECK(execve(bad, argv, environ) == -1 && errno == EFAULT);
    expect("trackway_fork:exec dirfd = %d, path = \"\", argc = 1", AT_FDCWD);
    expect("trackway_fork:exec_failed error = %d, path = \"\"", EFAULT);
    CHECK(execv(self, bad_argv) == -1 && errno == EFAULT);
    expect("trackway_fork:exec dirfd = %d, path = \"%s\", argc = 0", AT_FDCWD, self);
    expect("trackway_fork:exec_failed error = %d, path = \"%s\"", EFAULT, self);
    CHECK(posix_spawn(NULL, bad, NULL, NULL, argv, environ) == EFAULT);
    expect("trackway_fork:spawn child = -1, error = %d, path = \"\"", EFAULT);
}

/* Steps before the path is read may fail, too. */
static void bad_actions(void)
{
    const char *volatile bad = (const char *)8;
    char *argv[] = {self, NULL};
    posix_spawn_file_actions_t actions;
    CHECK(posix_spawn_file_actions_init(&actions) == 0);
    CHECK(posix_spawn_file_actions_addopen(&actions, 0, "/missing", O_RDONLY, 0) == 0);
    CHECK(posix_spawn(NULL, bad, &actions, NULL, argv, environ) == ENOENT);
    expect("trackway_fork:spawn child = -1, error = %d, path = \"\"", ENOENT);
    CHECK(posix_spawn(NULL, self, &actions, NULL, argv, environ) == ENOENT);
    expect("trackway_fork:spawn child = -1, error = %d, path = \"%s\"", ENOENT, self);
}

static void refused(const char *path, void *argv, unsigned argc, int error)
{
    CHECK(execve(path, argv, environ) == -1 && errno == error);
    expect("trackway_fork:exec dirfd = %d, path = \"%s\", argc = %u", AT_FDCWD, path, argc);
    expect("trackway_fork:exec_failed error = %d, path = \"%s\"", error, path);
}

/* Arguments that have no end before their memory has one; many, and such as are not aligned. */
static void odd_arguments(void)
{
    enum { PAGE = 4096, PAGES = 4, MANY = 3 * PAGE / sizeof(char *) - 1 };
    static char word[] = "x";
    const char *const first = word;
    char *const memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *const end = memory + (PAGES - 1) * PAGE;
    char *path;
    CHECK(memory != MAP_FAILED && munmap(end, PAGE) == 0);
    memcpy(end - sizeof(first), &first, sizeof(first));
    refused(self, end - sizeof(first), 0, EFAULT);
    refused(self, end - 1, 0, EFAULT);
    for (unsigned i = 0; i < MANY; i++)
        memcpy(memory + i * sizeof(first), &first, sizeof(first));
    memset(end - sizeof(first), 0, sizeof(first));
    refused("/missing", memory, MANY, ENOENT);
    memmove(memory + 3, memory, (MANY - 1) * sizeof(first));
    memset(end - 2 * sizeof(first) + 3, 0, sizeof(first));
    refused("/missing", memory + 3, MANY - 1, ENOENT);
    path = end - sizeof("/missing");
    refused(strcpy(path, "/missing"), (char *[]){word, NULL}, 1, ENOENT);
}

/* A daemon's parent, which ends inside the C library, and a daemon, which ends the test. */
static void daemons(void)
{
    int fds[2];
    char byte;
    const pid_t parent = getpid();
    pid_t child;
    CHECK(pipe(fds) == 0);
    child = fork();
    if (child == 0) {
        expect("trackway_fork:child parent = %d", parent);
        if (daemon(1, 1) != 0)
            _exit(98);
        expect("trackway_fork:daemon error = 0");
        exits(0);
        _exit(0);
    }
    forked(child, 0);
    close(fds[1]);
    CHECK(read(fds[0], &byte, 1) == 0); /* the daemon has gone */
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return 6;
    self = argv[0];
    expect_begin();
    forks();
    vforks();
    clones();
    spawns();
    execs();
    bad_pointers();
    bad_actions();
    odd_arguments();
    daemons();
    exits(0);
    expect_end();
    return 0;
}
