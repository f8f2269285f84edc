/*
 * The algorithm of Desnoyers and Dagenais, "Lockless multi-core high-throughput buffering scheme
 * for kernel tracing" (2012): reserve by compare-and-swap, commit out of order. Numbers of
 * algorithms and equations are the paper's. docs/models.md says what is covered and what is not.
 *
 * One buffer. Sizes are in units: a record has one or two, a sub-buffer SBUF. Counters are words of
 * WBITS bits, so few that all of them overflow. Writers interleave freely: interrupts that nest are
 * one way of doing so, threads on several CPUs (the paper's footnote 2) the other.
 *
 * Every access to shared memory is a step of its own.
 */

#ifndef SBFBITS
#define SBFBITS 1               /* |sbuf| = 2 */
#endif
#ifndef NSBBITS
#define NSBBITS 1               /* two sub-buffers */
#endif
#ifndef WBITS
#define WBITS 4                 /* words modulo 16: four times round the buffer */
#endif
#ifndef WRITERS
#define WRITERS 2
#endif
#ifndef EVENTS
#define EVENTS 1                /* of each writer, and */
#endif
#ifndef MORE
#define MORE 2                  /* of the last one, besides */
#endif
#ifndef FLUSHES
#define FLUSHES 1               /* forced switches while writers are at work */
#endif

#define SBUF   (1 << SBFBITS)
#define NSB    (1 << NSBBITS)
#define BFBITS (SBFBITS + NSBBITS)
#define BUF    (1 << BFBITS)
#define WORD   (1 << WBITS)
/* Arrays want plain numbers: sub-buffers, with the reader's own (section 4.3.2), and units. */
#if NSBBITS == 1
#define NSBS 2
#else
#define NSBS 4
#endif
#if SBFBITS == 1 && NSBBITS == 1
#define CELLS 6
#else
#define CELLS 20
#endif

/* The operator M of section 4.2, and what is made of it. All arithmetic is modulo the word. */
#define W(x)         ((x) & (WORD - 1))
#define OFFSET(p)    ((p) & (SBUF - 1))
#define SB(p)        (((p) >> SBFBITS) & (NSB - 1))
#define SB_TRUNC(p)  ((p) - OFFSET(p))
#define SB_ALIGN(p)  W((p) + SBUF - OFFSET(p))
#define BUF_TRUNC(p) ((p) - ((p) & (BUF - 1)))
#define LAP(p)       (BUF_TRUNC(p) >> NSBBITS)
#define COMMIT(c)    ((c) & ((WORD >> NSBBITS) - 1))

/* Equation 1, buffer full. Equation 2, sub-buffer ready. Equation 3, fully committed. Equation 4,
 * sub-buffer written. The division by the number of sub-buffers is the prose's. */
#define EQ1(wcnt, rcnt)    (W(SB_TRUNC(wcnt) - SB_TRUNC(rcnt)) >= BUF)
#ifdef MUTATION_MODULO          /* K42: commit counts modulo the sub-buffer size */
#define EQ2(rcnt, commit)  (OFFSET(commit) == 0)
#else
#define EQ2(rcnt, commit)  (LAP(rcnt) == COMMIT(W((commit) - SBUF)))
#endif
#define EQ3(wcnt, commit)  (LAP(wcnt) == COMMIT(commit))
#define EQ4(wcnt, rcnt)    (SB_TRUNC(wcnt) == SB_TRUNC(rcnt))

/* "<" of Algorithm 3, line 5. */
#ifdef MUTATION_PLAIN_LESS      /* as if counters did not overflow */
#define BEHIND(a, b) ((a) < (b))
#else
#define BEHIND(a, b) (W((b) - (a)) != 0 && W((b) - (a)) < WORD / 2)
#endif

/* What stands in a unit: which time round the buffer its position is, so that what was not written
 * yet, and what was written over, are told from what should be there. */
#define TAG(p) ((p) >> BFBITS)

byte write_count, read_count;
byte commit_count[NSBS], commit_seq[NSBS];
byte cell[CELLS];
/* The sub-buffer table (flight recorder): which sub-buffer is whose; the writers' reference flag,
 * here the other way round, and the tag that counts sub-buffers. Three parts of one word. */
byte table[NSBS], own = NSB;
bool unreferenced[NSBS];
byte produced[NSBS];

