/*
 * K42's scheme as Desnoyers and Dagenais (2012) describe it in section 2, and its flaw. Space is
 * reserved atomically; `buffersProduced` is counted up by the reservation that crosses a boundary;
 * a buffer's `bufferCount` counts what was committed, modulo the size of the buffer. A buffer is
 * read when it was produced and its count is a multiple of the size: which it also is when nothing
 * of it has been committed.
 *
 * With FIXED the two halves of what LTTng does instead: counts run free, and a buffer is full when
 * its count is one buffer ahead of what was read of it (equations 1 and 2; lockless.pml has all).
 *
 * Sizes are in units; a record has one or two. Counters wrap at WORD.
 */

#ifndef WRITERS
#define WRITERS 2
#endif
#ifndef EVENTS
#define EVENTS 2                /* of each writer */
#endif

#define SIZE 2                  /* of a K42 buffer */
#define BUFFERS 2
#define RING (SIZE * BUFFERS)
#define WORD 16
#define W(x) ((x) & (WORD - 1))
#define BUFFER(p) (((p) / SIZE) % BUFFERS)
#define TAG(p) (W(p) / RING)

byte index;                     /* where the next reservation begins */
byte buffers_produced, buffers_consumed;
byte buffer_count[BUFFERS];
byte cell[RING];
byte writing = WRITERS, lost;

#ifdef FIXED
#ifdef MUTATION_PRODUCED_ONLY   /* equation 2 left out */
#define COMPLETE (buffers_produced != buffers_consumed)
#else
#ifdef MUTATION_MODULO_COUNT    /* free running, but looked at modulo the size */
#define COMPLETE (buffers_produced != buffers_consumed && \
	buffer_count[buffers_consumed % BUFFERS] % SIZE == 0)
#else
/* As many units as the buffer has had, this time included. */
#define COMPLETE (buffer_count[buffers_consumed % BUFFERS] == \
	W((buffers_consumed / BUFFERS + 1) * SIZE) && buffers_produced != buffers_consumed)
#endif
#endif
#define COUNT(c, n) W((c) + (n))
#else
#define COMPLETE (buffers_produced != buffers_consumed && \
	buffer_count[buffers_consumed % BUFFERS] == 0)
#define COUNT(c, n) (((c) + (n)) % SIZE)
#endif

inline commit(at, n)
{
#ifdef MUTATION_TORN_COUNT
	count = buffer_count[BUFFER(at)];
	buffer_count[BUFFER(at)] = COUNT(count, n);
	count = 0
#else
	buffer_count[BUFFER(at)] = COUNT(buffer_count[BUFFER(at)], n)
#endif
}

inline fill(from, to)
{
	at = from;
	do
	:: d_step { at != to -> cell[at % RING] = TAG(at); at = W(at + 1) }
	:: else -> break
	od;
	at = 0
}

proctype writer()
{
	byte events = EVENTS, size, old, begin, end, at, count;

	do
	:: atomic { events > 0 -> events--;
		if
		:: size = 1
		:: size = 2
		fi }
again:		atomic {
			old = index;
			begin = old;
			if
			:: old % SIZE + size > SIZE -> begin = W(old + SIZE - old % SIZE)
			:: else
			fi;
			end = W(begin + size) }
#ifndef MUTATION_NEVER_FULL
		if                                      /* the ring is full: discard */
		:: atomic { begin % SIZE == 0 &&
			W(begin - buffers_consumed * SIZE) >= RING -> lost++; goto next }
		:: else
		fi;
#endif
		if
		:: d_step { index == old -> index = end;
			/* Upon reservation of what crosses a boundary, whatever was committed. */
			buffers_produced = begin / SIZE }
		:: else -> goto again
		fi;
		if
		:: old != begin -> fill(old, begin); commit(old, W(begin - old))
		:: else
		fi;
#ifdef MUTATION_COMMIT_FIRST
		commit(begin, size);
		fill(begin, end);
#else
		fill(begin, end);
		commit(begin, size);
#endif
next:		atomic { size = 0; old = 0; begin = 0; end = 0 }
	:: else -> break
	od;
	writing--
}

proctype reader()
{
	byte unit;

	do
	:: COMPLETE ->
		do
		:: d_step { unit < SIZE ->
			/* Every unit was written, this time round. */
			assert(cell[(buffers_consumed % BUFFERS) * SIZE + unit] ==
				TAG(buffers_consumed * SIZE));
			unit++ }
		:: else -> break
		od;
		atomic { unit = 0; buffers_consumed = (buffers_consumed + 1) % (WORD / SIZE) }
	:: writing == 0 && !COMPLETE -> break
	od;
	/* All that was produced was read. */
	assert(buffers_produced == buffers_consumed)
}

init
{
	byte i;

	atomic {
		/* The time before: no unit is of the first time round. */
		for (i : 0 .. RING - 1) { cell[i] = 99 }
		for (i : 1 .. WRITERS) { run writer() }
		run reader()
	}
}
