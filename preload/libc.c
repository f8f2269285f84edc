/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * libtrackway-libc.so: preloaded, it records the memory allocations of a program that was not
 * instrumented. Events and fields have the names of LTTng-UST's lttng_ust_libc, so that existing
 * analyses work on them.
 *
 * The dynamic loader calls allocation functions before any constructor, and so does all other code
 * of a process. So nothing here allocates, does input or output, or takes a lock, and the one
 * thread-local is in the static TLS block. Allocations before the real functions are looked up (by
 * resolvers of indirect functions, by dlsym() itself) come out of a small static pool and are never
 * freed.
 *
 * C++'s new and delete call malloc and free, and strdup, getline and reallocarray do so too.
 */
#define _GNU_SOURCE
#include "helper.h"
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

TRACKWAY_EVENT(lttng_ust_libc, malloc, TRACKWAY_DEBUG_LINE, (u64, size), (ptr, ptr));
TRACKWAY_EVENT(lttng_ust_libc, calloc, TRACKWAY_DEBUG_LINE, (u64, nmemb), (u64, size), (ptr, ptr));
TRACKWAY_EVENT(lttng_ust_libc, realloc, TRACKWAY_DEBUG_LINE,
    (ptr, in_ptr), (u64, size), (ptr, ptr));
TRACKWAY_EVENT(lttng_ust_libc, free, TRACKWAY_DEBUG_LINE, (ptr, ptr));
TRACKWAY_EVENT(lttng_ust_libc, memalign, TRACKWAY_DEBUG_LINE,
    (u64, alignment), (u64, size), (ptr, ptr));
TRACKWAY_EVENT(lttng_ust_libc, posix_memalign, TRACKWAY_DEBUG_LINE,
    (ptr, out_ptr), (u64, alignment), (u64, size), (i32, result));

typedef void *(*allocate_function)(size_t size);
typedef void *(*allocate_two_function)(size_t first, size_t second);
typedef void *(*reallocate_function)(void *memory, size_t size);
typedef void (*free_function)(void *memory);
typedef int (*posix_function)(void **memory, size_t alignment, size_t size);

/*
 * The next functions after the helper's: the C library's, or those of another preloaded allocator.
 * Null until they are looked up. Each is valid by itself, so they may be read without any order.
 */
static struct {
    allocate_function malloc;
    free_function free;
    allocate_two_function calloc;
    reallocate_function realloc;
    posix_function posix_memalign;
    allocate_two_function memalign, aligned_alloc;
    allocate_function valloc, pvalloc;
} next;

#define BEHIND(name) __atomic_load_n(&next.name, __ATOMIC_RELAXED)

/*
 * Depth of this thread's calls of the helper's functions, while their events are on. Only the
 * outermost call is recorded: allocations inside an allocator or inside the recording are not the
 * program's.
 */
static THREAD_LOCAL unsigned depth;

/* --- The pool: memory while `next` is unknown ------------------------------------------------ */

enum { POOL_SIZE = 64 * 1024, POOL_ALIGNMENT = 16 };

/* In front of each block: how many bytes it has, for realloc. */
struct pool_block {
    size_t size;
};

static unsigned char pool[POOL_SIZE] __attribute__((aligned(4096)));
static size_t pool_used;

static inline int in_pool(const void *memory)
{
    return UNLIKELY((uintptr_t)memory - (uintptr_t)pool < POOL_SIZE);
}

static size_t pool_size(const void *memory)
{
    struct pool_block block;
    memcpy(&block, (const unsigned char *)memory - sizeof(block), sizeof(block));
    return block.size;
}

/*
 * Zeroed memory, or null with ENOMEM. Any thread: each takes its bytes by one exchange, and the
 * pool never gets bytes back. (A thread that added first, and subtracted if that was too much,
 * would move the end back below bytes that other threads have taken meanwhile.)
 */
static void *pool_allocate(size_t alignment, size_t size)
{
    struct pool_block block = {size};
    if (alignment < POOL_ALIGNMENT)
        alignment = POOL_ALIGNMENT;
    if (size <= POOL_SIZE && alignment <= POOL_SIZE) {
        const size_t taken = sizeof(block) + alignment - 1 + size;
        size_t start = __atomic_load_n(&pool_used, __ATOMIC_RELAXED);
        int is_taken = 0;
        /* A thread that loses the exchange has found a smaller pool, so the loop ends. */
        while (!is_taken && taken <= POOL_SIZE - start)
            is_taken = __atomic_compare_exchange_n(&pool_used, &start, start + taken, 0,
                                                   __ATOMIC_RELAXED, __ATOMIC_RELAXED);
        if (is_taken) {
            const uintptr_t lowest = (uintptr_t)pool + start + sizeof(block);
            const uintptr_t address = (lowest + alignment - 1) & ~(uintptr_t)(alignment - 1);
            unsigned char *memory = pool + (address - (uintptr_t)pool);
            memcpy(memory - sizeof(block), &block, sizeof(block));
            return memory;
        }
    }
    if (is_relocated())
        errno = ENOMEM;
    return NULL;
}

