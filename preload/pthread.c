/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * libtrackway-pthread.so: preloaded, it records how the threads of a program that was not
 * instrumented wait for each other. Mutexes are recorded as LTTng-UST's lttng_ust_pthread names
 * them; condition variables, read-write locks, semaphores and barriers, which LTTng does not
 * record, under the provider trackway_pthread. C11's mtx_ and cnd_ functions are recorded as the
 * POSIX functions that they are, with POSIX's numbers of errors.
 *
 * These functions are called in constructors, in allocators and in the loader's own calls, and
 * sem_post() in signal handlers. So nothing here allocates or does input or output, and the one
 * thread-local is in the static TLS block.
 *
 * A thread may be cancelled while it waits for a condition variable or a semaphore, and a signal
 * handler may run, or leave by siglongjmp(). So those functions keep no state across the call, and
 * need nothing to be undone: a begin without an end says that the thread did not come back.
 */
#define _GNU_SOURCE
#include "helper.h"
#include <pthread.h>
#include <semaphore.h>
#include <threads.h>
#include <time.h>

TRACKWAY_EVENT(lttng_ust_pthread, pthread_mutex_lock_req, TRACKWAY_DEBUG_LINE, (ptr, mutex));
TRACKWAY_EVENT(lttng_ust_pthread, pthread_mutex_lock_acq, TRACKWAY_DEBUG_LINE,
    (ptr, mutex), (i32, status));
TRACKWAY_EVENT(lttng_ust_pthread, pthread_mutex_trylock, TRACKWAY_DEBUG_LINE,
    (ptr, mutex), (i32, status));
TRACKWAY_EVENT(lttng_ust_pthread, pthread_mutex_unlock, TRACKWAY_DEBUG_LINE,
    (ptr, mutex), (i32, status));

/*
 * What can wait has two events; the first of a wait on a condition variable also says that the
 * mutex is released, the second that it is held again. What wakes others up is recorded before it
 * does, so that it comes first in the trace.
 */
TRACKWAY_EVENT(trackway_pthread, cond_wait_begin, TRACKWAY_DEBUG_LINE, (ptr, cond), (ptr, mutex));
TRACKWAY_EVENT(trackway_pthread, cond_wait_end, TRACKWAY_DEBUG_LINE,
    (ptr, cond), (ptr, mutex), (i32, status));
TRACKWAY_EVENT(trackway_pthread, cond_signal, TRACKWAY_DEBUG_LINE, (ptr, cond));
TRACKWAY_EVENT(trackway_pthread, cond_broadcast, TRACKWAY_DEBUG_LINE, (ptr, cond));

TRACKWAY_EVENT(trackway_pthread, rwlock_rdlock_req, TRACKWAY_DEBUG_LINE, (ptr, rwlock));
TRACKWAY_EVENT(trackway_pthread, rwlock_rdlock_acq, TRACKWAY_DEBUG_LINE,
    (ptr, rwlock), (i32, status));
TRACKWAY_EVENT(trackway_pthread, rwlock_wrlock_req, TRACKWAY_DEBUG_LINE, (ptr, rwlock));
TRACKWAY_EVENT(trackway_pthread, rwlock_wrlock_acq, TRACKWAY_DEBUG_LINE,
    (ptr, rwlock), (i32, status));
TRACKWAY_EVENT(trackway_pthread, rwlock_tryrdlock, TRACKWAY_DEBUG_LINE,
    (ptr, rwlock), (i32, status));
TRACKWAY_EVENT(trackway_pthread, rwlock_trywrlock, TRACKWAY_DEBUG_LINE,
    (ptr, rwlock), (i32, status));
TRACKWAY_EVENT(trackway_pthread, rwlock_unlock, TRACKWAY_DEBUG_LINE,
    (ptr, rwlock), (i32, status));

/* For semaphores the status is an error number, too: what errno is after the call, 0 if it
 * succeeded. */
