/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Trackway's events, as a program has them. */
#include "harness.h"

#include <trackway/trackway.h>

TRACKWAY_EVENT(lab, number, TRACKWAY_INFO, (u32, value));
TRACKWAY_EVENT(lab, record, TRACKWAY_INFO, (str, name), (u32, size), (u64, index));

TRACKWAY_EVENT(lab, views, TRACKWAY_INFO, (text, name), (seq, sizes, u32), (u64, index));
/* What C++'s scopes are. */
TRACKWAY_EVENT(lab, scope_begin, TRACKWAY_INFO, (x64, scope), (u32, value));
TRACKWAY_EVENT(lab, scope_end, TRACKWAY_INFO, (x64, scope));

static void number(uint64_t first, uint64_t count)
{
    for (uint64_t i = first; i < first + count; i++)
        trackway(lab, number, (uint32_t)i);
}

static void record(uint64_t first, uint64_t count)
{
    for (uint64_t i = first; i < first + count; i++)
        trackway(lab, record, lab_text(), 42, i);
}

static void print(uint64_t first, uint64_t count)
{
    for (uint64_t i = first; i < first + count; i++)
        trackway_printf("%s (%d)", lab_text(), (int)i);
}

static void views(uint64_t first, uint64_t count)
{
    const uint32_t sizes[4] = {1, 2, 3, 4};
    const uint32_t *these = sizes;
    size_t length = 15, elements = 4;
    /* The compiler knows no more of them than of a view and a vector. */
    __asm__ volatile("" : "+r"(these), "+r"(length), "+r"(elements) : "r"(sizes) : "memory");
    for (uint64_t i = first; i < first + count; i++)
        trackway(lab, views, lab_text(), length, these, elements, i);
}

static void scope(uint64_t first, uint64_t count)
{
    for (uint64_t i = first; i < first + count; i += 2) {
        char here;
        trackway(lab, scope_begin, (uintptr_t)&here, (uint32_t)i);
        trackway(lab, scope_end, (uintptr_t)&here);
    }
}

static const struct lab_work works[] = {
    {"number", number},
    {"record", record},
    {"printf", print},
    {"views", views},
    {"scope", scope},
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return lab_main(argc, argv, works);
}
