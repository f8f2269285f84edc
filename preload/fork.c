/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * libtrackway-fork.so: preloaded, it records how a program that was not instrumented makes
 * processes, executes other programs, and ends. (LTTng-UST's library of that name records nothing:
 * programs that fork need it to be traced at all. Trackway needs no such library.)
 *
 * Processes that the C library makes inside itself (popen, system) are not recorded; the programs
 * that they execute are, if they are recorded.
 *
 * These functions, except exit(), may be called in signal handlers and by children of vfork. So
 * they keep no state across a call.
 */
#define _GNU_SOURCE
#include "helper.h"
#include <pty.h>
#include <sched.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

/* A process was made, or not: `child` is -1 then, and `error` is errno. In the parent. */
TRACKWAY_EVENT(trackway_fork, fork, TRACKWAY_DEBUG_LINE, (i32, child), (i32, error));
/* The first thing that it does. In a child of fork, _Fork or forkpty. */
TRACKWAY_EVENT(trackway_fork, child, TRACKWAY_DEBUG_LINE, (i32, parent));
/* Before the call: the child goes on in the parent's memory, on its stack. */
TRACKWAY_EVENT(trackway_fork, vfork, TRACKWAY_DEBUG_LINE);
TRACKWAY_EVENT(trackway_fork, clone, TRACKWAY_DEBUG_LINE,
    (i32, child), (i32, error), (x32, flags));
TRACKWAY_EVENT(trackway_fork, spawn, TRACKWAY_DEBUG_LINE, (i32, child), (i32, error), (str, path));
/* In the process that goes on in the background, which is a child of the one that called. */
TRACKWAY_EVENT(trackway_fork, daemon, TRACKWAY_DEBUG_LINE, (i32, error));
/* Before it happens; the path is empty where there is only a descriptor, which is AT_FDCWD (-100)
 * where it does not matter. */
TRACKWAY_EVENT(trackway_fork, exec, TRACKWAY_DEBUG_LINE, (i32, dirfd), (str, path), (u32, argc));
/* It did not happen: the process goes on. */
TRACKWAY_EVENT(trackway_fork, exec_failed, TRACKWAY_DEBUG_LINE, (i32, error), (str, path));
/* By exit(), by return from main(), by _exit() or quick_exit(), not by a signal. */
TRACKWAY_EVENT(trackway_fork, exit, TRACKWAY_DEBUG_LINE, (i32, status));

enum { CURRENT_FOLDER = -100 }; /* AT_FDCWD */

static int missing(void)
{
    if (is_relocated())
        errno = ENOSYS;
    return -1;
}

/* --- fork and its relatives ------------------------------------------------------------------ */

static pid_t record_fork(pid_t child)
{
    if (child == 0)
        trackway(trackway_fork, child, getppid());
    else
        trackway(trackway_fork, fork, child, child < 0 ? errno : 0);
    return child;
}

#define FORK_ON (ON(trackway_fork, fork) || ON(trackway_fork, child))

