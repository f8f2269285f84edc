/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* PTHREAD each|cancel|signals|jumps|threads N|contend N: records of the pthread helper, see
 * expect.h; `contend` prints nothing. */
#define _GNU_SOURCE
#include "expect.h"
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <threads.h>
#include <time.h>
#include <ucontext.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t barrier;
static sem_t sem;

static const struct timespec past = {1, 0};

/* A call of CALL that returns RESULT, and leaves errno alone if that is an error number. */
#define CALLS(result, call)                                                                       \
    do {                                                                                          \
        errno = 77;                                                                               \
        CHECK((call) == (result));                                                                \
        CHECK(errno == 77);                                                                       \
    } while (0)

static void lock_events(const void *object, int status)
{
    expect("lttng_ust_pthread:pthread_mutex_lock_req mutex = 0x%lX", HEX(object));
    expect("lttng_ust_pthread:pthread_mutex_lock_acq mutex = 0x%lX, status = %d", HEX(object),
           status);
}

static void one_event(const char *name, const char *field, const void *object, int status)
{
    expect("%s %s = 0x%lX, status = %d", name, field, HEX(object), status);
}

static void mutexes(void)
{
    CALLS(0, pthread_mutex_lock(&mutex));
    lock_events(&mutex, 0);
    CALLS(EBUSY, pthread_mutex_trylock(&mutex));
    one_event("lttng_ust_pthread:pthread_mutex_trylock", "mutex", &mutex, EBUSY);
    CALLS(ETIMEDOUT, pthread_mutex_timedlock(&mutex, &past));
    lock_events(&mutex, ETIMEDOUT);
    CALLS(ETIMEDOUT, pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &past));
    lock_events(&mutex, ETIMEDOUT);
    CALLS(0, pthread_mutex_unlock(&mutex));
    one_event("lttng_ust_pthread:pthread_mutex_unlock", "mutex", &mutex, 0);
}

/* An unlock is recorded before it is one. */
static void refusals(void)
{
    pthread_mutexattr_t checks;
    pthread_mutex_t checked;
    CHECK(pthread_mutexattr_init(&checks) == 0);
    CHECK(pthread_mutexattr_settype(&checks, PTHREAD_MUTEX_ERRORCHECK) == 0);
    CHECK(pthread_mutex_init(&checked, &checks) == 0);
    CALLS(EPERM, pthread_mutex_unlock(&checked));
    one_event("lttng_ust_pthread:pthread_mutex_unlock", "mutex", &checked, 0);
    one_event("lttng_ust_pthread:pthread_mutex_unlock", "mutex", &checked, EPERM);
}

static void c11(void)
{
    static mtx_t mtx;
    static cnd_t cnd;
    CHECK(mtx_init(&mtx, mtx_timed) == thrd_success && cnd_init(&cnd) == thrd_success);
    CALLS(thrd_success, mtx_lock(&mtx));
    lock_events(&mtx, 0);
    CALLS(thrd_busy, mtx_trylock(&mtx));
    one_event("lttng_ust_pthread:pthread_mutex_trylock", "mutex", &mtx, EBUSY);
    CALLS(thrd_timedout, mtx_timedlock(&mtx, &past));
    lock_events(&mtx, ETIMEDOUT);
    CALLS(thrd_timedout, cnd_timedwait(&cnd, &mtx, &past));
    expect("trackway_pthread:cond_wait_begin cond = 0x%lX, mutex = 0x%lX", HEX(&cnd), HEX(&mtx));
    expect("trackway_pthread:cond_wait_end cond = 0x%lX, mutex = 0x%lX, status = %d", HEX(&cnd),
           HEX(&mtx), ETIMEDOUT);
    CALLS(thrd_success, mtx_unlock(&mtx));
    one_event("lttng_ust_pthread:pthread_mutex_unlock", "mutex", &mtx, 0);
    CALLS(thrd_success, cnd_signal(&cnd));
    expect("trackway_pthread:cond_signal cond = 0x%lX", HEX(&cnd));
    CALLS(thrd_success, cnd_broadcast(&cnd));
    expect("trackway_pthread:cond_broadcast cond = 0x%lX", HEX(&cnd));
}

static void cond_events(int status)
{
    expect("trackway_pthread:cond_wait_begin cond = 0x%lX, mutex = 0x%lX", HEX(&cond),
           HEX(&mutex));
    expect("trackway_pthread:cond_wait_end cond = 0x%lX, mutex = 0x%lX, status = %d", HEX(&cond),
           HEX(&mutex), status);
}

