/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The same with LTTng-UST's. */
#include "sessions.h"

#include "lttng-provider.h"

static void number(uint64_t first, uint64_t count)
{
    for (uint64_t i = first; i < first + count; i++)
        lttng_ust_tracepoint(lab, number, (uint32_t)i);
}

static int is_on(void)
{
    /* The macro is a statement. */
    const int state = lttng_ust_tracepoint_enabled(lab, number);
    return state;
}

int main(int argc, char **argv)
{
    return sessions_main(argc, argv);
}
