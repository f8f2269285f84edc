/* Emits all events of lttng_events.h, and tracef() and tracelog(), N times (first argument). */
#include "lttng_events.h"

#include <lttng/tracef.h>
#include <lttng/tracelog.h>
#include <stdlib.h>

#define EMIT(number) lttng_ust_tracepoint(all, many##number, (int) i)

int main(int argc, char **argv)
{
	static const int64_t values[] = { 0, -1, 4, 10, 127, -128, 65535, INT64_MAX, INT64_MIN };
	static const char *const texts[] = { "plain", "quo\"te\\", "line\nfeed", "\xc3\xbc\x01" };
	static const double reals[] = { 0.0, -1.5, 1e300, 0.1, 1e-7 };
	const int32_t numbers[] = { 1, -2, INT32_MAX };
	long count = argc > 1 ? atol(argv[1]) : 1;

	for (long i = 0; i < count; i++) {
		lttng_ust_tracepoint(all, integers, values[i % 9]);
		lttng_ust_tracepoint(all, others, texts[i % 4], reals[i % 5], numbers, i % 4);
		lttng_ust_tracepoint(all, nothing);
		EMIT(00); EMIT(01); EMIT(02); EMIT(03); EMIT(04); EMIT(05); EMIT(06); EMIT(07);
		EMIT(08); EMIT(09); EMIT(10); EMIT(11); EMIT(12); EMIT(13); EMIT(14); EMIT(15);
		EMIT(16); EMIT(17); EMIT(18); EMIT(19); EMIT(20); EMIT(21); EMIT(22); EMIT(23);
		EMIT(24); EMIT(25); EMIT(26); EMIT(27); EMIT(28); EMIT(29);
		lttng_ust_tracef("the %d. of %ld", (int) i, count);
		lttng_ust_tracelog(LTTNG_UST_TRACEPOINT_LOGLEVEL_NOTICE, "noted %ld", i);
	}
	return 0;
}
