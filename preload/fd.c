/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * libtrackway-fd.so: preloaded, it records where the file descriptors of a program that was not
 * instrumented come from and go to. (LTTng-UST's library of that name records nothing: it keeps
 * programs from closing LTTng's own descriptors, of which Trackway has none.)
 *
 * Descriptors that the C library opens inside itself (popen, getaddrinfo, syslog), those that are
 * received through a socket, and bare system calls are not seen; nor are functions that are rare:
 * docs/guides/preload.md lists them.
 *
 * Most of these functions may be called in signal handlers and in children of vfork, and some are
 * cancellation points. So nothing is kept across a call, and nothing needs to be undone.
 */
#define _GNU_SOURCE
#include "helper.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* `fd` is -1 where the call failed, and `error` is then errno; else `error` is 0. */
TRACKWAY_EVENT(trackway_fd, open, TRACKWAY_DEBUG_LINE,
    (i32, fd), (i32, error), (i32, dirfd), (x32, flags), (str, path));
/* A close is recorded before it happens: afterwards another thread may get, and record, the same
 * number. */
TRACKWAY_EVENT(trackway_fd, close, TRACKWAY_DEBUG_LINE, (i32, fd));
TRACKWAY_EVENT(trackway_fd, close_range, TRACKWAY_DEBUG_LINE,
    (u32, first), (u32, last), (x32, flags));
TRACKWAY_EVENT(trackway_fd, dup, TRACKWAY_DEBUG_LINE,
    (i32, fd), (i32, error), (i32, old_fd), (x32, flags));
TRACKWAY_EVENT(trackway_fd, pipe, TRACKWAY_DEBUG_LINE,
    (i32, read_fd), (i32, write_fd), (i32, error), (x32, flags));
TRACKWAY_EVENT(trackway_fd, socket, TRACKWAY_DEBUG_LINE,
    (i32, fd), (i32, error), (i32, family), (i32, type), (i32, protocol));
TRACKWAY_EVENT(trackway_fd, socketpair, TRACKWAY_DEBUG_LINE,
    (i32, fd), (i32, other_fd), (i32, error), (i32, family), (i32, type), (i32, protocol));
TRACKWAY_EVENT(trackway_fd, accept, TRACKWAY_DEBUG_LINE,
    (i32, fd), (i32, error), (i32, listening_fd), (x32, flags));
TRACKWAY_ENUM(trackway_fd, kind, (eventfd, 0), (epoll, 1), (timerfd, 2), (signalfd, 3), (memfd, 4),
    (inotify, 5));
TRACKWAY_EVENT(trackway_fd, create, TRACKWAY_DEBUG_LINE,
    (i32, fd), (i32, error), (enum, kind, trackway_fd, kind, u8), (x32, flags));

enum { KIND_EVENTFD, KIND_EPOLL, KIND_TIMERFD, KIND_SIGNALFD, KIND_MEMFD, KIND_INOTIFY };

#define ERROR(result) ((result) < 0 ? errno : 0)

/* --- Fallbacks without a function of the C library -------------------------------------------- */

/* It lacks it; or a resolver of an indirect function makes a call before we are relocated. */
static int missing(void)
{
    if (is_relocated())
        errno = ENOSYS;
    return -1;
}

static void *missing_pointer(void)
{
    if (is_relocated())
        errno = ENOSYS;
    return NULL;
}

/* These resolvers do call this one, to read /proc/cpuinfo and the like: by the bare system call. */
static long early_system_call(long number, long a, long b, long c, long d)
{
#if defined(__x86_64__)
    long result;
    register long fourth __asm__("r10") = d;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth)
                     : "rcx", "r11", "memory");
#elif defined(__aarch64__)
    register long call __asm__("x8") = number;
    register long result __asm__("x0") = a;
    register long second __asm__("x1") = b, third __asm__("x2") = c, fourth __asm__("x3") = d;
    __asm__ volatile("svc #0"
                     : "+r"(result)
                     : "r"(call), "r"(second), "r"(third), "r"(fourth)
                     : "memory");
