/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Long values are cut, and fields of fixed size always fit. Prints the faults. */
#include "fake_agent.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trackway/trackway.h>

TRACKWAY_EVENT(limits, one, TRACKWAY_INFO, (u32, first), (str, a), (u32, last));
TRACKWAY_EVENT(limits, shared, TRACKWAY_INFO, (str, a), (text, b), (seq, c, u64), (u32, last));
TRACKWAY_EVENT(limits, full, TRACKWAY_INFO, (array, a, u64, 499), (str, b), (str, c), (u8, last));

static unsigned char bytes[TRACKWAY_ABI_PAYLOAD_MAX];
static size_t size;
static int wrong;

static void keep(const struct trackway_abi_event *event, const unsigned char *payload,
                 size_t payload_size)
{
    (void)event;
    memcpy(bytes, payload, payload_size);
    size = payload_size;
}

static void check(int right, const char *what, int line)
{
    if (!right) {
        printf("line %d: %s (payload has %zu bytes)\n", line, what, size);
        wrong = 1;
    }
}
#define CHECK(condition) check((condition), #condition, __LINE__)

static uint32_t number_at(size_t offset)
{
    uint32_t number;
    memcpy(&number, bytes + offset, sizeof(number));
    return number;
}

/* Strings around the longest that fits, and far beyond. */
static void one_string(void)
{
    enum { ROOM = TRACKWAY_ABI_PAYLOAD_MAX - 4 - 1 - 4 };
    static char string[3 * TRACKWAY_ABI_PAYLOAD_MAX];
    size_t length;
    for (length = ROOM - 5; length < sizeof(string); length += length < ROOM + 5 ? 1 : 997) {
        memset(string, 'x', length);
        string[length] = 0;
        trackway(limits, one, 1, string, 2);
        CHECK(number_at(0) == 1);
        CHECK(number_at(size - 4) == 2);
        CHECK(strlen((char *)bytes + 4) == size - 9);
        if (length <= ROOM)
            CHECK(size == length + 9);
        else
            CHECK(size == TRACKWAY_ABI_PAYLOAD_MAX &&
                  memcmp(bytes + size - 8, "\xe2\x80\xa6\0", 4) == 0);
        CHECK(fake_agent_cut == (length > ROOM));
    }
}

/* A cut never leaves a part of a character, whatever its length and wherever it falls. */
static void characters(void)
{
    static const char *const character[] = {"x", "é", "…", "😀"};
    static char string[2 * TRACKWAY_ABI_PAYLOAD_MAX];
    size_t kind, shift;
    for (kind = 0; kind < 4; kind++)
        for (shift = 0; shift < 5; shift++) {
            size_t i, each = strlen(character[kind]);
            memset(string, 'y', shift);
            for (i = shift; i + each < sizeof(string); i += each)
                memcpy(string + i, character[kind], each);
            string[i] = 0;
            trackway(limits, one, 1, string, 2);
            CHECK(memcmp(bytes + size - 8, "\xe2\x80\xa6\0", 4) == 0);
            CHECK((size - 4 - 9 - 3 + 4 - shift) % each == 0);
            CHECK(size > TRACKWAY_ABI_PAYLOAD_MAX - 4);
        }
}

/* Short strings stay complete; long ones share the rest of the room. */
static void several(void)
{
    enum { ROOM = TRACKWAY_ABI_PAYLOAD_MAX - 1 - 4 - 4 - 4 };
    static char string[TRACKWAY_ABI_PAYLOAD_MAX + 1];
    static uint64_t numbers[TRACKWAY_ABI_PAYLOAD_MAX];
    size_t a, b, c;
    memset(string, 'x', TRACKWAY_ABI_PAYLOAD_MAX);
    trackway(limits, shared, string, "short", 5, numbers, 2, 7);
    a = strlen((char *)bytes);
    CHECK(a == ROOM - 5 - 16);
    CHECK(number_at(a + 1) == 5 && memcmp(bytes + a + 5, "short", 5) == 0);
    CHECK(number_at(a + 10) == 2);
    CHECK(number_at(size - 4) == 7 && size == TRACKWAY_ABI_PAYLOAD_MAX);
    CHECK(fake_agent_cut);

    /* The most elements that fit, and one more: only the flag shows that it is missing. */
    trackway(limits, shared, "", "", 0, numbers, ROOM / 8, 7);
    CHECK(number_at(5) == ROOM / 8 && !fake_agent_cut);
    trackway(limits, shared, "", "", 0, numbers, ROOM / 8 + 1, 7);
    CHECK(number_at(5) == ROOM / 8 && fake_agent_cut);

    trackway(limits, shared, string, string, SIZE_MAX, numbers, SIZE_MAX, 7);
    a = strlen((char *)bytes);
    b = number_at(a + 1);
    c = number_at(a + 5 + b);
    CHECK(a == ROOM / 3 && b == ROOM / 3 && c == ROOM / 3 / 8);
    CHECK(memcmp(bytes + a - 3, "\xe2\x80\xa6", 4) == 0);
    CHECK(memcmp(bytes + a + 5 + b - 3, "\xe2\x80\xa6", 3) == 0);
    CHECK(number_at(size - 4) == 7 && size == a + 1 + 4 + b + 4 + 8 * c + 4);

    /* 5 bytes are left for two strings: not enough for "…" in either. */
    trackway(limits, full, numbers, string, "", 9);
    CHECK(size == 3992 + 8 && memcmp(bytes + 3992, "xx\xe2\x80\xa6\0\0\x09", 8) == 0);
    trackway(limits, full, numbers, string, string, 9);
    CHECK(size == 3992 + 3 && memcmp(bytes + 3992, "\0\0\x09", 3) == 0);
}

static void messages(void)
{
    static char string[2000];
    memset(string, 'x', sizeof(string) - 1);
    trackway_printf("%s", string);
    CHECK(size == 4 + 512 && number_at(0) == 512);
    CHECK(memcmp(bytes + size - 4, "x\xe2\x80\xa6", 4) == 0 && fake_agent_cut);
    trackway_printf("%.512s", string);
    CHECK(size == 4 + 512 && bytes[size - 1] == 'x' && !fake_agent_cut);
    trackway_log(TRACKWAY_INFO, "%s", string);
    CHECK(memcmp(bytes + size - 4, "x\xe2\x80\xa6", 4) == 0 && fake_agent_cut);
    trackway_log(TRACKWAY_INFO, "%.512s", string);
    CHECK(bytes[size - 1] == 'x' && !fake_agent_cut);
}

int main(void)
{
    fake_agent_sink = keep;
    fake_agent_enable(1);
    one_string();
    characters();
    several();
    messages();
    return wrong;
}
