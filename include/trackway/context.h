/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Contexts of a program: data about its current activity, set once and recorded with its events.
 *
 *     #include <trackway/context.h>
 *
 *     TRACKWAY_CONTEXT(myapp, request_id, u64);
 *
 *     void serve(struct request *request)
 *     {
 *         trackway_set_context(myapp, request_id, request->id);
 *         trackway(myapp, request, request->path, 200, 1250);
 *         trackway_clear_context(myapp, request_id);
 *     }
 *
 *     trackway record --context 'vtid,$app.myapp:request_id' -- ./app
 *     trackway record --filter '$app.myapp:request_id == 42' -- ./app
 *
 * A context has a value in each thread, or none. A session that selects the context records the
 * value with each event of the thread, also with events of other modules and of preloaded helpers.
 * No code of the program is called when an event happens. Setting a value costs some nanoseconds,
 * and a test where the library is not loaded.
 */
#ifndef TRACKWAY_CONTEXT_H
#define TRACKWAY_CONTEXT_H

#include <trackway/trackway.h>

/*
 * TRACKWAY_CONTEXT(PROVIDER, NAME, TYPE);
 *
 * Declares and defines the context $app.PROVIDER:NAME, at file scope, in a source file or in a
 * header that many files include. PROVIDER and NAME are C identifiers that are not macros, 62 bytes
 * together at most. TYPE is one of
 *
 *     i8 i16 i32 i64       signed integer, recorded as an i64
 *     u8 u16 u32 u64 bool  unsigned integer, recorded as a u64
 *     f32 f64              floating-point number, recorded as an f64
 *     str                  NUL-terminated string, of up to 31 bytes; longer ones are cut, and end
 *                          with "…"
 *
 * Contexts of one name are one context, in all modules of a process; the first that is set
 * determines the type, and others have no effect. A process can have 4 contexts that are
 * numbers and 2 that are strings; more of them have no effect, either.
 */
#define TRACKWAY_CONTEXT(provider, name, type) TRACKWAY_I_CONTEXT(provider, name, type)

/*
 * trackway_set_context(PROVIDER, NAME, VALUE)
 *
 * Sets the calling thread's value, which is converted as in a function call. Events have it from
 * now on, until it is set again, or cleared. An expression of type void. A null str is set as
 * "(null)". VALUE is evaluated once if libtrackway.so is there, else not at all.
 *
 * Thread-safe and async-signal-safe: a signal handler that interrupts this, and emits, records the
 * complete old or new value. The handler may set the context itself, and restore the old value
 * (trackway_get_context()). A fork child has the values of the thread that forked; a vfork child
 * shares its parent's values, so that the parent keeps the changes. Threads begin without values.
 * Does not block, allocate, make a system call, or change errno.
 */
#define trackway_set_context(provider, name, value) TRACKWAY_I_SET_CONTEXT(provider, name, value)

/*
 * trackway_clear_context(PROVIDER, NAME)
 *
 * Takes the calling thread's value away: events have none from now on. As safe as setting it.
 */
#define trackway_clear_context(provider, name) TRACKWAY_I_CLEAR_CONTEXT(provider, name)

/*
 * trackway_get_context(PROVIDER, NAME, BEFORE)
 *
 * Gets the calling thread's value, or the absence of one, into *BEFORE, a struct
 * trackway_abi_context_value. For work in between on behalf of another object:
 *
 *     struct trackway_abi_context_value before;
 *     trackway_get_context(myapp, request_id, &before);
 *     trackway_set_context(myapp, request_id, other->id);
 *     ...
 *     trackway_put_context(myapp, request_id, &before);
 *
 * As safe as setting it. In C++ trackway_context_scope() does all of it.
 */
#define trackway_get_context(provider, name, before)                                              \
    TRACKWAY_I_GET_CONTEXT(provider, name, before)

/*
 * trackway_put_context(PROVIDER, NAME, BEFORE)
 *
 * Gives the calling thread's context the value, or none, that trackway_get_context() found. As safe
 * as setting it.
 */
#define trackway_put_context(provider, name, before)                                              \
    TRACKWAY_I_PUT_CONTEXT(provider, name, before)

/*
 * trackway_context_scope(PROVIDER, NAME, VALUE);
 *
 * In C++: sets the calling thread's value, up to the end of the enclosing scope, which must be left
 * by the thread that has entered it; then restores the value before it. As safe as setting it. One
 * for each context and line.
 */
