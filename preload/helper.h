/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Common parts of the preload helpers. docs/guides/preload.md describes how to write a helper, and
 * why so.
 *
 * A helper is one C file, compiled to one library, that exports the functions which it wraps and
 * nothing else. Its functions are called in any thread and at any time: by the dynamic loader
 * before relocations are done, by constructors, by signal handlers, by children of vfork.
 */
#ifndef TRACKWAY_PRELOAD_HELPER_H
#define TRACKWAY_PRELOAD_HELPER_H

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <trackway/trackway.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))
/* Code that runs only while events are on: out of line, so that the disabled path is short. */
#define ASIDE __attribute__((noinline))
/* Thread-local, in the static block: the other models allocate when a thread first comes by. */
#define THREAD_LOCAL __thread __attribute__((tls_model("initial-exec")))

#define LIKELY(condition) __builtin_expect(!!(condition), 1)
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)

/* Whether the event is on. As trackway_enabled(), for use in an expression of several. */
#define ON(provider, name) UNLIKELY(trackway_enabled(provider, name))

/*
 * Returns true if the loader has relocated this library. Before that, the loader runs resolvers of
 * indirect functions (STT_GNU_IFUNC) of libraries that follow this one, and such a resolver may
 * call a function of the helper. Until then only this file's own functions and static data may be
 * used: no function of the C library, no errno, no event.
 */
static inline int is_relocated(void)
{
    static const void *const volatile self = (const void *)&self; /* needs a relocation */
    return self == (const void *)&self;                           /* needs none */
}

/* Any function; to be cast to its type. */
typedef void (*any_function)(void);

/*
 * The next function NAME after the helper's: that of the C library, or of another preloaded
 * library. Null if there is none. Keeps errno.
 *
 * Some functions have two versions in glibc, and dlsym() has not always returned the same one. The
 * old version, for programs that were linked before it was replaced, works on other structures. The
 * helper is called for either, and passes all calls on to the current one.
 */
static inline any_function find_next(const char *name)
{
    static const struct {
        const char *prefix, *old, *today;
    } twice[] = {
        {"pthread_cond_", "GLIBC_2.2.5", "GLIBC_2.3.2"}, /* 2003 */
        {"posix_spawn", "GLIBC_2.2.5", "GLIBC_2.15"},    /* 2012 */
    };
    const int saved_errno = errno;
    void *found = dlsym(RTLD_NEXT, name);
    any_function function;
    size_t i;
    for (i = 0; i < sizeof(twice) / sizeof(*twice); i++)
        if (strncmp(name, twice[i].prefix, strlen(twice[i].prefix)) == 0) {
            void *today = dlvsym(RTLD_NEXT, name, twice[i].today);
            if (today && found == dlvsym(RTLD_NEXT, name, twice[i].old))
                found = today;
        }
    memcpy(&function, &found, sizeof(found)); /* ISO C has no cast from void * to a function */
    errno = saved_errno;
    return function;
}

/*
 * Finds a function and stores it to `found`; several threads may do it at a time, with the same
 * result. If there is none, or it cannot be looked for now, `instead` is the answer.
 */
static inline __attribute__((unused)) any_function look_up(any_function *found, const char *name,
                                                           any_function instead)
{
    static THREAD_LOCAL int is_looking_up; /* else dlsym() has called us */
    any_function function = NULL;
    if (is_relocated() && !is_looking_up) {
        is_looking_up = 1;
        function = find_next(name);
        is_looking_up = 0;
        __atomic_store_n(found, function, __ATOMIC_RELAXED);
    }
    return function ? function : instead;
}

/*
 * Defines NAME_next(), the next function NAME after the helper's, to be cast to its type; INSTEAD
 * serves until it is looked up. NAME_found is null until then: no event may be touched before.
 *
 * A constructor looks it up: dlsym() waits for the loader, and a thread that calls the helper may
 * hold the lock for which the loader waits.
 */
