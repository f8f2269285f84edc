/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The same events as payload.c's, as LTTng-UST 2.13 declares them. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER lab

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "payload-lttng.h"

#if !defined(LAB_PAYLOAD_LTTNG_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define LAB_PAYLOAD_LTTNG_H

#include <lttng/tracepoint.h>
#include <stddef.h>
#include <stdint.h>

LTTNG_UST_TRACEPOINT_EVENT(lab, bytes,
    LTTNG_UST_TP_ARGS(const unsigned char *, data, size_t, length, uint32_t, index),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_sequence(uint8_t, data, data, uint32_t, length)
        lttng_ust_field_integer(uint32_t, index, index)))

LTTNG_UST_TRACEPOINT_EVENT(lab, string,
    LTTNG_UST_TP_ARGS(const char *, text, uint32_t, index),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_string(text, text)
        lttng_ust_field_integer(uint32_t, index, index)))

LTTNG_UST_TRACEPOINT_EVENT(lab, number,
    LTTNG_UST_TP_ARGS(uint32_t, index),
    LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(uint32_t, index, index)))

LTTNG_UST_TRACEPOINT_EVENT(lab, wide,
    LTTNG_UST_TP_ARGS(uint64_t, index),
    LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(uint64_t, index, index)))

LTTNG_UST_TRACEPOINT_EVENT(lab, real,
    LTTNG_UST_TP_ARGS(double, value, uint32_t, index),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_float(double, value, value)
        lttng_ust_field_integer(uint32_t, index, index)))

LTTNG_UST_TRACEPOINT_EVENT(lab, array,
    LTTNG_UST_TP_ARGS(const uint32_t *, values, uint32_t, index),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_array(uint32_t, values, values, 4)
        lttng_ust_field_integer(uint32_t, index, index)))

LTTNG_UST_TRACEPOINT_EVENT(lab, sequence,
    LTTNG_UST_TP_ARGS(const uint32_t *, values, size_t, length, uint32_t, index),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_sequence(uint32_t, values, values, uint32_t, length)
        lttng_ust_field_integer(uint32_t, index, index)))

#endif

#include <lttng/tracepoint-event.h>
