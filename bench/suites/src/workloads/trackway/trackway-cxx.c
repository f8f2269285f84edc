/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The harness for the loops of trackway-cxx.cc: the same as C's. */
#include "harness.h"

void cxx_number(uint64_t first, uint64_t count);
void cxx_record(uint64_t first, uint64_t count);
void cxx_views(uint64_t first, uint64_t count);
void cxx_scope(uint64_t first, uint64_t count);

static const struct lab_work works[] = {
    {"number", cxx_number},
    {"record", cxx_record},
    {"views", cxx_views},
    {"scope", cxx_scope},
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    (void)lab_text;
    return lab_main(argc, argv, works);
}