byte writing = WRITERS;         /* writers at work */
byte recorded, lost;
hidden byte other;
bool finished;                  /* nothing comes any more */
bool stale[WRITERS];            /* somebody reserved since this writer read the clock */
byte kills;
bool hole;                      /* a writer died between reserve and commit */
byte hole_at;
bool k42;                       /* the state in which K42's reader goes wrong was there */

#ifdef OVERWRITE
#define FULL(w, r) false
#else
#ifdef MUTATION_NO_EQ1
#define FULL(w, r) false
#else
#define FULL(w, r) EQ1(w, r)
#endif
#endif

#ifdef MUTATION_NO_EQ3
#define OVERFLOWS(w, c) false
#else
#define OVERFLOWS(w, c) (!EQ3(w, c))
#endif

inline reserved_since_clocks()
{
	for (other : 0 .. WRITERS - 1) { stale[other] = true }
	other = 0
}

/* PUSHREADER. `at` is the last unit that was reserved. It pushes until the buffer is not full any
 * more: PUSH_ONCE stops after one sub-buffer, though it may have pushed for somebody else. */
inline push_reader(at)
{
#ifdef OVERWRITE
	do
	:: d_step { reading = read_count; swapped = EQ1(at, reading) };
	   if
	   :: d_step { swapped && read_count == reading ->
		read_count = W(SB_TRUNC(reading) + SBUF) }
#ifdef PUSH_ONCE
		break
#endif
	   :: d_step { swapped && read_count != reading -> skip }
	   :: !swapped -> break
	   fi
	od;
	atomic { reading = 0; swapped = false }
#else
	skip
#endif
}

/* Algorithm 2, line 8: the writer uses this sub-buffer. One compare-and-swap of its word. */
inline reference(at)
{
#ifdef OVERWRITE
	unreferenced[SB(at)] = false
#else
	skip
#endif
}

/* Writes the units from `at` up to `end`. */
inline fill(at, end)
{
	do
	:: atomic { at != end ->
#ifdef OVERWRITE
		sub = table[SB(at)] }
#else
		sub = SB(at) }
#endif
		d_step { cell[sub * SBUF + OFFSET(at)] = TAG(at); at = W(at + 1); sub = 0 }
	:: else -> break
	od;
	at = 0
}

/* Algorithm 3, COMMIT_SLOT: `size` units that begin at `at`. */
inline commit(at, size)
{
#ifdef ADD_TELLS                /* as crates/ring: the addition says what it came to */
	d_step {
		commit_count[SB(at)] = W(commit_count[SB(at)] + size);
		count = commit_count[SB(at)];
		swapped = EQ2(at, count)
	}
#else
#ifdef MUTATION_TORN_ADD        /* line 2 as a load and a store */
	count = commit_count[SB(at)];
	commit_count[SB(at)] = W(count + size);
#else
	commit_count[SB(at)] = W(commit_count[SB(at)] + size);
#endif
	atomic { count = commit_count[SB(at)]; swapped = EQ2(at, count) }
#endif
	if
	:: swapped -> deliver(at)
	:: else
	fi;
	atomic { count = 0; old_seq = 0; swapped = false }
}

#if defined(OVERWRITE) && !defined(PAPER_DELIVERY)
/* Delivery in two steps: one writer wins, and until the sub-buffer's word is in order a
 * commit_seq that no full sub-buffer has keeps others out. PAPER_DELIVERY is Algorithm 3. */
inline deliver(at)
{
	d_step {
		swapped = (commit_seq[SB(at)] == W(count - SBUF));
		if
		:: swapped -> commit_seq[SB(at)] = W(count - SBUF + 1)
		:: else
		fi
	}
	if
	:: swapped -> release(at); commit_seq[SB(at)] = count
	:: else
	fi
}
#else
/* Algorithm 3, lines 3 to 8. */
inline deliver(at)
{
#if defined(OVERWRITE) && PAPER_DELIVERY == 1   /* the flag first */
	release(at);
#endif
	old_seq = commit_seq[SB(at)];
	do
	:: BEHIND(old_seq, count) ->
		d_step {
			swapped = (commit_seq[SB(at)] == old_seq);
			old_seq = commit_seq[SB(at)];
			if
			:: swapped -> commit_seq[SB(at)] = count; raised = true
			:: else
			fi
		}
	:: else -> break
	od;
#if defined(OVERWRITE) && PAPER_DELIVERY == 2   /* the flag last, by who raised commit_seq */
	if
	:: raised -> release(at)
	:: else
	fi;
#endif
	raised = false
}
#endif

