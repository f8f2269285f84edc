/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Filters in C: code that decides about an event where it happens, compiled by clang for BPF.
 *
 * A generated header describes the event for the filter:
 *
 *     trackway filter header myapp:request > myapp.h
 *
 * That header includes this one. A filter in slow.c:
 *
 *     #include "myapp.h"
 *
 *     TRACKWAY_FILTER(myapp_request, frame)
 *     {
 *         return frame->latency_us > 1000 &&
 *                trackway_string_matches(frame, frame->path, TRACKWAY_STRING("/api/" "*"));
 *     }
 *
 * is compiled, inspected, and used like this:
 *
 *     clang -O2 -target bpf -fno-jump-tables -c slow.c
 *     trackway filter explain --object slow.o
 *     trackway print --filter-object slow.o trace
 *
 * A filter may use:
 *
 *   - fields and contexts, which are members of `frame`, a pointer to a `struct` of the header;
 *   - arithmetic, `if`, `?:`, `switch`; local variables, structures and arrays of at most 512
 *     bytes; floating point only by the helpers below, and no global variables;
 *   - loops that clang unrolls (`#pragma clang loop unroll(full)`): no jump goes backward;
 *   - static functions of the same file. They must pass the frame on to helpers unchanged.
 *
 * No filter can crash or hang the program, or slow it down beyond a documented limit: the verifier
 * checks it where it is accepted, and again in each traced program. A refusal names the instruction
 * and the reason.
 *
 * An event must have all fields that the filter reads, by name and kind; it may lack the others. So
 * a filter serves all events with these fields. Several filters of one file are alternatives: the
 * first whose fields an event has decides. Events that have the fields of none are not recorded.
 *
 * The header can be written by hand: a struct with 8 bytes for each member, and the members' names
 * in events, one line each, in their order:
 *
 *     struct by_path { trackway_string path; trackway_signed vtid; };
 *     #define TRACKWAY_NEEDS_by_path "string path\n" "signed $ctx.vtid\n"
 *
 * This is C99. Other compilers can check a filter's source; only clang makes objects for BPF.
 */
#ifndef TRACKWAY_FILTER_H
#define TRACKWAY_FILTER_H

/*
 * Types of a frame's members: numbers extended to 64 bits; doubles as their bits; strings and
 * sequences as words, which only helpers can read. An invalid word is an empty string.
 */
typedef long long trackway_signed;
typedef unsigned long long trackway_unsigned;
typedef unsigned long long trackway_float;
typedef unsigned long long trackway_string;
typedef unsigned long long trackway_sequence;

/*
 * Defines the filter of events with the frame `struct NAME`. `frame` is the name of the pointer to
 * it in the block that follows. The block returns a number other than 0 if the event is to be
 * recorded. One for each NAME in a file.
 */
