/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A binding of another language, by dlsym only: describes events, queries whether they are enabled,
 * records values. Prints every unexpected result. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <trackway/dynamic.h>
#include <trackway/trackway.h>

TRACKWAY_EVENT(dynamic, same, TRACKWAY_INFO, (u32, number));
TRACKWAY_EVENT(dynamic, cut, TRACKWAY_INFO, (str, short), (text, long), (seq, many, u32));

#define FIELD(name, scalar, shape, length)                                                         \
    {name, NULL, TRACKWAY_ABI_##scalar, TRACKWAY_ABI_##shape, length, 0}
#define SCALAR(name, scalar) FIELD(name, scalar, SCALAR, 0)
#define COUNT(array) ((unsigned)(sizeof(array) / sizeof(*(array))))

static int (*describe)(const char *, const char *, unsigned, const struct trackway_abi_field *,
                       unsigned, const struct trackway_dynamic **);
static int (*enabled)(const struct trackway_dynamic *);
static int (*record)(const struct trackway_dynamic *, const struct trackway_value *, unsigned);

static void expect(long line, long is, long should)
{
    if (is != should)
        printf("line %ld: %ld, not %ld\n", line, is, should);
}
#define EXPECT(is, should) expect(__LINE__, (long)(is), (long)(should))

static const struct trackway_dynamic *described(const char *name,
                                                const struct trackway_abi_field *fields,
                                                unsigned count)
{
    const struct trackway_dynamic *event = NULL;
    EXPECT(describe("dynamic", name, TRACKWAY_INFO, fields, count, &event), 0);
    return event;
}

static void every_type(void)
{
    static const struct trackway_abi_label labels[] = {{0, 0, "idle"}, {1, 9, "busy"}};
    static const struct trackway_abi_field fields[] = {
        SCALAR("a", I8), SCALAR("b", I16), SCALAR("c", I32), SCALAR("d", I64), SCALAR("e", U8),
        SCALAR("f", U16), SCALAR("g", U32), SCALAR("h", U64), SCALAR("i", X8), SCALAR("j", X16),
        SCALAR("k", X32), SCALAR("l", X64), SCALAR("m", F32), SCALAR("n", F64), SCALAR("o", BOOL),
        FIELD("p", NONE, STR, 0), FIELD("q", NONE, TEXT, 0), FIELD("r", U16, ARRAY, 2),
        FIELD("s", I64, SEQUENCE, 0),
        {"t", labels, TRACKWAY_ABI_U8, TRACKWAY_ABI_ENUMERATION, 2, 0}, SCALAR("u", BOOL),
    };
    static const uint16_t array[] = {3, 4};
    static const int64_t sequence[] = {-5, 6};
    struct trackway_value values[] = {
        {{.i = -128}, 0}, {{.i = -2}, 0}, {{.i = -3}, 0}, {{.i = INT64_MIN}, 0}, {{.u = 255}, 0},
        {{.u = 65535}, 0}, {{.u = 7}, 0}, {{.u = UINT64_MAX}, 0}, {{.u = 0x12}, 0},
        {{.u = 0x1234}, 0}, {{.u = 0x12345678}, 0}, {{.u = 0x123456789abcdef0}, 0},
        {{.f32 = 1.5f}, 0}, {{.f64 = -2.5}, 0}, {{.u = 256}, 0}, {{.data = "str\0ing"}, 7},
        {{.data = "text"}, 3}, {{.data = array}, 2}, {{.data = sequence}, 2}, {{.u = 5}, 0},
        {{.u = 0}, 0},
    };
    const struct trackway_dynamic *event = described("types", fields, COUNT(fields));
    unsigned i;
    EXPECT(event == described("types", fields, COUNT(fields)), 1);
    EXPECT(enabled(event), 1);
    EXPECT(record(event, values, COUNT(values)), 0);
    for (i = 15; i < 19; i++)
        values[i].as.data = NULL;
    EXPECT(record(event, values, COUNT(values)), 0);
    values[0].as.i = 128;
    EXPECT(record(event, values, COUNT(values)), -ERANGE);
    values[0].as.i = 0;
    values[4].as.u = 256;
    EXPECT(record(event, values, COUNT(values)), -ERANGE);
    values[4].as.u = 0;
    values[17].as.data = array;
    values[17].length = 3;
    EXPECT(record(event, values, COUNT(values)), -EINVAL);
    EXPECT(record(event, values, COUNT(values) - 1), -EINVAL);
    EXPECT(record(event, NULL, COUNT(values)), -EINVAL);
}

static void refusals(void)
{
    static const struct trackway_abi_field bad[] = {
        SCALAR("a", NONE), FIELD("a", U8, STR, 0), FIELD("a", U8, ARRAY, 0),
        FIELD("a", U8, ARRAY, 1025), FIELD("a", NONE, SEQUENCE, 0), FIELD("a", U8, ENUMERATION, 1),
        FIELD("a", U8, SCALAR, 1), SCALAR("", U8), SCALAR("quote\"", U8), SCALAR(NULL, U8),
        {"a", NULL, 16, TRACKWAY_ABI_SCALAR, 0, 0}, {"a", NULL, TRACKWAY_ABI_U8, 6, 0, 0},
        {"a", NULL, TRACKWAY_ABI_U8, TRACKWAY_ABI_SCALAR, 0, 1},
    };
    static const struct trackway_abi_field twice[] = {SCALAR("a", U8), SCALAR("a", U16)};
    static const struct trackway_abi_field large[] = {
        FIELD("a", U64, ARRAY, 500), SCALAR("b", U8)};
    const struct trackway_dynamic *event = (const void *)&event;
    unsigned i;
    for (i = 0; i < COUNT(bad); i++)
        expect(1000 + i, describe("dynamic", "bad", 6, &bad[i], 1, &event), -EINVAL);
    EXPECT(event == NULL, 1);
    EXPECT(describe("dynamic", "bad", 6, twice, 2, &event), -EINVAL);
    EXPECT(describe("dynamic", "bad", 6, large, 2, &event), -EINVAL);
    EXPECT(describe("dynamic", "bad", 6, NULL, 1, &event), -EINVAL);
    EXPECT(describe("dynamic", "bad", 6, large, 33, &event), -EINVAL);
    EXPECT(describe("dynamic", "bad", 15, NULL, 0, &event), -EINVAL);
    EXPECT(describe(NULL, "bad", 6, NULL, 0, &event), -EINVAL);
    EXPECT(describe("dynamic", NULL, 6, NULL, 0, &event), -EINVAL);
    EXPECT(enabled(NULL), 0);
    EXPECT(record(NULL, NULL, 0), 0);
}

/* The library cuts as the macros do, to the byte. */
static void cuts(void)
{
    static const struct trackway_abi_field fields[] = {
        FIELD("short", NONE, STR, 0), FIELD("long", NONE, TEXT, 0), FIELD("many", U32, SEQUENCE, 0),
    };
    static char text[9001];
    static uint32_t many[5000];
    const struct trackway_value values[] = {
        {{.data = "whole"}, 5}, {{.data = text}, 9000}, {{.data = many}, 5000}};
    /* Two bytes a character, after one of one byte: the cut splits a character. */
    unsigned i;
    text[0] = 'x';
    for (i = 1; i < 9000; i += 2)
        memcpy(text + i, "\xc3\xa9", 2);
    EXPECT(record(described("cut", fields, 3), values, 3), 0);
    trackway(dynamic, cut, "whole", text, 9000, many, 5000);
}

static const struct trackway_dynamic *of_threads[8];

static void *many(void *argument)
{
    static const struct trackway_abi_field fields[] = {SCALAR("number", U32)};
    const unsigned me = (unsigned)(uintptr_t)argument;
    unsigned i;
    for (i = 0; i < 1000; i++) {
        const struct trackway_value value = {{.u = i}, 0};
        char name[16];
        const struct trackway_dynamic *event;
        snprintf(name, sizeof(name), "shared%u", i % 100);
        event = described(name, fields, 1);
        if (i % 100 == 7)
            of_threads[me] = event;
        EXPECT(record(event, &value, 1), 0);
    }
    return NULL;
}

/* All threads describe the same hundred events at the same time. */
static void threads(void)
{
    pthread_t all[8];
    uintptr_t i;
    for (i = 0; i < 8; i++)
        pthread_create(&all[i], NULL, many, (void *)i);
    for (i = 0; i < 8; i++)
        pthread_join(all[i], NULL);
    for (i = 0; i < 8; i++)
        EXPECT(of_threads[i] == of_threads[0] && of_threads[0] != NULL, 1);
}

static void bounded(void)
{
    const struct trackway_dynamic *event;
    int result = 0;
    unsigned i;
    for (i = 0; i < 2 * TRACKWAY_DYNAMIC_MAX && result == 0; i++) {
        char name[16];
        snprintf(name, sizeof(name), "many%u", i);
        result = describe("dynamic", name, TRACKWAY_DEBUG, NULL, 0, &event);
    }
    EXPECT(result, -ENOSPC);
    EXPECT(event == NULL, 1);
    EXPECT(i > 800 && i <= TRACKWAY_DYNAMIC_MAX, 1);
}

int main(int argc, char **argv)
{
    static const struct trackway_abi_field number[] = {SCALAR("number", U32)};
    const struct trackway_value value = {{.u = 2}, 0};
    const struct trackway_dynamic *event = (const void *)&event;
    void *library = argc > 2 ? dlopen(argv[2], RTLD_NOW) : RTLD_DEFAULT;
    /* POSIX prescribes this conversion of an object pointer to a function pointer. */
    *(void **)&describe = dlsym(library, "trackway_dynamic_describe");
    *(void **)&enabled = dlsym(library, "trackway_dynamic_enabled");
    *(void **)&record = dlsym(library, "trackway_dynamic_record");
    if (strcmp(argv[1], "absent") == 0) {
        EXPECT(!describe && !enabled && !record && !trackway_dynamic_describe, 1);
        return 0;
    }
    EXPECT(describe && enabled && record, 1);
    if (strcmp(argv[1], "untraceable") == 0) {
        EXPECT(describe("dynamic", "same", TRACKWAY_INFO, number, 1, &event), -ENODEV);
        EXPECT(event == NULL, 1);
        return 0;
    }
    if (strcmp(argv[1], "off") == 0) {
        event = described("same", number, 1);
        EXPECT(enabled(event), 0);
        EXPECT(record(event, NULL, 99), 0); /* values are not looked at */
        return 0;
    }
    errno = 77;
    /* The same event as the one that the macro declares. */
    trackway(dynamic, same, 1);
    event = described("same", number, 1);
    EXPECT(record(event, &value, 1), 0);
    every_type();
    refusals();
    cuts();
    EXPECT(errno, 77);
    threads();
    if (fork() == 0) {
        EXPECT(event == described("same", number, 1), 1);
        EXPECT(record(event, &value, 1), 0);
        _exit(0);
    }
    wait(NULL);
    bounded();
    return 0;
}
