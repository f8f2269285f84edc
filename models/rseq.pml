/*
 * A region and its writers by restartable sequence: crates/ring/src/{writer,rseq,reader}.rs, with
 * the recorder that drains it, gives its memory, ends the session and begins the next one in the
 * same control lines: crates/recorder/src/{recording,window}, crates/session (backing.rs).
 * docs/models.md says what is covered and what is not.
 *
 * One region, that of CPU 0, and a second CPU to which threads may have been migrated. Sizes are in
 * units: a sub-buffer has SUB, of which the first is its header; a record has one or two; one unit
 * of tailroom always stays. Positions count up from zero and never wrap: they have 63 bits.
 *
 * Every access to shared memory is a step of its own. Threads are preempted, migrated, hit by
 * signals and killed between any two steps. What a handler records is what another writer records:
 * it enters the same CPU.
 */

#ifndef WRITERS
#define WRITERS 2
#endif
#ifndef EVENTS
#define EVENTS 1                /* of each writer, and */
#endif
#ifndef MORE
#define MORE 1                  /* of the first one, besides */
#endif
#ifndef SIZES
#define SIZES 2                 /* records of one unit and of two; 1: of two only */
#endif
#ifndef LOOKS
#define LOOKS 1                 /* of the recorder, before it ends the session */
#endif
#ifndef SESSIONS
#define SESSIONS 2
#endif
#ifndef INTERRUPTS
#define INTERRUPTS 1            /* restarts that no other sequence is the cause of; 9: any number */
#endif
#ifndef KILLS
#define KILLS 1
#endif
#ifndef TRIES
#define TRIES 0                 /* RESTARTS_MAX; 0: whoever failed may give up, or go on */
#endif

#define SUB 4
#ifdef OVERWRITE
#define NSB 2
#else
#define NSB 4
#endif
#define PAGES 2
#define POSITIONS 25            /* of at most five records in a session */
#define UNLIMITED 32
#define NOBODY 255
#define FREE 255

#define INDEX(p)  ((p) / SUB)
#define WITHIN(p) ((p) % SUB)
#define TABLE(i)  table[(i) % NSB]
#define MAX(a, b) ((a) > (b) -> (a) : (b))

/* The control lines. `head` and `parity` are the commit word: read and stored in one step. */
byte head, parity, limit;
byte slot_ts[2], slot_events[2];
byte table[4];                  /* page + 1; 0 is nowhere */
/* The session, in the window. */
byte generation = 1;
bool is_active, over;
/* Memory: of each page, the header and the other units. */
byte h_index[PAGES], h_begin[PAGES], h_content[PAGES], h_end[PAGES], h_events[PAGES];
byte cell[8];

byte running[2] = NOBODY;       /* who is in a sequence on this CPU */
byte interrupts = INTERRUPTS, kills = KILLS;

/* What is true, for the assertions: of which sub-buffer a page is, what was committed where, and
 * time and count that belong to a position. */
byte page_of[PAGES] = FREE;
byte truth[POSITIONS], at_ts[POSITIONS], at_events[POSITIONS];
/* Of which generation commits may still come; 0: of none. */
byte open_for;
/* The reader looked while the next sub-buffer's header was written and not committed: the state in
 * which K42's reader goes wrong. */
bool k42;
hidden byte unit;

/* One instruction of a sequence: done if nobody else has run on this CPU since the sequence began
 * there, and no signal came. Else the kernel goes on at the abort handler. */
#ifdef MUTATION_NO_ABORT
#define UNDISTURBED true
#else
#define UNDISTURBED (running[here] == me)
#endif
#define STEP(instruction) \
	if \
	:: atomic { UNDISTURBED -> instruction } \
	:: !UNDISTURBED -> goto failed \
	:: d_step { UNDISTURBED && interrupts > 0 -> interrupts = interrupts - (INTERRUPTS < 9) } \
		goto failed \
	:: d_step { UNDISTURBED && kills > 0 -> kills-- } goto dead \
	fi

#define NOW (me == 0 -> 2 : 1)
/* What a record's units hold. */
#define RECORD (1 + me * 2 + (left & 1))

/* A store beyond `head`: the page must belong to the sub-buffer that the plan was made for. */
#ifdef OVERWRITE
#define OURS assert(page_of[base] == index % NSB)
#else
#define OURS assert(page_of[base] == index)
#endif