#define NEXT(name, instead)                                                                       \
    static any_function name##_found;                                                             \
    static ASIDE any_function name##_look_up(void)                                                \
    {                                                                                             \
        return look_up(&name##_found, #name, (any_function)instead);                              \
    }                                                                                             \
    __attribute__((constructor)) static void name##_look_up_early(void)                           \
    {                                                                                             \
        (void)name##_look_up();                                                                   \
    }

/*
 * A program may pass unreadable memory: it may count on an error, and the C library, the kernel or
 * a seccomp filter chooses the error. Memory that a successful call has read is readable; all other
 * memory must be checked here.
 *
 * The kernel performs the check, in rt_sigprocmask(): it reads eight bytes, and then refuses an
 * invalid operation. This is the cheapest call that only reads (no descriptor, no name). Sandboxes
 * that kill let it through, because every program with signal handlers needs it; they may forbid
 * access() and process_vm_readv(). Any other result, such as a filter's, counts as "no".
 */
enum { SMALLEST_PAGE = 4096, NO_OPERATION = -1, KERNEL_SIGSET_SIZE = 8 };

/* Whether these bytes, at least one, can be read: a page can as a whole, or not. Keeps errno. */
static inline int is_readable(const void *memory, size_t size)
{
    const uintptr_t first = (uintptr_t)memory / SMALLEST_PAGE;
    const uintptr_t last = ((uintptr_t)memory + size - 1) / SMALLEST_PAGE;
    const int saved_errno = errno;
    int is_good = first <= last;
    uintptr_t page;
    for (page = first; is_good && page <= last; page++)
        is_good = syscall(SYS_rt_sigprocmask, NO_OPERATION, page * SMALLEST_PAGE, NULL,
                          KERNEL_SIGSET_SIZE) == -1 &&
                  errno == EINVAL;
    errno = saved_errno;
    return is_good;
}

/* The string, or an empty one if as much of it as fits into an event cannot be read. */
static inline const char *readable(const char *string)
{
    const char *at = string;
    while (at - string < TRACKWAY_ABI_PAYLOAD_MAX) {
        const size_t rest = SMALLEST_PAGE - (uintptr_t)at % SMALLEST_PAGE;
        if (!is_readable(at, 1))
            return "";
        if (memchr(at, 0, rest))
            break;
        at += rest;
    }
    return string;
}

/*
 * WRAP(RESULT, NAME, INSTEAD, (PARAMETERS), (ARGUMENTS), IS_ON, CODE)
 *
 * Exports the function NAME, which has parameters and a result. While IS_ON is false it jumps to
 * the next function; else it executes CODE, in which that function is `function`.
 */
#define WRAP(result, name, instead, parameters, arguments, is_on, ...)                            \
    WRAP_AS(EXPORTED, name, result, name, instead, parameters, arguments, is_on, __VA_ARGS__)

/* The same for NAME by a function OURS of this LINKAGE: where NAME itself has other parameters. */
#define WRAP_AS(linkage, ours, result, name, instead, parameters, arguments, is_on, ...)          \
    NEXT(name, instead)                                                                           \
    static ASIDE result name##_early parameters                                                   \
    {                                                                                             \
        return ((result(*) parameters)name##_look_up())arguments;                                 \
    }                                                                                             \
    static ASIDE result name##_record(any_function next, UNPACK parameters)                       \
    {                                                                                             \
        result(*const function) parameters = (result(*) parameters)next;                          \
        __VA_ARGS__                                                                               \
    }                                                                                             \
    linkage result ours parameters                                                                \
    {                                                                                             \
        const any_function next = __atomic_load_n(&name##_found, __ATOMIC_RELAXED);               \
        if (UNLIKELY(!next))                                                                      \
            return name##_early arguments;                                                        \
        if (is_on)                                                                                \
            return name##_record(next, UNPACK arguments);                                         \
        return ((result(*) parameters)next)arguments;                                             \
    }
#define UNPACK(...) __VA_ARGS__

#endif
