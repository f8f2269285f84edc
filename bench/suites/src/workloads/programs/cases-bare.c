/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The loop of the cases without any tracer. */
#include "cases.h"

static const struct lab_case works[] = {
    {"bare", lab_bare, 0},
    {NULL, NULL, 0},
};

int main(int argc, char **argv)
{
    return lab_cases_main(argc, argv, works, NULL);
}