/* The one committing store, and what must be true at that moment. */
inline store_commit()
{
	d_step {
		assert(head == expected && parity == expected_parity);
		assert(open_for != 0 && mine + 1 >= open_for);
		assert(next <= limit);
		assert(ts >= at_ts[expected]);
		assert(events == at_events[expected] + (opening -> 0 : 1));
		at_ts[next] = ts;
		at_events[next] = events;
		if
		:: !opening ->
			truth[expected] = RECORD;
			truth[next - 1] = RECORD;
		:: else
		fi;
		head = next;
		parity = 1 - expected_parity
	}
}

/* Region::plan_record, Region::plan_switch, rseq::commit, Record::by_sequence. */
proctype writer(byte me; byte left)
{
	byte mine, expected, expected_parity, size, ts, events, last;
	byte base, index, next, tries, here;
	bool opening;

	do
	:: atomic { left > 0 -> left--;
		if
		:: size = 2
		:: SIZES == 2 -> size = 1
		fi }
		/* Process::decide: this process takes part in the session of this generation. */
decide:		if
		:: atomic { is_active -> mine = generation }
		:: atomic { over -> goto next_event }
		fi;
		/* Move 1; the clock is read after it. That of writer 0 is ahead. */
plan:		atomic {
			expected = head; expected_parity = parity;
			opening = (WITHIN(expected) == 0 || WITHIN(expected) + size + 1 > SUB);
			if
			:: opening && expected == 0 -> index = 0
			:: opening && expected != 0 -> index = INDEX(expected) + 1
			:: !opening -> index = INDEX(expected)
			fi }
		/* Move 2. */
#ifdef MUTATION_HEAD_LIMIT      /* compares what was, not what will be */
		if
		:: atomic { expected > limit -> goto no_room }
#else
		if
		:: atomic { opening && (index + 1) * SUB > limit -> goto no_room }
		:: atomic { !opening && expected + size + 1 > limit -> goto no_room }
#endif
		:: else
		fi;
		atomic {
			last = slot_ts[expected_parity];
			events = slot_events[expected_parity];
			base = TABLE(index);
			if
			:: base == 0 ->
				/* Below the limit there is memory, unless the session is over. */
				assert(generation != mine);
				goto no_room
			:: else -> base--
			fi;
#ifdef MUTATION_NO_CLAMP
			ts = NOW;
#else
			ts = MAX(NOW, last);
#endif
			if
			:: opening -> next = index * SUB + 1
			:: else -> next = expected + size; events++
			fi }
		/* Move 3: a thread enters the sequence where it happens to be. Who was in one there was
		 * switched away from. */
#ifdef MUTATION_NO_CPU_CHECK
		if
		:: atomic { here = 0; running[0] = me }
		:: atomic { here = 1; running[1] = me }
		fi;
#else
		if
		:: running[0] = me
		:: atomic { running[1] = NOBODY; goto failed }
		fi;
#endif
#ifndef MUTATION_NO_GENERATION
		STEP( if :: generation != mine -> goto failed :: else fi );
#endif
#ifndef MUTATION_NO_COMMIT_CHECK
		STEP( if :: head != expected || parity != expected_parity -> goto failed :: else fi );
#endif
#ifdef MUTATION_COMMIT_FIRST
		STEP( store_commit() );
#endif
		if
		:: opening ->
			STEP( OURS; h_index[base] = index; h_begin[base] = ts );
			STEP( OURS; h_content[base] = expected; h_end[base] = last; h_events[base] = events )
		:: else ->
			STEP( OURS; cell[base * SUB + WITHIN(expected)] = RECORD );
			/* The last word, and what lies in it behind the record. */
			STEP( OURS; cell[base * SUB + WITHIN(next)] = 99;
				cell[base * SUB + WITHIN(next) - 1] = RECORD )
		fi;
#ifdef MUTATION_SAME_SLOT
		STEP( slot_ts[expected_parity] = ts );
		STEP( slot_events[expected_parity] = events );
#else
		STEP( slot_ts[1 - expected_parity] = ts );
		STEP( slot_events[1 - expected_parity] = events );
#endif
#ifdef MUTATION_COMMIT_FIRST
		STEP( running[here] = NOBODY );
#else
		STEP( store_commit(); running[here] = NOBODY );
#endif
		if
		:: opening -> goto again
		:: else -> goto next_event
		fi;

failed:		atomic {
			running[here] = (running[here] == me -> NOBODY : running[here]);
			if
			:: generation != mine -> goto decide    /* Outcome::Stale */
			:: generation == mine && TRIES == 0 -> goto next_event
			:: generation == mine -> skip
			fi }
again:		atomic {
#ifndef MUTATION_RETRY_FOREVER
			tries = tries + (TRIES > 0);
#endif
			if
			:: TRIES == 0 || tries < TRIES -> goto plan
			:: else                                 /* by claim: claim.pml */
			fi }
no_room:	skip;                                           /* counted as discarded */
next_event:	atomic {
			mine = 0; expected = 0; expected_parity = 0; size = 0; ts = 0; events = 0;
			last = 0; base = 0; index = 0; next = 0; tries = 0; here = 0; opening = false }
	:: else -> break
	od;
	goto ended;
dead:	running[here] = (running[here] == me -> NOBODY : running[here]);
ended:	atomic {
		mine = 0; expected = 0; expected_parity = 0; size = 0; ts = 0; events = 0;
		last = 0; base = 0; index = 0; next = 0; tries = 0; here = 0; opening = false; left = 0;
		skip }
}

