/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Stack use of the library: each call runs on a stack of its own that was filled with a pattern
 * before. The lowest byte that no longer has the pattern afterwards shows the depth. Prints "NAME
 * BYTES" for each. Root becomes the user `nobody` at the end.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#include <trackway/dynamic.h>
#include <trackway/trackway.h>

TRACKWAY_EVENT(stack, small, TRACKWAY_INFO, (u32, number));
TRACKWAY_EVENT(stack, large, TRACKWAY_INFO, (text, words));
/* As many fields as there can be. */
#define SEVEN(a) (u64, a##0), (u64, a##1), (u64, a##2), (u64, a##3), (u64, a##4), (u64, a##5), \
    (u64, a##6)
TRACKWAY_EVENT(stack, wide, TRACKWAY_INFO, SEVEN(a), SEVEN(b), SEVEN(c), SEVEN(d), (u64, e),
    (str, f), (text, words));

enum { STACK_BYTES = 256 << 10, PATTERN = 0xa5, FIELDS = 32, LABELS = 256 };

static unsigned char stack[STACK_BYTES] __attribute__((aligned(64)));
static ucontext_t caller, callee;
static struct trackway_abi_field texts[FIELDS], states[1];
static struct trackway_abi_label labels[LABELS];
static struct trackway_value values[FIELDS];
static char names[FIELDS][8], label_names[LABELS][16], words[5000];
static const struct trackway_dynamic *event, *described;
static int failures;

static void nothing(void)
{
}

static void small_event(void)
{
    trackway(stack, small, 7);
}

static void large_event(void)
{
    trackway(stack, large, words, sizeof(words));
}

static void wide_event(void)
{
#define NUMBERS 1, 2, 3, 4, 5, 6, 7
    trackway(stack, wide, NUMBERS, NUMBERS, NUMBERS, NUMBERS, 8, "string", words, sizeof(words));
}

static void describe(void)
{
    failures += trackway_dynamic_describe("stack", "texts", 6, texts, FIELDS, &event) != 0;
}

static void describe_long(void)
{
    failures += trackway_dynamic_describe("stack", "states", 6, states, 1, &described) != 0;
}

static void is_enabled(void)
{
    (void)trackway_dynamic_enabled(event);
}

static void record(void)
{
    failures += trackway_dynamic_record(event, values, FIELDS) != 0;
}

static void snapshot(void)
{
    (void)trackway_snapshot(NULL);
}

static void become_nobody(void)
{
    failures += setuid(65534) != 0;
}

static long depth_of(void (*call)(void))
{
    memset(stack, PATTERN, sizeof(stack));
    getcontext(&callee);
    callee.uc_stack.ss_sp = stack;
    callee.uc_stack.ss_size = sizeof(stack);
    callee.uc_link = &caller;
    makecontext(&callee, call, 0);
    swapcontext(&caller, &callee);
    size_t untouched = 0;
    while (untouched < sizeof(stack) && stack[untouched] == PATTERN)
        untouched++;
    return (long)(sizeof(stack) - untouched);
}

/* In addition to the call itself; names are one word. */
static void measure(const char *name, void (*call)(void))
{
    printf("%s %ld\n", name, depth_of(call) - depth_of(nothing));
    fflush(stdout);
}

/* Values of this many bytes each. */
static void record_values(const char *name, uint64_t length)
{
    for (int i = 0; i < FIELDS; i++)
        values[i] = (struct trackway_value){{.data = words}, length};
    measure(name, record);
}

static void all(void)
{
    measure("small_event", small_event);
    measure("small_event", small_event);
    measure("large_event", large_event);
    measure("wide_event", wide_event);
    measure("describe", describe);
    measure("describe_long", describe_long);
    measure("enabled", is_enabled);
    record_values("record", 10);
    record_values("record_long", sizeof(words));
    measure("snapshot", snapshot);
}

int main(void)
{
    memset(words, 'x', sizeof(words));
    for (int i = 0; i < FIELDS; i++) {
        snprintf(names[i], sizeof(names[i]), "f%d", i);
        texts[i] = (struct trackway_abi_field){names[i], NULL, 0, TRACKWAY_ABI_TEXT, 0, 0};
    }
    for (int i = 0; i < LABELS; i++) {
        snprintf(label_names[i], sizeof(label_names[i]), "label%d", i);
        labels[i] = (struct trackway_abi_label){i, i, label_names[i]};
    }
    states[0] = (struct trackway_abi_field){"state", labels, TRACKWAY_ABI_U16,
                                            TRACKWAY_ABI_ENUMERATION, LABELS, 0};
    all();
    const pid_t child = fork();
    if (child == 0) {
        all();
        _exit(failures != 0);
    }
    int status = 1;
    waitpid(child, &status, 0);
    failures += status != 0;
    if (getuid() == 0)
        measure("setuid", become_nobody);
    return failures != 0;
}
