/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The code behind LTTng-UST's events, in a file of its own: tracef.h must not see these macros. */
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "lttng-provider.h"
