/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Events that are described at run time, for bindings of other languages. Programs in C and C++
 * declare events by <trackway/trackway.h>, which costs less and checks more.
 *
 *     static const struct trackway_abi_field fields[] = {
 *         {"path", NULL, TRACKWAY_ABI_NONE, TRACKWAY_ABI_TEXT, 0, 0},
 *         {"status", NULL, TRACKWAY_ABI_U32, TRACKWAY_ABI_SCALAR, 0, 0},
 *     };
 *     const struct trackway_dynamic *event = NULL;
 *     if (trackway_dynamic_describe)
 *         trackway_dynamic_describe("myapp", "request", 6, fields, 2, &event);
 *     …
 *     if (event && trackway_dynamic_enabled(event)) {
 *         const struct trackway_value values[] = {
 *             {{.data = path}, path_length}, {{.u = 200}, 0},
 *         };
 *         trackway_dynamic_record(event, values, 2);
 *     }
 *
 * The functions are in libtrackway.so.1. A C file that includes this refers to them weakly: where
 * the library is not loaded, their addresses are null. Other languages find them with dlsym(3), in
 * the whole process first (RTLD_DEFAULT: `trackway record` may have preloaded the library), then
 * in libtrackway.so.1, which may be opened at any time and is never unloaded. Older libraries lack
 * these functions: then there are no events.
 *
 * An event that is described here is the same as one that a C program declares with the same
 * provider, name, level and fields, in this process and in others.
 */
#ifndef TRACKWAY_DYNAMIC_H
#define TRACKWAY_DYNAMIC_H

#include <stdint.h>
#include <trackway/abi/abi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Most events that a process can describe; other processes do not count. */
#define TRACKWAY_DYNAMIC_MAX 1024

/* An event that was described. Opaque; there for as long as the process is. */
struct trackway_dynamic;

/*
 * The value of a field. The field's description selects the member:
 *
 *     i8 to i64                     i, within the type's range
 *     u8 to u64, x8 to x64          u, within the type's range
 *     bool                          u, true unless 0
 *     f32, f64                      f32, f64
 *     enumerations                  as their integers
 *     str, text                     data: `length` bytes, a str up to the first NUL among them;
 *                                   null is recorded as "(null)"
 *     arrays                        data: as many elements as described, which `length` repeats;
 *                                   null is recorded as zeros
 *     sequences                     data: `length` elements; null is recorded as none
 *
 * Elements lie one after the other as in C, with any alignment. The memory at `data` is read only
 * during the call.
 */
struct trackway_value {
    union {
        int64_t i;
        uint64_t u;
        float f32;
        double f64;
        const void *data;
    } as;
    uint64_t length;
};

/*
 * Describes the event PROVIDER:NAME and stores its handle in `*event`. A repeated description gets
 * the same handle. The library keeps no pointer from the arguments.
 *
 * `level` is 0 (EMERG) to 14 (DEBUG), `field_count` 0 to 32. Names have 1 to 254 printable ASCII
 * characters other than `"` and `\`; fields of one event have distinct ones. `reserved` of a field
 * is 0; `length` is 1 to 1024 for an array, 1 to 256 for an enumeration's labels, else 0.
 *
 * Returns 0, or one of these, with null in `*event`:
 *
 *     -EINVAL   the description breaks one of these rules, or is longer than 8 KiB
 *     -EAGAIN   another thread made the process another user's meanwhile: describe it again
 *     -ENODEV   the process is not traceable: TRACKWAY_DEBUG=1 in its environment shows why
 *     -ENOSPC   this process has described TRACKWAY_DYNAMIC_MAX events, or this user's processes
 *               4096, those declared in C included; or one of them has damaged what they share
 *
 * None of them is a reason for a program to stop: null is an event that is off.
 *
 * Thread-safe, async-signal-safe. A handle is good in fork and vfork children, and for recordings
 * of the new user when the process becomes another's (docs/guides/processes.md); not beyond exec.
 * Takes some microseconds and up to 5 KiB of stack, 12 KiB if the description is longer than 1 KiB;
 * does not block, allocate or change errno.
 */
int trackway_dynamic_describe(const char *provider, const char *name, unsigned level,
                              const struct trackway_abi_field *fields, unsigned field_count,
                              const struct trackway_dynamic **event) __attribute__((__weak__));

/*
 * Returns 1 if a session records the event now, else 0. Check it before preparing values; recording
 * checks again. Returns 0 for null.
 *
 * Thread-safe, async-signal-safe, after fork and vfork. Two loads; does not change errno.
 */
int trackway_dynamic_enabled(const struct trackway_dynamic *event) __attribute__((__weak__));

/*
 * Records the event with `count` values, one for each field, in the order of the description.
 * Values that do not fit into 4000 bytes are cut as the macros cut them: the longest of str, text
 * and sequences, such strings ending with "…".
 *
 * Returns 0 if the event was recorded, counted as lost for want of room, or disabled; or, with
 * nothing recorded:
 *
 *     -EINVAL   `count` is not the number of fields, or an array has another length
 *     -ERANGE   an integer does not fit its field
 *
 * Values of a disabled event are not read. Thread-safe, async-signal-safe, after fork and vfork.
 * Uses up to 7 KiB of stack, 3 KiB for values of up to 512 bytes in all, and
 * 0.5 KiB where the event is disabled; does not block, allocate or change errno.
 */
int trackway_dynamic_record(const struct trackway_dynamic *event,
                            const struct trackway_value *values, unsigned count)
    __attribute__((__weak__));

#ifdef __cplusplus
}
#endif
#endif