/* Region::snapshot. */
inline look()
{
	tries = 0;
	do
	:: atomic { tries < 2 -> snap = head; snap_parity = parity;
#ifdef WITNESS_K42
		k42 = k42 || (running[0] != NOBODY && head != 0 && INDEX(head) == 0 && h_index[1] == 1)
#endif
		}
		atomic { snap_ts = slot_ts[snap_parity]; snap_events = slot_events[snap_parity] }
#ifdef MUTATION_UNCHECKED_SNAPSHOT
		known = true;
		break
#else
		if
		:: atomic { head == snap && parity == snap_parity -> known = true } break
		:: else -> tries++
		fi
#endif
	:: else -> atomic { snap = head; known = false } break
	od;
	assert(!known || (snap_ts == at_ts[snap] && snap_events == at_events[snap]));
	atomic { tries = 0; snap_parity = 0 }
}

/* Region::oldest_index. */
#ifdef MUTATION_TRUST_NEXT
#define OLDEST(h) (INDEX(h) + 1 >= NSB -> INDEX(h) + 1 - NSB : 0)
#else
#define OLDEST(h) (INDEX(h) + 2 >= NSB -> INDEX(h) + 2 - NSB : 0)
#endif

/* What is drained is not looked at again: fewer states. */
inline forget()
{
	d_step {
#ifndef OVERWRITE
		for (unit : 0 .. position - 1) { truth[unit] = 0 }
#endif
		unit = 0 }
}

/* RegionWork::drain: Region::piece, Region::copy, Region::still_valid. */
inline drain()
{
#ifdef OVERWRITE
	skip_to(snap);
#endif
	do
	:: position >= snap -> break
	:: position < snap && INDEX(position) == INDEX(snap) && !(partial && known) -> break
	:: else ->
		atomic {
			index = INDEX(position);
			page = TABLE(index) - 1 }
		atomic {
			bad = (h_index[page] != index);
			start = position;
			if
			:: WITHIN(position) == 0 -> start++; begin_ts = h_begin[page]
			:: else -> begin_ts = last_ts
			fi }
		if
		:: index == INDEX(snap) -> atomic { end = snap; end_ts = snap_ts; events = snap_events }
		:: else ->
			following = TABLE(index + 1) - 1;
			atomic {
				bad = bad || (h_index[following] != index + 1);
				end = h_content[following]; end_ts = h_end[following];
				events = h_events[following];
				following = 0 }
		fi;
		atomic {
			bad = bad || start > end || INDEX(end) != index || begin_ts > end_ts;
			bad = bad || end_ts != at_ts[end] || events != at_events[end] }
		at = start;
		do
		:: d_step { !bad && at < end ->
			bad = (cell[page * SUB + WITHIN(at)] != truth[at]);
			at++ }
		:: else -> break
		od;
		at = 0;
#if defined(OVERWRITE) && !defined(MUTATION_NO_STILL_VALID)
		now_head = head;
		if
		:: index < OLDEST(now_head) -> skip_to(now_head)
		:: else ->
#else
		if
		:: true ->
#endif
			/* Whole, of this place, in order, and nothing of it twice. */
			assert(!bad);
			atomic {
#ifdef OVERWRITE
				assert(events >= taken);
#endif
				taken = events; last_ts = end_ts;
				position = (index == INDEX(snap) -> snap : (index + 1) * SUB);
				forget() }
		fi;
		atomic { index = 0; page = 0; start = 0; end = 0; events = 0; begin_ts = 0; end_ts = 0;
			now_head = 0; bad = false }
	od
}