/* No writer uses this sub-buffer any more. */
inline release(at)
{
	d_step { produced[SB(at)] = SB_TRUNC(at); unreferenced[SB(at)] = true }
}

/* A killed thread: it does no more. */
inline may_die(at)
{
#ifdef KILL
	if
	:: d_step { kills < KILL -> kills++; hole = true; hole_at = at } goto dead
	:: true
	fi
#else
	skip
#endif
}

proctype writer(byte me; byte events)
{
	byte size, old, begin, end, at, sub, count, old_seq, reading;
	bool swapped, new_sub, raised;

	do
	:: atomic { events > 0 -> events--;
		if
		:: size = 1
		:: size = 2
		fi }
		/* Algorithm 1, TRYRESERVE_SLOT. */
#ifdef MUTATION_CLOCK_FIRST
		stale[me] = false;
#endif
again:		atomic {
			old = write_count;                      /* line 1 */
#ifndef MUTATION_CLOCK_FIRST
			stale[me] = false;                      /* line 2: nobody reserved in between */
#endif
			begin = old;
			new_sub = (OFFSET(old) == 0);
			if
			:: OFFSET(old) + size > SBUF -> begin = SB_ALIGN(old); new_sub = true
			:: else
			fi;
			end = W(begin + size)
		}
checked:	if
		:: new_sub ->
			if                                      /* line 6: equation 3 */
			:: atomic { OVERFLOWS(begin, commit_seq[SB(begin)]) -> lost++; goto next }
			:: else
			fi;
			if                                      /* line 11: equation 1 */
			:: atomic { FULL(begin, read_count) -> lost++; goto next }
			:: else
			fi
		:: else
		fi;
		/* Algorithm 2, line 6: compare-and-swap of write_count. */
		if
		:: d_step { write_count == old ->
			write_count = end;
			/* Time stamps of consecutive slots are in order. */
			assert(!stale[me]);
			reserved_since_clocks();
#ifndef OVERWRITE
			/* What was not read is not reserved again. */
			assert(W(end - read_count) <= BUF);
#endif
			k42 = k42 || (W(end - read_count) > SBUF && commit_count[SB(read_count)] ==
				commit_seq[SB(read_count)] && EQ3(read_count, commit_seq[SB(read_count)])) }
#ifdef MUTATION_STALE_RETRY     /* write_count is not read again */
		:: else -> goto checked
#else
		:: else -> goto again
#endif
		fi;
		may_die(begin);
		push_reader(W(end - 1));                        /* Algorithm 2, line 7 */
		reference(W(end - 1));                          /* line 8 */
		/* Line 9, SWITCHOLDSUBBUF: padding up to the end of the old sub-buffer. */
		if
		:: old != begin ->
#ifndef PAPER_REFERENCE
			reference(old);
#endif
			at = old;
			fill(at, begin);
			commit(old, W(begin - old));
			may_die(begin)
		:: else
		fi;
#ifdef MUTATION_COMMIT_FIRST
		commit(begin, size);
		at = begin;
		fill(at, end);
#else
		at = begin;
		fill(at, end);
		may_die(begin);
		commit(begin, size);
#endif
		recorded++;
next:		atomic { size = 0; old = 0; begin = 0; end = 0; new_sub = false; stale[me] = false }
	:: else -> break
	od;
dead:	writing--
}

/* Algorithm 4, FORCE_SWITCH: closes a sub-buffer that has something in it. */
inline force_switch()
{
	do
	:: old = write_count;
	   if
	   :: OFFSET(old) == 0 -> break
	   :: else
	   fi;
	   if
	   :: d_step { write_count == old -> write_count = SB_ALIGN(old); reserved_since_clocks() }
		reference(old);
		at = old;
		fill(at, SB_ALIGN(old));
		commit(old, W(SB_ALIGN(old) - old));
		break
	   :: else
	   fi
	od;
	old = 0
}

