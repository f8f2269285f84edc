/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Lives in namespaces, and containers made of them: each mode takes steps before, inside and after.
 * Ends with 77 where such namespaces may not be made.
 */
#define _GNU_SOURCE
#include "steps.h"
#include <errno.h>
#include <sched.h>
#include <sys/mount.h>

static char *self;

static void enter(int flags)
{
    if (unshare(flags) != 0)
        _exit(errno == EPERM || errno == ENOSPC || errno == EINVAL ? 77 : 96);
}

static int write_text(const char *path, const char *text)
{
    const int file = open(path, O_WRONLY);
    const ssize_t written = file < 0 ? -1 : write(file, text, strlen(text));
    if (file >= 0)
        close(file);
    return written == (ssize_t)strlen(text) ? 0 : -1;
}

/* Makes this user root of a user namespace of its own. */
static void become_root_inside(int other)
{
    char map[64];
    const unsigned uid = geteuid(), gid = getegid();
    enter(CLONE_NEWUSER | other);
    snprintf(map, sizeof(map), "0 %u 1", uid);
    if (write_text("/proc/self/setgroups", "deny") != 0 ||
        write_text("/proc/self/uid_map", map) != 0)
        _exit(77);
    snprintf(map, sizeof(map), "0 %u 1", gid);
    if (write_text("/proc/self/gid_map", map) != 0 || geteuid() != 0)
        _exit(77);
}

static void steps_here_in_a_child_and_in_an_image(unsigned who, long count)
{
    take_steps(who, count);
    const pid_t child = fork();
    if (child == 0) {
        take_steps(new_stream(), count);
        execl(self, self, "steps", "10", (char *)NULL);
        _exit(94);
    }
    step(who);
    expect(child, 0);
    take_steps(who, count);
}

static void mode_steps(long count)
{
    take_steps(new_stream(), count);
}

/* Not mapped at all, then root inside. */
static void mode_user(long count)
{
    const unsigned who = new_stream();
    take_steps(who, count);
    become_root_inside(0);
    if (setresuid(0, 0, 0) != 0)
        _exit(93);
    steps_here_in_a_child_and_in_an_image(who, count);
}

/* The children are in another process-id namespace than their parent. */
static void mode_pid(long count)
{
    const unsigned who = new_stream();
    take_steps(who, count);
    if (geteuid() == 0)
        enter(CLONE_NEWPID);
    else
        become_root_inside(CLONE_NEWPID);
    const pid_t child = fork();
    if (child == 0) {
        if (getpid() != 1)
            _exit(95);
        steps_here_in_a_child_and_in_an_image(new_stream(), count);
        _exit(0);
    }
    step(who);
    expect(child, 0);
    take_steps(who, count);
}

/*
 * A container: all namespaces, mounts of its own, another root folder. Its /proc and /dev/shm are
 * not ours, so programs that are started inside have no window that the recorder sees: they run.
 */
static void mode_container(long count)
{
    const unsigned who = new_stream();
    const int others = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET;
    take_steps(who, count);
    become_root_inside(others);
    const pid_t child = fork();
    if (child == 0) {
        const unsigned its = new_stream();
        take_steps(its, count);
        if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
            mount("trackway-test-shm", "/dev/shm", "tmpfs", 0, "size=4m") != 0)
            _exit(77);
        take_steps(its, count);
        const pid_t inner = fork();
        if (inner == 0) {
            take_steps(new_stream(), count);
            if (chroot("/dev/shm") != 0 || chdir("/") != 0)
                _exit(95);
            take_steps(new_stream(), count);
            _exit(0);
        }
        expect(inner, 0);
        const pid_t image = fork();
        if (image == 0) {
            /* Its steps belong to no stream: they are not counted either. */
            unsetenv("STEPS");
            execl(self, self, "steps", "10", (char *)NULL);
            _exit(94);
        }
        expect(image, 0);
        take_steps(its, count);
        _exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status))
        _exit(97);
    if (WEXITSTATUS(status) != 0)
        _exit(WEXITSTATUS(status));
    take_steps(who, count);
}

int main(int argc, char **argv)
{
    self = argv[0];
    steps_open();
    if (argc < 3)
        return 2;
    const long count = atol(argv[2]);
    if (strcmp(argv[1], "steps") == 0)
        mode_steps(count);
    else if (strcmp(argv[1], "user") == 0)
        mode_user(count);
    else if (strcmp(argv[1], "pid") == 0)
        mode_pid(count);
    else if (strcmp(argv[1], "container") == 0)
        mode_container(count);
    else
        return 2;
    return 0;
}
