/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Trackway's events for C and C++: declare them once, call them anywhere, leave them in.
 *
 *     #include <trackway/trackway.h>
 *
 *     TRACKWAY_EVENT(myapp, request, TRACKWAY_INFO,
 *         (str, path), (u32, status), (u64, latency_us));
 *
 *     int main(void)
 *     {
 *         trackway(myapp, request, "/index.html", 200, 1250);
 *         trackway_printf("served %d request", 1);
 *         return 0;
 *     }
 *
 *     cc hello.c -o hello && trackway record -- ./hello
 *
 * There is nothing to link. While an event is off, a call is two or three loads and a branch that
 * is not taken; its arguments are not evaluated. C11 and later, C++11 and later, GCC and Clang. C++
 * programs find more in <trackway/trackway.hpp>: containers as arguments, and scopes.
 */
#ifndef TRACKWAY_TRACKWAY_H
#define TRACKWAY_TRACKWAY_H

#include <stddef.h>
#include <stdint.h>
#include <trackway/abi/abi.h>

/* Log levels: LTTng's names and numbers, smaller is graver. */
enum trackway_level {
    TRACKWAY_EMERG = 0,          /* the system is unusable */
    TRACKWAY_ALERT = 1,          /* action must be taken at once */
    TRACKWAY_CRIT = 2,           /* critical conditions */
    TRACKWAY_ERR = 3,            /* errors */
    TRACKWAY_WARNING = 4,        /* warnings */
    TRACKWAY_NOTICE = 5,         /* normal, but significant */
    TRACKWAY_INFO = 6,           /* informational */
    TRACKWAY_DEBUG_SYSTEM = 7,   /* debugging, with the scope of a set of programs */
    TRACKWAY_DEBUG_PROGRAM = 8,  /* … of a program */
    TRACKWAY_DEBUG_PROCESS = 9,  /* … of a process */
    TRACKWAY_DEBUG_MODULE = 10,  /* … of a module: an executable or library */
    TRACKWAY_DEBUG_UNIT = 11,    /* … of a compilation unit */
    TRACKWAY_DEBUG_FUNCTION = 12, /* … of a function */
    TRACKWAY_DEBUG_LINE = 13,    /* … of a line */
    TRACKWAY_DEBUG = 14          /* debugging */
};

/*
 * TRACKWAY_EVENT(PROVIDER, NAME, LEVEL, FIELD...);
 *
 * Declares and defines the event PROVIDER:NAME, at file scope, in a source file or in a header that
 * many files include. All calls in one executable or shared object share one definition; it must
 * read the same everywhere. PROVIDER, NAME and field names are C identifiers that are not macros.
 *
 * There may be 0 to 32 fields. Each is one of these, and takes these arguments of a call:
 *
 *     (i8, N) (i16, N) (i32, N) (i64, N)   signed integer                one integer
 *     (u8, N) (u16, N) (u32, N) (u64, N)   unsigned integer              one integer
 *     (x8, N) (x16, N) (x32, N) (x64, N)   same, shown in hexadecimal    one integer
 *     (ptr, N)                             address, an x64               one object pointer
 *     (f32, N) (f64, N)                    floating-point number         one float, one double
 *     (bool, N)                            truth value                   one bool
 *     (str, N)                             NUL-terminated string         const char *
 *     (text, N)                            string of a given length      const char *, size_t
 *     (array, N, T, LENGTH)                LENGTH elements               const T *
 *     (seq, N, T)                          any number of elements        const T *, size_t
 *     (enum, N, PROVIDER, E, T)            integer with labels           one integer
 *
 * where T is one of the scalar types above, E was declared by TRACKWAY_ENUM, and LENGTH is a
 * constant up to 1024. A null str or text is recorded as "(null)", a null array as zeros, a null
 * seq as empty. A payload has at most TRACKWAY_ABI_PAYLOAD_MAX bytes: where the fields that can
 * shrink (str, text, seq) do not fit, the longest are cut. Cut strings end with "…" if they
 * have room for it; the summary of a recording says how many records were cut.
 *
 * Lifetime: the event is there as long as its module is loaded; it is off until the library has
 * started, and in a module loaded later until that module's first constructor (priority 101) has
 * run. Errors: what the compiler can see does not compile. An event of a header of another version
 * than the library's stays off, as TRACKWAY_DEBUG=1 in the environment makes the library say, and
 * so does one that finds no place in the user's table of 4096, which `trackway list` says. Where
 * two definitions in one module differ, one of them counts, unspecified which.
 */
#define TRACKWAY_EVENT(...) TRACKWAY_I_EVENT(__VA_ARGS__, TRACKWAY_I_PADS)

/*
 * TRACKWAY_ENUM(PROVIDER, NAME, LABEL...);
 *
 * Names values for fields of type enum. A LABEL is (NAME, VALUE) or (NAME, FIRST, LAST), the values
 * being constants. There may be 1 to 64 labels. Data only, of this file, as long as its module is
 * loaded. To be used before the events, at file scope:
 *
 *     TRACKWAY_ENUM(myapp, phase, (idle, 0), (loading, 1), (busy, 2, 9));
 *     TRACKWAY_EVENT(myapp, phase_changed, TRACKWAY_INFO, (enum, to, myapp, phase, u8));
 */
#define TRACKWAY_ENUM(...) TRACKWAY_I_ENUM(__VA_ARGS__, TRACKWAY_I_LABEL_PADS)

/*
 * trackway(PROVIDER, NAME, ARGUMENT...)
 *
 * Records the event, where a recorder wants it. An expression of type void. Arguments are
 * converted as in a function call, and evaluated once if the event is on, else not at all.
 *
 * Thread-safe and async-signal-safe; after fork, in vfork children, before main and in destructors.
 * Does not block, allocate, or change errno. Uses up to 7 KiB of stack when on, 3 KiB if all fields
 * are of fixed sizes and small. What arguments point to is read during the call only, and may
 * change meanwhile: the record is whole all the same. No error is reported: a record for which
 * there is no room is counted, and `trackway record` says how many; with TRACKWAY_ALLOW_BLOCKING in
 * the environment it may wait for room first. Forbidden, as all use of the processor's clock, after
 * SECCOMP_MODE_STRICT and PR_SET_TSC.
 *
 * In C, an inline function that calls it should be static: what it calls belongs to each file.
 */
#define trackway(...) TRACKWAY_I_CALL(__VA_ARGS__, 0)

/*
 * int trackway_enabled(PROVIDER, NAME)
 *
 * Whether somebody wants the event now, 1 or 0: for work that only prepares a call's arguments. The
 * answer may be old by the time of the call, which looks for itself. In a process that has become
 * another user it is 1 until the event is next emitted. Wherever trackway() may be, and as safe.
 *
 *     if (trackway_enabled(myapp, state))
 *         trackway(myapp, state, describe_state(&buffer));
 */
#define trackway_enabled(provider, name) TRACKWAY_I_ENABLED(provider, name)

/*
 * trackway_printf(FORMAT, ...)
 *
 * Records lttng_ust_tracef:event with one text field, `msg`: FORMAT and its arguments as printf(3)
 * would write them, cut after 512 bytes. Nothing is evaluated or formatted while the event is off.
 * A format that the C library refuses is recorded as an empty text. Thread-safe; in signal handlers
 * and vfork children as far as the C library's vsnprintf() permits. Keeps errno; uses up to 2 KiB
 * of stack besides what vsnprintf() does.
 */
#define trackway_printf(...) TRACKWAY_I_PRINTF(__VA_ARGS__)

/*
 * trackway_log(LEVEL, FORMAT, ...)
 *
 * The same with a level, which must be one of the constants above, as an event of its own:
 * lttng_ust_tracelog:TRACE_WARNING for TRACKWAY_WARNING. Its fields are line, file, func and msg.
 * As safe as trackway_printf().
 */
#define trackway_log(level, ...) TRACKWAY_I_LOG(level, __VA_ARGS__)

/*
 * int trackway_snapshot(SESSION)
 *
 * Asks for a snapshot of what the flight recorders that record this process still have: of the
 * session of that name, a const char *, or of all of them if it is NULL. Returns how many sessions
 * were asked: 0 where nobody records, or nobody in that way. Their recorders see it when they next
 * look, some tenths of a second later, and take what was recorded by then; requests that come
 * meanwhile are one.
 *
 *     if (latency_us > 10000)
 *         trackway_snapshot(NULL);
 *
 * Thread-safe and async-signal-safe; after fork and in vfork children. No system call, but in a
 * fork child in which it is the first of all. Does not block, allocate, or change errno; uses up
 * to 2 KiB of stack.
 */
#define trackway_snapshot(session) TRACKWAY_I_SNAPSHOT(session)

/*
 * Define TRACKWAY_DISABLE before the first inclusion, and all of it compiles to nothing. Arguments
 * are still checked, but never evaluated.
 */

