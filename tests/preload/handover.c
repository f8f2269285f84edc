/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * HANDOVER: one thread releases an object, another acquires it; records of the pthread helper, see
 * expect.h. With -DLIBRARY a library to be loaded after the helper: its releasing functions return
 * only when the other thread has acquired the object and has gone on. So a release that is recorded
 * after the call is too late, each time.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>

void wait_until_taken(void) __attribute__((weak));

#if defined(LIBRARY)
#define SLOW(name, type)                                                                          \
    int name(type *object)                                                                        \
    {                                                                                             \
        int (*function)(type *);                                                                  \
        void *const found = dlsym(RTLD_NEXT, #name);                                              \
        int result;                                                                               \
        memcpy(&function, &found, sizeof(found));                                                 \
        result = function(object);                                                                \
        if (wait_until_taken)                                                                     \
            wait_until_taken();                                                                   \
        return result;                                                                            \
    }
SLOW(pthread_mutex_unlock, pthread_mutex_t)
SLOW(pthread_rwlock_unlock, pthread_rwlock_t)
SLOW(sem_post, sem_t)
#else
#include "expect.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static sem_t sem;

enum { MUTEX, RWLOCK_READ, RWLOCK_WRITE, SEM, KINDS };
enum { HELD, GIVING, GIVEN, TAKEN, DONE };
static int step;

static void reach(int wanted)
{
    __atomic_store_n(&step, wanted, __ATOMIC_RELEASE);
}

static void wait_for(int wanted)
{
    while (__atomic_load_n(&step, __ATOMIC_ACQUIRE) < wanted)
        usleep(100);
}

void wait_until_taken(void)
{
    if (__atomic_load_n(&step, __ATOMIC_ACQUIRE) == GIVING) {
        reach(GIVEN);
        wait_for(TAKEN);
    }
}

static void lock(int kind)
{
    if (kind == MUTEX) {
        expect("lttng_ust_pthread:pthread_mutex_lock_req mutex = 0x%lX", HEX(&mutex));
        CHECK(pthread_mutex_lock(&mutex) == 0);
        expect("lttng_ust_pthread:pthread_mutex_lock_acq mutex = 0x%lX, status = 0", HEX(&mutex));
    } else if (kind == SEM) {
        expect("trackway_pthread:sem_wait_begin sem = 0x%lX", HEX(&sem));
        CHECK(sem_wait(&sem) == 0);
        expect("trackway_pthread:sem_wait_end sem = 0x%lX, status = 0", HEX(&sem));
    } else {
        const char *const how = kind == RWLOCK_READ ? "rd" : "wr";
        expect("trackway_pthread:rwlock_%slock_req rwlock = 0x%lX", how, HEX(&rwlock));
        CHECK((kind == RWLOCK_READ ? pthread_rwlock_rdlock : pthread_rwlock_wrlock)(&rwlock) == 0);
        expect("trackway_pthread:rwlock_%slock_acq rwlock = 0x%lX, status = 0", how, HEX(&rwlock));
    }
}

static void unlock(int kind)
{
    if (kind == MUTEX) {
        expect("lttng_ust_pthread:pthread_mutex_unlock mutex = 0x%lX, status = 0", HEX(&mutex));
        CHECK(pthread_mutex_unlock(&mutex) == 0);
    } else if (kind == SEM) {
        expect("trackway_pthread:sem_post sem = 0x%lX", HEX(&sem));
        CHECK(sem_post(&sem) == 0);
    } else {
        expect("trackway_pthread:rwlock_unlock rwlock = 0x%lX, status = 0", HEX(&rwlock));
        CHECK(pthread_rwlock_unlock(&rwlock) == 0);
    }
}

/* The other thread. */
static void *take(void *argument)
{
    const int kind = (int)(intptr_t)argument;
    wait_for(GIVEN);
    lock(kind);
    reach(TAKEN);
    wait_for(DONE);
    if (kind != SEM)
        unlock(kind);
    return NULL;
}

int main(void)
{
    expect_begin();
    CHECK(sem_init(&sem, 0, 0) == 0);
    for (int kind = 0; kind < KINDS; kind++) {
        pthread_t thread;
        reach(HELD);
        CHECK(pthread_create(&thread, NULL, take, (void *)(intptr_t)kind) == 0);
        if (kind != SEM)
            lock(kind == RWLOCK_READ ? RWLOCK_WRITE : kind);
        reach(GIVING);
        unlock(kind);
        CHECK(step == TAKEN); /* the library was there */
        reach(DONE);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    expect_end();
    return 0;
}
#endif