proctype flusher()
{
	byte old, at, sub, count, old_seq, times = FLUSHES;
	bool swapped, raised;

	do
	:: times > 0 -> times--; force_switch()
	:: else -> break
	od;
	/* Once more when writers are through. */
	(writing == 0) -> force_switch();
	finished = true
}

/* What poll(2) waits for, Algorithms 5 and 8. */
#ifdef MUTATION_NO_EQ2
#define READY (!EQ4(write_count, read_count))
#else
#define READY (EQ2(read_count, commit_seq[SB(read_count)]) && !EQ4(write_count, read_count))
#endif

/* Whether the reader may exchange sub-buffer `i` for its own. */
#ifdef MUTATION_NO_REFERENCE
#define MINE(i, rcnt) (true)
#else
#ifdef MUTATION_NO_TAG
#define MINE(i, rcnt) (unreferenced[i])
#else
#define MINE(i, rcnt) (unreferenced[i] && produced[i] == rcnt)
#endif
#endif

/* Algorithms 6 and 7. */
proctype reader()
{
	byte reading, seq, sub, unit;

	do
	:: atomic { READY -> reading = read_count }             /* Algorithm 6, line 1 */
		seq = commit_seq[SB(reading)];                  /* line 2 */
		if                                              /* line 10 */
		:: EQ4(write_count, reading) -> goto again
		:: else
		fi;
#ifndef MUTATION_NO_EQ2
		if                                              /* line 7 */
		:: !EQ2(reading, seq) -> goto again
		:: else
		fi;
#endif
#ifdef OVERWRITE
		if                                              /* line 13 */
		:: d_step { MINE(SB(reading), reading) ->
			sub = table[SB(reading)];
			table[SB(reading)] = own;
			own = sub }
		:: else ->
progress_wait:		goto again                              /* EAGAIN: the writer is at it */
		fi;
#else
		sub = SB(reading);
#endif
		/* Every unit is there, and it is of this time round. */
		do
		:: d_step { unit < SBUF ->
			assert(cell[sub * SBUF + unit] == TAG(reading));
			unit++ }
		:: else -> break
		od;
		if                                              /* Algorithm 7 */
		:: d_step { read_count == reading -> read_count = W(reading + SBUF) }
		:: else
		fi;
again:		atomic { reading = 0; seq = 0; sub = 0; unit = 0 }
	:: finished && !READY -> break
	od;

	/* Nothing moves any more. Who died is in neither count. */
	assert(recorded + lost + kills == WRITERS * EVENTS + MORE || hole);
#ifdef EXPECT_ALL_READ
	assert(read_count == write_count)
#else
	if
	:: !hole -> assert(read_count == write_count)
	:: else ->
		/* The hole: its sub-buffer is never complete, the reader stays before it or was pushed
		 * past it, and a writer that comes round finds it (equation 3 is false for good). */
		seq = commit_seq[SB(hole_at)];
		assert(!EQ2(hole_at, seq));
		assert(!EQ3(W(SB_TRUNC(hole_at) + BUF), seq))
#ifndef OVERWRITE
		assert(W(read_count - SB_TRUNC(hole_at)) == 0 || W(SB_TRUNC(hole_at) - read_count) <= BUF)
#endif
	fi
#endif
#ifdef WITNESS_K42
	assert(!k42)
#endif
}

init
{
	byte p, i, o;

	atomic {
		/* Any time round, also just before counters overflow: P counts sub-buffers that were
		 * written and read before. */
#ifdef START
		p = START;
#else
		select(p : 0 .. (NSB * WORD / SBUF) - 1);
#endif
		write_count = W(p * SBUF);
		read_count = W(p * SBUF);
		for (i : 0 .. NSB - 1) {
			commit_count[i] = W(SBUF * ((p + NSB - 1 - i) / NSB));
			commit_seq[i] = commit_count[i];
			table[i] = i;
			unreferenced[i] = true;
			produced[i] = W((((p + NSB - 1 - i) / NSB + NSB * WORD - 1) * NSB + i) * SBUF);
			for (o : 0 .. SBUF - 1) {
				cell[i * SBUF + o] = TAG(produced[i])
			}
		}
		for (i : 1 .. WRITERS - 1) { run writer(i, EVENTS) }
		run writer(0, EVENTS + MORE);
		run flusher();
		run reader()
	}
}