/* RegionWork::skip_overwritten. What was skipped is counted by the next packet; here, at once. */
inline skip_to(h)
{
	atomic {
		if
		:: OLDEST(h) * SUB > position -> position = OLDEST(h) * SUB
		:: else
		fi }
}

/* A page that moves, or that is another's, holds nothing: what is not written again is seen. */
inline wipe()
{
	h_index[page] = FREE; h_begin[page] = 0; h_content[page] = 0; h_end[page] = 0;
	h_events[page] = 0;
	for (unit : 0 .. SUB - 1) { cell[page * SUB + unit] = 0 }
	unit = 0
}

/* Backing::recycle and Recording::back: memory of drained sub-buffers goes to the end of the run,
 * one page more is added if there is one, then the limit is raised. */
inline grow()
{
#ifdef MUTATION_LIMIT_FIRST
	limit = (backed + first) * SUB + SUB;
#endif
#ifndef OVERWRITE
	do
#ifdef MUTATION_RECYCLE_EARLY
	:: first < INDEX(head) ->
#else
	:: first < INDEX(position) ->
#endif
		d_step { page = TABLE(first) - 1; page_of[page] = first + backed; wipe() }
		TABLE(first + backed) = page + 1;
		first++
	:: else -> break
	od;
#endif
	if
	:: backed < PAGES ->
		d_step { page = backed; page_of[page] = first + backed }
		TABLE(first + backed) = page + 1;
		backed++
	:: else
	fi;
	page = 0;
#ifdef OVERWRITE
	limit = (backed == NSB -> UNLIMITED : (first + backed) * SUB)
#else
	limit = (first + backed) * SUB
#endif
}

/* cpus::visit_all: the recorder runs on each CPU, so that nobody is in a sequence there. */
inline visit_all()
{
#ifndef MUTATION_NO_VISIT
	running[0] = NOBODY;
	running[1] = NOBODY
#else
	skip
#endif
}

/* Recording: build, activate, tick, finish; Slot::deactivate and free; SessionLayout::reset. */
proctype recorder()
{
	byte session, looks, tries, snap, snap_parity, snap_ts, snap_events;
	byte position, taken, last_ts, first, backed;
	byte index, page, following, start, end, at, begin_ts, end_ts, events, now_head;
	bool known, bad, partial;

	do
	:: session < SESSIONS ->
		session++;
		/* Slot::build and SessionLayout::reset. */
		if
		:: session > 1 -> visit_all(); limit = 0
		:: else
		fi;
		d_step { head = 0; parity = 0;
			for (unit : 0 .. POSITIONS - 1) {
				truth[unit] = 0; at_ts[unit] = 0; at_events[unit] = 0
			}
			unit = 0;
			slot_ts[0] = 0; slot_events[0] = 0; slot_ts[1] = 0; slot_events[1] = 0;
			table[0] = 0; table[1] = 0; table[2] = 0; table[3] = 0 }
		atomic { position = 0; taken = 0; last_ts = 0; first = 0; backed = 0;
			looks = 0 }
		grow();
#ifdef OVERWRITE
		grow();
#endif
		/* Slot::activate. */
		d_step { is_active = true; open_for = generation + 1 }
		generation++;
		do
		:: looks < LOOKS -> looks++;
			look();
			if
			:: partial = true
			:: partial = false
			fi;
			drain();
			grow()
		:: looks < LOOKS -> looks++
		:: else -> break
		od;
		/* Slot::deactivate. */
#ifdef MUTATION_VISIT_FIRST
		visit_all();
#endif
		is_active = false;
		generation++;
#ifndef MUTATION_VISIT_FIRST
		visit_all();
#endif
		/* Nobody commits any more: what is there is taken, once. */
		open_for = 0;
		look();
		assert(known);
		partial = true;
		drain();
		assert(position == head);
		assert(taken == at_events[head]);
		/* Slot::free: the memory is another's from here on. */
		d_step { page_of[0] = FREE; page_of[1] = FREE;
			page = 1; wipe(); page = 0; wipe() }
	:: else -> break
	od;
	over = true
#ifdef WITNESS_K42
	assert(!k42)
#endif
}

init
{
	byte i;

	atomic {
		for (i : 1 .. WRITERS - 1) { run writer(i, EVENTS) }
		run writer(0, EVENTS + MORE);
		run recorder()
	}
}
