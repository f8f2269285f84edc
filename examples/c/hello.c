/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A make-believe server: a few threads answer requests and say so. Nothing to link:
 *
 *     cc hello.c -o hello -pthread
 *     trackway record -- ./hello
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <trackway/trackway.h>

TRACKWAY_ENUM(hello, method, (GET, 0), (POST, 1), (other, 2, 9));

TRACKWAY_EVENT(hello, start, TRACKWAY_NOTICE, (seq, sizes, u32));
TRACKWAY_EVENT(hello, request, TRACKWAY_INFO,
    (u32, worker), (enum, method, hello, method, u8), (str, path), (u32, status), (bool, cached));
TRACKWAY_EVENT(hello, body, TRACKWAY_DEBUG, (text, start), (x64, checksum));
TRACKWAY_EVENT(hello, idle, TRACKWAY_DEBUG_FUNCTION);

enum { WORKERS = 4, REQUESTS = 1000 };

/* Stands for work that is needed only if a session records its result. */
static uint64_t checksum(const char *text)
{
    uint64_t sum = 14695981039346656037u;
    while (*text)
        sum = (sum ^ (unsigned char)*text++) * 1099511628211u;
    return sum;
}

static void answer(unsigned worker, unsigned number)
{
    static const char *const paths[] = {"/", "/index.html", "/api/users", "/api/orders"};
    const char *path = paths[number % 4];
    const unsigned status = number % 97 == 0 ? 500 : number % 11 == 0 ? 404 : 200;
    char body[64];
    const int length = snprintf(body, sizeof(body), "%s: answer %u of %u", path, number, worker);

    trackway(hello, request, worker, (uint8_t)(number % 3), path, status, number % 2 == 0);
    if (trackway_enabled(hello, body))
        trackway(hello, body, body, (size_t)length, checksum(body));
    if (status == 500)
        trackway_log(TRACKWAY_WARNING, "worker %u failed at %s", worker, path);
}

static void *work(void *argument)
{
    const unsigned worker = *(const unsigned *)argument;
    unsigned number;
    for (number = 0; number < REQUESTS; number++) {
        answer(worker, number);
        if (number % 100 == 99)
            trackway(hello, idle);
    }
    trackway_printf("worker %u is done after %d requests", worker, REQUESTS);
    return NULL;
}

int main(void)
{
    static const uint32_t sizes[] = {WORKERS, REQUESTS};
    pthread_t threads[WORKERS];
    unsigned numbers[WORKERS], i;

    trackway(hello, start, sizes, sizeof(sizes) / sizeof(*sizes));
    for (i = 0; i < WORKERS; i++) {
        numbers[i] = i;
        if (pthread_create(&threads[i], NULL, work, &numbers[i]) != 0)
            return EXIT_FAILURE;
    }
    for (i = 0; i < WORKERS; i++)
        pthread_join(threads[i], NULL);
    printf("answered %d requests\n", WORKERS * REQUESTS);
    return EXIT_SUCCESS;
}
