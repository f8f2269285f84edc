/*
 * Events of every kind of field that LTTng-UST has, for tests/print/lttng.rs. The many that
 * follow make ids that do not fit the compact event header.
 */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER all

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./lttng_events.h"

#if !defined(LTTNG_EVENTS_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define LTTNG_EVENTS_H

#include <lttng/tracepoint.h>
#include <stdint.h>

LTTNG_UST_TRACEPOINT_ENUM(all, colour, LTTNG_UST_TP_ENUM_VALUES(
	lttng_ust_field_enum_value("red", -1)
	lttng_ust_field_enum_range("some greens", 1, 5)
	lttng_ust_field_enum_range("greens too", 4, 9)
	lttng_ust_field_enum_value("bl\"ue", 10)
))

LTTNG_UST_TRACEPOINT_EVENT(all, integers,
	LTTNG_UST_TP_ARGS(int64_t, value),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_integer(int8_t, i8, value)
		lttng_ust_field_integer(uint8_t, u8, value)
		lttng_ust_field_integer(int16_t, i16, value)
		lttng_ust_field_integer(uint16_t, u16, value)
		lttng_ust_field_integer(int32_t, i32, value)
		lttng_ust_field_integer(uint32_t, u32, value)
		lttng_ust_field_integer(int64_t, i64, value)
		lttng_ust_field_integer(uint64_t, u64, value)
		lttng_ust_field_integer_hex(uint32_t, hex, value)
		lttng_ust_field_integer_network(uint16_t, network16, value)
		lttng_ust_field_integer_network_hex(uint64_t, network_hex, value)
		lttng_ust_field_integer_nowrite(int32_t, hidden, value)
		lttng_ust_field_enum(all, colour, int32_t, colour, value)
		lttng_ust_field_enum(all, colour, int8_t, small_colour, value)
	)
)
LTTNG_UST_TRACEPOINT_LOGLEVEL(all, integers, LTTNG_UST_TRACEPOINT_LOGLEVEL_WARNING)

LTTNG_UST_TRACEPOINT_EVENT(all, others,
	LTTNG_UST_TP_ARGS(const char *, text, double, real, const int32_t *, numbers, size_t, count),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_float(float, single, real)
		lttng_ust_field_float(double, real, real)
		lttng_ust_field_string(text, text)
		lttng_ust_field_array(int32_t, array, numbers, 3)
		lttng_ust_field_array_hex(int32_t, hex_array, numbers, 2)
		lttng_ust_field_array_network(int32_t, network_array, numbers, 2)
		lttng_ust_field_array_text(char, text_array, text, 4)
		lttng_ust_field_sequence(int32_t, sequence, numbers, size_t, count)
		lttng_ust_field_sequence_hex(uint8_t, hex_sequence, (const uint8_t *) numbers, uint8_t, count)
		lttng_ust_field_sequence_text(char, text_sequence, text, uint16_t, count + 1)
	)
)

LTTNG_UST_TRACEPOINT_EVENT(all, nothing, LTTNG_UST_TP_ARGS(void), LTTNG_UST_TP_FIELDS())

#define MANY(number) \
	LTTNG_UST_TRACEPOINT_EVENT(all, many##number, \
		LTTNG_UST_TP_ARGS(int, value), \
		LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(int, value##number, value)))
MANY(00) MANY(01) MANY(02) MANY(03) MANY(04) MANY(05) MANY(06) MANY(07) MANY(08) MANY(09)
MANY(10) MANY(11) MANY(12) MANY(13) MANY(14) MANY(15) MANY(16) MANY(17) MANY(18) MANY(19)
MANY(20) MANY(21) MANY(22) MANY(23) MANY(24) MANY(25) MANY(26) MANY(27) MANY(28) MANY(29)

#endif

#include <lttng/tracepoint-event.h>
