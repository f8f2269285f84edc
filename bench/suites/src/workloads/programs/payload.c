/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Trackway's events of the suite `payload`. */
#include <stdint.h>

#include <trackway/trackway.h>

TRACKWAY_EVENT(lab, bytes, TRACKWAY_INFO, (seq, data, u8), (u32, index));
TRACKWAY_EVENT(lab, string, TRACKWAY_INFO, (str, text), (u32, index));
TRACKWAY_EVENT(lab, number, TRACKWAY_INFO, (u32, index));
TRACKWAY_EVENT(lab, wide, TRACKWAY_INFO, (u64, index));
TRACKWAY_EVENT(lab, real, TRACKWAY_INFO, (f64, value), (u32, index));
TRACKWAY_EVENT(lab, array, TRACKWAY_INFO, (array, values, u32, 4), (u32, index));
TRACKWAY_EVENT(lab, sequence, TRACKWAY_INFO, (seq, values, u32), (u32, index));

#define EMIT_bytes trackway(lab, bytes, bytes, length, (uint32_t)i)
#define EMIT_string trackway(lab, string, (const char *)bytes, (uint32_t)i)
#define EMIT_number trackway(lab, number, (uint32_t)i)
#define EMIT_wide trackway(lab, wide, i)
#define EMIT_real trackway(lab, real, (double)i, (uint32_t)i)
#define EMIT_array trackway(lab, array, elements, (uint32_t)i)
#define EMIT_sequence trackway(lab, sequence, elements, number, (uint32_t)i)

#include "payload.h"
