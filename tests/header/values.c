/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Records each type once; the test has the expected bytes. */
#include "fake_agent.h"
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trackway/trackway.h>

TRACKWAY_ENUM(values, color, (red, 0), (green, 1, 5));
TRACKWAY_EVENT(values, none, TRACKWAY_EMERG);
TRACKWAY_EVENT(values, integers, TRACKWAY_INFO, (i8, a), (i16, b), (i32, c), (i64, d), (u8, e),
    (u16, f), (u32, g), (u64, h));
TRACKWAY_EVENT(values, hexadecimal, TRACKWAY_INFO, (x8, a), (x16, b), (x32, c), (x64, d), (ptr, e));
TRACKWAY_EVENT(values, others, TRACKWAY_INFO, (f32, a), (f64, b), (bool, c), (bool, d));
TRACKWAY_EVENT(values, strings, TRACKWAY_INFO, (str, a), (u8, between), (text, b), (u8, last));
TRACKWAY_EVENT(values, many, TRACKWAY_INFO, (array, a, u16, 2), (seq, b, i32), (u8, last));
TRACKWAY_EVENT(values, label, TRACKWAY_INFO, (enum, a, values, color, i16));
TRACKWAY_EVENT(values, thirty_two, TRACKWAY_DEBUG,
    (u8, f1), (u8, f2), (u8, f3), (u8, f4), (str, f5), (u8, f6), (u8, f7), (u8, f8),
    (u8, f9), (u8, f10), (u8, f11), (u8, f12), (str, f13), (u8, f14), (u8, f15), (u8, f16),
    (u8, f17), (u8, f18), (u8, f19), (u8, f20), (str, f21), (u8, f22), (u8, f23), (u8, f24),
    (u8, f25), (u8, f26), (u8, f27), (u8, f28), (str, f29), (u8, f30), (u8, f31), (u8, f32));

static int evaluated;

static uint32_t touch(void)
{
    return (uint32_t)++evaluated;
}

static const char *touch_name(void)
{
    evaluated++;
    return "name";
}

static void describe(void)
{
    const struct trackway_abi_event *event = &trackway_event_values_DOT_label;
    int i;
    printf("levels %d %d, label has %d field: %s shape %d scalar %d", TRACKWAY_EMERG,
           TRACKWAY_DEBUG, event->field_count, event->fields[0].name, event->fields[0].shape,
           event->fields[0].scalar);
    for (i = 0; i < event->fields[0].length; i++)
        printf(" %s=%d..%d", event->fields[0].labels[i].name,
               (int)event->fields[0].labels[i].first, (int)event->fields[0].labels[i].last);
    event = &trackway_event_values_DOT_many;
    for (i = 0; i < event->field_count; i++)
        printf("; %s shape %d scalar %d length %d", event->fields[i].name, event->fields[i].shape,
               event->fields[i].scalar, event->fields[i].length);
    printf("\n");
}

int main(void)
{
    static const uint16_t pair[2] = {0x0102, 0x0304};
    static const int32_t numbers[2] = {-1, 5};
    void *address;
    uintptr_t number = 0x1122334455667788u;
    memcpy(&address, &number, sizeof(address));

    /* Off: nothing is evaluated. */
    trackway(values, strings, touch_name(), (uint8_t)touch(), "", touch(), 1);
    trackway_printf("%u", touch());
    trackway_log(TRACKWAY_ERR, "%u", touch());
    printf("registrations %d, enabled %d, evaluated %d\n", fake_agent_registrations,
           trackway_enabled(values, none), evaluated);

    fake_agent_enable(1);
    describe();
    trackway(values, none);
    trackway(values, integers, -1, -2, -3, -4, 0x12, 0x1234, 0x12345678, 0x123456789abcdef0u);
    trackway(values, hexadecimal, 0x12, 0x1234, 0x12345678, 0x123456789abcdef0u, address);
    trackway(values, others, 1.0f, -2.0, true, false);
    trackway(values, strings, "abc", 0xff, "defg", 2, 0xee);
    trackway(values, strings, "", 0xff, "", 0, 0xee);
    trackway(values, strings, NULL, 0xff, NULL, 9, 0xee);
    trackway(values, many, pair, numbers, 2, 0xee);
    trackway(values, many, NULL, NULL, 7, 0xee);
    trackway(values, label, 3);
    trackway(values, thirty_two, 1, 2, 3, 4, "5", 6, 7, 8, 9, 10, 11, 12, "13", 14, 15, 16, 17, 18,
             19, 20, "21", 22, 23, 24, 25, 26, 27, 28, "29", 30, 31, 32);
    trackway(values, strings, touch_name(), 7, "", 0, 1);
    printf("enabled %d, evaluated %d\n", trackway_enabled(values, none), evaluated);

    errno = 77;
    trackway_printf("%s %d", "msg", 5);
#line 1 "f.c"
    trackway_log(TRACKWAY_DEBUG_SYSTEM, "%d", 5);
    printf("errno %d\n", errno);

    fake_agent_enable(0);
    trackway(values, integers, touch(), 0, 0, 0, 0, 0, 0, 0);
    printf("enabled %d, evaluated %d\n", trackway_enabled(values, none), evaluated);
    return 0;
}
