/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * libtrackway-pthread.so: preloaded, it records how the threads of a program that was not
 * instrumented wait for each other. Mutexes have the names of LTTng-UST's lttng_ust_pthread;
 * condition variables, read-write locks, semaphores and barriers, which LTTng does not record, have
 * the provider trackway_pthread. C11's mtx_ and cnd_ functions are recorded as the equivalent POSIX
 * functions, with POSIX's numbers of errors.
 *
 * These functions are called in constructors, in allocators and in the loader's own calls, and
 * sem_post() in signal handlers. So nothing here allocates or does input or output, and the one
 * thread-local is in the static TLS block.
 *
 * A thread may be cancelled while it waits for a condition variable or a semaphore. So those
 * functions keep no state across the call, and need no cleanup: a begin without an end means that
 * the thread did not return. A thread is never cancelled in a lock; but a signal handler may run
 * there, post a semaphore, and leave by siglongjmp().
 *
 * The order of the trace is the order of the actions. A call that releases an object or wakes a
 * thread is recorded before it does so; a call that acquires an object or is woken is recorded
 * after it. So a release comes before the acquisition that it allows, and no lock has two holders.
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
 * A call that can wait has two events. The first event of a wait on a condition variable also means
 * that the mutex is released, the second that it is held again.
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

/* For semaphores the status is an error number, too: errno after the call, 0 if it succeeded. */
TRACKWAY_EVENT(trackway_pthread, sem_wait_begin, TRACKWAY_DEBUG_LINE, (ptr, sem));
TRACKWAY_EVENT(trackway_pthread, sem_wait_end, TRACKWAY_DEBUG_LINE, (ptr, sem), (i32, status));
TRACKWAY_EVENT(trackway_pthread, sem_trywait, TRACKWAY_DEBUG_LINE, (ptr, sem), (i32, status));
TRACKWAY_EVENT(trackway_pthread, sem_post, TRACKWAY_DEBUG_LINE, (ptr, sem));

/* The status is PTHREAD_BARRIER_SERIAL_THREAD (-1) in one of the threads that met, 0 in others. */
TRACKWAY_EVENT(trackway_pthread, barrier_wait_begin, TRACKWAY_DEBUG_LINE, (ptr, barrier));
TRACKWAY_EVENT(trackway_pthread, barrier_wait_end, TRACKWAY_DEBUG_LINE,
    (ptr, barrier), (i32, status));

/*
 * Only outermost calls are recorded: locks inside another preloaded library, or inside the
 * recording, are not the program's. This is the stack address of the thread's call that is being
 * recorded, or null. A call further down the stack is within it. Any other call is on another
 * stack, or the recorded call was left by a jump, and its frame is gone.
 */
static THREAD_LOCAL uintptr_t outermost;

#define FRAME ((uintptr_t)__builtin_frame_address(0))
#define IS_OUTERMOST (FRAME >= outermost)

/* --- The next functions --------------------------------------------------------------------- */

/* glibc's own names; weak, because they may go away. They serve while dlsym() is at work. */
int __pthread_mutex_lock(pthread_mutex_t *mutex) __attribute__((weak));
int __pthread_mutex_trylock(pthread_mutex_t *mutex) __attribute__((weak));
int __pthread_mutex_unlock(pthread_mutex_t *mutex) __attribute__((weak));

/* Serves where there is no function to call: before relocation, when the only thread need not wait,
 * and in C libraries that lack it. */
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

/*
 * Completes an acquisition before its event. The library reads the processor's clock by an
 * instruction that processors may execute earlier, while the instructions before it still wait for
 * memory (Intel's manual, volume 2, RDTSC; AMD's, volume 3), some tens of ns. Then the previous
 * holder could seem to release the lock later than that. Other events do not need this.
 */
