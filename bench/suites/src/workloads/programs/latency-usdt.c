/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The loop with a probe of <sys/sdt.h>. */
#include <stdint.h>
#include <sys/sdt.h>

#define LAB_EVENT(number_) DTRACE_PROBE1(lab, number, (uint32_t)(number_))

#include "latency.h"
