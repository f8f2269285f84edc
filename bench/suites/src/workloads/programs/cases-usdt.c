/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The same with a probe of <sys/sdt.h> in it, or elsewhere in the program. */
#include "cases.h"

#include <sys/sdt.h>

static void event(uint64_t first, uint64_t count)
{
    for (uint64_t i = first; i < first + count; i++) {
        const uint64_t begin = lab_ticks();
        DTRACE_PROBE1(lab, number, (uint32_t)i);
        lab_timed(begin);
    }
}

/* By a pointer that no compiler sees through: there is one probe in the program, whoever comes to
 * it, since a uprobe event is on one address. */
static const lab_loop volatile at_the_probe = event;

/* What it times is not kept: it is before the first burst. */
static void elsewhere(uint64_t number)
{
    at_the_probe(number, 1);
}

static const struct lab_case works[] = {
    {"event", event, 0},
    {"not-hit", lab_bare, 100},
    {NULL, NULL, 0},
};

int main(int argc, char **argv)
{
    return lab_cases_main(argc, argv, works, elsewhere);
}
