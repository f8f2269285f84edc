/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Helpers of programs that print the events that their calls must leave in a trace, each as
 * `PROVIDER:NAME FIELDS`, in the format of `trackway print`. The programs print them at their end,
 * and collect them in memory that children share. Nothing here calls a wrapped function. */
#ifndef EXPECT_H
#define EXPECT_H

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { EXPECTED_BYTES = 1 << 20 };

static struct expected {
    unsigned used;
    char text[EXPECTED_BYTES];
} *expected;

static inline void expect_begin(void)
{
    expected = mmap(NULL, sizeof(*expected), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                    -1, 0);
}

__attribute__((format(printf, 1, 2))) static void expect(const char *format, ...)
{
    char line[512];
    va_list arguments;
    int length;
    unsigned at;
    const int saved_errno = errno;
    va_start(arguments, format);
    length = vsnprintf(line, sizeof(line) - 1, format, arguments);
    va_end(arguments);
    line[length++] = '\n';
    at = __atomic_fetch_add(&expected->used, (unsigned)length, __ATOMIC_RELAXED);
    memcpy(expected->text + at, line, (size_t)length);
    errno = saved_errno;
}

static inline void expect_end(void)
{
    if (write(1, expected->text, expected->used) != (ssize_t)expected->used)
        _exit(9);
}

/* Ends the program with a message if `condition` does not hold. */
#define CHECK(condition)                                                                          \
    do {                                                                                          \
        if (!(condition)) {                                                                       \
            dprintf(2, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno);          \
            _exit(8);                                                                             \
        }                                                                                         \
    } while (0)

#define HEX(pointer) ((unsigned long)(uintptr_t)(pointer))

#endif