/* --- Finding the real functions -------------------------------------------------------------- */

enum { UNRESOLVED, RESOLVING, RESOLVED };
static int resolution; /* RESOLVED is stored with release order, after all of `next` */

/*
 * Returns true if `next` is looked up. The first caller looks it up; calls meanwhile, which include
 * those of dlsym() itself, get memory from the pool.
 */
static ASIDE int resolve(void)
{
    int expected = UNRESOLVED;
    if (!is_relocated())
        return 0;
    if (!__atomic_compare_exchange_n(&resolution, &expected, RESOLVING, 0, __ATOMIC_ACQUIRE,
                                     __ATOMIC_ACQUIRE))
        return expected == RESOLVED;
#define FIND(name)                                                                                \
    do {                                                                                          \
        const any_function found = find_next(#name);                                              \
        __atomic_store_n(&next.name, (__typeof__(next.name))found, __ATOMIC_RELAXED);             \
    } while (0)
    FIND(malloc);
    FIND(calloc);
    FIND(realloc);
    FIND(free);
    FIND(memalign);
    FIND(posix_memalign);
    FIND(aligned_alloc);
    FIND(valloc);
    FIND(pvalloc);
#undef FIND
    __atomic_store_n(&resolution, RESOLVED, __ATOMIC_RELEASE);
    return 1;
}

__attribute__((constructor)) static void resolve_early(void)
{
    (void)resolve();
}

/* Serves a call for which the next function is not looked up. It is not recorded: no event is on so
 * early. */
#define EARLY(name, alignment, size, ...)                                                         \
    (resolve() && BEHIND(name) ? BEHIND(name)(__VA_ARGS__) : pool_allocate(alignment, size))

/* --- Wrapped functions ---------------------------------------------------------------------- */

/*
 * While the event is off, a call costs a load and a branch in addition to the event itself, and a
 * jump to the next function: each function has its other paths in functions of their own.
 */

static ASIDE void *record_malloc(allocate_function function, size_t size)
{
    void *memory;
    depth++;
    memory = function(size);
    if (depth == 1)
        trackway(lttng_ust_libc, malloc, size, memory);
    depth--;
    return memory;
}

static ASIDE void *early_malloc(size_t size)
{
    return EARLY(malloc, 0, size, size);
}

EXPORTED void *malloc(size_t size)
{
    const allocate_function function = BEHIND(malloc);
    if (UNLIKELY(!function))
        return early_malloc(size);
    if (ON(lttng_ust_libc, malloc))
        return record_malloc(function, size);
    return function(size);
}

static ASIDE void *record_calloc(allocate_two_function function, size_t count, size_t size)
{
    void *memory;
    depth++;
    memory = function(count, size);
    if (depth == 1)
        trackway(lttng_ust_libc, calloc, count, size, memory);
    depth--;
    return memory;
}

static ASIDE void *early_calloc(size_t count, size_t size)
{
    size_t product;
    if (__builtin_mul_overflow(count, size, &product))
        product = SIZE_MAX;
    return EARLY(calloc, 0, product, count, size);
}

EXPORTED void *calloc(size_t count, size_t size)
{
    const allocate_two_function function = BEHIND(calloc);
    if (UNLIKELY(!function))
        return early_calloc(count, size);
    if (ON(lttng_ust_libc, calloc))
        return record_calloc(function, count, size);
    return function(count, size);
}

static ASIDE void *record_realloc(reallocate_function function, void *old, size_t size)
{
    /* The compiler must not think that `old` means nothing any more once it has been freed. */
    const uintptr_t old_address = (uintptr_t)old;
    void *memory;
    depth++;
    memory = function(old, size);
    if (depth == 1)
        trackway(lttng_ust_libc, realloc, (void *)old_address, size, memory);
    depth--;
    return memory;
}

/* memcpy() is not to be had before relocation; volatile, lest the compiler call it for this. */
static void early_copy(void *to, const void *from, size_t size)
{
    volatile unsigned char *bytes = to;
    size_t i;
    for (i = 0; i < size; i++)
        bytes[i] = ((const unsigned char *)from)[i];
}

/* Where `old` is the pool's, or `next` unknown. */
static ASIDE void *early_realloc(void *old, size_t size)
{
    void *memory;
    if (!in_pool(old) && resolve())
        return BEHIND(realloc)(old, size);
    memory = EARLY(malloc, 0, size, size);
    if (memory && in_pool(old))
        early_copy(memory, old, pool_size(old) < size ? pool_size(old) : size);
    if (is_relocated() && depth == 0)
        trackway(lttng_ust_libc, realloc, old, size, memory);
    return memory;
}

EXPORTED void *realloc(void *old, size_t size)
{
    const reallocate_function function = BEHIND(realloc);
    if (UNLIKELY(!function) || in_pool(old))
        return early_realloc(old, size);
    if (ON(lttng_ust_libc, realloc))
        return record_realloc(function, old, size);
    return function(old, size);
}

static ASIDE void record_free(free_function function, void *memory)
{
    depth++;
    /* Before it is free: afterwards another thread may get, and record, the same address. */
    if (depth == 1)
        trackway(lttng_ust_libc, free, memory);
    function(memory);
    depth--;
}

static ASIDE void early_free(void *memory)
{
    if (!in_pool(memory) && resolve())
        BEHIND(free)(memory);
}

EXPORTED void free(void *memory)
{
    const free_function function = BEHIND(free);
    if (UNLIKELY(!function) || in_pool(memory))
        early_free(memory);
    else if (ON(lttng_ust_libc, free))
        record_free(function, memory);
    else
        function(memory);
}

static ASIDE void *record_memalign(allocate_two_function function, size_t alignment, size_t size)
{
    void *memory;
    depth++;
    memory = function(alignment, size);
    if (depth == 1)
        trackway(lttng_ust_libc, memalign, alignment, size, memory);
    depth--;
    return memory;
}

EXPORTED void *memalign(size_t alignment, size_t size)
{
    const allocate_two_function function = BEHIND(memalign);
    if (UNLIKELY(!function))
        return EARLY(memalign, alignment, size, alignment, size);
    if (ON(lttng_ust_libc, memalign))
        return record_memalign(function, alignment, size);
    return function(alignment, size);
}

/* Recorded as memalign, as LTTng does. */
EXPORTED void *aligned_alloc(size_t alignment, size_t size)
{
    const allocate_two_function function = BEHIND(aligned_alloc);
    if (UNLIKELY(!function))
        return EARLY(aligned_alloc, alignment, size, alignment, size);
    if (ON(lttng_ust_libc, memalign))
        return record_memalign(function, alignment, size);
    return function(alignment, size);
}

static ASIDE int record_posix_memalign(posix_function function, void **out, size_t alignment,
                                       size_t size)
{
    int result;
    depth++;
    result = function(out, alignment, size);
    if (depth == 1)
        trackway(lttng_ust_libc, posix_memalign, result == 0 ? *out : NULL, alignment, size,
                 result);
    depth--;
    return result;
}

static ASIDE int early_posix_memalign(void **out, size_t alignment, size_t size)
{
    void *memory;
    int saved_errno;
    if (resolve())
        return BEHIND(posix_memalign)(out, alignment, size);
    saved_errno = is_relocated() ? errno : 0;
    memory = pool_allocate(alignment, size);
    if (is_relocated())
        errno = saved_errno;
    if (!memory)
        return ENOMEM;
    *out = memory;
    return 0;
}

EXPORTED int posix_memalign(void **out, size_t alignment, size_t size)
{
    const posix_function function = BEHIND(posix_memalign);
    if (UNLIKELY(!function))
        return early_posix_memalign(out, alignment, size);
    if (ON(lttng_ust_libc, posix_memalign))
        return record_posix_memalign(function, out, alignment, size);
    return function(out, alignment, size);
}

/* --- Obsolete, but free() takes their results: recorded as memalign, too ---------------------- */

static ASIDE void *record_pages(allocate_function function, size_t size)
{
    void *memory;
    depth++;
    memory = function(size);
    if (depth == 1)
        trackway(lttng_ust_libc, memalign, (uint64_t)sysconf(_SC_PAGESIZE), size, memory);
    depth--;
    return memory;
}

enum { LARGEST_USUAL_PAGE = 4096 };

EXPORTED void *valloc(size_t size)
{
    const allocate_function function = BEHIND(valloc);
    if (UNLIKELY(!function))
        return EARLY(valloc, LARGEST_USUAL_PAGE, size, size);
    if (ON(lttng_ust_libc, memalign))
        return record_pages(function, size);
    return function(size);
}

EXPORTED void *pvalloc(size_t size)
{
    const allocate_function function = BEHIND(pvalloc);
    if (UNLIKELY(!function))
        return EARLY(pvalloc, LARGEST_USUAL_PAGE, size, size);
    if (ON(lttng_ust_libc, memalign))
        return record_pages(function, size);
    return function(size);
}
