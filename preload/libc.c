/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * libtrackway-libc.so: preloaded, it records the memory allocations of a program that was not
 * instrumented. Events and fields are named as LTTng-UST's lttng_ust_libc names them, so that the
 * analyses people have work on them.
 *
 * Allocation functions are called by the dynamic loader before any constructor, and by whatever
 * else runs in a process. So nothing here allocates, does input or output, or takes a lock, and
 * the one thread-local is in the static TLS block. What dlsym() itself allocates while the real
 * functions are being looked up comes out of a small static pool and is never given back.
 *
 * C++'s new and delete call malloc and free, and strdup, getline and reallocarray do so too.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <trackway/trackway.h>

TRACKWAY_EVENT(lttng_ust_libc, malloc, TRACKWAY_DEBUG_LINE, (u64, size), (ptr, ptr));
TRACKWAY_EVENT(lttng_ust_libc, calloc, TRACKWAY_DEBUG_LINE, (u64, nmemb), (u64, size), (ptr, ptr));
TRACKWAY_EVENT(lttng_ust_libc, realloc, TRACKWAY_DEBUG_LINE,
    (ptr, in_ptr), (u64, size), (ptr, ptr));
TRACKWAY_EVENT(lttng_ust_libc, free, TRACKWAY_DEBUG_LINE, (ptr, ptr));
TRACKWAY_EVENT(lttng_ust_libc, memalign, TRACKWAY_DEBUG_LINE,
    (u64, alignment), (u64, size), (ptr, ptr));
TRACKWAY_EVENT(lttng_ust_libc, posix_memalign, TRACKWAY_DEBUG_LINE,
    (ptr, out_ptr), (u64, alignment), (u64, size), (i32, result));

#define EXPORTED __attribute__((visibility("default")))

/* The functions behind ours: the C library's, or those of another preloaded allocator. */
static struct {
    void *(*malloc)(size_t size);
    void *(*calloc)(size_t count, size_t size);
    void *(*realloc)(void *memory, size_t size);
    void (*free)(void *memory);
    void *(*memalign)(size_t alignment, size_t size);
    int (*posix_memalign)(void **memory, size_t alignment, size_t size);
    void *(*aligned_alloc)(size_t alignment, size_t size);
} next;

enum { UNRESOLVED, RESOLVING, RESOLVED };
static int resolution; /* RESOLVED is stored with release order, after all of `next` */

/*
 * How deep this thread is in our functions. Only the outermost call is recorded: what an allocator
 * or the recording itself allocates is no business of the program's.
 */
static __thread unsigned depth __attribute__((tls_model("initial-exec")));

/* --- The pool: memory while `next` is unknown ------------------------------------------------ */

enum { POOL_SIZE = 64 * 1024, POOL_ALIGNMENT = 16 };

/* In front of each block: how many bytes it has, for realloc. */
struct pool_block {
    size_t size;
};

static unsigned char pool[POOL_SIZE] __attribute__((aligned(4096)));
static size_t pool_used;

static int in_pool(const void *memory)
{
    return (uintptr_t)memory - (uintptr_t)pool < POOL_SIZE;
}

static size_t pool_size(const void *memory)
{
    struct pool_block block;
    memcpy(&block, (const unsigned char *)memory - sizeof(block), sizeof(block));
    return block.size;
}

/* Zeroed memory, or null with ENOMEM. Any thread: each takes its bytes by one addition. */
static void *pool_allocate(size_t alignment, size_t size)
{
    struct pool_block block = {size};
    if (alignment < POOL_ALIGNMENT)
        alignment = POOL_ALIGNMENT;
    if (size <= POOL_SIZE && alignment <= POOL_SIZE) {
        const size_t taken = sizeof(block) + alignment - 1 + size;
        const size_t start = __atomic_fetch_add(&pool_used, taken, __ATOMIC_RELAXED);
        if (start <= POOL_SIZE && taken <= POOL_SIZE - start) {
            const uintptr_t lowest = (uintptr_t)pool + start + sizeof(block);
            const uintptr_t address = (lowest + alignment - 1) & ~(uintptr_t)(alignment - 1);
            unsigned char *memory = pool + (address - (uintptr_t)pool);
            memcpy(memory - sizeof(block), &block, sizeof(block));
            return memory;
        }
        __atomic_fetch_sub(&pool_used, taken, __ATOMIC_RELAXED);
    }
    errno = ENOMEM;
    return NULL;
}

/* --- Finding the real functions -------------------------------------------------------------- */