static void conditions(void)
{
    CALLS(0, pthread_mutex_lock(&mutex));
    lock_events(&mutex, 0);
    CALLS(ETIMEDOUT, pthread_cond_timedwait(&cond, &mutex, &past));
    cond_events(ETIMEDOUT);
    CALLS(ETIMEDOUT, pthread_cond_clockwait(&cond, &mutex, CLOCK_MONOTONIC, &past));
    cond_events(ETIMEDOUT);
    CALLS(0, pthread_mutex_unlock(&mutex));
    one_event("lttng_ust_pthread:pthread_mutex_unlock", "mutex", &mutex, 0);
    CALLS(0, pthread_cond_signal(&cond));
    expect("trackway_pthread:cond_signal cond = 0x%lX", HEX(&cond));
    CALLS(0, pthread_cond_broadcast(&cond));
    expect("trackway_pthread:cond_broadcast cond = 0x%lX", HEX(&cond));
}

static void rwlock_events(const char *kind, int status)
{
    expect("trackway_pthread:rwlock_%s_req rwlock = 0x%lX", kind, HEX(&rwlock));
    expect("trackway_pthread:rwlock_%s_acq rwlock = 0x%lX, status = %d", kind, HEX(&rwlock),
           status);
}

static void rwlock_event(const char *kind, int status)
{
    expect("trackway_pthread:rwlock_%s rwlock = 0x%lX, status = %d", kind, HEX(&rwlock), status);
}

static void rwlocks(void)
{
    CALLS(0, pthread_rwlock_rdlock(&rwlock));
    rwlock_events("rdlock", 0);
    CALLS(0, pthread_rwlock_tryrdlock(&rwlock));
    rwlock_event("tryrdlock", 0);
    CALLS(EBUSY, pthread_rwlock_trywrlock(&rwlock));
    rwlock_event("trywrlock", EBUSY);
    CALLS(ETIMEDOUT, pthread_rwlock_timedwrlock(&rwlock, &past));
    rwlock_events("wrlock", ETIMEDOUT);
    CALLS(ETIMEDOUT, pthread_rwlock_clockwrlock(&rwlock, CLOCK_MONOTONIC, &past));
    rwlock_events("wrlock", ETIMEDOUT);
    CALLS(0, pthread_rwlock_timedrdlock(&rwlock, &past));
    rwlock_events("rdlock", 0);
    CALLS(0, pthread_rwlock_clockrdlock(&rwlock, CLOCK_MONOTONIC, &past));
    rwlock_events("rdlock", 0);
    for (int i = 0; i < 4; i++) {
        CALLS(0, pthread_rwlock_unlock(&rwlock));
        rwlock_event("unlock", 0);
    }
    CALLS(0, pthread_rwlock_wrlock(&rwlock));
    rwlock_events("wrlock", 0);
    CALLS(EDEADLK, pthread_rwlock_rdlock(&rwlock));
    rwlock_events("rdlock", EDEADLK);
    CALLS(0, pthread_rwlock_unlock(&rwlock));
    rwlock_event("unlock", 0);
}

static void sem_events(int status)
{
    expect("trackway_pthread:sem_wait_begin sem = 0x%lX", HEX(&sem));
    expect("trackway_pthread:sem_wait_end sem = 0x%lX, status = %d", HEX(&sem), status);
}

static void semaphores(void)
{
    CALLS(0, sem_post(&sem));
    expect("trackway_pthread:sem_post sem = 0x%lX", HEX(&sem));
    CALLS(0, sem_wait(&sem));
    sem_events(0);
    CHECK(sem_trywait(&sem) == -1 && errno == EAGAIN);
    one_event("trackway_pthread:sem_trywait", "sem", &sem, EAGAIN);
    CHECK(sem_timedwait(&sem, &past) == -1 && errno == ETIMEDOUT);
    sem_events(ETIMEDOUT);
    CHECK(sem_clockwait(&sem, CLOCK_MONOTONIC, &past) == -1 && errno == ETIMEDOUT);
    sem_events(ETIMEDOUT);
    CALLS(0, sem_post(&sem));
    expect("trackway_pthread:sem_post sem = 0x%lX", HEX(&sem));
    CALLS(0, sem_trywait(&sem));
    one_event("trackway_pthread:sem_trywait", "sem", &sem, 0);
}