/* ---------------------------------------------------------------------------------------------
 * The rest is not for use: how it is made.
 *
 * Fields are walked without recursion. A field is a parenthesised tuple, so a macro name written
 * before it is a macro call: `TRACKWAY_I_PARAM (u32, status)`. TRACKWAY_I_EACH writes the macro's
 * name before each of 32 tuples; events with fewer have been padded with `(pad, )`, which every
 * macro expands to nothing. Each macro ("pass") looks its tuple's type up in the table of types
 * and goes on to the pass's variant for that shape: PARAM_SCALAR, PARAM_STR, …
 */

#ifdef __cplusplus
#define TRACKWAY_I_ASSERT(condition, message) static_assert(condition, message)
#define TRACKWAY_I_CAST(type, value) static_cast<type>(value)
#define TRACKWAY_I_BOOL bool
#define TRACKWAY_I_EXTERN extern "C"
#else
#define TRACKWAY_I_ASSERT(condition, message) _Static_assert(condition, message)
#define TRACKWAY_I_CAST(type, value) ((type)(value))
#define TRACKWAY_I_BOOL _Bool
#define TRACKWAY_I_EXTERN extern
#endif

#define TRACKWAY_I_PAD4 (pad, ), (pad, ), (pad, ), (pad, )
#define TRACKWAY_I_PADS                                                                           \
    TRACKWAY_I_PAD4, TRACKWAY_I_PAD4, TRACKWAY_I_PAD4, TRACKWAY_I_PAD4, TRACKWAY_I_PAD4,          \
    TRACKWAY_I_PAD4, TRACKWAY_I_PAD4, TRACKWAY_I_PAD4, (pad, ), (pad, )

#define TRACKWAY_I_EACH(m, ...) TRACKWAY_I_EACH_(m, __VA_ARGS__)
#define TRACKWAY_I_EACH_(m, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15,     \
                         f16, f17, f18, f19, f20, f21, f22, f23, f24, f25, f26, f27, f28, f29,    \
                         f30, f31, f32, ...)                                                      \
    m f1 m f2 m f3 m f4 m f5 m f6 m f7 m f8 m f9 m f10 m f11 m f12 m f13 m f14 m f15 m f16        \
    m f17 m f18 m f19 m f20 m f21 m f22 m f23 m f24 m f25 m f26 m f27 m f28 m f29 m f30 m f31     \
    m f32

/* The first 12 fields only: what SDT notes describe. */
#define TRACKWAY_I_EACH12(m, ...) TRACKWAY_I_EACH12_(m, __VA_ARGS__)
#define TRACKWAY_I_EACH12_(m, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, ...)             \
    m f1 m f2 m f3 m f4 m f5 m f6 m f7 m f8 m f9 m f10 m f11 m f12

/* 1 if there is no 33rd field. */
#define TRACKWAY_I_FIT(...) TRACKWAY_I_FIT_(__VA_ARGS__)
#define TRACKWAY_I_FIT_(f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16,    \
                        f17, f18, f19, f20, f21, f22, f23, f24, f25, f26, f27, f28, f29, f30,     \
                        f31, f32, f33, ...)                                                       \
    (1 TRACKWAY_I_COUNT f33 == 1)

/* The table of types: shape, C type, code in the description, size in an SDT note. */
#define TRACKWAY_I_TYPE_i8 SCALAR, int8_t, TRACKWAY_ABI_I8, "-1"
#define TRACKWAY_I_TYPE_i16 SCALAR, int16_t, TRACKWAY_ABI_I16, "-2"
#define TRACKWAY_I_TYPE_i32 SCALAR, int32_t, TRACKWAY_ABI_I32, "-4"
#define TRACKWAY_I_TYPE_i64 SCALAR, int64_t, TRACKWAY_ABI_I64, "-8"
#define TRACKWAY_I_TYPE_u8 SCALAR, uint8_t, TRACKWAY_ABI_U8, "1"
#define TRACKWAY_I_TYPE_u16 SCALAR, uint16_t, TRACKWAY_ABI_U16, "2"
#define TRACKWAY_I_TYPE_u32 SCALAR, uint32_t, TRACKWAY_ABI_U32, "4"
#define TRACKWAY_I_TYPE_u64 SCALAR, uint64_t, TRACKWAY_ABI_U64, "8"
#define TRACKWAY_I_TYPE_x8 SCALAR, uint8_t, TRACKWAY_ABI_X8, "1"
#define TRACKWAY_I_TYPE_x16 SCALAR, uint16_t, TRACKWAY_ABI_X16, "2"
#define TRACKWAY_I_TYPE_x32 SCALAR, uint32_t, TRACKWAY_ABI_X32, "4"
#define TRACKWAY_I_TYPE_x64 SCALAR, uint64_t, TRACKWAY_ABI_X64, "8"
#define TRACKWAY_I_TYPE_f32 SCALAR, float, TRACKWAY_ABI_F32, "4"
#define TRACKWAY_I_TYPE_f64 SCALAR, double, TRACKWAY_ABI_F64, "8"
#define TRACKWAY_I_TYPE_bool SCALAR, TRACKWAY_I_BOOL, TRACKWAY_ABI_BOOL, "1"
#define TRACKWAY_I_TYPE__Bool TRACKWAY_I_TYPE_bool /* what <stdbool.h> makes of `bool` */
#define TRACKWAY_I_TYPE_ptr POINTER, const void *, TRACKWAY_ABI_NONE, "8"
#define TRACKWAY_I_TYPE_str STR, const char *, TRACKWAY_ABI_NONE, "8"
#define TRACKWAY_I_TYPE_text TEXT, const char *, TRACKWAY_ABI_NONE, "8"
#define TRACKWAY_I_TYPE_array ARRAY, , TRACKWAY_ABI_NONE, "8"
#define TRACKWAY_I_TYPE_seq SEQ, , TRACKWAY_ABI_NONE, "8"
#define TRACKWAY_I_TYPE_enum ENUM, , TRACKWAY_ABI_NONE, "8"
#define TRACKWAY_I_TYPE_pad PAD, , TRACKWAY_ABI_NONE, ""

#define TRACKWAY_I_C_TYPE(type) TRACKWAY_I_COLUMN(C_TYPE, TRACKWAY_I_TYPE_##type)
#define TRACKWAY_I_CODE(type) TRACKWAY_I_COLUMN(CODE, TRACKWAY_I_TYPE_##type)
#define TRACKWAY_I_SDT_SIZE(type) TRACKWAY_I_COLUMN(SDT_SIZE, TRACKWAY_I_TYPE_##type)
#define TRACKWAY_I_COLUMN(column, ...) TRACKWAY_I_COLUMN_##column(__VA_ARGS__)
#define TRACKWAY_I_COLUMN_C_TYPE(shape, c_type, code, sdt_size) c_type
#define TRACKWAY_I_COLUMN_CODE(shape, c_type, code, sdt_size) code
#define TRACKWAY_I_COLUMN_SDT_SIZE(shape, c_type, code, sdt_size) sdt_size

