/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The interface between an instrumented module and libtrackway.so. Applications include
 * <trackway/trackway.h>, whose macros build these structures.
 *
 * A module carries its events as data: an allocated ELF note (name "Trackway", type 1) gives the
 * bounds of its array of event pointers. libtrackway.so finds the notes of all modules when it is
 * loaded, and a module loaded later announces itself through the weak symbol
 * trackway_abi_register(). A program without the library runs with every event disabled.
 *
 * Version rule, from the first release on: structures only grow at their end, and `size` says how
 * much of it is there; functions are only added, and looked for weakly or with dlsym(3). So header
 * and library of one version work together, whichever is newer. Any other change raises
 * TRACKWAY_ABI_VERSION and the library's SONAME: then events stay off, and with TRACKWAY_DEBUG=1
 * the library reports it. The memory of library and recorder has its own version (crates/abi).
 */
#ifndef TRACKWAY_ABI_ABI_H
#define TRACKWAY_ABI_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TRACKWAY_ABI_VERSION 1

/* Free bytes before every payload (the library puts contexts there) and after it (the library
 * copies by words of eight). */
#define TRACKWAY_ABI_HEADROOM 128
#define TRACKWAY_ABI_TAILROOM 8
/* Longest payload, in bytes: a record of 4096 less its header and contexts. */
#define TRACKWAY_ABI_PAYLOAD_MAX 4000
/* Set in `payload_size` if a field was cut to fit: the library counts such records. */
#define TRACKWAY_ABI_CUT (~(SIZE_MAX >> 1))

/* Codes of scalars and shapes: crates/schema/src/lib.rs. */
enum trackway_abi_scalar {
    TRACKWAY_ABI_NONE = 0,
    TRACKWAY_ABI_I8 = 1, TRACKWAY_ABI_I16 = 2, TRACKWAY_ABI_I32 = 3, TRACKWAY_ABI_I64 = 4,
    TRACKWAY_ABI_U8 = 5, TRACKWAY_ABI_U16 = 6, TRACKWAY_ABI_U32 = 7, TRACKWAY_ABI_U64 = 8,
    TRACKWAY_ABI_X8 = 9, TRACKWAY_ABI_X16 = 10, TRACKWAY_ABI_X32 = 11, TRACKWAY_ABI_X64 = 12,
    TRACKWAY_ABI_F32 = 13, TRACKWAY_ABI_F64 = 14, TRACKWAY_ABI_BOOL = 15
};
enum trackway_abi_shape {
    TRACKWAY_ABI_SCALAR = 0, TRACKWAY_ABI_STR = 1, TRACKWAY_ABI_TEXT = 2,
    TRACKWAY_ABI_ARRAY = 3, TRACKWAY_ABI_SEQUENCE = 4, TRACKWAY_ABI_ENUMERATION = 5
};

/* A label of an enumeration: a name for the values first..last, both inclusive. */
struct trackway_abi_label {
    int64_t first;
    int64_t last;
    const char *name;
};

/* A field. Arrays have `length` elements; enumerations `length` labels. */
struct trackway_abi_field {
    const char *name;
    const struct trackway_abi_label *labels;
    uint8_t scalar; /* enum trackway_abi_scalar; NONE for str and text */
    uint8_t shape;  /* enum trackway_abi_shape */
    uint16_t length;
    uint32_t reserved;
};

struct trackway_abi_event;

/*
 * Records one event, in every session that has it enabled.
 *
 * `payload` points at `payload_size` bytes (at most TRACKWAY_ABI_PAYLOAD_MAX; TRACKWAY_ABI_CUT may
 * be added to it), packed, little endian, with HEADROOM writable bytes before and TAILROOM readable
 * bytes after. Any thread, any signal handler, after fork and vfork; never blocks, allocates, or
 * changes errno.
 */
typedef void (*trackway_abi_emit_fn)(struct trackway_abi_event *event, unsigned char *payload,
                                     size_t payload_size);

/*
 * A field as a site has it before it is staged: the address of a scalar; a string (null: "(null)");
 * the elements of an array (null: zeros) or of a sequence (null: none). `length` counts a text's
 * bytes or a sequence's elements.
 */
struct trackway_abi_argument {
    const void *at;
    size_t length;
};

/* Special results of trackway_abi_ask_fn: no session records the event; no decision yet. */
#define TRACKWAY_ABI_UNWANTED UINT64_C(0)
#define TRACKWAY_ABI_UNASKED UINT64_MAX

/*
 * Runs the filters before the event is staged: for events whose staging costs something, in
 * sessions that have filters. `arguments` are the event's fields, in order. UNWANTED: do nothing
 * more. UNASKED: stage the event, and emit() it. Any other result: stage the event, and pass the
 * result to emit_asked() at once. As safe as emit().
 */
