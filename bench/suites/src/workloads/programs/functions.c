/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A function with one number, which uftrace is to see called: compiled with -pg. */
#include "harness.h"

__attribute__((noinline)) static void lab_value(uint32_t value)
{
    __asm__ volatile("" : : "r"(value) : "memory");
}

static void number(uint64_t first, uint64_t count)
{
    for (uint64_t i = first; i < first + count; i++)
        lab_value((uint32_t)i);
}

static const struct lab_work works[] = {
    {"number", number},
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return lab_main(argc, argv, works);
}