static void barriers(void)
{
    CHECK(pthread_barrier_init(&barrier, NULL, 1) == 0);
    CALLS(PTHREAD_BARRIER_SERIAL_THREAD, pthread_barrier_wait(&barrier));
    expect("trackway_pthread:barrier_wait_begin barrier = 0x%lX", HEX(&barrier));
    one_event("trackway_pthread:barrier_wait_end", "barrier", &barrier,
              PTHREAD_BARRIER_SERIAL_THREAD);
}

/* --- Threads that are cancelled while they wait ---------------------------------------------- */

static void unlock(void *unused)
{
    (void)unused;
    /* Held again, or this is refused: the mutex checks. */
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    one_event("lttng_ust_pthread:pthread_mutex_unlock", "mutex", &mutex, 0);
}

static void *wait_for_ever(void *of_semaphore)
{
    CHECK(pthread_mutex_lock(&mutex) == 0);
    lock_events(&mutex, 0);
    pthread_cleanup_push(unlock, NULL);
    if (of_semaphore) {
        expect("trackway_pthread:sem_wait_begin sem = 0x%lX", HEX(&sem));
        sem_wait(&sem);
    } else {
        expect("trackway_pthread:cond_wait_begin cond = 0x%lX, mutex = 0x%lX", HEX(&cond),
               HEX(&mutex));
        pthread_cond_wait(&cond, &mutex);
    }
    pthread_cleanup_pop(0);
    return NULL;
}

static void cancellations(void)
{
    pthread_mutexattr_t checks;
    pthread_t thread;
    void *result;
    CHECK(pthread_mutexattr_init(&checks) == 0);
    CHECK(pthread_mutexattr_settype(&checks, PTHREAD_MUTEX_ERRORCHECK) == 0);
    CHECK(pthread_mutex_init(&mutex, &checks) == 0);
    for (int i = 0; i < 20; i++) {
        CHECK(pthread_create(&thread, NULL, wait_for_ever, i % 2 ? &sem : NULL) == 0);
        usleep(i * 500); /* before it waits or while it does: either way it ends there */
        CHECK(pthread_cancel(thread) == 0);
        CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    }
    CHECK(pthread_mutex_init(&mutex, NULL) == 0);
    mutexes();
}

/* --- Signal handlers, and leaving them by siglongjmp ----------------------------------------- */

static sigjmp_buf back;
static ucontext_t back_context;
static volatile int jumps, posts;

static void on_signal(int number)
{
    (void)number;
    CHECK(sem_post(&sem) == 0);
    expect("trackway_pthread:sem_post sem = 0x%lX", HEX(&sem));
    posts++;
    if (jumps == 1)
        siglongjmp(back, 1);
    if (jumps == 2)
        setcontext(&back_context);
}

static pid_t waiter;
static volatile int is_waiting;

/* Sends a signal whenever the waiter sleeps in sem_wait(). */
static void *disturb(void *thread)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)waiter);
    while (is_waiting >= 0) {
        char text[256] = "";
        const char *state;
        FILE *file = is_waiting ? fopen(path, "r") : NULL;
        if (file) {
            CHECK(fgets(text, sizeof(text), file));
            fclose(file);
        }
        state = strrchr(text, ')');
        if (state && state[2] == 'S' && __atomic_exchange_n(&is_waiting, 0, __ATOMIC_ACQ_REL) > 0)
            CHECK(pthread_kill(*(pthread_t *)thread, SIGUSR1) == 0);
        else
            usleep(200);
    }
    return NULL;
}

static void signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    pthread_t self = pthread_self(), thread;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    waiter = gettid();
    CHECK(pthread_create(&thread, NULL, disturb, &self) == 0);
    for (volatile int i = 0; i < 20; i++) {
        jumps = i % 2;
        expect("trackway_pthread:sem_wait_begin sem = 0x%lX", HEX(&sem));
        if (sigsetjmp(back, 1) == 0) {
            int result;
            is_waiting = 1;
            while ((result = sem_wait(&sem)) != 0 && errno == EINTR) {
                one_event("trackway_pthread:sem_wait_end", "sem", &sem, EINTR);
                expect("trackway_pthread:sem_wait_begin sem = 0x%lX", HEX(&sem));
            }
            CHECK(result == 0);
            one_event("trackway_pthread:sem_wait_end", "sem", &sem, 0);
        } else {
            CHECK(sem_trywait(&sem) == 0);
            one_event("trackway_pthread:sem_trywait", "sem", &sem, 0);
        }
    }
    is_waiting = -1;
    CHECK(pthread_join(thread, NULL) == 0);
    mutexes();
}

