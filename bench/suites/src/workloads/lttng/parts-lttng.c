/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The same of LTTng-UST's. */
#include "parts.h"

#include "lttng-provider.h"

static __attribute__((noinline)) void number(uint64_t first, uint64_t count)
{
    for (uint64_t i = first; i < first + count; i++)
        lttng_ust_tracepoint(lab, number, (uint32_t)i);
}

int main(int argc, char **argv)
{
    return lab_parts_main(argc, argv, number);
}
