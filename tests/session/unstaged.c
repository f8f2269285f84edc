/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Events whose staging costs something, with fields of every kind. unstaged MODE COUNT */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <trackway/trackway.h>

enum { LONG_BYTES = 6000, WORDS_MAX = 7 };

TRACKWAY_ENUM(kinds, phase, (idle, 0), (busy, 1, 3));
TRACKWAY_EVENT(kinds, all, TRACKWAY_INFO,
    (u32, number), (str, path), (i16, small), (f32, ratio), (bool, odd), (ptr, where),
    (text, note), (seq, words, u16), (array, three, i32, 3), (enum, phase, kinds, phase, i8),
    (f64, exact), (str, last));
TRACKWAY_EVENT(kinds, untouched, TRACKWAY_INFO, (u32, number), (text, secret));

/* Events of which only the first can be staged: the others' text cannot be read. */
static int untouched(long count)
{
    enum { SECRET_BYTES = 4096 };
    void *const wall = mmap(NULL, SECRET_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (wall == MAP_FAILED)
        return 97;
    for (long i = 0; i < count; i++)
        trackway(kinds, untouched, (uint32_t)i, i ? wall : "secret", i ? SECRET_BYTES : 6);
    return 0;
}

static void all(long count)
{
    static char longest[LONG_BYTES + 1];
    const char *const paths[] = {"/", "/api/users", "/api/groups", "", NULL, longest};
    const uint16_t words[WORDS_MAX] = {1, 20, 300, 4000, 50000, 6, 7};
    memset(longest, 'x', LONG_BYTES);
    for (long i = 0; i < count; i++) {
        const int32_t three[3] = {(int32_t)i, (int32_t)-i, (int32_t)(i * i)};
        const char last[2] = {(char)('a' + i % 26), 0};
        trackway(kinds, all, (uint32_t)i, paths[i % 6], (int16_t)(-5 * i), (float)i / 4, i & 1,
                 (const void *)(uintptr_t)i, i % 7 ? "noted" : NULL, (size_t)(i % 6),
                 i % 5 ? words : NULL, (size_t)(i % (WORDS_MAX + 1)), i % 9 ? three : NULL,
                 (int8_t)(i % 4), 0.5 * (double)i, last);
    }
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 96;
    if (strcmp(argv[1], "untouched") == 0)
        return untouched(atol(argv[2]));
    all(atol(argv[2]));
    return 0;
}
