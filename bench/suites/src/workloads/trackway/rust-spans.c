/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The harness around rust/spans.rs. */
#include "harness.h"

void spans_registry(uint64_t first, uint64_t count);
void spans_layer(uint64_t first, uint64_t count);
void spans_subscriber(uint64_t first, uint64_t count);
void spans_file(uint64_t first, uint64_t count);
void spans_macro(uint64_t first, uint64_t count);
void spans_fastrace(uint64_t first, uint64_t count);
void spans_fastrace_bare(uint64_t first, uint64_t count);
void spans_tracy(uint64_t first, uint64_t count);

static const struct lab_work works[] = {
    {"registry", spans_registry},
    {"layer", spans_layer},
    {"subscriber", spans_subscriber},
    {"file", spans_file},
    {"macro", spans_macro},
#ifdef FASTRACE
    {"fastrace", spans_fastrace},
    {"fastrace-bare", spans_fastrace_bare},
#endif
#ifdef TRACY
    {"tracy", spans_tracy},
#endif
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return lab_main(argc, argv, works);
}
