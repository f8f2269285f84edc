/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the tracers are measured against: nothing, the processor's clock, and "LW-UST", the
 * lightest tracer there could be: Gebai and Dagenais, "Survey and Analysis of Kernel and Userspace
 * Tracers on Linux", ACM Computing Surveys 51(2), 2018. It reads the clock and copies type, time
 * and payload to a ring of this CPU, aligned to cache lines; no atomics, no reader, no safety.
 */
#include "harness.h"

#if defined(__x86_64__) || defined(__i386__)
#include <x86intrin.h>
#endif

enum { RING_BYTES = 1 << 20, RECORD_BYTES_MAX = 64, CPUS_MAX = 1024 };

struct ring {
    uint64_t head;
    unsigned char *data;
} __attribute__((aligned(64)));

static struct ring rings[CPUS_MAX];

static unsigned char *lw_ust_begin(uint32_t type, struct ring **ring)
{
    struct timespec now;
    uint64_t time;
    unsigned char *at;
    clock_gettime(CLOCK_MONOTONIC, &now);
    time = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    *ring = &rings[sched_getcpu()];
    at = (*ring)->data + ((*ring)->head & (RING_BYTES - 1));
    memcpy(at, &type, sizeof type);
    memcpy(at + sizeof type, &time, sizeof time);
    return at + sizeof type + sizeof time;
}

static void empty(uint64_t first, uint64_t count)
{
    for (uint64_t i = first; i < first + count; i++)
        __asm__ volatile("" : : "r"(i) : "memory");
}

static void clock_counter(uint64_t first, uint64_t count)
{
    for (uint64_t i = first; i < first + count; i++) {
#if defined(__x86_64__) || defined(__i386__)
        const uint64_t time = __rdtsc();
#else
        uint64_t time;
        __asm__ volatile("mrs %0, cntvct_el0" : "=r"(time));
#endif
        __asm__ volatile("" : : "r"(time) : "memory");
    }
}

static void lw_ust_number(uint64_t first, uint64_t count)
{
    for (uint64_t i = first; i < first + count; i++) {
        struct ring *ring;
        const uint32_t value = (uint32_t)i;
        memcpy(lw_ust_begin(1, &ring), &value, sizeof value);
        ring->head += 4 + 8 + sizeof value;
        __asm__ volatile("" : : : "memory");
    }
}

static void lw_ust_record(uint64_t first, uint64_t count)
{
    for (uint64_t i = first; i < first + count; i++) {
        struct ring *ring;
        const uint32_t size = 42;
        const char *name = lab_text();
        const size_t length = strlen(name) + 1;
        unsigned char *at = lw_ust_begin(2, &ring);
        memcpy(at, name, length);
        memcpy(at + length, &size, sizeof size);
        memcpy(at + length + sizeof size, &i, sizeof i);
        ring->head += 4 + 8 + length + sizeof size + sizeof i;
        __asm__ volatile("" : : : "memory");
    }
}

static const struct lab_work works[] = {
    {"empty", empty},
    {"rdtsc", clock_counter},
    {"number", lw_ust_number},
    {"record", lw_ust_record},
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    if (argc > 2) {
        const long cpus = sysconf(_SC_NPROCESSORS_CONF);
        for (long cpu = 0; cpu < cpus && cpu < CPUS_MAX; cpu++) {
            rings[cpu].data = aligned_alloc(64, RING_BYTES + RECORD_BYTES_MAX);
            if (rings[cpu].data == NULL)
                return 3;
        }
    }
    return lab_main(argc, argv, works);
}