#ifdef __cplusplus
#define trackway_context_scope(provider, name, value)                                             \
    TRACKWAY_I_CONTEXT_SCOPE(provider, name, value, __LINE__)
#endif

/* ---------------------------------------------------------------------------------------------
 * The rest is not for use: how it is made.
 */

/* The table of types: the library's type, the C type. */
#define TRACKWAY_I_CONTEXT_i8 SIGNED, int8_t
#define TRACKWAY_I_CONTEXT_i16 SIGNED, int16_t
#define TRACKWAY_I_CONTEXT_i32 SIGNED, int32_t
#define TRACKWAY_I_CONTEXT_i64 SIGNED, int64_t
#define TRACKWAY_I_CONTEXT_u8 UNSIGNED, uint8_t
#define TRACKWAY_I_CONTEXT_u16 UNSIGNED, uint16_t
#define TRACKWAY_I_CONTEXT_u32 UNSIGNED, uint32_t
#define TRACKWAY_I_CONTEXT_u64 UNSIGNED, uint64_t
#define TRACKWAY_I_CONTEXT_bool UNSIGNED, TRACKWAY_I_BOOL
#define TRACKWAY_I_CONTEXT__Bool TRACKWAY_I_CONTEXT_bool /* what <stdbool.h> makes of `bool` */
#define TRACKWAY_I_CONTEXT_f32 FLOAT, float
#define TRACKWAY_I_CONTEXT_f64 FLOAT, double
#define TRACKWAY_I_CONTEXT_str STRING, const char *