#elif defined(__riscv) && __riscv_xlen == 64
    register long call __asm__("a7") = number;
    register long result __asm__("a0") = a;
    register long second __asm__("a1") = b, third __asm__("a2") = c, fourth __asm__("a3") = d;
    __asm__ volatile("ecall"
                     : "+r"(result)
                     : "r"(call), "r"(second), "r"(third), "r"(fourth)
                     : "memory");
#else
#error "write this system call for your processor"
#endif
    return result < 0 ? -1 : result;
}

static int early_openat(int dirfd, const char *path, int flags, mode_t mode)
{
    return (int)early_system_call(SYS_openat, dirfd, (long)(uintptr_t)path, flags, mode);
}

static int early_open(const char *path, int flags, mode_t mode)
{
    return early_openat(AT_FDCWD, path, flags, mode);
}

static int early_close(int fd)
{
    return (int)early_system_call(SYS_close, fd, 0, 0, 0);
}

/* --- open ------------------------------------------------------------------------------------ */

/* A path that cannot be read is recorded as an empty one. Other errors than EFAULT do not say that
 * it was read: flags are looked at first, and the C library looks at modes. */
static void record_open(int fd, int dirfd, int flags, const char *path)
{
    trackway(trackway_fd, open, fd, ERROR(fd), dirfd, (uint32_t)flags,
             fd < 0 ? readable(path) : path);
}

/* Whether open(2) looks at its mode. */
static mode_t mode_of(int flags, va_list arguments)
{
    const int makes = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
    return makes ? (mode_t)va_arg(arguments, unsigned) : 0;
}

#define WRAP_OPEN(name)                                                                           \
    WRAP_AS(static inline, our_##name, int, name, early_open,                                     \
            (const char *path, int flags, mode_t mode),                                           \
            (path, flags, mode), ON(trackway_fd, open),                                           \
            const int fd = function(path, flags, mode);                                           \
            record_open(fd, AT_FDCWD, flags, path);                                               \
            return fd;)                                                                           \
    EXPORTED int name(const char *path, int flags, ...)                                           \
    {                                                                                             \
        mode_t mode;                                                                              \
        va_list arguments;                                                                        \
        va_start(arguments, flags);                                                               \
        mode = mode_of(flags, arguments);                                                         \
        va_end(arguments);                                                                        \
        return our_##name(path, flags, mode);                                                     \
    }
#define WRAP_OPENAT(name)                                                                         \
    WRAP_AS(static inline, our_##name, int, name, early_openat,                                   \
            (int dirfd, const char *path, int flags, mode_t mode), (dirfd, path, flags, mode),    \
            ON(trackway_fd, open),                                                                \
            const int fd = function(dirfd, path, flags, mode);                                    \
            record_open(fd, dirfd, flags, path);                                                  \
            return fd;)                                                                           \
    EXPORTED int name(int dirfd, const char *path, int flags, ...)                                \
    {                                                                                             \
        mode_t mode;                                                                              \
        va_list arguments;                                                                        \
        va_start(arguments, flags);                                                               \
        mode = mode_of(flags, arguments);                                                         \
        va_end(arguments);                                                                        \
        return our_##name(dirfd, path, flags, mode);                                              \
    }

WRAP_OPEN(open)
WRAP_OPEN(open64)
WRAP_OPENAT(openat)
WRAP_OPENAT(openat64)

/* Functions of programs that were compiled with _FORTIFY_SOURCE. */
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int dirfd, const char *path, int flags);
int __openat64_2(int dirfd, const char *path, int flags);

#define WRAP_OPEN_2(name)                                                                         \
    WRAP(int, name, early_open, (const char *path, int flags), (path, flags),                     \
         ON(trackway_fd, open),                                                                   \
         const int fd = function(path, flags);                                                    \
         record_open(fd, AT_FDCWD, flags, path);                                                  \
         return fd;)
#define WRAP_OPENAT_2(name)                                                                       \
    WRAP(int, name, early_openat, (int dirfd, const char *path, int flags), (dirfd, path, flags), \
         ON(trackway_fd, open),                                                                   \
         const int fd = function(dirfd, path, flags);                                             \
         record_open(fd, dirfd, flags, path);                                                     \
         return fd;)
WRAP_OPEN_2(__open_2)
WRAP_OPEN_2(__open64_2)
WRAP_OPENAT_2(__openat_2)
WRAP_OPENAT_2(__openat64_2)

