/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Events with fields of every kind, whose staging has a cost. unstaged MODE COUNT */
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
TRACKWAY_EVENT(kinds, ends, TRACKWAY_INFO,
    (u32, number), (str, path), (text, note), (str, s0), (str, s1), (str, s2), (str, s3), (str, s4),
    (str, s5), (str, s6), (str, s7));
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

/* Returns the end of a page that is followed by unreadable memory. The byte at distance N before it
 * is a letter that encodes N. */
static char *end_of_page(void)
{
    enum { PAGE_BYTES = 4096, LETTERS = 26 };
    char *const pages =
        mmap(NULL, 2 * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || mprotect(pages + PAGE_BYTES, PAGE_BYTES, PROT_NONE))
        exit(98);
    for (int before = 1; before <= PAGE_BYTES; before++)
        pages[PAGE_BYTES - before] = (char)('a' + before % LETTERS);
    return pages + PAGE_BYTES;
}

/* Strings and texts of every length that end where a page does; and so many bytes in others that a
 * filter that takes all of them finds room for some events' only. */
static void ends(long count)
{
    enum { PATHS = 50, NOTES = 37, STRINGS = 8, LENGTHS = 241 };
    char *const string_end = end_of_page(), *const text_end = end_of_page();
    string_end[-1] = 0;
    for (long i = 0; i < count; i++) {
        const long path = i % PATHS, note = i % NOTES;
        const char *s[STRINGS];
        for (long n = 0; n < STRINGS; n++)
            s[n] = string_end - 1 - (29 * i + 50 * n) % LENGTHS;
        trackway(kinds, ends, (uint32_t)i, string_end - 1 - path, text_end - note, (size_t)note,
                 s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]);
    }
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
    if (strcmp(argv[1], "ends") == 0)
        ends(atol(argv[2]));
    else
        all(atol(argv[2]));
    return 0;
}