typedef uint64_t (*trackway_abi_ask_fn)(struct trackway_abi_event *event,
                                        const struct trackway_abi_argument *arguments);
typedef void (*trackway_abi_emit_asked_fn)(struct trackway_abi_event *event,
                                           unsigned char *payload, size_t payload_size,
                                           uint64_t asked);

/* Functions and data of the library for sites, in addition to emit(). */
struct trackway_abi_library {
    uint32_t size; /* sizeof(struct trackway_abi_library) in the library */
    /* One bit a session: set if it has filters. Changes; a needless call of `ask` costs time. */
    uint32_t filtered;
    trackway_abi_ask_fn ask;
    trackway_abi_emit_asked_fn emit_asked;
};

/*
 * An event of this module. The module initialises it so that it is off:
 * `enabled` points at `off`, which stays zero; the library redirects it to the event's
 * enable word in the shared window (one bit a session) after it has set `emit`. That may change
 * while it is on, to another function of the same contract: either one records any event.
 */
struct trackway_abi_event {
    const uint32_t *enabled;
    trackway_abi_emit_fn emit;
    uint32_t off;
    uint32_t index; /* the library's number for this event */
    uint16_t version; /* TRACKWAY_ABI_VERSION */
    uint16_t size;    /* sizeof(struct trackway_abi_event) */
    uint8_t level;    /* 0 (EMERG) to 14 (DEBUG) */
    uint8_t field_count;
    uint16_t reserved;
    const char *provider;
    const char *name;
    const struct trackway_abi_field *fields;
    /* Set before `enabled`, if `size` includes them. */
    const struct trackway_abi_library *library;
    uint32_t known; /* the library's number for this description; 0: none */
    uint32_t reserved_2;
};

/*
 * Announces a module's events: pointers in [begin, end), null ones skipped. Called by a module's
 * constructor when the library is there; calling it again is harmless. Events of another version,
 * malformed ones, and those for which the user's table of 4096 has no place stay off.
 *
 * Events, with all that they point to, must stay until the module is unloaded; the library keeps
 * no pointer to them, nor to the array. Thread-safe for different events, not async-signal-safe;
 * in fork children as in any process. Does not block, allocate or change errno.
 */
void trackway_abi_register(struct trackway_abi_event *const *begin,
                           struct trackway_abi_event *const *end);

/*
 * Requests a snapshot of each flight recorder that records this process, or of those of the session
 * of this name; returns the number of requested snapshots. Older libraries lack this function.
 * trackway_snapshot() of <trackway/trackway.h> calls it.
 */
int trackway_abi_snapshot(const char *session);

/* The value of a context of this program. */
enum trackway_abi_context_kind {
    TRACKWAY_ABI_CONTEXT_SIGNED = 1,   /* an int64_t */
    TRACKWAY_ABI_CONTEXT_UNSIGNED = 2, /* a uint64_t */
    TRACKWAY_ABI_CONTEXT_FLOAT = 3,    /* bits of a double */
    TRACKWAY_ABI_CONTEXT_STRING = 4
};

/* A context of this program: <trackway/context.h>. Written by the library in `place` alone. */
struct trackway_abi_context {
    uint16_t version; /* TRACKWAY_ABI_VERSION */
    uint16_t size;    /* sizeof(struct trackway_abi_context) */
    uint8_t kind;     /* enum trackway_abi_context_kind */
    uint8_t reserved[3];
    uint32_t place;   /* the library's slot for it; 0: none yet */
    uint32_t more_reserved;
    const char *provider;
    const char *name;
};

/* The value of a context in a thread, or that there is none. */
struct trackway_abi_context_value {
    uint64_t words[4];
    uint64_t is_set;
};

/*
 * These set the calling thread's value of a context, from the bits of a number or from a string of
 * `length` bytes or up to the first NUL among them; clear it; get it, and restore such a value. A
 * value that is not of the context's kind is not set.
 *
 * Any thread, any signal handler; never block, allocate, make a system call, or change errno. The
 * context may be gone afterwards: the library keeps no pointer to it.
 */
void trackway_abi_context_set(struct trackway_abi_context *context, uint64_t bits);
void trackway_abi_context_set_text(struct trackway_abi_context *context, const char *text,
                                   size_t length);
void trackway_abi_context_clear(struct trackway_abi_context *context);
void trackway_abi_context_get(struct trackway_abi_context *context,
                              struct trackway_abi_context_value *value);
void trackway_abi_context_put(struct trackway_abi_context *context,
                              const struct trackway_abi_context_value *value);

#ifdef __cplusplus
}
#endif
#endif
