/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* LTTng-UST's events of the suite `payload`. */
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "payload-lttng.h"

#define EMIT_bytes lttng_ust_tracepoint(lab, bytes, bytes, length, (uint32_t)i)
#define EMIT_string lttng_ust_tracepoint(lab, string, (const char *)bytes, (uint32_t)i)
#define EMIT_number lttng_ust_tracepoint(lab, number, (uint32_t)i)
#define EMIT_wide lttng_ust_tracepoint(lab, wide, i)
#define EMIT_real lttng_ust_tracepoint(lab, real, (double)i, (uint32_t)i)
#define EMIT_array lttng_ust_tracepoint(lab, array, elements, (uint32_t)i)
#define EMIT_sequence lttng_ust_tracepoint(lab, sequence, elements, number, (uint32_t)i)

#include "payload.h"
