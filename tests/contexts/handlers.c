/* Signal handlers that interrupt a thread while it sets contexts. Each value is one of a few, and
 * all its bytes are the same. An event has the value that the program reads and the value that the
 * recorder reads, for comparison. Two kinds of signals, so that handlers are interrupted, too. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <trackway/context.h>

TRACKWAY_CONTEXT(torn, text, str);
TRACKWAY_CONTEXT(torn, number, u64);
TRACKWAY_EVENT(torn, seen, TRACKWAY_INFO, (u32, depth));

static volatile sig_atomic_t depth, handled, wrong;

static const char *const TEXTS[] = {
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",
    "ccccccccccccccccccccccccccccccc", "ddddddddddddddddddddddddddddddd",
};

/* The words of a value that is whole: all of one letter, as above. */
static int is_whole(const struct trackway_abi_context_value *value)
{
    char text[32];
    size_t i;
    memcpy(text, value->words, sizeof(text));
    for (i = 1; i < 31; i++)
        if (text[i] != text[0])
            return 0;
    return text[31] == 0 && text[0] >= 'a' && text[0] <= 'd';
}

static void look(void)
{
    struct trackway_abi_context_value value;
    trackway_get_context(torn, text, &value);
    if (value.is_set && !is_whole(&value))
        wrong++;
    trackway_get_context(torn, number, &value);
    if (value.is_set && (value.words[0] & UINT64_C(0xffffffff)) != value.words[0] >> 32)
        wrong++;
}

static uint64_t twice(uint64_t number)
{
    return number << 32 | number;
}

static void handler(int signal)
{
    struct trackway_abi_context_value text, number;
    depth++;
    handled++;
    look();
    trackway_get_context(torn, text, &text);
    trackway_get_context(torn, number, &number);
    trackway_set_context(torn, text, TEXTS[signal == SIGALRM ? 2 : 3]);
    trackway_set_context(torn, number, twice(1000));
    trackway(torn, seen, (uint32_t)depth);
    look();
    if (handled % 3 == 0)
        trackway_clear_context(torn, text);
    if (handled % 4 != 0) { /* otherwise the interrupted code goes on with its own value */
        trackway_put_context(torn, text, &text);
        trackway_put_context(torn, number, &number);
    }
    look();
    depth--;
}

static void start(int signal, clockid_t clock, long period_ns)
{
    struct sigaction action;
    struct sigevent event;
    struct itimerspec times;
    timer_t timer;
    memset(&action, 0, sizeof(action));
    memset(&event, 0, sizeof(event));
    memset(&times, 0, sizeof(times));
    action.sa_handler = handler;
    sigemptyset(&action.sa_mask);
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = signal;
    times.it_value.tv_nsec = times.it_interval.tv_nsec = period_ns;
    if (sigaction(signal, &action, NULL) != 0 || timer_create(clock, &event, &timer) != 0 ||
        timer_settime(timer, 0, &times, NULL) != 0)
        exit(2);
}

int main(void)
{
    uint64_t round = 0;
    trackway_set_context(torn, text, TEXTS[0]);
    trackway_set_context(torn, number, twice(0));
    start(SIGALRM, CLOCK_MONOTONIC, 50000);
    start(SIGUSR1, CLOCK_MONOTONIC, 70001);
    while (handled < 20000) {
        const sig_atomic_t before = handled;
        struct trackway_abi_context_value value;
        const char *const text = TEXTS[round % 2];
        round++;
        trackway_set_context(torn, text, text);
        look();
        trackway_get_context(torn, text, &value);
        if (handled == before && (!value.is_set || memcmp(value.words, text, 32) != 0))
            wrong++;
        trackway_set_context(torn, number, twice(round % 1000));
        look();
        trackway_get_context(torn, number, &value);
        if (handled == before && (!value.is_set || value.words[0] != twice(round % 1000)))
            wrong++;
        if (round % 64 == 0)
            trackway(torn, seen, 0);
    }
    signal(SIGALRM, SIG_IGN);
    signal(SIGUSR1, SIG_IGN);
    printf("wrong %d, rounds %s\n", (int)wrong, round > 20000 ? "many" : "few");
    return wrong != 0;
}