#define WRAP_FORK(name)                                                                           \
    NEXT(name, missing)                                                                           \
    EXPORTED pid_t name(void)                                                                     \
    {                                                                                             \
        const any_function next = __atomic_load_n(&name##_found, __ATOMIC_RELAXED);               \
        if (UNLIKELY(!next))                                                                      \
            return ((pid_t(*)(void))name##_look_up())();                                          \
        return FORK_ON ? record_fork(((pid_t(*)(void))next)()) : ((pid_t(*)(void))next)();        \
    }
WRAP_FORK(fork)
WRAP_FORK(_Fork)
WRAP(int, forkpty, missing,
     (int *terminal, char *name, const struct termios *modes, const struct winsize *size),
     (terminal, name, modes, size), FORK_ON,
     return record_fork(function(terminal, name, modes, size));)

/*
 * The child returns from here first and then uses this stack freely, before the parent returns from
 * it. So the stack must be empty here: a call records the event, and then this function jumps to
 * the next one, which saves its return address itself.
 */
NEXT(vfork, missing)
static ASIDE void record_vfork(void)
{
    if (vfork_found && ON(trackway_fork, vfork))
        trackway(trackway_fork, vfork);
}

#if defined(__x86_64__)
__asm__(".text\n"
        ".globl vfork\n"
        ".type vfork, @function\n"
        "vfork:\n"
        ".cfi_startproc\n"
        "endbr64\n"       /* it is called through pointers, where branches are tracked */
        "subq $8, %rsp\n" /* calls need an alignment of 16 bytes */
        ".cfi_adjust_cfa_offset 8\n"
        "call trackway_vfork_next\n"
        "addq $8, %rsp\n"
        ".cfi_adjust_cfa_offset -8\n"
        "jmp *%rax\n"
        ".cfi_endproc\n"
        ".size vfork, . - vfork\n");
#elif defined(__aarch64__)
__asm__(".text\n"
        ".globl vfork\n"
        ".type vfork, @function\n"
        "vfork:\n"
        ".cfi_startproc\n"
        "hint #34\n" /* bti c */
        "stp x29, x30, [sp, #-16]!\n"
        ".cfi_def_cfa_offset 16\n"
        ".cfi_offset 29, -16\n"
        ".cfi_offset 30, -8\n"
        "bl trackway_vfork_next\n"
        "ldp x29, x30, [sp], #16\n"
        ".cfi_restore 30\n"
        ".cfi_restore 29\n"
        ".cfi_def_cfa_offset 0\n"
        "mov x16, x0\n" /* from there a jump is as good as a call, where branches are tracked */
        "br x16\n"
        ".cfi_endproc\n"
        ".size vfork, . - vfork\n");
#elif defined(__riscv) && __riscv_xlen == 64
__asm__(".text\n"
        ".globl vfork\n"
        ".type vfork, @function\n"
        "vfork:\n"
        ".cfi_startproc\n"
        "addi sp, sp, -16\n"
        ".cfi_def_cfa_offset 16\n"
        "sd ra, 8(sp)\n"
        ".cfi_offset ra, -8\n"
        "call trackway_vfork_next\n"
        "ld ra, 8(sp)\n"
        ".cfi_restore ra\n"
        "addi sp, sp, 16\n"
        ".cfi_def_cfa_offset 0\n"
        "jr a0\n"
        ".cfi_endproc\n"
        ".size vfork, . - vfork\n");
#else
#error "vfork: write this jump for your processor"
#endif

any_function trackway_vfork_next(void) __attribute__((used, visibility("hidden")));
any_function trackway_vfork_next(void)
{
    record_vfork();
    return vfork_found ? vfork_found : vfork_look_up();
}

typedef int (*clone_function)(int (*function)(void *), void *stack, int flags, void *argument, ...);
NEXT(clone, missing)
/* The last three arguments are there or not, as `flags` say; reading one that is not there is
 * reading a register or the caller's stack. */
EXPORTED int clone(int (*function)(void *), void *stack, int flags, void *argument, ...)
{
    const clone_function next = (clone_function)(clone_found ? clone_found : clone_look_up());
    void *parent_tid, *tls, *child_tid;
    va_list arguments;
    int child;
    va_start(arguments, argument);
    parent_tid = va_arg(arguments, void *);
    tls = va_arg(arguments, void *);
    child_tid = va_arg(arguments, void *);
    va_end(arguments);
    child = next(function, stack, flags, argument, parent_tid, tls, child_tid);
    if (clone_found)
        trackway(trackway_fork, clone, child, child < 0 ? errno : 0, (uint32_t)flags);
    return child;
}

/* POSIX has the error in the result; it may come from a step before the path is read. */
#define WRAP_SPAWN(name)                                                                          \
    WRAP(int, name, missing,                                                                      \
         (pid_t *restrict child, const char *restrict path,                                       \
          const posix_spawn_file_actions_t *restrict actions,                                     \
          const posix_spawnattr_t *restrict attributes, char *const argv[restrict],               \
          char *const envp[restrict]),                                                            \
         (child, path, actions, attributes, argv, envp), ON(trackway_fork, spawn),                \
         pid_t pid = -1;                                                                          \
         const int error = function(&pid, path, actions, attributes, argv, envp);                 \
         if (error == 0 && child)                                                                 \
             *child = pid;                                                                        \
         trackway(trackway_fork, spawn, error ? -1 : pid, error,                                  \
                  error ? readable(path) : path);                                                 \
         return error;)
WRAP_SPAWN(posix_spawn)
WRAP_SPAWN(posix_spawnp)

WRAP(int, daemon, missing, (int nochdir, int noclose), (nochdir, noclose),
     ON(trackway_fork, daemon),
     const int result = function(nochdir, noclose);
     trackway(trackway_fork, daemon, result < 0 ? errno : 0);
     return result;)

/* --- exec ------------------------------------------------------------------------------------ */

/* More than the kernel takes: each is an address and a byte at least, of six MiB. */
enum { ARGUMENTS_MAX = 1 << 20 };

/* How many there are; none if they cannot be read, up to the null at their end. */
static uint32_t count(char *const argv[])
{
    const char *at = (const char *)argv;
    uintptr_t known = 0; /* the end of the pages that can be read */
    uint32_t argc;
    for (argc = 0; argc < ARGUMENTS_MAX; argc++, at += sizeof(*argv)) {
        const uintptr_t last = (uintptr_t)at + sizeof(*argv) - 1;
        const char *argument;
        if (last >= known) {
            if (!is_readable(at, sizeof(*argv)))
                return 0;
            known = (last / SMALLEST_PAGE + 1) * SMALLEST_PAGE;
        }
        memcpy(&argument, at, sizeof(argument)); /* it need not be aligned */
        if (!argument)
            break;
    }
    return argc;
}

/* It does not return if it succeeds, so everything is checked before. */
#define EXEC_ON (ON(trackway_fork, exec) || ON(trackway_fork, exec_failed))
#define WRAP_EXEC(name, dirfd, path, parameters, arguments)                                       \
    WRAP(int, name, missing, parameters, arguments, EXEC_ON,                                      \
         const char *const recorded = readable(path);                                             \
         int result;                                                                              \
         trackway(trackway_fork, exec, dirfd, recorded, count(argv));                             \
         result = function arguments;                                                             \
         trackway(trackway_fork, exec_failed, errno, recorded);                                   \
         return result;)

WRAP_EXEC(execve, CURRENT_FOLDER, path, (const char *path, char *const argv[], char *const envp[]),
          (path, argv, envp))
WRAP_EXEC(execv, CURRENT_FOLDER, path, (const char *path, char *const argv[]), (path, argv))
WRAP_EXEC(execvp, CURRENT_FOLDER, path, (const char *path, char *const argv[]), (path, argv))
WRAP_EXEC(execvpe, CURRENT_FOLDER, path,
          (const char *path, char *const argv[], char *const envp[]), (path, argv, envp))
WRAP_EXEC(fexecve, fd, "", (int fd, char *const argv[], char *const envp[]), (fd, argv, envp))
WRAP_EXEC(execveat, dirfd, path,
          (int dirfd, const char *path, char *const argv[], char *const envp[], int flags),
          (dirfd, path, argv, envp, flags))

/*
 * The forms with a list do the same as the C library's: they make an array of it on the stack, and
 * call the form with the array. Here that is the helper's form, so the call is recorded there.
 */
#define COUNT_LIST(first, arguments, argc)                                                        \
    do {                                                                                          \
        va_start(arguments, first);                                                               \
        for (argc = 1; va_arg(arguments, char *); argc++)                                         \
            ;                                                                                     \
        va_end(arguments);                                                                        \
    } while (0)
#define READ_LIST(first, arguments, argc, argv)                                                   \
    do {                                                                                          \
        size_t index;                                                                             \
        va_start(arguments, first);                                                               \
        memcpy(&argv[0], &first, sizeof(argv[0])); /* takes the const off, as exec does */        \
        for (index = 1; index <= argc; index++)                                                   \
            argv[index] = va_arg(arguments, char *);                                              \
    } while (0)

EXPORTED int execl(const char *path, const char *first, ...)
{
    va_list arguments;
    size_t argc;
    COUNT_LIST(first, arguments, argc);
    {
        char *argv[argc + 1];
        READ_LIST(first, arguments, argc, argv);
        va_end(arguments);
        return execv(path, argv);
    }
}

EXPORTED int execlp(const char *path, const char *first, ...)
{
    va_list arguments;
    size_t argc;
    COUNT_LIST(first, arguments, argc);
    {
        char *argv[argc + 1];
        READ_LIST(first, arguments, argc, argv);
        va_end(arguments);
        return execvp(path, argv);
    }
}

EXPORTED int execle(const char *path, const char *first, ...)
{
    va_list arguments;
    size_t argc;
    COUNT_LIST(first, arguments, argc);
    {
        char *argv[argc + 1];
        char *const *envp;
        READ_LIST(first, arguments, argc, argv);
        envp = va_arg(arguments, char *const *);
        va_end(arguments);
        return execve(path, argv, envp);
    }
}

/* --- The end --------------------------------------------------------------------------------- */

#define WRAP_EXIT(name)                                                                           \
    NEXT(name, missing)                                                                           \
    EXPORTED void name(int status)                                                                \
    {                                                                                             \
        const any_function next = name##_found ? name##_found : name##_look_up();                 \
        if (name##_found)                                                                         \
            trackway(trackway_fork, exit, status);                                                \
        ((void (*)(int))next)(status);                                                            \
        __builtin_unreachable();                                                                  \
    }
WRAP_EXIT(_exit)
WRAP_EXIT(_Exit)
WRAP_EXIT(quick_exit)

/* exit() and the return from main(), which we could not come between. */
static void record_exit(int status, void *unused)
{
    (void)unused;
    trackway(trackway_fork, exit, status);
}

/* Registered first, so it is called last. */
__attribute__((constructor)) static void watch_exit(void)
{
    (void)on_exit(record_exit, NULL);
}
