/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* ALLOCATIONS: records of the libc helper for each function, see expect.h. */
#define _GNU_SOURCE
#include "expect.h"
#include <malloc.h>
#include <stdlib.h>

static void freed(void *memory)
{
    expect("lttng_ust_libc:free ptr = 0x%lX", HEX(memory));
    free(memory);
}

static void aligned(void *memory, unsigned long alignment, unsigned long size)
{
    CHECK(memory && HEX(memory) % alignment == 0);
    expect("lttng_ust_libc:memalign alignment = %lu, size = %lu, ptr = 0x%lX", alignment, size,
           HEX(memory));
    freed(memory);
}

int main(void)
{
    const unsigned long page = (unsigned long)sysconf(_SC_PAGESIZE);
    const volatile size_t huge = SIZE_MAX / 2;
    char *volatile memory;
    void *out = &out, *old;
    expect_begin();
    memory = malloc(424242);
    expect("lttng_ust_libc:malloc size = 424242, ptr = 0x%lX", HEX(memory));
    old = memory;
    memory = realloc(memory, 1000000);
    expect("lttng_ust_libc:realloc in_ptr = 0x%lX, size = 1000000, ptr = 0x%lX", HEX(old),
           HEX(memory));
    freed(memory);
    memory = calloc(3, 5);
    expect("lttng_ust_libc:calloc nmemb = 3, size = 5, ptr = 0x%lX", HEX(memory));
    freed(memory);
    memory = reallocarray(NULL, 7, 9); /* calls realloc */
    expect("lttng_ust_libc:realloc in_ptr = 0x0, size = 63, ptr = 0x%lX", HEX(memory));
    freed(memory);
    aligned(memalign(64, 33), 64, 33);
    aligned(aligned_alloc(128, 256), 128, 256);
    aligned(valloc(10), page, 10);
    aligned(pvalloc(11), page, 11);
    CHECK(posix_memalign(&out, 512, 13) == 0);
    expect("lttng_ust_libc:posix_memalign out_ptr = 0x%lX, alignment = 512, size = 13, result = 0",
           HEX(out));
    freed(out);
    CHECK(posix_memalign(&out, 3, 13) == EINVAL);
    expect("lttng_ust_libc:posix_memalign out_ptr = 0x0, alignment = 3, size = 13, result = %d",
           EINVAL);
    CHECK(!malloc(huge) && errno == ENOMEM);
    expect("lttng_ust_libc:malloc size = %lu, ptr = 0x0", (unsigned long)huge);
    freed(NULL);
    expect_end();
    return 0;
}
