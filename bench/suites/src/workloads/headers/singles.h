/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Events one by one, each between two readings of the processor's clock, with fences around them:
 * nothing of an event is done before the first, and all of its instructions are before the second.
 * What was found is kept as a histogram, of a size that does not depend on how many there are.
 *
 * The same is done as often with nothing between the readings: what measuring costs by itself.
 */
#ifndef LAB_SINGLES_H
#define LAB_SINGLES_H

#include <stdint.h>
#include <stdio.h>

#include "machine.h"

/* Each tick is counted by itself below the first; above, 128 for each doubling: within 0.4 %. */
enum { LAB_LINEAR = 4096, LAB_LINEAR_BITS = 12, LAB_PARTS = 128, LAB_PARTS_BITS = 7 };
enum { LAB_PLACES = LAB_LINEAR + (64 - LAB_LINEAR_BITS) * LAB_PARTS };

struct lab_histogram {
    uint64_t counts[LAB_PLACES];
    uint64_t most;
};

static struct lab_histogram lab_timing, lab_singles;

static unsigned lab_place(uint64_t ticks)
{
    if (ticks < LAB_LINEAR)
        return (unsigned)ticks;
    const unsigned bits = 63 - (unsigned)__builtin_clzll(ticks);
    const unsigned part = (unsigned)(ticks >> (bits - LAB_PARTS_BITS)) & (LAB_PARTS - 1);
    return LAB_LINEAR + (bits - LAB_LINEAR_BITS) * LAB_PARTS + part;
}

static inline void lab_count(struct lab_histogram *histogram, uint64_t ticks)
{
    histogram->counts[lab_place(ticks)]++;
    if (ticks > histogram->most)
        histogram->most = ticks;
}

/* The middle of what is counted at a place. */
static uint64_t lab_middle(unsigned place)
{
    if (place < LAB_LINEAR)
        return place;
    const unsigned above = place - LAB_LINEAR;
    const unsigned bits = above / LAB_PARTS + LAB_LINEAR_BITS;
    const uint64_t width = (uint64_t)1 << (bits - LAB_PARTS_BITS);
    return ((uint64_t)1 << bits) + above % LAB_PARTS * width + width / 2;
}

static void lab_print(const char *name, const struct lab_histogram *histogram)
{
    for (unsigned place = 0; place < LAB_PLACES; place++)
        if (histogram->counts[place] > 0)
            printf("%s %llu %llu\n", name, (unsigned long long)lab_middle(place),
                   (unsigned long long)histogram->counts[place]);
    printf("%s-most %llu\n", name, (unsigned long long)histogram->most);
}

/* Both, and how many ticks there are in so many ns. */
static void lab_print_singles(uint64_t ticks, uint64_t ns)
{
    lab_print("timing", &lab_timing);
    lab_print("single", &lab_singles);
    printf("ticks %llu %llu\n", (unsigned long long)ticks, (unsigned long long)ns);
}

/* Called as a tracer's loop is, through a pointer, and does nothing. */
static void lab_nothing(uint64_t first, uint64_t count)
{
    for (uint64_t i = first; i < first + count; i++)
        __asm__ volatile("" : : "r"(i) : "memory");
}

static void lab_one_by_one(void (*loop)(uint64_t, uint64_t), uint64_t first, uint64_t count,
                           struct lab_histogram *histogram)
{
    for (uint64_t i = first; i < first + count; i++) {
        const uint64_t begin = lab_ticks();
        loop(i, 1);
        lab_count(histogram, lab_ticks() - begin);
    }
}

#endif
