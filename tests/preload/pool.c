/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * POOL ROUNDS: several threads take memory from the libc helper's pool, in turn with requests that
 * are too large and fail; no two threads get the same bytes.
 */
#include "../../preload/libc.c"
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#define CHECK(condition)                                                                          \
    do {                                                                                          \
        if (!(condition)) {                                                                       \
            dprintf(2, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                            \
            _exit(8);                                                                             \
        }                                                                                         \
    } while (0)

enum { THREADS = 3, SMALL = 48, LARGE = POOL_SIZE - 8, TAKEN_MAX = POOL_SIZE / SMALL };

static pthread_barrier_t barrier;
static int rounds;
static unsigned char *taken[THREADS][TAKEN_MAX];
static unsigned taken_count[THREADS];

/* No two blocks have a byte in common: the pool's bytes are claimed one by one. */
static void check(void)
{
    static unsigned char claimed[POOL_SIZE];
    memset(claimed, 0, sizeof(claimed));
    for (unsigned thread = 0; thread < THREADS; thread++)
        for (unsigned i = 0; i < taken_count[thread]; i++)
            for (size_t byte = 0; byte < SMALL; byte++) {
                unsigned char *const place = &claimed[taken[thread][i] + byte - pool];
                CHECK(in_pool(taken[thread][i] + byte) && !*place);
                *place = 1;
            }
}

static void *take(void *argument)
{
    const unsigned self = (unsigned)(uintptr_t)argument;
    for (int round = 0; round < rounds; round++) {
        unsigned count = 0;
        if (self == 0)
            pool_used = 0;
        pthread_barrier_wait(&barrier);
        for (int i = 0; i < TAKEN_MAX; i++) {
            void *const memory = pool_allocate(0, SMALL);
            if (memory)
                taken[self][count++] = memory;
            CHECK(!pool_allocate(0, LARGE));
        }
        taken_count[self] = count;
        pthread_barrier_wait(&barrier);
        if (self == 0)
            check();
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    CHECK(argc == 2 && pthread_barrier_init(&barrier, NULL, THREADS) == 0);
    rounds = atoi(argv[1]);
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, take, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    return 0;
}
