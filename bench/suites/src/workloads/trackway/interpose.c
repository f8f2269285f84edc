/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Preloaded: comes between a program and malloc and free, and does nothing there. What no helper
 * that is loaded by LD_PRELOAD can be faster than. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

static void *(*next_malloc)(size_t size);
static void (*next_free)(void *memory);

static void find(void *function, const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    memcpy(function, &found, sizeof(found));
}

void *malloc(size_t size)
{
    if (__builtin_expect(!next_malloc, 0))
        find(&next_malloc, "malloc");
    return next_malloc(size);
}

void free(void *memory)
{
    if (__builtin_expect(!next_free, 0))
        find(&next_free, "free");
    next_free(memory);
}