/* PASS of a field: the pass's variant for the field's shape, given (type, name, more…). */
#define TRACKWAY_I_PASS(pass, type, ...)                                                          \
    TRACKWAY_I_PASS_(pass, TRACKWAY_I_TYPE_##type, type, __VA_ARGS__)
#define TRACKWAY_I_PASS_(...) TRACKWAY_I_FIELD_OF_KNOWN_TYPE(__VA_ARGS__)
#define TRACKWAY_I_FIELD_OF_KNOWN_TYPE(pass, shape, c_type, code, sdt_size, ...)                  \
    TRACKWAY_I_##pass##_##shape(__VA_ARGS__)

/* Pass COUNT: " + 1" for each field. */
#define TRACKWAY_I_COUNT(type, ...) TRACKWAY_I_PASS(COUNT, type, __VA_ARGS__)
#define TRACKWAY_I_COUNT_SCALAR(...) +1
#define TRACKWAY_I_COUNT_POINTER(...) +1
#define TRACKWAY_I_COUNT_STR(...) +1
#define TRACKWAY_I_COUNT_TEXT(...) +1
#define TRACKWAY_I_COUNT_ARRAY(...) +1
#define TRACKWAY_I_COUNT_SEQ(...) +1
#define TRACKWAY_I_COUNT_ENUM(...) +1
#define TRACKWAY_I_COUNT_PAD(...)

/* Pass PARAM: parameters of the emit function, each with a comma behind it. */
#define TRACKWAY_I_PARAM(type, ...) TRACKWAY_I_PASS(PARAM, type, __VA_ARGS__)
#define TRACKWAY_I_PARAM_SCALAR(type, name) TRACKWAY_I_C_TYPE(type) trackway_field_##name,
#define TRACKWAY_I_PARAM_POINTER(type, name) const void *trackway_field_##name,
#define TRACKWAY_I_PARAM_STR(type, name) const char *trackway_field_##name,
#define TRACKWAY_I_PARAM_TEXT(type, name)                                                         \
    const char *trackway_field_##name, size_t trackway_length_##name,
#define TRACKWAY_I_PARAM_ARRAY(type, name, element, length)                                       \
    const TRACKWAY_I_C_TYPE(element) * trackway_field_##name,
#define TRACKWAY_I_PARAM_SEQ(type, name, element)                                                 \
    const TRACKWAY_I_C_TYPE(element) * trackway_field_##name, size_t trackway_length_##name,
#define TRACKWAY_I_PARAM_ENUM(type, name, provider, enumeration, integer)                         \
    TRACKWAY_I_C_TYPE(integer) trackway_field_##name,
#define TRACKWAY_I_PARAM_PAD(...)

/* Pass CHECK: what the compiler would not find out by itself. */
#define TRACKWAY_I_CHECK(type, ...) TRACKWAY_I_PASS(CHECK, type, __VA_ARGS__)
#define TRACKWAY_I_CHECK_SCALAR(type, name)
#define TRACKWAY_I_CHECK_POINTER(type, name)
#define TRACKWAY_I_CHECK_STR(type, name)
#define TRACKWAY_I_CHECK_TEXT(type, name)
#define TRACKWAY_I_CHECK_ARRAY(type, name, element, length)                                       \
    TRACKWAY_I_ASSERT(TRACKWAY_I_CODE(element) != TRACKWAY_ABI_NONE,                              \
                      "array " #name ": elements must be scalars");                               \
    TRACKWAY_I_ASSERT((length) >= 1 && (length) <= 1024,                                          \
                      "array " #name ": the length must be 1 to 1024");
#define TRACKWAY_I_CHECK_SEQ(type, name, element)                                                 \
    TRACKWAY_I_ASSERT(TRACKWAY_I_CODE(element) != TRACKWAY_ABI_NONE,                              \
                      "seq " #name ": elements must be scalars");
#define TRACKWAY_I_CHECK_ENUM(type, name, provider, enumeration, integer)                         \
    TRACKWAY_I_ASSERT(TRACKWAY_I_CODE(integer) >= TRACKWAY_ABI_I8 &&                              \
                          TRACKWAY_I_CODE(integer) <= TRACKWAY_ABI_X64,                           \
                      "enum " #name ": the last item must be an integer type");
#define TRACKWAY_I_CHECK_PAD(...)

#define TRACKWAY_I_CHECK_EVENT(p, n, level, ...)                                                  \
    TRACKWAY_I_EACH(TRACKWAY_I_CHECK, __VA_ARGS__)                                                \
    TRACKWAY_I_ASSERT(TRACKWAY_I_FIT(__VA_ARGS__), #p ":" #n ": more than 32 fields");            \
    TRACKWAY_I_ASSERT((level) >= TRACKWAY_EMERG && (level) <= TRACKWAY_DEBUG,                     \
                      #p ":" #n ": the third item must be a level, such as TRACKWAY_INFO")

/* Walks labels, as TRACKWAY_I_EACH walks fields; a pad is told by its four items. */
#define TRACKWAY_I_LABEL_PAD8 (, , , ), (, , , ), (, , , ), (, , , ), (, , , ), (, , , ),         \
    (, , , ), (, , , )
#define TRACKWAY_I_LABEL_PADS                                                                     \
    TRACKWAY_I_LABEL_PAD8, TRACKWAY_I_LABEL_PAD8, TRACKWAY_I_LABEL_PAD8, TRACKWAY_I_LABEL_PAD8,   \
    TRACKWAY_I_LABEL_PAD8, TRACKWAY_I_LABEL_PAD8, TRACKWAY_I_LABEL_PAD8, TRACKWAY_I_LABEL_PAD8,   \
    (, , , ), (, , , )
#define TRACKWAY_I_EACH_LABEL(m, ...) TRACKWAY_I_EACH_LABEL_(m, __VA_ARGS__)
#define TRACKWAY_I_EACH_LABEL_(                                                                   \
    m, l1, l2, l3, l4, l5, l6, l7, l8, l9, l10, l11, l12, l13, l14, l15, l16, l17, l18, l19, l20, \
    l21, l22, l23, l24, l25, l26, l27, l28, l29, l30, l31, l32, l33, l34, l35, l36, l37, l38,     \
    l39, l40, l41, l42, l43, l44, l45, l46, l47, l48, l49, l50, l51, l52, l53, l54, l55, l56,     \
    l57, l58, l59, l60, l61, l62, l63, l64, over, ...)                                            \
    m l1 m l2 m l3 m l4 m l5 m l6 m l7 m l8 m l9 m l10 m l11 m l12 m l13 m l14 m l15 m l16 m l17  \
    m l18 m l19 m l20 m l21 m l22 m l23 m l24 m l25 m l26 m l27 m l28 m l29 m l30 m l31 m l32     \
    m l33 m l34 m l35 m l36 m l37 m l38 m l39 m l40 m l41 m l42 m l43 m l44 m l45 m l46 m l47     \
    m l48 m l49 m l50 m l51 m l52 m l53 m l54 m l55 m l56 m l57 m l58 m l59 m l60 m l61 m l62     \
    m l63 m l64 TRACKWAY_I_OVER over
#define TRACKWAY_I_FIFTH(a, b, c, d, e, ...) e
#define TRACKWAY_I_LABEL(...)                                                                     \
    TRACKWAY_I_FIFTH(__VA_ARGS__, TRACKWAY_I_LABEL_NONE, TRACKWAY_I_LABEL_RANGE,                  \
                     TRACKWAY_I_LABEL_VALUE, )(__VA_ARGS__)
#define TRACKWAY_I_LABEL_VALUE(name, value)                                                       \
    {TRACKWAY_I_LABEL_NUMBER(value), TRACKWAY_I_LABEL_NUMBER(value), #name},
#define TRACKWAY_I_LABEL_RANGE(name, first, last)                                                 \
    {TRACKWAY_I_LABEL_NUMBER(first), TRACKWAY_I_LABEL_NUMBER(last), #name},
#define TRACKWAY_I_LABEL_NONE(...)
#define TRACKWAY_I_OVER(...)                                                                      \
    TRACKWAY_I_FIFTH(__VA_ARGS__, , trackway_enum_has_more_than_64_labels,                        \
                     trackway_enum_has_more_than_64_labels, )

/* What <trackway/trackway.hpp> replaces: the number of a label, and what it adds to an event. */
#define TRACKWAY_I_LABEL_NUMBER(value) (value)
#define TRACKWAY_I_MORE(p, n, ...)

/* What TRACKWAY_ENUM and TRACKWAY_EVENT end with is something for the user's semicolon to end. */
#define TRACKWAY_I_ENUM(p, n, ...)                                                                \
    static const struct trackway_abi_label trackway_enum_##p##_DOT_##n[]                          \
        __attribute__((__unused__)) = {TRACKWAY_I_EACH_LABEL(TRACKWAY_I_LABEL, __VA_ARGS__)}

#ifdef TRACKWAY_DISABLE

/* Only what type checking needs: a function that is declared, and called in dead code. */
#define TRACKWAY_I_EVENT(p, n, level, ...)                                                        \
    enum { trackway_enabled_##p##_DOT_##n = 0 };                                                  \
    void trackway_emit_##p##_DOT_##n(TRACKWAY_I_EACH(TRACKWAY_I_PARAM, __VA_ARGS__) int);         \
    TRACKWAY_I_MORE(p, n, __VA_ARGS__)                                                            \
    TRACKWAY_I_CHECK_EVENT(p, n, level, __VA_ARGS__)
#define TRACKWAY_I_CALL(p, n, ...)                                                                \
    (0 ? trackway_emit_##p##_DOT_##n(__VA_ARGS__) : TRACKWAY_I_CAST(void, 0))
#define TRACKWAY_I_ENABLED(p, n) (TRACKWAY_I_CAST(int, trackway_enabled_##p##_DOT_##n))
void trackway_i_printf(const char *format, ...) __attribute__((__format__(__printf__, 1, 2)));
#define TRACKWAY_I_PRINTF(...) (0 ? trackway_i_printf(__VA_ARGS__) : TRACKWAY_I_CAST(void, 0))
#define TRACKWAY_I_LOG(level, ...)                                                                \
    (0 ? (TRACKWAY_I_CAST(void, (level) == TRACKWAY_EMERG), trackway_i_printf(__VA_ARGS__))       \
       : TRACKWAY_I_CAST(void, 0))
extern int trackway_i_snapshot(const char *session);
#define TRACKWAY_I_SNAPSHOT(session) (0 ? trackway_i_snapshot(session) : 0)

#else /* tracing is compiled in: to the end of the file */

#include <errno.h>
#include <stdarg.h>

/* Both compilers that the header is for have __has_attribute. */
#if __has_attribute(retain)
#define TRACKWAY_I_RETAIN , __retain__ /* survives --gc-sections; older linkers need no telling */
#else
#define TRACKWAY_I_RETAIN
#endif
#if __has_attribute(noclone)
#define TRACKWAY_I_NOINLINE __noinline__, __noclone__
#else
#define TRACKWAY_I_NOINLINE __noinline__
#endif

#define TRACKWAY_I_STRING(x) TRACKWAY_I_STRING_(x)
#define TRACKWAY_I_STRING_(x) #x
/* One definition in each executable or shared object, whatever number of files bring one. */
#define TRACKWAY_I_ONE_PER_MODULE __weak__, __visibility__("hidden")
#define TRACKWAY_I_HELPER static inline __attribute__((__unused__))
#define TRACKWAY_I_INLINE static inline __attribute__((__unused__, __always_inline__))
/* Out of line and out of the way of code that runs while tracing is off. Not `cold`: that would
 * make it small instead of fast. */
#define TRACKWAY_I_FAR __unused__, __section__(".text.unlikely.trackway")
#define TRACKWAY_I_ASIDE static __attribute__((TRACKWAY_I_FAR, TRACKWAY_I_NOINLINE))
/* The same for functions with variable arguments. Those are never inlined; calling them `inline`
 * makes GCC drop them when they are not used, even at -O0. */
#define TRACKWAY_I_ASIDE_VARIADIC static inline __attribute__((TRACKWAY_I_FAR))

/* --- The module: its array of event pointers, and how libtrackway.so comes to know it -------- */

#ifdef __cplusplus
extern "C" {
#endif

extern struct trackway_abi_event *const __start_trackway_events[]
    __attribute__((__visibility__("hidden")));
extern struct trackway_abi_event *const __stop_trackway_events[]
    __attribute__((__visibility__("hidden")));
extern const char trackway_i_note[] __asm__("trackway.note")
    __attribute__((__visibility__("hidden")));

/*
 * The ELF note that libtrackway.so finds through the program headers: version, and the array's
 * bounds, each relative to the word that holds it. It is in one section group with a null pointer
 * that makes sure that there is an array; of several such groups the linker keeps one. (With
 * link-time optimisation many files become one assembly, hence the .ifndef.)
 */
__asm__(".ifndef .Ltrackway_note\n"
        ".set .Ltrackway_note, 1\n"
        ".hidden __start_trackway_events\n"
        ".hidden __stop_trackway_events\n"
        ".pushsection .note.trackway, \"aG\", \"note\", trackway.module, comdat\n"
        ".balign 4\n"
        ".hidden trackway.note\n"
        ".weak trackway.note\n"
        "trackway.note:\n"
        ".long 9, 12, 1\n" /* bytes of the name, bytes of the descriptor, type */
        ".asciz \"Trackway\"\n"
        ".balign 4\n"
        ".long " TRACKWAY_I_STRING(TRACKWAY_ABI_VERSION) "\n"
        ".long __start_trackway_events - .\n"
        ".long __stop_trackway_events - .\n"
        ".popsection\n"
        ".pushsection trackway_events, \"awG\", \"progbits\", trackway.module, comdat\n"
        ".balign " TRACKWAY_I_STRING(__SIZEOF_POINTER__) "\n"
        ".zero " TRACKWAY_I_STRING(__SIZEOF_POINTER__) "\n"
        ".popsection\n"
        ".endif\n");

extern void trackway_abi_register(struct trackway_abi_event *const *begin,
                                  struct trackway_abi_event *const *end)
    __attribute__((__weak__));

extern int trackway_abi_snapshot(const char *session) __attribute__((__weak__));

extern char trackway_i_announced __attribute__((TRACKWAY_I_ONE_PER_MODULE));
char trackway_i_announced = 0;

/*
 * Announces a module that is loaded later than libtrackway.so. Runs before the module's other
 * constructors, once for each file that brought it; the first time does the work.
 */
extern void trackway_i_announce(void)
    __attribute__((TRACKWAY_I_ONE_PER_MODULE, __constructor__(101)));
void trackway_i_announce(void)
{
    if (trackway_i_announced)
        return;
    trackway_i_announced = 1;
    __asm__ volatile("" : : "r"(trackway_i_note)); /* keeps the note in the link */
    if (trackway_abi_register)
        trackway_abi_register(__start_trackway_events, __stop_trackway_events);
}

/* strnlen(3), which <string.h> shows only to those who ask for POSIX. */
extern size_t trackway_i_strnlen(const char *string, size_t size) __asm__("strnlen");

#ifdef __cplusplus
}
#endif

/* --- Is it on? ------------------------------------------------------------------------------- */

/* The enable word, one bit a session. Relaxed, because a late answer is as good. */
TRACKWAY_I_INLINE uint32_t trackway_i_wanted(const struct trackway_abi_event *event)
{
    return __atomic_load_n(__atomic_load_n(&event->enabled, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
}

/* The function to record with, if the event is on. Acquire, because the library sets `emit` before
 * it redirects `enabled`. */
TRACKWAY_I_HELPER trackway_abi_emit_fn trackway_i_emitter(const struct trackway_abi_event *event)
{
    const uint32_t *enabled = __atomic_load_n(&event->enabled, __ATOMIC_ACQUIRE);
    if (!__atomic_load_n(enabled, __ATOMIC_RELAXED))
        return NULL;
    return __atomic_load_n(&event->emit, __ATOMIC_RELAXED);
}

/* Whether two definitions of one event, in files of one module of which the linker has taken one,
 * have the same fields in memory. Each ends with a null name. */
TRACKWAY_I_ASIDE int trackway_i_alike(const struct trackway_abi_field *one,
                                      const struct trackway_abi_field *other)
{
    while (one->name && other->name && one->scalar == other->scalar &&
           one->shape == other->shape &&
           (one->length == other->length || one->shape != TRACKWAY_ABI_ARRAY)) {
        one++;
        other++;
    }
    return !one->name && !other->name;
}

/* The library, if it should be asked whether a filter drops the event before that is staged: where
 * all sessions that want it have filters. (trackway_i_emitter() has looked whether it is on, so
 * that what was set before is there.) */
TRACKWAY_I_HELPER const struct trackway_abi_library *
trackway_i_asker(const struct trackway_abi_event *event, const struct trackway_abi_field *fields)
{
    const struct trackway_abi_library *library;
    if (event->size < sizeof(struct trackway_abi_event))
        return NULL; /* the module's definition is an older header's */
    library = event->library;
    if (!library ||
        (trackway_i_wanted(event) & ~__atomic_load_n(&library->filtered, __ATOMIC_RELAXED)))
        return NULL;
    return event->fields == fields || trackway_i_alike(event->fields, fields) ? library : NULL;
}

/* --- Staging: the payload is put together on the stack --------------------------------------- */

/* Bytes that a str, text or seq would like to have (less terminator or count), and that it gets. */
struct trackway_i_span {
    size_t wanted;
    size_t granted;
};

/*
 * Shares `room` among spans that want more than that: none gets more than it wants, and those that
 * are cut all get the same. Returns the sum, at most `room`.
 */
TRACKWAY_I_ASIDE size_t trackway_i_share(struct trackway_i_span *spans, size_t count, size_t room)
{
    size_t left = room, open = count, settled, i;
    for (i = 0; i < count; i++)
        spans[i].granted = SIZE_MAX;
    do {
        const size_t share = left / open; /* open > 0, because not all of them fit */
        settled = 0;
        for (i = 0; i < count; i++)
            if (spans[i].granted == SIZE_MAX && spans[i].wanted <= share) {
                spans[i].granted = spans[i].wanted;
                left -= spans[i].wanted;
                settled++;
            }
        open -= settled;
    } while (settled && open);
    for (i = 0; i < count; i++)
        if (spans[i].granted == SIZE_MAX)
            spans[i].granted = left / open;
    return room;
}

/*
 * Grants every span what it wants, if there is room; else sets `cut` to TRACKWAY_ABI_CUT. Returns
 * the sum of what it grants.
 */
TRACKWAY_I_HELPER size_t trackway_i_grant(struct trackway_i_span *spans, size_t count, size_t room,
                                          size_t *cut)
{
    size_t sum = 0, i;
    for (i = 0; i < count; i++) {
        spans[i].granted = spans[i].wanted;
        sum += spans[i].wanted;
    }
    if (sum <= room)
        return sum;
    *cut = TRACKWAY_ABI_CUT;
    return trackway_i_share(spans, count, room);
}

/* What a str, a text and a seq want: at most PAYLOAD_MAX, which is more than there ever is. */
TRACKWAY_I_HELPER size_t trackway_i_want_str(const char **string)
{
    if (!*string)
        *string = "(null)";
    return trackway_i_strnlen(*string, TRACKWAY_ABI_PAYLOAD_MAX);
}

TRACKWAY_I_HELPER size_t trackway_i_want_text(const char **bytes, size_t length)
{
    if (!*bytes) {
        *bytes = "(null)";
        length = 6;
    }
    return length < TRACKWAY_ABI_PAYLOAD_MAX ? length : TRACKWAY_ABI_PAYLOAD_MAX;
}

TRACKWAY_I_HELPER size_t trackway_i_want_seq(const void *elements, size_t count, size_t size)
{
    if (!elements)
        return 0;
    return count < TRACKWAY_ABI_PAYLOAD_MAX / size ? count * size : TRACKWAY_ABI_PAYLOAD_MAX;
}

/* These append to the payload and return its new end. */
TRACKWAY_I_HELPER unsigned char *trackway_i_put(unsigned char *to, const void *from, size_t size)
{
    __builtin_memcpy(to, from, size);
    return to + size;
}

/* An address takes 64 bits on any machine. */
TRACKWAY_I_HELPER uint64_t trackway_i_address(const void *pointer)
{
    uintptr_t number;
    __builtin_memcpy(&number, &pointer, sizeof(number));
    return number;
}

TRACKWAY_I_HELPER unsigned char *trackway_i_put_pointer(unsigned char *to, const void *pointer)
{
    const uint64_t address = trackway_i_address(pointer);
    return trackway_i_put(to, &address, sizeof(address));
}

TRACKWAY_I_HELPER unsigned char *trackway_i_put_array(unsigned char *to, const void *from,
                                                      size_t size)
{
    if (from)
        __builtin_memcpy(to, from, size);
    else
        __builtin_memset(to, 0, size);
    return to + size;
}

TRACKWAY_I_HELPER unsigned char *trackway_i_put_seq(unsigned char *to, const void *from,
                                                    struct trackway_i_span span, size_t size)
{
    const uint32_t count = TRACKWAY_I_CAST(uint32_t, span.granted / size);
    to = trackway_i_put(to, &count, sizeof(count));
    return count ? trackway_i_put(to, from, count * size) : to;
}

/*
 * Ends `length` bytes that were cut out of UTF-8 with "…", for which there is room. Steps back
 * over a character that the cut has split. Returns the new length.
 */
TRACKWAY_I_ASIDE size_t trackway_i_end_cut(unsigned char *bytes, size_t length)
{
    size_t back;
    for (back = 1; back <= 3 && back <= length; back++) {
        const unsigned char byte = bytes[length - back];
        if (byte >= 0xc0) { /* the first byte of 2, 3 or 4 */
            const size_t needed = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
            if (back < needed)
                length -= back;
            break;
        }
        if (byte < 0x80)
            break;
    }
    __builtin_memcpy(bytes + length, "\xe2\x80\xa6", 3);
    return length + 3;
}

/* How much to copy of a span: what it is granted, less the room for "…" if it is cut. */
TRACKWAY_I_HELPER size_t trackway_i_copied(struct trackway_i_span span)
{
    return span.granted == span.wanted ? span.granted : span.granted < 3 ? 0 : span.granted - 3;
}

/*
 * A str: as long as it was when it was measured, or shorter. Another thread may be writing to it,
 * so it is the copy that decides where it ends: there is exactly one terminator, and it is last.
 */
TRACKWAY_I_HELPER unsigned char *trackway_i_put_str(unsigned char *to, const char *from,
                                                    struct trackway_i_span span)
{
    size_t length = trackway_i_copied(span);
    const void *terminator;
    __builtin_memcpy(to, from, length);
    terminator = __builtin_memchr(to, 0, length);
    if (terminator)
        return to + (TRACKWAY_I_CAST(const unsigned char *, terminator) - to) + 1;
    if (span.granted != span.wanted && span.granted >= 3)
        length = trackway_i_end_cut(to, length);
    to[length] = 0;
    return to + length + 1;
}

TRACKWAY_I_HELPER unsigned char *trackway_i_put_text(unsigned char *to, const char *from,
                                                     struct trackway_i_span span)
{
    size_t length = trackway_i_copied(span);
    uint32_t count;
    __builtin_memcpy(to + sizeof(count), from, length);
    if (span.granted != span.wanted && span.granted >= 3)
        length = trackway_i_end_cut(to + sizeof(count), length);
    count = TRACKWAY_I_CAST(uint32_t, length);
    __builtin_memcpy(to, &count, sizeof(count));
    return to + sizeof(count) + length;
}

/* --- The passes that make an event ----------------------------------------------------------- */

/* Pass FIELD: the field's description. */
#define TRACKWAY_I_FIELD(type, ...) TRACKWAY_I_PASS(FIELD, type, __VA_ARGS__)
#define TRACKWAY_I_FIELD_SCALAR(type, name)                                                       \
    {#name, NULL, TRACKWAY_I_CODE(type), TRACKWAY_ABI_SCALAR, 0, 0},
#define TRACKWAY_I_FIELD_POINTER(type, name)                                                      \
    {#name, NULL, TRACKWAY_ABI_X64, TRACKWAY_ABI_SCALAR, 0, 0},
#define TRACKWAY_I_FIELD_STR(type, name)                                                          \
    {#name, NULL, TRACKWAY_ABI_NONE, TRACKWAY_ABI_STR, 0, 0},
#define TRACKWAY_I_FIELD_TEXT(type, name)                                                         \
    {#name, NULL, TRACKWAY_ABI_NONE, TRACKWAY_ABI_TEXT, 0, 0},
#define TRACKWAY_I_FIELD_ARRAY(type, name, element, length)                                       \
    {#name, NULL, TRACKWAY_I_CODE(element), TRACKWAY_ABI_ARRAY, (length), 0},
#define TRACKWAY_I_FIELD_SEQ(type, name, element)                                                 \
    {#name, NULL, TRACKWAY_I_CODE(element), TRACKWAY_ABI_SEQUENCE, 0, 0},
#define TRACKWAY_I_FIELD_ENUM(type, name, provider, enumeration, integer)                         \
    {#name, trackway_enum_##provider##_DOT_##enumeration, TRACKWAY_I_CODE(integer),               \
     TRACKWAY_ABI_ENUMERATION,                                                                    \
     sizeof(trackway_enum_##provider##_DOT_##enumeration) / sizeof(struct trackway_abi_label), 0},
#define TRACKWAY_I_FIELD_PAD(...)

/* Pass FIXED: bytes that the field takes whatever its value. */
#define TRACKWAY_I_FIXED(type, ...) TRACKWAY_I_PASS(FIXED, type, __VA_ARGS__)
#define TRACKWAY_I_FIXED_SCALAR(type, name) +sizeof(TRACKWAY_I_C_TYPE(type))
#define TRACKWAY_I_FIXED_POINTER(type, name) +sizeof(uint64_t)
#define TRACKWAY_I_FIXED_STR(type, name) +1
#define TRACKWAY_I_FIXED_TEXT(type, name) +4
#define TRACKWAY_I_FIXED_ARRAY(type, name, element, length)                                       \
    +sizeof(TRACKWAY_I_C_TYPE(element)) * (length)
#define TRACKWAY_I_FIXED_SEQ(type, name, element) +4
#define TRACKWAY_I_FIXED_ENUM(type, name, provider, enumeration, integer)                         \
    +sizeof(TRACKWAY_I_C_TYPE(integer))
#define TRACKWAY_I_FIXED_PAD(...)

/* Pass SPAN: "+1" for each field that can be cut. */
#define TRACKWAY_I_SPAN(type, ...) TRACKWAY_I_PASS(SPAN, type, __VA_ARGS__)
#define TRACKWAY_I_SPAN_SCALAR(...)
#define TRACKWAY_I_SPAN_POINTER(...)
#define TRACKWAY_I_SPAN_STR(...) +1
#define TRACKWAY_I_SPAN_TEXT(...) +1
#define TRACKWAY_I_SPAN_ARRAY(...)
#define TRACKWAY_I_SPAN_SEQ(...) +1
#define TRACKWAY_I_SPAN_ENUM(...)
#define TRACKWAY_I_SPAN_PAD(...)

/* Pass COPY: scalars to take the address of, so that the fields themselves stay in registers. */
#define TRACKWAY_I_COPY(type, ...) TRACKWAY_I_PASS(COPY, type, __VA_ARGS__)
#define TRACKWAY_I_COPY_SCALAR(type, name)                                                        \
    const TRACKWAY_I_C_TYPE(type) trackway_copy_##name = trackway_field_##name;
#define TRACKWAY_I_COPY_POINTER(type, name)                                                       \
    const uint64_t trackway_copy_##name = trackway_i_address(trackway_field_##name);
#define TRACKWAY_I_COPY_STR(...)
#define TRACKWAY_I_COPY_TEXT(...)
#define TRACKWAY_I_COPY_ARRAY(...)
#define TRACKWAY_I_COPY_SEQ(...)
#define TRACKWAY_I_COPY_ENUM(type, name, provider, enumeration, integer)                          \
    const TRACKWAY_I_C_TYPE(integer) trackway_copy_##name = trackway_field_##name;
#define TRACKWAY_I_COPY_PAD(...)

/* Pass ARGUMENT: the field for filters that are asked before anything is staged. */
#define TRACKWAY_I_ARGUMENT(type, ...) TRACKWAY_I_PASS(ARGUMENT, type, __VA_ARGS__)
#define TRACKWAY_I_ARGUMENT_SCALAR(type, name) {&trackway_copy_##name, 0},
#define TRACKWAY_I_ARGUMENT_POINTER(type, name) {&trackway_copy_##name, 0},
#define TRACKWAY_I_ARGUMENT_STR(type, name) {trackway_field_##name, 0},
#define TRACKWAY_I_ARGUMENT_TEXT(type, name) {trackway_field_##name, trackway_length_##name},
#define TRACKWAY_I_ARGUMENT_ARRAY(type, name, element, length) {trackway_field_##name, 0},
#define TRACKWAY_I_ARGUMENT_SEQ(type, name, element)                                              \
    {trackway_field_##name, trackway_length_##name},
#define TRACKWAY_I_ARGUMENT_ENUM(type, name, provider, enumeration, integer)                      \
    {&trackway_copy_##name, 0},
#define TRACKWAY_I_ARGUMENT_PAD(...)

/* Pass WANT: measures those fields. */
#define TRACKWAY_I_WANT(type, ...) TRACKWAY_I_PASS(WANT, type, __VA_ARGS__)
#define TRACKWAY_I_WANT_SCALAR(...)
#define TRACKWAY_I_WANT_POINTER(...)
#define TRACKWAY_I_WANT_STR(type, name)                                                           \
    trackway_i_spans[trackway_i_next++].wanted = trackway_i_want_str(&trackway_field_##name);
#define TRACKWAY_I_WANT_TEXT(type, name)                                                          \
    trackway_i_spans[trackway_i_next++].wanted =                                                  \
        trackway_i_want_text(&trackway_field_##name, trackway_length_##name);
#define TRACKWAY_I_WANT_ARRAY(...)
#define TRACKWAY_I_WANT_SEQ(type, name, element)                                                  \
    trackway_i_spans[trackway_i_next++].wanted = trackway_i_want_seq(                             \
        trackway_field_##name, trackway_length_##name, sizeof(*trackway_field_##name));
#define TRACKWAY_I_WANT_ENUM(...)
#define TRACKWAY_I_WANT_PAD(...)

/* Pass PUT: appends the field's value. */
#define TRACKWAY_I_PUT(type, ...) TRACKWAY_I_PASS(PUT, type, __VA_ARGS__)
#define TRACKWAY_I_PUT_SCALAR(type, name)                                                         \
    trackway_i_end =                                                                              \
        trackway_i_put(trackway_i_end, &trackway_field_##name, sizeof(trackway_field_##name));
#define TRACKWAY_I_PUT_POINTER(type, name)                                                        \
    trackway_i_end = trackway_i_put_pointer(trackway_i_end, trackway_field_##name);
#define TRACKWAY_I_PUT_STR(type, name)                                                            \
    trackway_i_end = trackway_i_put_str(trackway_i_end, trackway_field_##name,                    \
                                        trackway_i_spans[trackway_i_next++]);
#define TRACKWAY_I_PUT_TEXT(type, name)                                                           \
    trackway_i_end = trackway_i_put_text(trackway_i_end, trackway_field_##name,                   \
                                         trackway_i_spans[trackway_i_next++]);
#define TRACKWAY_I_PUT_ARRAY(type, name, element, length)                                         \
    trackway_i_end = trackway_i_put_array(trackway_i_end, trackway_field_##name,                  \
                                          sizeof(*trackway_field_##name) * (length));
#define TRACKWAY_I_PUT_SEQ(type, name, element)                                                   \
    trackway_i_end =                                                                              \
        trackway_i_put_seq(trackway_i_end, trackway_field_##name,                                 \
                           trackway_i_spans[trackway_i_next++], sizeof(*trackway_field_##name));
#define TRACKWAY_I_PUT_ENUM(type, name, provider, enumeration, integer)                           \
    TRACKWAY_I_PUT_SCALAR(type, name)
#define TRACKWAY_I_PUT_PAD(...)

/* --- SDT: a probe that debuggers, perf and bpftrace know how to find and attach to ----------- */

/*
 * The probe is nop; nop10: a kernel tool traps at the first, or turns the second into a call or
 * jump without touching its neighbours. Elsewhere it is a nop, and the note says where it is and no
 * arguments. (The large code model has no way to write a symbol's address as an operand, nor has
 * gcc for RISC-V.)
 */
#if defined(__x86_64__) && defined(__LP64__) && defined(__ELF__) && !defined(__code_model_large__)
#define TRACKWAY_I_NOPS ".byte 0x90, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0\n"
#define TRACKWAY_I_SYMBOL "i"
#define TRACKWAY_I_ARGUMENTS(...) TRACKWAY_I_EACH12(TRACKWAY_I_SDT, __VA_ARGS__)
#define TRACKWAY_I_OPERANDS(...) TRACKWAY_I_EACH12(TRACKWAY_I_OPERAND, __VA_ARGS__)
#elif defined(__aarch64__) && defined(__LP64__) && defined(__ELF__) &&                            \
    !defined(__AARCH64_CMODEL_LARGE__)
#define TRACKWAY_I_NOPS "nop\n"
#define TRACKWAY_I_SYMBOL "S"
#define TRACKWAY_I_ARGUMENTS(...)
#define TRACKWAY_I_OPERANDS(...)
#endif

#ifdef TRACKWAY_I_NOPS

/*
 * A note in the format of <sys/sdt.h>, version 3 (SystemTap wiki, UserSpaceProbeImplementation).
 * The semaphore counts who has attached.
 *
 * Arguments are written by the assembler, each as size@operand, with a space between two. A text
 * or seq is two of them. Readers accept 12 at most, so the assembler counts.
 */
#define TRACKWAY_I_SEMAPHORE(p, n)                                                                \
    TRACKWAY_I_EXTERN volatile unsigned short trackway_semaphore_##p##_DOT_##n                    \
        __asm__("trackway.semaphore." #p "." #n)                                                  \
            __attribute__((TRACKWAY_I_ONE_PER_MODULE, __section__(".probes")));                   \
    volatile unsigned short trackway_semaphore_##p##_DOT_##n = 0;
#define TRACKWAY_I_ATTACHED(p, n) trackway_semaphore_##p##_DOT_##n

#define TRACKWAY_I_PROBE(p, n, ...)                                                               \
    __asm__ volatile(                                                                             \
        "990: " TRACKWAY_I_NOPS                                                                   \
        ".pushsection .note.stapsdt, \"?\", \"note\"\n"                                           \
        ".balign 4\n"                                                                             \
        ".long 992f - 991f, 994f - 993f, 3\n"                                                     \
        "991: .asciz \"stapsdt\"\n"                                                               \
        "992: .balign 4\n"                                                                        \
        "993: .quad 990b, _.stapsdt.base, %c[trackway_semaphore]\n"                               \
        ".asciz \"" #p "\"\n"                                                                     \
        ".asciz \"" #n "\"\n"                                                                     \
        ".set .Ltrackway_arguments, 0\n"                                                          \
        TRACKWAY_I_ARGUMENTS(__VA_ARGS__)                                                         \
        ".byte 0\n"                                                                               \
        "994: .balign 4\n"                                                                        \
        ".popsection\n"                                                                           \
        ".ifndef _.stapsdt.base\n"                                                                \
        ".pushsection .stapsdt.base, \"aG\", \"progbits\", .stapsdt.base, comdat\n"               \
        ".weak _.stapsdt.base\n"                                                                  \
        ".hidden _.stapsdt.base\n"                                                                \
        "_.stapsdt.base: .space 1\n"                                                              \
        ".size _.stapsdt.base, 1\n"                                                               \
        ".popsection\n"                                                                           \
        ".endif\n"                                                                                \
        :                                                                                         \
        : [trackway_semaphore] TRACKWAY_I_SYMBOL(&trackway_semaphore_##p##_DOT_##n)               \
              TRACKWAY_I_OPERANDS(__VA_ARGS__));

/* Pass SDT: the field as the note describes it. */
#define TRACKWAY_I_SDT(type, ...) TRACKWAY_I_PASS(SDT, type, __VA_ARGS__)
#define TRACKWAY_I_SDT_ARGUMENT(size, operand)                                                    \
    ".if .Ltrackway_arguments < 12\n"                                                             \
    ".if .Ltrackway_arguments\n"                                                                  \
    ".ascii \" \"\n"                                                                              \
    ".endif\n"                                                                                    \
    ".ascii \"" size "@%[" #operand "]\"\n"                                                       \
    ".endif\n"                                                                                    \
    ".set .Ltrackway_arguments, .Ltrackway_arguments + 1\n"
#define TRACKWAY_I_SDT_SCALAR(type, name)                                                         \
    TRACKWAY_I_SDT_ARGUMENT(TRACKWAY_I_SDT_SIZE(type), trackway_field_##name)
#define TRACKWAY_I_SDT_POINTER(type, name) TRACKWAY_I_SDT_ARGUMENT("8", trackway_field_##name)
#define TRACKWAY_I_SDT_STR(type, name) TRACKWAY_I_SDT_ARGUMENT("8", trackway_field_##name)
#define TRACKWAY_I_SDT_TEXT(type, name)                                                           \
    TRACKWAY_I_SDT_ARGUMENT("8", trackway_field_##name)                                           \
    TRACKWAY_I_SDT_ARGUMENT("8", trackway_length_##name)
#define TRACKWAY_I_SDT_ARRAY(type, name, element, length)                                         \
    TRACKWAY_I_SDT_ARGUMENT("8", trackway_field_##name)
#define TRACKWAY_I_SDT_SEQ(type, name, element) TRACKWAY_I_SDT_TEXT(type, name)
#define TRACKWAY_I_SDT_ENUM(type, name, provider, enumeration, integer)                           \
    TRACKWAY_I_SDT_ARGUMENT(TRACKWAY_I_SDT_SIZE(integer), trackway_field_##name)
#define TRACKWAY_I_SDT_PAD(...)

/* Pass OPERAND: the field as an operand of that assembly, wherever a note can say that it is. */
#define TRACKWAY_I_OPERAND(type, ...) TRACKWAY_I_PASS(OPERAND, type, __VA_ARGS__)
#define TRACKWAY_I_OPERAND_SCALAR(type, name)                                                     \
    , [trackway_field_##name] "nor"(trackway_field_##name)
#define TRACKWAY_I_OPERAND_POINTER(type, name) TRACKWAY_I_OPERAND_SCALAR(type, name)
#define TRACKWAY_I_OPERAND_STR(type, name) TRACKWAY_I_OPERAND_SCALAR(type, name)
#define TRACKWAY_I_OPERAND_TEXT(type, name)                                                       \
    , [trackway_field_##name] "nor"(trackway_field_##name),                                       \
        [trackway_length_##name] "nor"(trackway_length_##name)
#define TRACKWAY_I_OPERAND_ARRAY(type, name, element, length)                                     \
    TRACKWAY_I_OPERAND_SCALAR(type, name)
#define TRACKWAY_I_OPERAND_SEQ(type, name, element) TRACKWAY_I_OPERAND_TEXT(type, name)
#define TRACKWAY_I_OPERAND_ENUM(type, name, provider, enumeration, integer)                       \
    TRACKWAY_I_OPERAND_SCALAR(type, name)
#define TRACKWAY_I_OPERAND_PAD(...)

#else
#define TRACKWAY_I_SEMAPHORE(p, n)
#define TRACKWAY_I_ATTACHED(p, n) 0U
#define TRACKWAY_I_PROBE(p, n, ...)
#endif

/* --- The event and its call ------------------------------------------------------------------ */

/* What `event` starts as: off. */
#define TRACKWAY_I_INITIAL(event, provider, name, level, count, fields)                           \
    {&(event).off, NULL, 0, 0, TRACKWAY_ABI_VERSION, sizeof(struct trackway_abi_event), (level),  \
     (count), 0, provider, name, fields, NULL, 0, 0}
#define TRACKWAY_I_FIELDS(...)                                                                    \
    {TRACKWAY_I_EACH(TRACKWAY_I_FIELD, __VA_ARGS__){NULL, NULL, 0, 0, 0, 0}}

/* An entry in the module's array; __unused__ leaves it out unless something refers to it. */
#define TRACKWAY_I_ENTRY(use)                                                                     \
    __attribute__((use, __section__("trackway_events") TRACKWAY_I_RETAIN))

/*
 * Stages the fields, which are variables named trackway_field_NAME and described by `fields`, and
 * records them. `cut` is
 * TRACKWAY_ABI_CUT if one of them was cut before, else 0. What has fields to measure and to copy is
 * not staged if filters drop it.
 */
#define TRACKWAY_I_RECORD(event, fields, cut, ...)                                                \
    enum {                                                                                        \
        trackway_i_span_count = 0 TRACKWAY_I_EACH(TRACKWAY_I_SPAN, __VA_ARGS__),                  \
        trackway_i_fixed = 0 TRACKWAY_I_EACH(TRACKWAY_I_FIXED, __VA_ARGS__)                       \
    };                                                                                            \
    TRACKWAY_I_ASSERT(trackway_i_fixed <= TRACKWAY_ABI_PAYLOAD_MAX, "the event is too large");    \
    struct trackway_abi_event *const trackway_i_event = (event);                                  \
    const trackway_abi_emit_fn trackway_i_emit = trackway_i_emitter(trackway_i_event);            \
    struct trackway_i_span trackway_i_spans[trackway_i_span_count + 1];                           \
    size_t trackway_i_next = 0, trackway_i_cut = (cut);                                           \
    uint64_t trackway_i_asked = TRACKWAY_ABI_UNASKED;                                             \
    unsigned char trackway_i_small[trackway_i_span_count > 0 ? 1                                  \
                                                         : TRACKWAY_ABI_HEADROOM +                \
                                                               trackway_i_fixed +                 \
                                                               TRACKWAY_ABI_TAILROOM];            \
    unsigned char *trackway_i_payload = trackway_i_small, *trackway_i_end;                        \
    if (!trackway_i_emit)                                                                         \
        return;                                                                                   \
    if (trackway_i_span_count > 0 && trackway_i_asker(trackway_i_event, (fields))) {              \
        TRACKWAY_I_EACH(TRACKWAY_I_COPY, __VA_ARGS__)                                             \
        const struct trackway_abi_argument trackway_i_arguments[] = {                             \
            TRACKWAY_I_EACH(TRACKWAY_I_ARGUMENT, __VA_ARGS__){NULL, 0}};                          \
        trackway_i_asked = trackway_i_event->library->ask(trackway_i_event, trackway_i_arguments); \
        if (trackway_i_asked == TRACKWAY_ABI_UNWANTED)                                            \
            return;                                                                               \
    }                                                                                             \
    TRACKWAY_I_EACH(TRACKWAY_I_WANT, __VA_ARGS__)                                                 \
    if (trackway_i_span_count > 0)                                                                \
        trackway_i_payload = TRACKWAY_I_CAST(                                                     \
            unsigned char *,                                                                      \
            __builtin_alloca(TRACKWAY_ABI_HEADROOM + trackway_i_fixed +                           \
                             trackway_i_grant(trackway_i_spans, trackway_i_next,                  \
                                              TRACKWAY_ABI_PAYLOAD_MAX - trackway_i_fixed,        \
                                              &trackway_i_cut) +                                  \
                             TRACKWAY_ABI_TAILROOM));                                             \
    trackway_i_payload += TRACKWAY_ABI_HEADROOM;                                                  \
    trackway_i_end = trackway_i_payload;                                                          \
    trackway_i_next = 0;                                                                          \
    TRACKWAY_I_EACH(TRACKWAY_I_PUT, __VA_ARGS__)                                                  \
    trackway_i_cut |= TRACKWAY_I_CAST(size_t, trackway_i_end - trackway_i_payload);               \
    if (trackway_i_span_count > 0 && trackway_i_asked != TRACKWAY_ABI_UNASKED)                    \
        trackway_i_event->library->emit_asked(trackway_i_event, trackway_i_payload,               \
                                              trackway_i_cut, trackway_i_asked);                  \
    else                                                                                          \
        trackway_i_emit(trackway_i_event, trackway_i_payload, trackway_i_cut);

/* Assembler names have a dot where C names have _DOT_, so that no other names can be the same. */
#define TRACKWAY_I_EVENT(p, n, level, ...)                                                        \
    TRACKWAY_I_SEMAPHORE(p, n)                                                                    \
    static const struct trackway_abi_field trackway_fields_##p##_DOT_##n[] =                      \
        TRACKWAY_I_FIELDS(__VA_ARGS__);                                                           \
    TRACKWAY_I_EXTERN struct trackway_abi_event trackway_event_##p##_DOT_##n __asm__(             \
        "trackway.event." #p "." #n) __attribute__((TRACKWAY_I_ONE_PER_MODULE));                  \
    struct trackway_abi_event trackway_event_##p##_DOT_##n = TRACKWAY_I_INITIAL(                  \
        trackway_event_##p##_DOT_##n, #p, #n, level,                                              \
        0 TRACKWAY_I_EACH(TRACKWAY_I_COUNT, __VA_ARGS__), trackway_fields_##p##_DOT_##n);         \
    static struct trackway_abi_event *trackway_entry_##p##_DOT_##n TRACKWAY_I_ENTRY(__used__) =   \
        &trackway_event_##p##_DOT_##n;                                                            \
    TRACKWAY_I_ASIDE void trackway_emit_##p##_DOT_##n(                                            \
        TRACKWAY_I_EACH(TRACKWAY_I_PARAM, __VA_ARGS__) int trackway_i_last)                       \
    {                                                                                             \
        TRACKWAY_I_CAST(void, trackway_i_last);                                                   \
        TRACKWAY_I_PROBE(p, n, __VA_ARGS__)                                                       \
        TRACKWAY_I_RECORD(&trackway_event_##p##_DOT_##n, trackway_fields_##p##_DOT_##n, 0,        \
                          __VA_ARGS__)                          \
    }                                                                                             \
    TRACKWAY_I_MORE(p, n, __VA_ARGS__)                                                            \
    TRACKWAY_I_CHECK_EVENT(p, n, level, __VA_ARGS__)

#define TRACKWAY_I_ENABLED(p, n)                                                                  \
    ((trackway_i_wanted(&trackway_event_##p##_DOT_##n) | TRACKWAY_I_ATTACHED(p, n)) != 0)

/* The arguments end with a 0 of ours, so that there is always one, even where there are none. */
#define TRACKWAY_I_CALL(p, n, ...)                                                                \
    (__builtin_expect(TRACKWAY_I_ENABLED(p, n), 0) ? trackway_emit_##p##_DOT_##n(__VA_ARGS__)     \
                                                   : TRACKWAY_I_CAST(void, 0))

/* --- trackway_printf and trackway_log --------------------------------------------------------
 * Their events belong to each file that uses them, not to the module: they are inside functions
 * that compilers drop with all they hold when nothing refers to them, at any optimisation level.
 */

enum { TRACKWAY_I_MESSAGE_MAX = 512 };

/*
 * Formats at most MESSAGE_MAX bytes and a terminator; sets `cut` to TRACKWAY_ABI_CUT if there were
 * more. Returns their length without the terminator.
 */
TRACKWAY_I_HELPER __attribute__((__format__(__printf__, 3, 0))) size_t
trackway_i_format(char *message, size_t *cut, const char *format, va_list arguments)
{
    const int saved_errno = errno;
    const int length = __builtin_vsnprintf(message, TRACKWAY_I_MESSAGE_MAX + 1, format, arguments);
    errno = saved_errno;
    if (length < 0)
        return 0;
    if (length <= TRACKWAY_I_MESSAGE_MAX)
        return TRACKWAY_I_CAST(size_t, length);
    *cut = TRACKWAY_ABI_CUT;
    return trackway_i_end_cut(
        TRACKWAY_I_CAST(unsigned char *, TRACKWAY_I_CAST(void *, message)),
        TRACKWAY_I_MESSAGE_MAX - 3);
}

/* The event lttng_ust_tracef:event. Only what records it needs its entry. */
TRACKWAY_I_INLINE struct trackway_abi_event *trackway_i_tracef(int entered)
{
    static const struct trackway_abi_field fields[] =
        TRACKWAY_I_FIELDS((text, msg), TRACKWAY_I_PADS);
    static struct trackway_abi_event event = TRACKWAY_I_INITIAL(
        event, "lttng_ust_tracef", "event", TRACKWAY_DEBUG, 1, fields);
    static struct trackway_abi_event *entry TRACKWAY_I_ENTRY(__unused__) = &event;
    if (entered)
        __asm__ volatile("" : : "m"(entry));
    return &event;
}

/* Formats where the payload is to be: its one field needs no copy. */
TRACKWAY_I_ASIDE_VARIADIC __attribute__((__format__(__printf__, 1, 2))) void
trackway_i_printf(const char *format, ...)
{
    struct trackway_abi_event *event = trackway_i_tracef(1);
    unsigned char staged[TRACKWAY_ABI_HEADROOM + sizeof(uint32_t) + TRACKWAY_I_MESSAGE_MAX + 1 +
                         TRACKWAY_ABI_TAILROOM];
    unsigned char *payload = staged + TRACKWAY_ABI_HEADROOM;
    const trackway_abi_emit_fn emit = trackway_i_emitter(event);
    void *message = payload + sizeof(uint32_t);
    size_t cut = 0;
    uint32_t length;
    va_list arguments;
    if (!emit)
        return;
    va_start(arguments, format);
    length = TRACKWAY_I_CAST(
        uint32_t, trackway_i_format(TRACKWAY_I_CAST(char *, message), &cut, format, arguments));
    va_end(arguments);
    __builtin_memcpy(payload, &length, sizeof(length));
    emit(event, payload, (sizeof(length) + length) | cut);
}

#define TRACKWAY_I_PRINTF(...)                                                                    \
    (__builtin_expect(trackway_i_wanted(trackway_i_tracef(0)) != 0, 0)                            \
         ? trackway_i_printf(__VA_ARGS__)                                                         \
         : TRACKWAY_I_CAST(void, 0))

#define TRACKWAY_I_LEVELS(m)                                                                      \
    m(EMERG) m(ALERT) m(CRIT) m(ERR) m(WARNING) m(NOTICE) m(INFO) m(DEBUG_SYSTEM)                 \
    m(DEBUG_PROGRAM) m(DEBUG_PROCESS) m(DEBUG_MODULE) m(DEBUG_UNIT) m(DEBUG_FUNCTION)             \
    m(DEBUG_LINE) m(DEBUG)
#define TRACKWAY_I_LOG_EVENT(level)                                                               \
    TRACKWAY_I_INITIAL(events[TRACKWAY_##level], "lttng_ust_tracelog", "TRACE_" #level,           \
                       TRACKWAY_##level, 4, fields),
#define TRACKWAY_I_LOG_ENTRY(level) &events[TRACKWAY_##level],

/* The event lttng_ust_tracelog:TRACE_… of a level. */
TRACKWAY_I_INLINE struct trackway_abi_event *trackway_i_tracelog(enum trackway_level level,
                                                                 int entered)
{
    static const struct trackway_abi_field fields[] =
        TRACKWAY_I_FIELDS((i32, line), (str, file), (str, func), (text, msg), TRACKWAY_I_PADS);
    /* With its bound: elements refer to the array, which g++ else initialises only when it is first
     * used, over what the library has put there. */
    static struct trackway_abi_event events[TRACKWAY_DEBUG + 1] = {
        TRACKWAY_I_LEVELS(TRACKWAY_I_LOG_EVENT)};
    static struct trackway_abi_event *entries[] TRACKWAY_I_ENTRY(__unused__) = {
        TRACKWAY_I_LEVELS(TRACKWAY_I_LOG_ENTRY)};
    if (entered)
        __asm__ volatile("" : : "m"(entries));
    return &events[level];
}

TRACKWAY_I_ASIDE_VARIADIC __attribute__((__format__(__printf__, 5, 6))) void
trackway_i_log(enum trackway_level level, const char *trackway_field_file,
               int32_t trackway_field_line, const char *trackway_field_func, const char *format,
               ...)
{
    char trackway_i_message[TRACKWAY_I_MESSAGE_MAX + 1];
    const char *trackway_field_msg = trackway_i_message;
    size_t trackway_length_msg, message_cut = 0;
    va_list arguments;
    va_start(arguments, format);
    trackway_length_msg = trackway_i_format(trackway_i_message, &message_cut, format, arguments);
    va_end(arguments);
    TRACKWAY_I_RECORD(trackway_i_tracelog(level, 1), trackway_i_event->fields, message_cut,
                      (i32, line), (str, file), (str, func), (text, msg), TRACKWAY_I_PADS)
}

#define TRACKWAY_I_LOG(level, ...)                                                                \
    (__builtin_expect(trackway_i_wanted(trackway_i_tracelog((level), 0)) != 0, 0)                 \
         ? trackway_i_log((level), __FILE__, __LINE__, __func__, __VA_ARGS__)                     \
         : TRACKWAY_I_CAST(void, 0))

/* --- trackway_snapshot ----------------------------------------------------------------------- */

TRACKWAY_I_HELPER int trackway_i_snapshot(const char *session)
{
    return trackway_abi_snapshot ? trackway_abi_snapshot(session) : 0;
}

#define TRACKWAY_I_SNAPSHOT(session) trackway_i_snapshot(session)

#endif /* TRACKWAY_DISABLE */
#endif