#define TRACKWAY_I_CONTEXT(p, n, type)                                                            \
    TRACKWAY_I_CONTEXT_(p, n, TRACKWAY_I_CONTEXT_##type)
#define TRACKWAY_I_CONTEXT_(...) TRACKWAY_I_CONTEXT_OF_KNOWN_TYPE(__VA_ARGS__)

#ifdef TRACKWAY_DISABLE

#define TRACKWAY_I_CONTEXT_OF_KNOWN_TYPE(p, n, kind, c_type)                                      \
    enum { trackway_context_##p##_DOT_##n = TRACKWAY_ABI_CONTEXT_##kind };                        \
    static inline __attribute__((__unused__)) void trackway_set_##p##_DOT_##n(c_type value)       \
    {                                                                                             \
        TRACKWAY_I_CAST(void, value);                                                             \
    }                                                                                             \
    TRACKWAY_I_ASSERT(sizeof(#p ":" #n) <= 64, #p ":" #n ": the name is too long")
#define TRACKWAY_I_SET_CONTEXT(p, n, value)                                                       \
    (0 ? trackway_set_##p##_DOT_##n(value) : TRACKWAY_I_CAST(void, 0))
#define TRACKWAY_I_CLEAR_CONTEXT(p, n) TRACKWAY_I_CAST(void, trackway_context_##p##_DOT_##n)
#define TRACKWAY_I_GET_CONTEXT(p, n, before)                                                      \
    TRACKWAY_I_CAST(void, ((before)->is_set = 0, trackway_context_##p##_DOT_##n))
#define TRACKWAY_I_PUT_CONTEXT(p, n, before)                                                      \
    TRACKWAY_I_CAST(void, (TRACKWAY_I_CAST(void, before), trackway_context_##p##_DOT_##n))
#define TRACKWAY_I_CONTEXT_SCOPE(p, n, value, line) trackway_set_context(p, n, value)

#else /* tracing is compiled in: to the end of the file */

#ifdef __cplusplus
extern "C" {
#endif

extern void trackway_abi_context_set(struct trackway_abi_context *context, uint64_t bits)
    __attribute__((__weak__));
extern void trackway_abi_context_set_text(struct trackway_abi_context *context, const char *text,
                                          size_t length) __attribute__((__weak__));
extern void trackway_abi_context_clear(struct trackway_abi_context *context)
    __attribute__((__weak__));
extern void trackway_abi_context_get(struct trackway_abi_context *context,
                                     struct trackway_abi_context_value *value)
    __attribute__((__weak__));
extern void trackway_abi_context_put(struct trackway_abi_context *context,
                                     const struct trackway_abi_context_value *value)
    __attribute__((__weak__));

#ifdef __cplusplus
}
#endif

TRACKWAY_I_HELPER void trackway_i_context_clear(struct trackway_abi_context *context)
{
    if (trackway_abi_context_clear)
        trackway_abi_context_clear(context);
}

TRACKWAY_I_HELPER void trackway_i_context_get(struct trackway_abi_context *context,
                                              struct trackway_abi_context_value *value)
{
    if (trackway_abi_context_get)
        trackway_abi_context_get(context, value);
    else
        value->is_set = 0;
}

TRACKWAY_I_HELPER void trackway_i_context_put(struct trackway_abi_context *context,
                                              const struct trackway_abi_context_value *value)
{
    if (trackway_abi_context_put)
        trackway_abi_context_put(context, value);
}

/* How a value of a kind gets to the library. */
#define TRACKWAY_I_CONTEXT_SET_SIGNED(context, value)                                             \
    trackway_abi_context_set(                                                                     \
        context, TRACKWAY_I_CAST(uint64_t, TRACKWAY_I_CAST(int64_t, (value))))
#define TRACKWAY_I_CONTEXT_SET_UNSIGNED(context, value)                                           \
    trackway_abi_context_set(context, TRACKWAY_I_CAST(uint64_t, (value)))
#define TRACKWAY_I_CONTEXT_SET_FLOAT(context, value)                                              \
    const double number = TRACKWAY_I_CAST(double, value);                                         \
    uint64_t bits;                                                                                \
    __builtin_memcpy(&bits, &number, sizeof(bits));                                               \
    trackway_abi_context_set(context, bits)
#define TRACKWAY_I_CONTEXT_SET_STRING(context, value)                                             \
    trackway_abi_context_set_text(context, value, SIZE_MAX)

#define TRACKWAY_I_CONTEXT_OF_KNOWN_TYPE(p, n, kind, c_type)                                      \
    TRACKWAY_I_EXTERN struct trackway_abi_context trackway_context_##p##_DOT_##n __asm__(         \
        "trackway.context." #p "." #n) __attribute__((TRACKWAY_I_ONE_PER_MODULE));                \
    struct trackway_abi_context trackway_context_##p##_DOT_##n = {                                \
        TRACKWAY_ABI_VERSION, sizeof(struct trackway_abi_context), TRACKWAY_ABI_CONTEXT_##kind,   \
        {0, 0, 0}, 0, 0, #p, #n};                                                                 \
    TRACKWAY_I_HELPER void trackway_set_##p##_DOT_##n(c_type value)                               \
    {                                                                                             \
        TRACKWAY_I_CONTEXT_SET_##kind(&trackway_context_##p##_DOT_##n, value);                    \
    }                                                                                             \
    TRACKWAY_I_ASSERT(sizeof(#p ":" #n) <= 64, #p ":" #n ": the name is too long")

/* All five functions came with one version of the library. */
#define TRACKWAY_I_SET_CONTEXT(p, n, value)                                                       \
    (trackway_abi_context_set ? trackway_set_##p##_DOT_##n(value) : TRACKWAY_I_CAST(void, 0))
#define TRACKWAY_I_CLEAR_CONTEXT(p, n) trackway_i_context_clear(&trackway_context_##p##_DOT_##n)
#define TRACKWAY_I_GET_CONTEXT(p, n, before)                                                      \
    trackway_i_context_get(&trackway_context_##p##_DOT_##n, before)
#define TRACKWAY_I_PUT_CONTEXT(p, n, before)                                                      \
    trackway_i_context_put(&trackway_context_##p##_DOT_##n, before)

#ifdef __cplusplus
namespace trackway_i {
/* Restores the value. */
class context_scope {
public:
    explicit context_scope(trackway_abi_context *of) noexcept : context(of), before()
    {
        trackway_i_context_get(context, &before);
    }
    ~context_scope() { trackway_i_context_put(context, &before); }
    context_scope(const context_scope &) = delete;
    context_scope &operator=(const context_scope &) = delete;

private:
    trackway_abi_context *context;
    trackway_abi_context_value before;
};
}
#define TRACKWAY_I_CONTEXT_SCOPE(p, n, value, line) TRACKWAY_I_CONTEXT_SCOPE_(p, n, value, line)
#define TRACKWAY_I_CONTEXT_SCOPE_(p, n, value, line)                                              \
    const trackway_i::context_scope trackway_scope_##p##_DOT_##n##_##line(                        \
        &trackway_context_##p##_DOT_##n);                                                         \
    trackway_set_context(p, n, value)
#endif

#endif /* TRACKWAY_DISABLE */
#endif
