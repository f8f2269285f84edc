/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The same with LTTng-UST's events in it, or elsewhere in the program. */
#include "cases.h"

#include <lttng/tracef.h>

#include "lttng-provider.h"

static void elsewhere(uint64_t number)
{
    lttng_ust_tracepoint(lab, number, (uint32_t)number);
}

static void event(uint64_t first, uint64_t count)
{
    for (uint64_t i = first; i < first + count; i++) {
        const uint64_t begin = lab_ticks();
        lttng_ust_tracepoint(lab, number, (uint32_t)i);
        lab_timed(begin);
    }
}

static void message(uint64_t first, uint64_t count)
{
    for (uint64_t i = first; i < first + count; i++) {
        const uint64_t begin = lab_ticks();
        lttng_ust_tracef("%s (%d)", "event", (int)i);
        lab_timed(begin);
    }
}

static const struct lab_case works[] = {
    {"event", event, 0},
    {"message", message, 0},
    {"not-hit", lab_bare, 100},
    {NULL, NULL, 0},
};

int main(int argc, char **argv)
{
    return lab_cases_main(argc, argv, works, elsewhere);
}