#define WRAP_CREAT(name)                                                                          \
    WRAP(int, name, missing, (const char *path, mode_t mode), (path, mode),                       \
         ON(trackway_fd, open),                                                                   \
         const int fd = function(path, mode);                                                     \
         record_open(fd, AT_FDCWD, O_CREAT | O_WRONLY | O_TRUNC, path);                           \
         return fd;)
WRAP_CREAT(creat)
WRAP_CREAT(creat64)

/* The path that was made of the template; the flags are those that mkstemp(3) names. */
#define WRAP_MKSTEMP(name, given, parameters, arguments)                                          \
    WRAP(int, name, missing, parameters, arguments, ON(trackway_fd, open),                        \
         const int fd = function arguments;                                                       \
         record_open(fd, AT_FDCWD, O_RDWR | O_CREAT | O_EXCL | (given), path);                    \
         return fd;)
WRAP_MKSTEMP(mkstemp, 0, (char *path), (path))
WRAP_MKSTEMP(mkstemp64, 0, (char *path), (path))
WRAP_MKSTEMP(mkostemp, flags, (char *path, int flags), (path, flags))
WRAP_MKSTEMP(mkostemp64, flags, (char *path, int flags), (path, flags))
WRAP_MKSTEMP(mkstemps, 0, (char *path, int suffix), (path, suffix))
WRAP_MKSTEMP(mkstemps64, 0, (char *path, int suffix), (path, suffix))
WRAP_MKSTEMP(mkostemps, flags, (char *path, int suffix, int flags), (path, suffix, flags))
WRAP_MKSTEMP(mkostemps64, flags, (char *path, int suffix, int flags), (path, suffix, flags))

/* The path is the object's name, a file in /dev/shm. */
WRAP(int, shm_open, missing, (const char *name, int flags, mode_t mode), (name, flags, mode),
     ON(trackway_fd, open),
     const int fd = function(name, flags, mode);
     record_open(fd, AT_FDCWD, flags, name);
     return fd;)
WRAP(int, posix_openpt, missing, (int flags), (flags), ON(trackway_fd, open),
     const int fd = function(flags);
     record_open(fd, AT_FDCWD, flags, "/dev/ptmx");
     return fd;)

/* --- Streams --------------------------------------------------------------------------------- */

/* The flags that fopen(3) documents for a mode; `c`, `m` and a character set are extensions of
 * glibc. */
static int flags_of(const char *mode)
{
    int flags = *mode == 'r' ? O_RDONLY : O_WRONLY | O_CREAT | (*mode == 'a' ? O_APPEND : O_TRUNC);
    size_t i;
    for (i = 1; mode[0] && mode[i] && mode[i] != ','; i++)
        if (mode[i] == '+')
            flags = (flags & ~O_ACCMODE) | O_RDWR;
        else if (mode[i] == 'x')
            flags |= O_EXCL;
        else if (mode[i] == 'e')
            flags |= O_CLOEXEC;
    return flags;
}

/* A stream has no descriptor where its functions are the program's: fopencookie(3). */
static int fd_of(FILE *stream)
{
    const int saved_errno = errno;
    const int fd = stream ? fileno(stream) : -1;
    errno = saved_errno;
    return fd;
}

#define WRAP_FOPEN(name)                                                                          \
    WRAP(FILE *, name, missing_pointer, (const char *path, const char *mode), (path, mode),       \
         ON(trackway_fd, open),                                                                   \
         FILE *const stream = function(path, mode);                                               \
         record_open(fd_of(stream), AT_FDCWD, flags_of(mode), path);                              \
         return stream;)
/* Closes, then opens. Without a path it changes the mode of the open file. */
#define WRAP_FREOPEN(name)                                                                        \
    WRAP(FILE *, name, missing_pointer, (const char *path, const char *mode, FILE *stream),       \
         (path, mode, stream), ON(trackway_fd, open) || ON(trackway_fd, close),                   \
         const int old_fd = fd_of(stream);                                                        \
         FILE *reopened;                                                                          \
         if (path && old_fd >= 0)                                                                 \
             trackway(trackway_fd, close, old_fd);                                                \
         reopened = function(path, mode, stream);                                                 \
         if (path)                                                                                \
             record_open(fd_of(reopened), AT_FDCWD, flags_of(mode), path);                        \
         return reopened;)