TRACKWAY_EVENT(trackway_pthread, sem_wait_begin, TRACKWAY_DEBUG_LINE, (ptr, sem));
TRACKWAY_EVENT(trackway_pthread, sem_wait_end, TRACKWAY_DEBUG_LINE, (ptr, sem), (i32, status));
TRACKWAY_EVENT(trackway_pthread, sem_trywait, TRACKWAY_DEBUG_LINE, (ptr, sem), (i32, status));
TRACKWAY_EVENT(trackway_pthread, sem_post, TRACKWAY_DEBUG_LINE, (ptr, sem));

/* The status is PTHREAD_BARRIER_SERIAL_THREAD (-1) in one of the threads that met, 0 in others. */
TRACKWAY_EVENT(trackway_pthread, barrier_wait_begin, TRACKWAY_DEBUG_LINE, (ptr, barrier));
TRACKWAY_EVENT(trackway_pthread, barrier_wait_end, TRACKWAY_DEBUG_LINE,
    (ptr, barrier), (i32, status));

/*
 * How deep this thread is in functions that neither signal handlers nor cancelled threads leave,
 * while their events are on. Only the outermost call is recorded: that another preloaded library,
 * or the recording itself, takes a lock is no business of the program's.
 */
static THREAD_LOCAL unsigned depth;

/* --- The functions behind ours --------------------------------------------------------------- */

/* glibc's own names; weak, because they may go away. They serve while dlsym() is at work. */
int __pthread_mutex_lock(pthread_mutex_t *mutex) __attribute__((weak));
int __pthread_mutex_trylock(pthread_mutex_t *mutex) __attribute__((weak));
int __pthread_mutex_unlock(pthread_mutex_t *mutex) __attribute__((weak));

/* Serves where there is no function to call: before relocation, when there is one thread that
 * nobody keeps waiting, and in C libraries that lack it. */
static int missing(void)
{
    return is_relocated() ? ENOSYS : 0;
}

#define MUTEX_INSTEAD(name)                                                                       \
    static int name##_instead(pthread_mutex_t *mutex)                                             \
    {                                                                                             \
        return is_relocated() && __##name ? __##name(mutex) : missing();                          \
    }
MUTEX_INSTEAD(pthread_mutex_lock)
MUTEX_INSTEAD(pthread_mutex_trylock)
MUTEX_INSTEAD(pthread_mutex_unlock)

/* Ways to record a call, CALL, of `function`. STATUS makes a POSIX status of what it returned. */

