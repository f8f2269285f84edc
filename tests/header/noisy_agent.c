/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* With fake_agent.c, a library to preload with the helpers: everything is on from the start, and
 * "recorded N" is appended to the file that NOISY_AGENT_FILE names when a process ends. */
#define _GNU_SOURCE
#include "fake_agent.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static unsigned long count;

static void add(const struct trackway_abi_event *event, const unsigned char *payload,
                size_t payload_size)
{
    (void)event, (void)payload, (void)payload_size;
    __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED);
    free(malloc(16)); /* must not come back here */
}

__attribute__((constructor)) static void begin(void)
{
    fake_agent_sink = add;
    fake_agent_enable(1);
}

__attribute__((destructor)) static void end(void)
{
    const char *file = getenv("NOISY_AGENT_FILE");
    char line[64];
    const int length = snprintf(line, sizeof(line), "recorded %lu\n", count);
    const int fd = file ? open(file, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
    if (fd >= 0 && length > 0 && write(fd, line, (size_t)length) == length)
        close(fd);
}
