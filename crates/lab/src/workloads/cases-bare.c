/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The loop of the cases without any tracer. */
#include "histogram.h"

static void nothing(uint64_t first, uint64_t count)
{
    for (uint64_t i = first; i < first + count; i++) {
        const uint64_t begin = lab_ticks();
        lab_relax();
        lab_timed(begin);
    }
}

static const struct lab_histogram_work works[] = {
    {"bare", nothing, 0},
    {NULL, NULL, 0},
};

int main(int argc, char **argv)
{
    return lab_histogram_main(argc, argv, works, NULL);
}