WRAP_FOPEN(fopen)
WRAP_FOPEN(fopen64)
WRAP_FREOPEN(freopen)
WRAP_FREOPEN(freopen64)
/* A file that has no path; the flags are those that tmpfile(3) names. */
#define WRAP_TMPFILE(name)                                                                        \
    NEXT(name, missing_pointer)                                                                   \
    EXPORTED FILE *name(void)                                                                     \
    {                                                                                             \
        const any_function next = name##_found ? name##_found : name##_look_up();                 \
        FILE *const stream = ((FILE * (*)(void)) next)();                                         \
        if (name##_found && ON(trackway_fd, open))                                                \
            record_open(fd_of(stream), AT_FDCWD, O_RDWR | O_CREAT | O_EXCL, "");                  \
        return stream;                                                                            \
    }
WRAP_TMPFILE(tmpfile)
WRAP_TMPFILE(tmpfile64)
WRAP(int, fclose, missing, (FILE *stream), (stream), ON(trackway_fd, close),
     const int fd = fd_of(stream);
     if (fd >= 0)
         trackway(trackway_fd, close, fd);
     return function(stream);)

WRAP(DIR *, opendir, missing_pointer, (const char *path), (path), ON(trackway_fd, open),
     DIR *const folder = function(path);
     record_open(folder ? dirfd(folder) : -1, AT_FDCWD, O_RDONLY | O_DIRECTORY | O_CLOEXEC, path);
     return folder;)
WRAP(int, closedir, missing, (DIR *folder), (folder), ON(trackway_fd, close),
     if (folder)
         trackway(trackway_fd, close, dirfd(folder));
     return function(folder);)

/* --- close, dup and fcntl -------------------------------------------------------------------- */

WRAP(int, close, early_close, (int fd), (fd), ON(trackway_fd, close),
     trackway(trackway_fd, close, fd);
     return function(fd);)
WRAP(int, close_range, missing, (unsigned first, unsigned last, int flags), (first, last, flags),
     ON(trackway_fd, close_range),
     trackway(trackway_fd, close_range, first, last, (uint32_t)flags);
     return function(first, last, flags);)
NEXT(closefrom, missing)
EXPORTED void closefrom(int first)
{
    const any_function next = closefrom_found ? closefrom_found : closefrom_look_up();
    if (closefrom_found && ON(trackway_fd, close_range))
        trackway(trackway_fd, close_range, first < 0 ? 0 : (unsigned)first, ~0U, 0);
    ((void (*)(int))next)(first);
}

WRAP(int, dup, missing, (int old_fd), (old_fd), ON(trackway_fd, dup),
     const int fd = function(old_fd);
     trackway(trackway_fd, dup, fd, ERROR(fd), old_fd, 0);
     return fd;)
WRAP(int, dup2, missing, (int old_fd, int new_fd), (old_fd, new_fd), ON(trackway_fd, dup),
     const int fd = function(old_fd, new_fd);
     trackway(trackway_fd, dup, fd, ERROR(fd), old_fd, 0);
     return fd;)
WRAP(int, dup3, missing, (int old_fd, int new_fd, int flags), (old_fd, new_fd, flags),
     ON(trackway_fd, dup),
     const int fd = function(old_fd, new_fd, flags);
     trackway(trackway_fd, dup, fd, ERROR(fd), old_fd, (uint32_t)flags);
     return fd;)

/* All commands take at most one argument, an integer or a pointer, and either fits into a pointer;
 * reading one that is not there is reading a register. */
#define WRAP_FCNTL(name)                                                                          \
    WRAP_AS(static inline, our_##name, int, name, missing, (int fd, int command, void *argument), \
            (fd, command, argument),                                                              \
            (command == F_DUPFD || command == F_DUPFD_CLOEXEC) && ON(trackway_fd, dup),           \
            const int result = function(fd, command, argument);                                   \
            trackway(trackway_fd, dup, result, ERROR(result), fd,                                 \
                     command == F_DUPFD_CLOEXEC ? O_CLOEXEC : 0);                                 \
            return result;)                                                                       \
    EXPORTED int name(int fd, int command, ...)                                                   \
    {                                                                                             \
        void *argument;                                                                           \
        va_list arguments;                                                                        \
        va_start(arguments, command);                                                             \
        argument = va_arg(arguments, void *);                                                     \
        va_end(arguments);                                                                        \
        return our_##name(fd, command, argument);                                                 \
    }
WRAP_FCNTL(fcntl)
WRAP_FCNTL(fcntl64)

/* --- Pipes and sockets ----------------------------------------------------------------------- */

#define WRAP_PIPE(name, given, parameters, arguments)                                             \
    WRAP(int, name, missing, parameters, arguments, ON(trackway_fd, pipe),                        \
         const int result = function arguments;                                                   \
         trackway(trackway_fd, pipe, result == 0 ? fds[0] : -1, result == 0 ? fds[1] : -1,        \
                  ERROR(result), (uint32_t)(given));                                              \
         return result;)
WRAP_PIPE(pipe, 0, (int fds[2]), (fds))
WRAP_PIPE(pipe2, flags, (int fds[2], int flags), (fds, flags))

WRAP(int, socket, missing, (int family, int type, int protocol), (family, type, protocol),
     ON(trackway_fd, socket),
     const int fd = function(family, type, protocol);
     trackway(trackway_fd, socket, fd, ERROR(fd), family, type, protocol);
     return fd;)
WRAP(int, socketpair, missing, (int family, int type, int protocol, int fds[2]),
     (family, type, protocol, fds), ON(trackway_fd, socketpair),
     const int result = function(family, type, protocol, fds);
     trackway(trackway_fd, socketpair, result == 0 ? fds[0] : -1, result == 0 ? fds[1] : -1,
              ERROR(result), family, type, protocol);
     return result;)
WRAP(int, accept, missing, (int fd, __SOCKADDR_ARG address, socklen_t *restrict length),
     (fd, address, length), ON(trackway_fd, accept),
     const int accepted = function(fd, address, length);
     trackway(trackway_fd, accept, accepted, ERROR(accepted), fd, 0);
     return accepted;)
WRAP(int, accept4, missing,
     (int fd, __SOCKADDR_ARG address, socklen_t *restrict length, int flags),
     (fd, address, length, flags), ON(trackway_fd, accept),
     const int accepted = function(fd, address, length, flags);
     trackway(trackway_fd, accept, accepted, ERROR(accepted), fd, (uint32_t)flags);
     return accepted;)

/* --- Other kinds of descriptors --------------------------------------------------------------- */

#define WRAP_CREATE(name, kind, given, parameters, arguments)                                     \
    WRAP(int, name, missing, parameters, arguments, ON(trackway_fd, create),                      \
         const int fd = function arguments;                                                       \
         trackway(trackway_fd, create, fd, ERROR(fd), kind, (uint32_t)(given));                   \
         return fd;)
WRAP_CREATE(eventfd, KIND_EVENTFD, flags, (unsigned initial, int flags), (initial, flags))
WRAP_CREATE(epoll_create, KIND_EPOLL, 0, (int size), (size))
WRAP_CREATE(epoll_create1, KIND_EPOLL, flags, (int flags), (flags))
WRAP_CREATE(timerfd_create, KIND_TIMERFD, flags, (clockid_t clock, int flags), (clock, flags))
WRAP_CREATE(memfd_create, KIND_MEMFD, flags, (const char *name, unsigned flags), (name, flags))
WRAP_CREATE(inotify_init1, KIND_INOTIFY, flags, (int flags), (flags))
NEXT(inotify_init, missing)
EXPORTED int inotify_init(void)
{
    const any_function next = inotify_init_found ? inotify_init_found : inotify_init_look_up();
    const int fd = ((int (*)(void))next)();
    if (inotify_init_found)
        trackway(trackway_fd, create, fd, ERROR(fd), KIND_INOTIFY, 0);
    return fd;
}

/* With a descriptor, it changes that one. */
WRAP(int, signalfd, missing, (int fd, const sigset_t *set, int flags), (fd, set, flags),
     fd == -1 && ON(trackway_fd, create),
     const int made = function(fd, set, flags);
     trackway(trackway_fd, create, made, ERROR(made), KIND_SIGNALFD, (uint32_t)flags);
     return made;)
