/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Every form of the header, for every compiler and standard, as C and as C++. Run without a
 * library: nothing may happen, and no argument may be evaluated. */
#include <trackway/trackway.h>
#include <trackway/trackway.h> /* including it again is harmless */
#ifndef __cplusplus
#include <stdbool.h> /* makes `bool` a macro before C23 */
#endif

TRACKWAY_ENUM(forms, color, (red, 0), (green, 1, 5), (blue, -3));
TRACKWAY_EVENT(forms, none, TRACKWAY_EMERG);
TRACKWAY_EVENT(forms, unused, TRACKWAY_ALERT, (u8, new), (u8, class), (u8, int));
TRACKWAY_EVENT(forms, signed_integers, TRACKWAY_CRIT, (i8, a), (i16, b), (i32, c), (i64, d));
TRACKWAY_EVENT(forms, unsigned_integers, TRACKWAY_ERR, (u8, a), (u16, b), (u32, c), (u64, d));
TRACKWAY_EVENT(forms, hexadecimal, TRACKWAY_WARNING, (x8, a), (x16, b), (x32, c), (x64, d));
TRACKWAY_EVENT(forms, others, TRACKWAY_NOTICE, (f32, a), (f64, b), (bool, c), (ptr, d));
TRACKWAY_EVENT(forms, strings, TRACKWAY_INFO, (str, a), (text, b), (str, c));
TRACKWAY_EVENT(forms, many, TRACKWAY_DEBUG_SYSTEM, (array, a, i16, 3), (seq, b, x8),
    (array, c, bool, 2), (seq, d, f64));
TRACKWAY_EVENT(forms, labels, TRACKWAY_DEBUG_PROGRAM, (enum, a, forms, color, i32),
    (enum, b, forms, color, i8), (enum, c, forms, color, x64));
/* The same letters elsewhere are other events. */
TRACKWAY_EVENT(forms_a, b, TRACKWAY_DEBUG_LINE);
TRACKWAY_EVENT(forms, a_b, TRACKWAY_DEBUG_LINE);
TRACKWAY_EVENT(forms, thirty_two, TRACKWAY_DEBUG,
    (u8, f1), (u16, f2), (u32, f3), (u64, f4), (str, f5), (i8, f6), (i16, f7), (i32, f8),
    (u8, f9), (u16, f10), (u32, f11), (u64, f12), (str, f13), (i8, f14), (i16, f15), (i32, f16),
    (u8, f17), (u16, f18), (u32, f19), (u64, f20), (str, f21), (i8, f22), (i16, f23), (i32, f24),
    (u8, f25), (u16, f26), (u32, f27), (u64, f28), (str, f29), (i8, f30), (i16, f31), (i32, f32));

static int evaluated;

static int touch(void)
{
    return ++evaluated;
}

static int use_all(int argument)
{
    static const int16_t numbers[3] = {1, 2, 3};
    static const uint8_t bytes[2] = {0xab, 0xcd};
    static const bool truths[2] = {true, false};
    static const double reals[1] = {0.5};
    trackway(forms, none);
    trackway(forms, signed_integers, -1, -2, -3, argument);
    trackway(forms, unsigned_integers, 1, 2, 3, (touch(), 4u));
    trackway(forms, hexadecimal, 1, 2, 3, 4);
    trackway(forms, others, 1.5f, 2.5, argument == 1, &argument);
    trackway(forms, strings, "a", "bc", 2, NULL);
    trackway(forms, many, numbers, bytes, 2, truths, reals, 1);
    trackway(forms, labels, 0, 3, 5);
    trackway(forms_a, b);
    trackway(forms, a_b);
    trackway(forms, thirty_two, 1, 2, 3, 4, "5", 6, 7, 8, 9, 10, 11, 12, "13", 14, 15, 16, 17, 18,
             19, 20, "21", 22, 23, 24, 25, 26, 27, 28, "29", 30, 31, 32);
    if (argument)
        trackway(forms, none);
    else
        trackway(forms, a_b);
    argument ? trackway(forms, none) : trackway(forms, a_b);
    trackway_printf("no arguments");
    trackway_printf("%s is %d", "argument", touch());
    trackway_log(TRACKWAY_WARNING, "no arguments");
    trackway_log(TRACKWAY_DEBUG_SYSTEM, "%s is %d", "argument", touch());
    return trackway_enabled(forms, none);
}

int main(int argc, char **argv)
{
    (void)argv;
    return use_all(argc) + evaluated;
}
