/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A string that changes while it is recorded: every record still has one terminator, at its end. */
#include "fake_agent.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <trackway/trackway.h>

TRACKWAY_EVENT(racing, string, TRACKWAY_INFO, (str, text), (u32, last));

enum { LENGTH = 200, RECORDS = 200000 };
static volatile char string[LENGTH + 1];
static volatile int done;
static int wrong, lengths_seen;
static unsigned char seen[LENGTH + 1];

static void check(const struct trackway_abi_event *event, const unsigned char *payload,
                  size_t payload_size)
{
    const size_t length = strlen((const char *)payload);
    (void)event;
    if (payload_size != length + 5 || memcmp(payload + length + 1, "\x44\x33\x22\x11", 4) != 0)
        wrong++;
    else if (!seen[length]) {
        seen[length] = 1;
        lengths_seen++;
    }
}

static void *change(void *unused)
{
    unsigned at = 0;
    while (!done) {
        string[at % LENGTH] = 0;
        string[(at * 7) % LENGTH] = 'x';
        string[(at * 13) % LENGTH] = 'x';
        at++;
    }
    return unused;
}

int main(void)
{
    pthread_t thread;
    const char *racing;
    int i;
    for (i = 0; i < LENGTH; i++)
        string[i] = 'x';
    memcpy(&racing, &(volatile char *){string}, sizeof(racing));
    fake_agent_sink = check;
    fake_agent_enable(1);
    if (pthread_create(&thread, NULL, change, NULL) != 0)
        return 2;
    for (i = 0; i < RECORDS; i++)
        trackway(racing, string, racing, 0x11223344);
    done = 1;
    pthread_join(thread, NULL);
    printf("wrong %d, several lengths %d\n", wrong, lengths_seen > 1);
    return wrong != 0;
}
