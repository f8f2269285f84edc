/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * ftrace's marker: a line of text for each event, formatted and written as its users do. The
 * marker's path is in LAB_MARKER.
 */
#include "harness.h"

#include <fcntl.h>

static int marker;

static void number(uint64_t first, uint64_t count)
{
    char line[32];
    for (uint64_t i = first; i < first + count; i++) {
        const int length = snprintf(line, sizeof line, "value=%u\n", (uint32_t)i);
        if (write(marker, line, (size_t)length) != length)
            exit(3);
    }
}

static const struct lab_work works[] = {
    {"number", number},
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    const char *path = getenv("LAB_MARKER");
    marker = open(path == NULL ? "" : path, O_WRONLY | O_CLOEXEC);
    if (marker < 0) {
        perror("LAB_MARKER");
        return 3;
    }
    return lab_main(argc, argv, works);
}