/* --- The same while a thread waits for a lock ------------------------------------------------ */

static void posted(void)
{
    CHECK(sem_post(&sem) == 0);
    expect("trackway_pthread:sem_post sem = 0x%lX", HEX(&sem));
}

static pthread_mutex_t other = PTHREAD_MUTEX_INITIALIZER;

static __attribute__((noinline)) void go_on(void)
{
    CALLS(0, pthread_mutex_lock(&other));
    lock_events(&other, 0);
    CALLS(0, pthread_mutex_unlock(&other));
    one_event("lttng_ust_pthread:pthread_mutex_unlock", "mutex", &other, 0);
    posted();
}

/* Further down the stack than whatever was left, with the memory there as it was. */
static __attribute__((noinline)) void go_on_below(void)
{
    volatile char unused[4096];
    unused[0] = 0;
    go_on();
    unused[sizeof(unused) - 1] = unused[0];
}

/* Further down than where go_on() locks. */
static __attribute__((noinline)) void wait_for_lock(int of_rwlock)
{
    volatile char unused[1024];
    unused[0] = 0;
    is_waiting = 1;
    if (of_rwlock) {
        expect("trackway_pthread:rwlock_wrlock_req rwlock = 0x%lX", HEX(&rwlock));
        CHECK(pthread_rwlock_wrlock(&rwlock) == 0);
    } else {
        expect("lttng_ust_pthread:pthread_mutex_lock_req mutex = 0x%lX", HEX(&mutex));
        CHECK(pthread_mutex_lock(&mutex) == 0);
    }
    is_waiting = 0;
    unused[sizeof(unused) - 1] = unused[0];
}

static void *locked_out(void *argument)
{
    const int of_rwlock = argument != NULL;
    volatile int has_jumped = 0;
    waiter = gettid();
    if (jumps == 1)
        has_jumped = sigsetjmp(back, 1);
    else if (jumps == 2)
        CHECK(getcontext(&back_context) == 0);
    if (!has_jumped && posts == 0) {
        wait_for_lock(of_rwlock);
        if (of_rwlock) {
            rwlock_event("wrlock_acq", 0);
            CHECK(pthread_rwlock_unlock(&rwlock) == 0);
            rwlock_event("unlock", 0);
        } else {
            one_event("lttng_ust_pthread:pthread_mutex_lock_acq", "mutex", &mutex, 0);
            unlock(NULL);
        }
    }
    is_waiting = 0;
    go_on();
    if (jumps != 2) /* the helper detects only the C library's jumps */
        go_on_below();
    go_on();
    return NULL;
}

/* Waits until the waiter sleeps in its lock; asleep, it does not change its state in /proc. */
static void until_asleep(void)
{
    char path[64], text[256], state = 0;
    while (state != 'S' || !is_waiting) {
        FILE *file;
        const char *end;
        usleep(200);
        snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)waiter);
        file = is_waiting ? fopen(path, "r") : NULL;
        state = 0;
        if (file) {
            CHECK(fgets(text, sizeof(text), file));
            fclose(file);
            end = strrchr(text, ')');
            state = end ? end[2] : 0;
        }
    }
}

static void locked_out_once(int of_rwlock, int jump)
{
    struct sigaction action = {.sa_handler = on_signal};
    pthread_t thread;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    jumps = jump;
    posts = 0;
    if (of_rwlock) {
        CALLS(0, pthread_rwlock_wrlock(&rwlock));
        rwlock_events("wrlock", 0);
    } else {
        CALLS(0, pthread_mutex_lock(&mutex));
        lock_events(&mutex, 0);
    }
    CHECK(pthread_create(&thread, NULL, locked_out, of_rwlock ? &rwlock : NULL) == 0);
    for (int i = 0; i < (jump ? 1 : 5); i++) {
        until_asleep();
        CHECK(pthread_kill(thread, SIGUSR1) == 0);
        while (posts == i)
            usleep(200);
    }
    if (jump)
        CHECK(pthread_join(thread, NULL) == 0);
    if (of_rwlock) {
        rwlock_event("unlock", 0);
        CALLS(0, pthread_rwlock_unlock(&rwlock));
    } else {
        one_event("lttng_ust_pthread:pthread_mutex_unlock", "mutex", &mutex, 0);
        CALLS(0, pthread_mutex_unlock(&mutex));
    }
    if (!jump)
        CHECK(pthread_join(thread, NULL) == 0);
}