static inline void settle(void)
{
#if defined(__x86_64__)
    __builtin_ia32_lfence();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

/* Ways to record a call, CALL, of `function`. STATUS makes a POSIX status of its result. */

/* Something is acquired: an event before and one after. */
#define ACQUIRING(provider, name, object, STATUS, call)                                           \
    int result;                                                                                   \
    if (!IS_OUTERMOST)                                                                            \
        return call;                                                                              \
    outermost = FRAME;                                                                            \
    trackway(provider, name##_req, object);                                                       \
    result = call;                                                                                \
    settle();                                                                                     \
    trackway(provider, name##_acq, object, STATUS(result));                                       \
    outermost = 0;                                                                                \
    return result;

/* The same without waiting: an event after. */
#define TRYING(provider, name, object, STATUS, call)                                              \
    int result;                                                                                   \
    if (!IS_OUTERMOST)                                                                            \
        return call;                                                                              \
    outermost = FRAME;                                                                            \
    result = call;                                                                                \
    settle();                                                                                     \
    trackway(provider, name, object, STATUS(result));                                             \
    outermost = 0;                                                                                \
    return result;

/* A release: an event before it, when the status is almost certain but not known; and a second
 * event if the status was another one. */
#define RELEASING(provider, name, object, STATUS, call)                                           \
    int result;                                                                                   \
    if (!IS_OUTERMOST)                                                                            \
        return call;                                                                              \
    outermost = FRAME;                                                                            \
    trackway(provider, name, object, 0);                                                          \
    result = call;                                                                                \
    if (UNLIKELY(STATUS(result) != 0))                                                            \
        trackway(provider, name, object, STATUS(result));                                         \
    outermost = 0;                                                                                \
    return result;

/* It wakes others up: an event before. */
#define WAKING(provider, name, object, call)                                                      \
    if (IS_OUTERMOST)                                                                             \
        trackway(provider, name, object);                                                         \
    return call;

/* It waits and is a cancellation point: an event before and one after, and no state. */
#define WAITING(provider, name, objects, STATUS, call)                                            \
    int result;                                                                                   \
    if (IS_OUTERMOST)                                                                             \
        trackway(provider, name##_begin, UNPACK objects);                                         \
    result = call;                                                                                \
    settle();                                                                                     \
    if (IS_OUTERMOST)                                                                             \
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

/* Locks with a time limit are recorded as locks, so that a tool that pairs locks and unlocks has
 * all of them; the status shows whether the time ran out. */

#define MUTEX_LOCK_ON                                                                             \
    EITHER_ON(lttng_ust_pthread, pthread_mutex_lock_req, pthread_mutex_lock_acq)
#define WRAP_LOCK(name, internal, parameters, arguments, STATUS)                                  \
    WRAP(int, name, internal, parameters, arguments, MUTEX_LOCK_ON,                               \
         ACQUIRING(lttng_ust_pthread, pthread_mutex_lock, mutex, STATUS, function arguments))
#define WRAP_TRYLOCK(name, internal, type, STATUS)                                                \
    WRAP(int, name, internal, (type * mutex), (mutex),                                            \
         ON(lttng_ust_pthread, pthread_mutex_trylock),                                            \
         TRYING(lttng_ust_pthread, pthread_mutex_trylock, mutex, STATUS, function(mutex)))
/* LTTng records it afterwards: another thread may be earlier then, with a lock of that mutex. */
#define WRAP_UNLOCK(name, internal, type, STATUS)                                                 \
    WRAP(int, name, internal, (type * mutex), (mutex),                                            \
         ON(lttng_ust_pthread, pthread_mutex_unlock),                                             \
         RELEASING(lttng_ust_pthread, pthread_mutex_unlock, mutex, STATUS, function(mutex)))

WRAP_LOCK(pthread_mutex_lock, pthread_mutex_lock_instead, (pthread_mutex_t * mutex), (mutex),
          POSIX_STATUS)
WRAP_LOCK(pthread_mutex_timedlock, missing,
          (pthread_mutex_t * mutex, const struct timespec *limit), (mutex, limit), POSIX_STATUS)
WRAP_LOCK(pthread_mutex_clocklock, missing,
          (pthread_mutex_t * mutex, clockid_t clock, const struct timespec *limit),
          (mutex, clock, limit), POSIX_STATUS)
WRAP_TRYLOCK(pthread_mutex_trylock, pthread_mutex_trylock_instead, pthread_mutex_t, POSIX_STATUS)
WRAP_UNLOCK(pthread_mutex_unlock, pthread_mutex_unlock_instead, pthread_mutex_t, POSIX_STATUS)

WRAP_LOCK(mtx_lock, missing, (mtx_t * mutex), (mutex), c11_status)
WRAP_LOCK(mtx_timedlock, missing, (mtx_t * mutex, const struct timespec *limit), (mutex, limit),
          c11_status)
WRAP_TRYLOCK(mtx_trylock, missing, mtx_t, c11_status)
WRAP_UNLOCK(mtx_unlock, missing, mtx_t, c11_status)

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
WRAP(int, pthread_rwlock_unlock, missing, (pthread_rwlock_t * rwlock), (rwlock),
     ON(trackway_pthread, rwlock_unlock),
     RELEASING(trackway_pthread, rwlock_unlock, rwlock, POSIX_STATUS, function(rwlock)))

/* --- Semaphores and barriers ----------------------------------------------------------------- */

/* Signal handlers may post, and try; so these are recorded wherever they are called. */
#define WRAP_SEM_WAIT(name, parameters, arguments)                                                \
    WRAP(int, name, missing, parameters, arguments,                                               \
         EITHER_ON(trackway_pthread, sem_wait_begin, sem_wait_end),                               \
         trackway(trackway_pthread, sem_wait_begin, sem);                                         \
         const int result = function arguments;                                                   \
         settle();                                                                                \
         trackway(trackway_pthread, sem_wait_end, sem, ERRNO_STATUS(result));                     \
         return result;)

WRAP_SEM_WAIT(sem_wait, (sem_t * sem), (sem))
WRAP_SEM_WAIT(sem_timedwait, (sem_t * sem, const struct timespec *limit), (sem, limit))
WRAP_SEM_WAIT(sem_clockwait, (sem_t * sem, clockid_t clock, const struct timespec *limit),
              (sem, clock, limit))
WRAP(int, sem_trywait, missing, (sem_t * sem), (sem), ON(trackway_pthread, sem_trywait),
     const int result = function(sem);
     settle();
     trackway(trackway_pthread, sem_trywait, sem, ERRNO_STATUS(result));
     return result;)
WRAP(int, sem_post, missing, (sem_t * sem), (sem), ON(trackway_pthread, sem_post),
     trackway(trackway_pthread, sem_post, sem);
     return function(sem);)
WRAP(int, pthread_barrier_wait, missing, (pthread_barrier_t * barrier), (barrier),
     EITHER_ON(trackway_pthread, barrier_wait_begin, barrier_wait_end),
     WAITING(trackway_pthread, barrier_wait, (barrier), POSIX_STATUS, function(barrier)))

/* --- Jumps ----------------------------------------------------------------------------------- */

/*
 * A thread that leaves a lock by a jump is outside of it. The stack address alone does not show
 * that where the thread continues further down than it was. For jumps other than the C library's
 * there is no more information: locks that such a thread takes down there are not recorded until it
 * has taken one further up.
 *
 * The functions have their own names here: <setjmp.h> declares these in several ways, and so do
 * compilers.
 */
static void no_jump(void)
{
    __builtin_trap();
}

#define WRAP_JUMP(name)                                                                           \
    NEXT(name, no_jump)                                                                           \
    EXPORTED _Noreturn void trackway_##name(void *place, int value) __asm__(#name);               \
    _Noreturn void trackway_##name(void *place, int value)                                        \
    {                                                                                             \
        const any_function next = name##_found ? name##_found : name##_look_up();                 \
        outermost = 0;                                                                            \
        ((void (*)(void *, int))next)(place, value);                                              \
        __builtin_unreachable();                                                                  \
    }
WRAP_JUMP(longjmp)
WRAP_JUMP(_longjmp)
WRAP_JUMP(siglongjmp)
WRAP_JUMP(__longjmp_chk) /* of programs that were compiled with _FORTIFY_SOURCE */
