/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The loop with LTTng-UST's event, in the program itself. */
#include "lttng-provider.h"

#define LAB_EVENT(number_) lttng_ust_tracepoint(lab, number, number_)

#include "latency.h"
