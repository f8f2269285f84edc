/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * libtrackway-pthread.so: preloaded, it records how a program that was not instrumented uses its
 * mutexes. Events and fields are named as LTTng-UST's lttng_ust_pthread names them.
 *
 * Mutexes are locked in constructors, in allocators and in the loader's own calls. So nothing here
 * allocates or does input or output, and the one thread-local is in the static TLS block. While
 * the real functions are being looked up, the C library's internal names for them serve.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <trackway/trackway.h>

TRACKWAY_EVENT(lttng_ust_pthread, pthread_mutex_lock_req, TRACKWAY_DEBUG_LINE, (ptr, mutex));
TRACKWAY_EVENT(lttng_ust_pthread, pthread_mutex_lock_acq, TRACKWAY_DEBUG_LINE,
    (ptr, mutex), (i32, status));
TRACKWAY_EVENT(lttng_ust_pthread, pthread_mutex_trylock, TRACKWAY_DEBUG_LINE,
    (ptr, mutex), (i32, status));
TRACKWAY_EVENT(lttng_ust_pthread, pthread_mutex_unlock, TRACKWAY_DEBUG_LINE,
    (ptr, mutex), (i32, status));

#define EXPORTED __attribute__((visibility("default")))

/* glibc's own names; weak, because they may go away. */
int __pthread_mutex_lock(pthread_mutex_t *mutex) __attribute__((weak));
int __pthread_mutex_trylock(pthread_mutex_t *mutex) __attribute__((weak));
int __pthread_mutex_unlock(pthread_mutex_t *mutex) __attribute__((weak));

typedef int (*mutex_function)(pthread_mutex_t *mutex);

/* The functions behind ours, null while unknown. */
static mutex_function next_lock, next_trylock, next_unlock;

/* How deep this thread is in our functions; only the outermost call is recorded. */
static __thread unsigned depth __attribute__((tls_model("initial-exec")));

/* Looks `name` up, once. Several threads may do it at a time, with the same result. */
static mutex_function look_up(mutex_function *next, const char *name, mutex_function internal)
{
    const int saved_errno = errno;
    mutex_function function = NULL;
    if (depth > 1)
        return internal; /* dlsym() has called us */
    {
        void *found = dlsym(RTLD_NEXT, name);
        memcpy(&function, &found, sizeof(found)); /* ISO C has no cast to a function */
    }
    if (!function)
        function = internal;
    __atomic_store_n(next, function, __ATOMIC_RELAXED);
    errno = saved_errno;
    return function;
}

/* Calls the function behind ours. ENOSYS if there is none, which no C library leaves us with. */
static inline int call(mutex_function *next, const char *name, mutex_function internal,
                       pthread_mutex_t *mutex)
{
    mutex_function function = __atomic_load_n(next, __ATOMIC_RELAXED);
    if (__builtin_expect(!function, 0)) {
        function = look_up(next, name, internal);
        if (!function)
            return ENOSYS;
    }
    return function(mutex);
}

__attribute__((constructor)) static void resolve_early(void)
{
    depth++;
    (void)look_up(&next_lock, "pthread_mutex_lock", __pthread_mutex_lock);
    (void)look_up(&next_trylock, "pthread_mutex_trylock", __pthread_mutex_trylock);
    (void)look_up(&next_unlock, "pthread_mutex_unlock", __pthread_mutex_unlock);
    depth--;
}

EXPORTED int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    int status;
    depth++;
    if (depth == 1)
        trackway(lttng_ust_pthread, pthread_mutex_lock_req, mutex);
    status = call(&next_lock, "pthread_mutex_lock", __pthread_mutex_lock, mutex);
    if (depth == 1)
        trackway(lttng_ust_pthread, pthread_mutex_lock_acq, mutex, status);
    depth--;
    return status;
}

EXPORTED int pthread_mutex_trylock(pthread_mutex_t *mutex)
{
    int status;
    depth++;
    status = call(&next_trylock, "pthread_mutex_trylock", __pthread_mutex_trylock, mutex);
    if (depth == 1)
        trackway(lttng_ust_pthread, pthread_mutex_trylock, mutex, status);
    depth--;
    return status;
}

EXPORTED int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    int status;
    depth++;
    status = call(&next_unlock, "pthread_mutex_unlock", __pthread_mutex_unlock, mutex);
    if (depth == 1)
        trackway(lttng_ust_pthread, pthread_mutex_unlock, mutex, status);
    depth--;
    return status;
}