/* Something is acquired: an event before and one after. */
#define ACQUIRING(provider, name, object, STATUS, call)                                           \
    int result;                                                                                   \
    depth++;                                                                                      \
    if (depth == 1)                                                                               \
        trackway(provider, name##_req, object);                                                   \
    result = call;                                                                                \
    if (depth == 1)                                                                               \
        trackway(provider, name##_acq, object, STATUS(result));                                   \
    depth--;                                                                                      \
    return result;

/* It does not wait: an event after. */
#define TRYING(provider, name, object, STATUS, call)                                              \
    int result;                                                                                   \
    depth++;                                                                                      \
    result = call;                                                                                \
    if (depth == 1)                                                                               \
        trackway(provider, name, object, STATUS(result));                                         \
    depth--;                                                                                      \
    return result;

/* It wakes others up: an event before. Keeps no state, for signal handlers. */
#define WAKING(provider, name, object, call)                                                      \
    if (depth == 0)                                                                               \
        trackway(provider, name, object);                                                         \
    return call;

/* It waits and is a cancellation point: an event before and one after, and no state. */
#define WAITING(provider, name, objects, STATUS, call)                                            \
    int result;                                                                                   \
    if (depth == 0)                                                                               \
        trackway(provider, name##_begin, UNPACK objects);                                         \
    result = call;                                                                                \
    if (depth == 0)                                                                               \
        trackway(provider, name##_end, UNPACK objects, STATUS(result));                           \
    return result;

#define EITHER_ON(provider, first, second) (ON(provider, first) || ON(provider, second))

#define POSIX_STATUS(result) (result)
#define ERRNO_STATUS(result) ((result) == 0 ? 0 : errno)

/* C11's results, as POSIX has them. */
static int c11_status(int result)
{
    switch (result) {
    case thrd_success: return 0;
    case thrd_busy: return EBUSY;
    case thrd_nomem: return ENOMEM;
    case thrd_timedout: return ETIMEDOUT;
    default: return EINVAL;
    }
}

/* --- Mutexes --------------------------------------------------------------------------------- */

/* Locks with a time limit are recorded as locks, so that whoever pairs locks and unlocks has all of
 * them; the status says whether the time ran out. */

#define MUTEX_LOCK_ON                                                                             \
    EITHER_ON(lttng_ust_pthread, pthread_mutex_lock_req, pthread_mutex_lock_acq)
#define WRAP_LOCK(name, internal, parameters, arguments, STATUS)                                  \
    WRAP(int, name, internal, parameters, arguments, MUTEX_LOCK_ON,                               \
         ACQUIRING(lttng_ust_pthread, pthread_mutex_lock, mutex, STATUS, function arguments))
#define WRAP_MUTEX(name, internal, type, event, STATUS)                                           \
    WRAP(int, name, internal, (type * mutex), (mutex), ON(lttng_ust_pthread, event),              \
         TRYING(lttng_ust_pthread, event, mutex, STATUS, function(mutex)))

WRAP_LOCK(pthread_mutex_lock, pthread_mutex_lock_instead, (pthread_mutex_t * mutex), (mutex),
          POSIX_STATUS)
WRAP_LOCK(pthread_mutex_timedlock, missing,
          (pthread_mutex_t * mutex, const struct timespec *limit), (mutex, limit), POSIX_STATUS)
WRAP_LOCK(pthread_mutex_clocklock, missing,
          (pthread_mutex_t * mutex, clockid_t clock, const struct timespec *limit),
          (mutex, clock, limit), POSIX_STATUS)
WRAP_MUTEX(pthread_mutex_trylock, pthread_mutex_trylock_instead, pthread_mutex_t,
           pthread_mutex_trylock, POSIX_STATUS)
WRAP_MUTEX(pthread_mutex_unlock, pthread_mutex_unlock_instead, pthread_mutex_t,
           pthread_mutex_unlock, POSIX_STATUS)

WRAP_LOCK(mtx_lock, missing, (mtx_t * mutex), (mutex), c11_status)
WRAP_LOCK(mtx_timedlock, missing, (mtx_t * mutex, const struct timespec *limit), (mutex, limit),
          c11_status)
WRAP_MUTEX(mtx_trylock, missing, mtx_t, pthread_mutex_trylock, c11_status)
WRAP_MUTEX(mtx_unlock, missing, mtx_t, pthread_mutex_unlock, c11_status)

/* --- Condition variables --------------------------------------------------------------------- */

#define WRAP_COND_WAIT(name, parameters, arguments, STATUS)                                       \
    WRAP(int, name, missing, parameters, arguments,                                               \
         EITHER_ON(trackway_pthread, cond_wait_begin, cond_wait_end),                             \
         WAITING(trackway_pthread, cond_wait, (cond, mutex), STATUS, function arguments))
#define WRAP_COND_WAKE(name, type, event)                                                         \
    WRAP(int, name, missing, (type * cond), (cond), ON(trackway_pthread, event),                  \
         WAKING(trackway_pthread, event, cond, function(cond)))

WRAP_COND_WAIT(pthread_cond_wait, (pthread_cond_t * cond, pthread_mutex_t *mutex), (cond, mutex),
               POSIX_STATUS)
WRAP_COND_WAIT(pthread_cond_timedwait,
               (pthread_cond_t * cond, pthread_mutex_t *mutex, const struct timespec *limit),
               (cond, mutex, limit), POSIX_STATUS)
WRAP_COND_WAIT(pthread_cond_clockwait,
               (pthread_cond_t * cond, pthread_mutex_t *mutex, clockid_t clock,
                const struct timespec *limit),
               (cond, mutex, clock, limit), POSIX_STATUS)
WRAP_COND_WAKE(pthread_cond_signal, pthread_cond_t, cond_signal)
WRAP_COND_WAKE(pthread_cond_broadcast, pthread_cond_t, cond_broadcast)

WRAP_COND_WAIT(cnd_wait, (cnd_t * cond, mtx_t *mutex), (cond, mutex), c11_status)
WRAP_COND_WAIT(cnd_timedwait, (cnd_t * cond, mtx_t *mutex, const struct timespec *limit),
               (cond, mutex, limit), c11_status)
WRAP_COND_WAKE(cnd_signal, cnd_t, cond_signal)
WRAP_COND_WAKE(cnd_broadcast, cnd_t, cond_broadcast)

/* --- Read-write locks ------------------------------------------------------------------------ */

#define WRAP_RWLOCK(name, event, parameters, arguments)                                           \
    WRAP(int, name, missing, parameters, arguments,                                               \
         EITHER_ON(trackway_pthread, event##_req, event##_acq),                                   \
         ACQUIRING(trackway_pthread, event, rwlock, POSIX_STATUS, function arguments))
#define WRAP_RWLOCK_TRY(name, event)                                                              \
    WRAP(int, name, missing, (pthread_rwlock_t * rwlock), (rwlock), ON(trackway_pthread, event),  \
         TRYING(trackway_pthread, event, rwlock, POSIX_STATUS, function(rwlock)))

WRAP_RWLOCK(pthread_rwlock_rdlock, rwlock_rdlock, (pthread_rwlock_t * rwlock), (rwlock))
WRAP_RWLOCK(pthread_rwlock_timedrdlock, rwlock_rdlock,
            (pthread_rwlock_t * rwlock, const struct timespec *limit), (rwlock, limit))
WRAP_RWLOCK(pthread_rwlock_clockrdlock, rwlock_rdlock,
            (pthread_rwlock_t * rwlock, clockid_t clock, const struct timespec *limit),
            (rwlock, clock, limit))
WRAP_RWLOCK(pthread_rwlock_wrlock, rwlock_wrlock, (pthread_rwlock_t * rwlock), (rwlock))
WRAP_RWLOCK(pthread_rwlock_timedwrlock, rwlock_wrlock,
            (pthread_rwlock_t * rwlock, const struct timespec *limit), (rwlock, limit))
WRAP_RWLOCK(pthread_rwlock_clockwrlock, rwlock_wrlock,
            (pthread_rwlock_t * rwlock, clockid_t clock, const struct timespec *limit),
            (rwlock, clock, limit))
WRAP_RWLOCK_TRY(pthread_rwlock_tryrdlock, rwlock_tryrdlock)
WRAP_RWLOCK_TRY(pthread_rwlock_trywrlock, rwlock_trywrlock)
WRAP_RWLOCK_TRY(pthread_rwlock_unlock, rwlock_unlock)

/* --- Semaphores and barriers ----------------------------------------------------------------- */

#define WRAP_SEM_WAIT(name, parameters, arguments)                                                \
    WRAP(int, name, missing, parameters, arguments,                                               \
         EITHER_ON(trackway_pthread, sem_wait_begin, sem_wait_end),                               \
         WAITING(trackway_pthread, sem_wait, (sem), ERRNO_STATUS, function arguments))

WRAP_SEM_WAIT(sem_wait, (sem_t * sem), (sem))
WRAP_SEM_WAIT(sem_timedwait, (sem_t * sem, const struct timespec *limit), (sem, limit))
WRAP_SEM_WAIT(sem_clockwait, (sem_t * sem, clockid_t clock, const struct timespec *limit),
              (sem, clock, limit))
/* Without state, like sem_post: a signal handler may try. */
WRAP(int, sem_trywait, missing, (sem_t * sem), (sem), ON(trackway_pthread, sem_trywait),
     const int result = function(sem);
     if (depth == 0)
         trackway(trackway_pthread, sem_trywait, sem, ERRNO_STATUS(result));
     return result;)
WRAP(int, sem_post, missing, (sem_t * sem), (sem), ON(trackway_pthread, sem_post),
     WAKING(trackway_pthread, sem_post, sem, function(sem)))
WRAP(int, pthread_barrier_wait, missing, (pthread_barrier_t * barrier), (barrier),
     EITHER_ON(trackway_pthread, barrier_wait_begin, barrier_wait_end),
     WAITING(trackway_pthread, barrier_wait, (barrier), POSIX_STATUS, function(barrier)))
