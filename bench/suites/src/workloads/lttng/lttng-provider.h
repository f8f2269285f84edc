/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The same events as trackway.c's, as LTTng-UST 2.13 declares them. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER lab

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "lttng-provider.h"

#if !defined(LAB_LTTNG_PROVIDER_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define LAB_LTTNG_PROVIDER_H

#include <lttng/tracepoint.h>
#include <stdint.h>

LTTNG_UST_TRACEPOINT_EVENT(lab, number,
    LTTNG_UST_TP_ARGS(uint32_t, value),
    LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(uint32_t, value, value)))

LTTNG_UST_TRACEPOINT_EVENT(lab, record,
    LTTNG_UST_TP_ARGS(const char *, name, uint32_t, size, uint64_t, index),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_string(name, name)
        lttng_ust_field_integer(uint32_t, size, size)
        lttng_ust_field_integer(uint64_t, index, index)))

#endif

#include <lttng/tracepoint-event.h>