static void look_up(void *function, const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    memcpy(function, &found, sizeof(found)); /* ISO C has no cast from void * to a function */
}

/*
 * Whether `next` can be called. The first caller looks it up; those who come meanwhile, which
 * includes dlsym() itself, get memory from the pool.
 */
static int resolve(void)
{
    const int saved_errno = errno;
    int expected = UNRESOLVED;
    if (!__atomic_compare_exchange_n(&resolution, &expected, RESOLVING, 0, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED))
        return 0;
    look_up(&next.malloc, "malloc");
    look_up(&next.calloc, "calloc");
    look_up(&next.realloc, "realloc");
    look_up(&next.free, "free");
    look_up(&next.memalign, "memalign");
    look_up(&next.posix_memalign, "posix_memalign");
    look_up(&next.aligned_alloc, "aligned_alloc");
    __atomic_store_n(&resolution, RESOLVED, __ATOMIC_RELEASE);
    errno = saved_errno;
    return 1;
}

static inline int resolved(void)
{
    return __builtin_expect(__atomic_load_n(&resolution, __ATOMIC_ACQUIRE) == RESOLVED, 1) ||
           resolve();
}

__attribute__((constructor)) static void resolve_early(void)
{
    (void)resolved();
}

/* --- What programs call ---------------------------------------------------------------------- */

EXPORTED void *malloc(size_t size)
{
    void *memory;
    if (!resolved())
        return pool_allocate(0, size);
    depth++;
    memory = next.malloc(size);
    if (depth == 1)
        trackway(lttng_ust_libc, malloc, size, memory);
    depth--;
    return memory;
}

EXPORTED void *calloc(size_t count, size_t size)
{
    void *memory;
    if (!resolved()) {
        size_t product;
        if (__builtin_mul_overflow(count, size, &product))
            product = SIZE_MAX;
        return pool_allocate(0, product);
    }
    depth++;
    memory = next.calloc(count, size);
    if (depth == 1)
        trackway(lttng_ust_libc, calloc, count, size, memory);
    depth--;
    return memory;
}

EXPORTED void *realloc(void *old, size_t size)
{
    /* The compiler must not think that `old` means nothing any more once it has been freed. */
    const uintptr_t old_address = (uintptr_t)old;
    const int usable = resolved();
    void *memory;
    if (!usable && !old)
        return pool_allocate(0, size);
    depth++;
    if (in_pool(old) || !usable) {
        memory = usable ? next.malloc(size) : pool_allocate(0, size);
        if (memory && in_pool(old))
            memcpy(memory, old, pool_size(old) < size ? pool_size(old) : size);
    } else {
        memory = next.realloc(old, size);
    }
    if (depth == 1)
        trackway(lttng_ust_libc, realloc, (void *)old_address, size, memory);
    depth--;
    return memory;
}

EXPORTED void free(void *memory)
{
    if (in_pool(memory) || !resolved())
        return;
    depth++;
    /* Before it is free: afterwards another thread may get, and record, the same address. */
    if (depth == 1)
        trackway(lttng_ust_libc, free, memory);
    next.free(memory);
    depth--;
}

EXPORTED void *memalign(size_t alignment, size_t size)
{
    void *memory;
    if (!resolved())
        return pool_allocate(alignment, size);
    depth++;
    memory = next.memalign(alignment, size);
    if (depth == 1)
        trackway(lttng_ust_libc, memalign, alignment, size, memory);
    depth--;
    return memory;
}

/* Recorded as memalign, as LTTng does. */
EXPORTED void *aligned_alloc(size_t alignment, size_t size)
{
    void *memory;
    if (!resolved())
        return pool_allocate(alignment, size);
    depth++;
    memory = next.aligned_alloc(alignment, size);
    if (depth == 1)
        trackway(lttng_ust_libc, memalign, alignment, size, memory);
    depth--;
    return memory;
}

EXPORTED int posix_memalign(void **out, size_t alignment, size_t size)
{
    int result;
    if (!resolved()) {
        const int saved_errno = errno;
        void *memory = pool_allocate(alignment, size);
        errno = saved_errno;
        if (!memory)
            return ENOMEM;
        *out = memory;
        return 0;
    }
    depth++;
    result = next.posix_memalign(out, alignment, size);
    if (depth == 1)
        trackway(lttng_ust_libc, posix_memalign, result == 0 ? *out : NULL, alignment, size,
                 result);
    depth--;
    return result;
}
