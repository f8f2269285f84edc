/* The code of the events in lttng_events.h; in a file of its own, or it would define those of
 * tracef(), too. */
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "lttng_events.h"