static void locks_that_are_left(void)
{
    for (int jump = 0; jump <= 2; jump++)
        for (int of_rwlock = 0; of_rwlock <= 1; of_rwlock++)
            locked_out_once(of_rwlock, jump);
}

/* --- Threads --------------------------------------------------------------------------------- */

enum { THREADS = 4 };
static int rounds;
static int turn;

/* Each thread waits for its turn, N times. */
static void *take_turns(void *argument)
{
    const int self = (int)(intptr_t)argument;
    unsigned long waits = 0;
    for (int i = 0; i < rounds; i++) {
        pthread_mutex_lock(&mutex);
        while (turn != self) {
            waits++;
            pthread_cond_wait(&cond, &mutex);
        }
        turn = (turn + 1) % THREADS;
        pthread_cond_broadcast(&cond);
        pthread_mutex_unlock(&mutex);
        pthread_rwlock_rdlock(&rwlock);
        pthread_rwlock_unlock(&rwlock);
        sem_post(&sem);
        sem_wait(&sem);
        pthread_barrier_wait(&barrier);
    }
    return (void *)waits;
}

/* Each thread has each lock N times, for a moment. */
static void *contend(void *unused)
{
    for (int i = 0; i < rounds; i++) {
        CHECK(pthread_mutex_lock(&mutex) == 0);
        CHECK(pthread_mutex_unlock(&mutex) == 0);
        CHECK(pthread_rwlock_wrlock(&rwlock) == 0);
        CHECK(pthread_rwlock_unlock(&rwlock) == 0);
    }
    return unused;
}

static void contention(void)
{
    pthread_t all[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&all[i], NULL, contend, NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(all[i], NULL) == 0);
}

static void count(const char *name, unsigned long times)
{
    expect("%s %lu", name, times);
}

static void threads(void)
{
    pthread_t all[THREADS];
    unsigned long waits = 0;
    const unsigned long each = (unsigned long)rounds * THREADS;
    CHECK(pthread_barrier_init(&barrier, NULL, THREADS) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&all[i], NULL, take_turns, (void *)(intptr_t)i) == 0);
    for (int i = 0; i < THREADS; i++) {
        void *result;
        CHECK(pthread_join(all[i], &result) == 0);
        waits += (unsigned long)result;
    }
    count("lttng_ust_pthread:pthread_mutex_lock_acq", each);
    count("lttng_ust_pthread:pthread_mutex_lock_req", each);
    count("lttng_ust_pthread:pthread_mutex_unlock", each);
    count("trackway_pthread:barrier_wait_begin", each);
    count("trackway_pthread:barrier_wait_end", each);
    count("trackway_pthread:cond_broadcast", each);
    count("trackway_pthread:cond_wait_begin", waits);
    count("trackway_pthread:cond_wait_end", waits);
    count("trackway_pthread:rwlock_rdlock_acq", each);
    count("trackway_pthread:rwlock_rdlock_req", each);
    count("trackway_pthread:rwlock_unlock", each);
    count("trackway_pthread:sem_post", each);
    count("trackway_pthread:sem_wait_begin", each);
    count("trackway_pthread:sem_wait_end", each);
}

int main(int argc, char **argv)
{
    CHECK(argc >= 2);
    expect_begin();
    CHECK(sem_init(&sem, 0, 0) == 0);
    if (strcmp(argv[1], "each") == 0) {
        mutexes();
        refusals();
        c11();
        conditions();
        rwlocks();
        semaphores();
        barriers();
    } else if (strcmp(argv[1], "cancel") == 0) {
        cancellations();
    } else if (strcmp(argv[1], "signals") == 0) {
        signals();
    } else if (strcmp(argv[1], "jumps") == 0) {
        locks_that_are_left();
    } else {
        rounds = argc > 2 ? atoi(argv[2]) : 100;
        if (strcmp(argv[1], "contend") == 0)
            contention();
        else
            threads();
    }
    expect_end();
    return 0;
}
