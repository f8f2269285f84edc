// The program of trace.svg: two threads serve a request each and share a lock. The commands are in
// trace.py.

#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <trackway/trackway.h>
#include <unistd.h>

TRACKWAY_EVENT(shop, request, TRACKWAY_INFO, (u32, id), (str, path));
TRACKWAY_EVENT(shop, locked, TRACKWAY_INFO, (u32, id));
TRACKWAY_EVENT(shop, reply, TRACKWAY_INFO, (u32, id), (u32, status));

static pthread_mutex_t stock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t start;

static void compute(long microseconds) {
    struct timespec now, begin;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - begin.tv_sec) * 1000000 + (now.tv_nsec - begin.tv_nsec) / 1000 <
           microseconds);
}

static void *serve(void *argument) {
    unsigned id = *(unsigned *)argument;
    char text[64];
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(id - 1, &cpus);
    pthread_setaffinity_np(pthread_self(), sizeof cpus, &cpus);
    pthread_barrier_wait(&start);
    compute(id == 1 ? 20 : 60);
    trackway(shop, request, id, id == 1 ? "/buy" : "/list");
    pthread_mutex_lock(&stock);
    trackway(shop, locked, id);
    int file = open("/etc/hostname", O_RDONLY);
    ssize_t length = file < 0 ? -1 : read(file, text, sizeof text);
    compute(120);
    close(file);
    pthread_mutex_unlock(&stock);
    trackway(shop, reply, id, length < 0 ? 500 : 200);
    return 0;
}

int main(void) {
    unsigned ids[] = {1, 2};
    pthread_t threads[2];
    pthread_barrier_init(&start, 0, 2);
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], 0, serve, &ids[i]);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], 0);
    return 0;
}
