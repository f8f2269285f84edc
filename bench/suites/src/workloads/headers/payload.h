/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What events of the suite `payload` carry: `lab.bytes` bytes, as many as the environment variable
 * LAB_BYTES says, or values of one kind; and last in each, the event's number.
 *
 * A program defines EMIT_KIND for each kind, as its tracer has it, before it includes this.
 */
#include "harness.h"

enum { PAYLOAD_MAX = 1024, PAYLOAD_ELEMENTS = 4 };

static unsigned char payload_bytes[PAYLOAD_MAX + 1];
static size_t payload_length;

/* The compiler knows neither the bytes nor how many they are. */
#define PAYLOAD_LOOP(kind)                                                                        \
    static void kind(uint64_t first, uint64_t count)                                              \
    {                                                                                             \
        static const uint32_t four[PAYLOAD_ELEMENTS] = {1, 2, 3, 4};                              \
        const uint32_t *elements = four;                                                          \
        const unsigned char *bytes = payload_bytes;                                               \
        size_t length = payload_length, number = PAYLOAD_ELEMENTS;                                \
        __asm__ volatile("" : "+r"(bytes), "+r"(elements) : : "memory");                          \
        __asm__ volatile("" : "+r"(length), "+r"(number));                                        \
        for (uint64_t i = first; i < first + count; i++)                                          \
            EMIT_##kind;                                                                          \
        (void)bytes, (void)elements, (void)length, (void)number;                                  \
    }

PAYLOAD_LOOP(bytes)
PAYLOAD_LOOP(string)
PAYLOAD_LOOP(number)
PAYLOAD_LOOP(wide)
PAYLOAD_LOOP(real)
PAYLOAD_LOOP(array)
PAYLOAD_LOOP(sequence)

static const struct lab_work works[] = {
    {"bytes", bytes}, {"string", string}, {"number", number},     {"wide", wide},
    {"real", real},   {"array", array},   {"sequence", sequence}, {NULL, NULL},
};

int main(int argc, char **argv)
{
    const char *asked = getenv("LAB_BYTES");
    payload_length = asked == NULL ? 0 : strtoul(asked, NULL, 10);
    if (payload_length > PAYLOAD_MAX)
        return 2;
    memset(payload_bytes, 'x', payload_length);
    return lab_main(argc, argv, works);
}
