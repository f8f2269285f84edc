/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Coroutines that switch stacks and move between threads, also in the middle of evaluating an
 * event's arguments: the library must use the thread-local data of the thread that emits.
 */
#define _GNU_SOURCE
#include "steps.h"
#include <pthread.h>
#include <ucontext.h>

enum { COROUTINES = 24, THREADS = 3, STACK_BYTES = 16 << 10 };

struct coroutine {
    ucontext_t context;
    ucontext_t *scheduler; /* of the thread that runs it */
    unsigned who;
    long rounds, moved;
    int ended;
};

static struct coroutine coroutines[COROUTINES];
static struct coroutine *queue[COROUTINES];
static int waiting, alive;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void yield(struct coroutine *own)
{
    const long before = syscall(SYS_gettid);
    swapcontext(&own->context, own->scheduler);
    own->moved += syscall(SYS_gettid) != before;
}

/* A value whose evaluation moves the coroutine to another thread: the thread's number. */
static int thread_after_yield(struct coroutine *own)
{
    yield(own);
    return (int)syscall(SYS_gettid);
}

static void body(unsigned number)
{
    struct coroutine *own = &coroutines[number];
    for (long i = 0; i < own->rounds; i++) {
        struct stream *stream = &steps->streams[own->who];
        step(own->who);
        yield(own);
        stream->started = stream->started + 1;
        trackway(life, step, own->who, stream->started - 1, (int)syscall(SYS_getpid),
                 thread_after_yield(own));
        stream->returned = stream->returned + 1;
    }
    own->ended = 1;
    swapcontext(&own->context, own->scheduler);
}

static void *run(void *unused)
{
    ucontext_t scheduler;
    while (__atomic_load_n(&alive, __ATOMIC_RELAXED) > 0) {
        struct coroutine *next = NULL;
        pthread_mutex_lock(&lock);
        if (waiting > 0) {
            next = queue[0];
            memmove(queue, queue + 1, sizeof(queue[0]) * (size_t)--waiting);
        }
        pthread_mutex_unlock(&lock);
        if (!next)
            continue;
        next->scheduler = &scheduler;
        swapcontext(&scheduler, &next->context);
        if (next->ended) {
            __atomic_fetch_sub(&alive, 1, __ATOMIC_RELAXED);
            continue;
        }
        pthread_mutex_lock(&lock);
        queue[waiting++] = next;
        pthread_mutex_unlock(&lock);
    }
    return unused;
}

/* coroutines ROUNDS */
int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    long moved = 0;
    steps_open();
    for (unsigned i = 0; argc > 1 && i < COROUTINES; i++) {
        struct coroutine *own = &coroutines[i];
        char *stack = mmap(NULL, STACK_BYTES + 4096, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (stack == MAP_FAILED || mprotect(stack, 4096, PROT_NONE) != 0)
            return 96;
        getcontext(&own->context);
        own->context.uc_stack.ss_sp = stack + 4096;
        own->context.uc_stack.ss_size = STACK_BYTES;
        own->who = new_stream();
        own->rounds = atol(argv[1]);
        makecontext(&own->context, (void (*)(void))body, 1, i);
        queue[waiting++] = own;
        alive++;
    }
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, run, NULL) != 0)
            return 96;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < COROUTINES; i++)
        moved += coroutines[i].moved;
    return moved > 0 ? 0 : 95;
}
