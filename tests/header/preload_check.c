/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Runs with the preload helpers: compares their records with its own calls. Linked with the fake
 * agent, with -rdynamic, so that the helpers find it. */
#define _GNU_SOURCE
#include "fake_agent.h"
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The names of the events so far, and the payload of the last. No allocation here. */
static char names[4096];
static unsigned char last[64];
static int wrong;

static void note(const struct trackway_abi_event *event, const unsigned char *payload,
                 size_t payload_size)
{
    size_t length = strlen(names);
    snprintf(names + length, sizeof(names) - length, "%s ", event->name);
    memcpy(last, payload, payload_size < sizeof(last) ? payload_size : sizeof(last));
    /* Allocations and locks of an agent are not recorded, and do not recurse for ever. */
    free(malloc(1));
}

static uint64_t value(int index)
{
    uint64_t number;
    memcpy(&number, last + 8 * index, sizeof(number));
    return number;
}

static uint64_t address(const void *pointer)
{
    return (uint64_t)(uintptr_t)pointer;
}

static void check(int right, const char *what, int line)
{
    if (!right) {
        fprintf(stderr, "line %d: %s, after: %s\n", line, what, names);
        wrong = 1;
    }
}
#define CHECK(condition) check((condition), #condition, __LINE__)

static void allocations(void)
{
    char *volatile memory;
    void *aligned, *other;
    memory = malloc(10);
    CHECK(value(0) == 10 && value(1) == address(memory));
    memcpy(memory, "contents", 9);
    other = memory;
    memory = realloc(memory, 100000);
    CHECK(value(0) == address(other) && value(1) == 100000 && value(2) == address(memory));
    CHECK(strcmp(memory, "contents") == 0);
    other = memory;
    free(memory);
    CHECK(value(0) == address(other));
    memory = calloc(3, 4);
    CHECK(value(0) == 3 && value(1) == 4 && value(2) == address(memory));
    free(memory);
    memory = memalign(64, 5);
    CHECK(value(0) == 64 && value(1) == 5 && value(2) == address(memory));
    free(memory);
    memory = aligned_alloc(64, 128);
    CHECK(value(0) == 64 && value(1) == 128 && value(2) == address(memory));
    free(memory);
    CHECK(posix_memalign(&aligned, 256, 7) == 0);
    CHECK(value(0) == address(aligned) && value(1) == 256 && value(2) == 7 && last[24] == 0);
    free(aligned);
    CHECK(strcmp(names, "malloc realloc free calloc free memalign free memalign free "
                        "posix_memalign free ") == 0);
}

static void error_numbers(void)
{
    volatile size_t huge = SIZE_MAX / 2;
    void *volatile memory;
    void *untouched = &untouched;
    errno = 77;
    memory = malloc(8);
    CHECK(errno == 77);
    free(memory);
    CHECK(errno == 77);
    memory = malloc(huge);
    CHECK(!memory && errno == ENOMEM);
    errno = 77;
    CHECK(posix_memalign(&untouched, 3, 8) == EINVAL && errno == 77);
    CHECK(untouched == &untouched);
}

static void locks(void)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    names[0] = 0;
    errno = 77;
    CHECK(pthread_mutex_lock(&mutex) == 0);
    CHECK(value(0) == address(&mutex) && last[8] == 0);
    CHECK(pthread_mutex_trylock(&mutex) == EBUSY);
    CHECK(value(0) == address(&mutex) && last[8] == EBUSY);
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    CHECK(strcmp(names, "pthread_mutex_lock_req pthread_mutex_lock_acq pthread_mutex_trylock "
                        "pthread_mutex_unlock ") == 0);
    CHECK(errno == 77);
}

static void on_alarm(int signal)
{
    (void)signal;
}

static void *work(void *argument)
{
    pthread_mutex_t *mutex = argument;
    int i;
    for (i = 0; i < 20000; i++) {
        void *volatile memory = malloc((size_t)(i % 500));
        pthread_mutex_lock(mutex);
        memory = realloc(memory, 700);
        pthread_mutex_unlock(mutex);
        free(memory);
    }
    return NULL;
}

static void count_only(const struct trackway_abi_event *event, const unsigned char *payload,
                       size_t payload_size)
{
    (void)event, (void)payload, (void)payload_size;
}

/* Threads, signals and a fork at once: it ends, and so does the child. */
static void everything_at_once(void)
{
    static pthread_mutex_t shared = PTHREAD_MUTEX_INITIALIZER;
    pthread_t threads[4];
    int i, status = -1;
    pid_t child;
    fake_agent_sink = count_only;
    signal(SIGPROF, on_alarm);
    for (i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, work, &shared) == 0);
    child = fork();
    if (child == 0) {
        /* Its own: the shared one may have been locked by a thread that the child has not. */
        pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
        work(&own);
        _exit(0);
    }
    for (i = 0; i < 100; i++)
        kill(getpid(), SIGPROF);
    for (i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(void)
{
    alarm(40); /* a deadlock must not hang the tests */
    CHECK(fake_agent_registrations == 2);
    fake_agent_sink = note;
    fake_agent_enable(1);
    allocations();
    error_numbers();
    locks();
    everything_at_once();
    return wrong;
}