#define TRACKWAY_FILTER(name, frame)                                                               \
    static const char trackway_i_needs_##name[]                                                    \
        __attribute__((section("trackway_needs/" #name), used)) = TRACKWAY_NEEDS_##name;           \
    TRACKWAY_I_PROGRAM(trackway_filter_##name, "trackway/" #name, struct name, frame)

/*
 * Defines the target of `trackway_tail_call(frame, NUMBER)` in the filter `NAME`: a program of its
 * own, with as many instructions again. NUMBER is a decimal constant, 1 for the first one; all
 * numbers below it must be there. A program goes on to those with greater numbers only.
 */
#define TRACKWAY_PROGRAM(name, number, frame)                                                      \
    TRACKWAY_I_PROGRAM(trackway_filter_##name##_##number, "trackway/" #name "/" #number,           \
                       struct name, frame)

/* A string literal, for helpers: 65,535 bytes of such in all at most. Its end is not part of it. */
#define TRACKWAY_STRING(literal)                                                                   \
    ((trackway_string)(__UINTPTR_TYPE__)("" literal) +                                             \
     ((trackway_string)(sizeof("" literal) - 1) << 32) + (1ULL << 31))

/*
 * True if a string of a list (`argv[3]` of a kernel event) does not exist, because the list is
 * shorter. Helpers treat it as empty then; its TRACKWAY_LENGTH has no meaning.
 */
#define TRACKWAY_IS_ABSENT(word) ((word) == ~0ULL)

/* The length of a string in bytes, or of a sequence in elements. */
#define TRACKWAY_LENGTH(word) ((trackway_unsigned)(word) >> 32)

/* The bits of a constant, for the helpers on doubles. */
#define TRACKWAY_FLOAT(constant)                                                                   \
    (((union {                                                                                     \
         double number;                                                                            \
         trackway_float bits;                                                                      \
     }){.number = (constant)})                                                                     \
         .bits)

/* In front of a function that is to be called, and not to be copied to where it is called. */
#define TRACKWAY_FUNCTION static __attribute__((noinline, unused))

/* Types of elements: an event's header has the type of each sequence as EVENT_FIELD_ELEMENT. */
enum trackway_element {
    TRACKWAY_ELEMENT_I8 = 1,
    TRACKWAY_ELEMENT_I16 = 2,
    TRACKWAY_ELEMENT_I32 = 3,
    TRACKWAY_ELEMENT_I64 = 4,
    TRACKWAY_ELEMENT_U8 = 5,
    TRACKWAY_ELEMENT_U16 = 6,
    TRACKWAY_ELEMENT_U32 = 7,
    TRACKWAY_ELEMENT_U64 = 8,
    TRACKWAY_ELEMENT_F32 = 13,
    TRACKWAY_ELEMENT_F64 = 14,
    TRACKWAY_ELEMENT_BOOL = 15
};

/* The condition of trackway_any on an element, which is passed as a member of a frame is. */
typedef trackway_unsigned (*trackway_test)(const void *frame, trackway_unsigned element);

/* Declares a helper: its result, name, number and arguments. */
#define TRACKWAY_I_HELPER(type, name, number, ...)                                                 \
    static type (*const trackway_##name)(__VA_ARGS__) __attribute__((unused)) =                    \
        (type(*)(__VA_ARGS__))number

/*
 * Helpers. The first argument is always the frame. Strings are bytes, compared as unsigned numbers.
 */

/* Less than, equal to, or more than 0, as `a` is to `b`. */
TRACKWAY_I_HELPER(trackway_signed, string_compare, 1, const void *frame, trackway_string a,
                  trackway_string b);
/* Whether all of `text` is like `pattern`: `*` is anything, `\` takes the next byte as it is. */
TRACKWAY_I_HELPER(trackway_unsigned, string_matches, 2, const void *frame, trackway_string text,
                  trackway_string pattern);
/* Whether `text` begins with `part`. */
TRACKWAY_I_HELPER(trackway_unsigned, string_starts_with, 3, const void *frame, trackway_string text,
                  trackway_string part);
/* Whether `text` ends with `part`. */
TRACKWAY_I_HELPER(trackway_unsigned, string_ends_with, 4, const void *frame, trackway_string text,
                  trackway_string part);
/* Whether `part` is anywhere in `text`. */
TRACKWAY_I_HELPER(trackway_unsigned, string_contains, 5, const void *frame, trackway_string text,
                  trackway_string part);
/* FNV-1a of its bytes, 64 bits. */
TRACKWAY_I_HELPER(trackway_unsigned, string_hash, 6, const void *frame, trackway_string text);
/* The element with this number, from 0; 0 beyond the end. `element` is a trackway_element. */
TRACKWAY_I_HELPER(trackway_unsigned, element, 7, const void *frame, trackway_sequence sequence,
                  trackway_unsigned element, trackway_unsigned index);
/*
 * Whether `test` answers not 0 for one of the first 4,096 elements. `test` is a function of the
 * file, by name; it calls no trackway_any itself.
 */
TRACKWAY_I_HELPER(trackway_unsigned, any, 8, const void *frame, trackway_sequence sequence,
                  trackway_unsigned element, trackway_test test);
/* -1, 0 or 1; 2 if one of them is not a number. */
TRACKWAY_I_HELPER(trackway_signed, float_compare, 9, const void *frame, trackway_float a,
                  trackway_float b);
TRACKWAY_I_HELPER(trackway_float, float_add, 10, const void *frame, trackway_float a,
                  trackway_float b);
TRACKWAY_I_HELPER(trackway_float, float_subtract, 11, const void *frame, trackway_float a,
                  trackway_float b);
TRACKWAY_I_HELPER(trackway_float, float_multiply, 12, const void *frame, trackway_float a,
                  trackway_float b);
TRACKWAY_I_HELPER(trackway_float, float_divide, 13, const void *frame, trackway_float a,
                  trackway_float b);
TRACKWAY_I_HELPER(trackway_float, float_from_signed, 14, const void *frame,
                  trackway_signed number);
TRACKWAY_I_HELPER(trackway_float, float_from_unsigned, 15, const void *frame,
                  trackway_unsigned number);
/* Nanoseconds of CLOCK_MONOTONIC. */
TRACKWAY_I_HELPER(trackway_unsigned, time_ns, 16, const void *frame);
/* 64 random bits. */
TRACKWAY_I_HELPER(trackway_unsigned, random, 17, const void *frame);
/*
 * The filter's state, in cells 0 to 63, which each process has separately; one cell is for one of
 * these uses. The number of earlier calls:
 */
TRACKWAY_I_HELPER(trackway_unsigned, count, 18, const void *frame, trackway_unsigned cell);
/* True if `number` differs from the number of the previous call, or if there was none. */
TRACKWAY_I_HELPER(trackway_unsigned, changed, 19, const void *frame, trackway_unsigned cell,
                  trackway_unsigned number);
/* True `most` times in each interval of so many nanoseconds. */
TRACKWAY_I_HELPER(trackway_unsigned, rate, 20, const void *frame, trackway_unsigned cell,
                  trackway_unsigned most, trackway_unsigned interval_ns);
/*
 * Continues with a TRACKWAY_PROGRAM, whose result is the filter's. Returns 0 if there is no program
 * of this number after the calling one. Not within functions.
 */
TRACKWAY_I_HELPER(trackway_unsigned, tail_call, 21, const void *frame, trackway_unsigned number);

/*
 * The sum of the first 4,096 elements, of which 64 bits stay; the least and the greatest of them.
 * Of none, and of floats, 0. Each counts as 4,096 steps.
 */
TRACKWAY_I_HELPER(trackway_unsigned, sum, 42, const void *frame, trackway_sequence sequence,
                  trackway_unsigned element);
TRACKWAY_I_HELPER(trackway_unsigned, least, 43, const void *frame, trackway_sequence sequence,
                  trackway_unsigned element);
TRACKWAY_I_HELPER(trackway_unsigned, greatest, 44, const void *frame, trackway_sequence sequence,
                  trackway_unsigned element);

/* The rest is not for use by others. */

#define TRACKWAY_I_PROGRAM(function, in, type, frame)                                              \
    trackway_unsigned function(const type *frame);                                                 \
    __attribute__((section(in), used)) trackway_unsigned function(                                 \
        __attribute__((unused)) const type *frame)

#endif
