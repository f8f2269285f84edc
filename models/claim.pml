/*
 * A claim region: crates/ring/src/claim.rs, Record::by_claim in crates/agent/src/emit/attempt.rs, the table
 * of processes in crates/window/src/processes.rs, and the recorder that frees what the dead hold,
 * ends the session, gives its memory back and begins the next one in the same control lines
 * (crates/recorder/src/{recording,window}). docs/models.md says what is covered.
 *
 * Processes are born, enter the table, claim, record, let go and end, or die between any two steps;
 * a later process has the same id. A record has two units; the region is one sub-buffer (how one
 * is opened is in rseq.pml, by the same code).
 *
 * Every access to shared memory is a step of its own.
 */

#ifndef PROCESSES
#define PROCESSES 2             /* ids of processes that claim */
#endif
#ifndef LIVES
#define LIVES 2                 /* processes that have the first id, one after the other */
#endif
#ifndef PLACES
#define PLACES 1                /* of the table of processes */
#endif
#ifndef SESSIONS
#define SESSIONS 2
#endif
#ifndef LOOKS
#define LOOKS 2                 /* of the recorder at owners, in a session */
#endif
#ifndef KILLS
#define KILLS 1
#endif

#define UNITS 8
#define ENTERING 16             /* PROCESS_ENTERING */
#define NONE 64                 /* ProcessSlot::NONE: a claim in its name cannot be proved dead */
#define WORD(place, incarnation) (128 + (incarnation) * 4 + (place))
#define PLACE(word) ((word) & 3)
#define INCARNATION(word) (((word) & 127) >> 2)
#define RECORDER (NONE + 63)

/* The ids that processes know themselves by. In two namespaces of process ids that nobody can tell
 * apart, because /proc is not there, they may be the same; then /proc tells of nobody's death. */
#ifdef UNKNOWN_NAMESPACES
#define ID(who) 1
#define IS_DEAD(who, since) false
#else
#define ID(who) (who)
#define IS_DEAD(who, since) (!alive[who] || started[who] > (since))
#endif

/* The region's control lines, its memory, the session. */
byte head, parity, limit, owner;
byte slot_ts[2], slot_events[2];
byte cell[UNITS];
byte generation = 2;
bool is_active;
/* The table of processes. */
byte t_pid[2], t_incarnation[2], t_since[2];
/* The kernel's: who lives, and since which tick. */
bool alive[4];
byte started[4], tick;

byte kills = KILLS;
byte living;
bool over;

/* What is true: whose the memory is, whether the control lines are still that, who holds the claim
 * and lives, and what was committed. */
byte session, memory_of;
bool control_lines = true;
byte holders;
byte truth[UNITS], last_ts, last_events;
hidden byte unit;

/* One step of a process, or its death. */
#define STEP(instruction) \
	if \
	:: atomic { instruction } \
	:: atomic { kills > 0 -> kills--; goto dead } \
	fi

/* Window::enter_process, enter_where. */
inline enter()
{
	place = 0;
	do
	:: atomic { place == PLACES -> word = NONE + who } break
	:: place < PLACES ->
		before = t_incarnation[place];
		found = t_pid[place];
		if
		:: found & ENTERING -> goto another
		:: else
		fi;
		if
		:: found != 0 && found != ID(who) ->
			since = t_since[place];                 /* identity_at; then life_of */
			if
			:: atomic { !IS_DEAD(found, since) -> since = 0; goto another }
			:: else -> since = 0
			fi
		:: else
		fi;
		if
#ifdef WEAK_TAKE
		:: t_pid[place] == found
#else
#ifdef MUTATION_UNMARKED_ENTRY
		:: atomic { t_pid[place] == found -> t_pid[place] = ID(who) }
#else
		:: atomic { t_pid[place] == found -> t_pid[place] = ID(who) | ENTERING }
#endif
#endif
		:: atomic { else -> goto another }
		fi;
#ifndef ENTRY_BY_ID
		/* A process of the same id may have entered since we looked: who was dead was another. */
		if
		:: found != 0 && found != ID(who) && t_incarnation[place] != before ->
			atomic { t_pid[place] = found; goto another }
		:: else
		fi;
#endif
		/* A process that dies in here costs its place. */
#ifdef WEAK_TAKE
		word = WORD(place, t_incarnation[place] + 1);
		pending = true;
#else
		STEP( t_incarnation[place]++; word = WORD(place, t_incarnation[place]) );
		STEP( t_since[place] = started[who] );
		STEP( t_pid[place] = ID(who) );
#endif
		break;
another:	atomic { found = 0; before = 0; place++ }
	od;
	atomic { place = 0; found = 0; before = 0 }
}

/* A store to the region by who holds it. */
#define MINE assert(control_lines && owner == word)
#define OURS assert(memory_of == of_session)

/* With WEAK_TAKE: the entry into the table is seen by all from here on. */
inline settle()
{
	d_step {
		if
		:: pending ->
			t_incarnation[PLACE(word)] = INCARNATION(word);
			t_since[PLACE(word)] = started[who];
			t_pid[PLACE(word)] = who;
			pending = false
		:: else
		fi }
}

/* A process of this id, LIVES times. */
proctype process(byte who; byte lives)
{
	byte word, mine, of_session, place, found, before, since, expected, expected_parity, ts, events;
	bool holds, pending;

	do
	:: lives > 0 ->
		atomic {
			lives--;
			/* It starts in the tick of the one before, or later. */
			if
			:: tick++
			:: skip
			fi;
			alive[who] = true;
			started[who] = tick }
		enter();
decide:		if
		:: atomic { is_active -> mine = generation; of_session = session }
		:: over -> goto let_go
		fi;
		/* Claim::take. */
#ifdef WEAK_TAKE
		/* An exchange that is Acquire only: what was stored before may be seen after it. */
		if
		:: settle()
		:: skip
		fi;
#endif
		if
		:: atomic { owner == 0 -> owner = word; assert(control_lines); holds = true; holders++ }
		:: atomic { owner != 0 -> goto let_go }         /* counted as discarded */
		fi;
		/* Record::session_changed. */
#ifndef MUTATION_NO_RECHECK
		STEP( if
			:: generation != mine -> goto release
			:: else
			fi );
#endif
		STEP( expected = head; expected_parity = parity );
		STEP( if
			:: expected + 2 > limit -> goto release
			:: else
			fi );
		STEP( ts = slot_ts[expected_parity] + 1; events = slot_events[expected_parity] + 1 );
#ifdef MUTATION_RELEASED_EARLY
		STEP( owner = 0; holders-- );
#endif
		/* Claim::commit. */
		STEP( OURS; cell[expected] = word );
		STEP( OURS; cell[expected + 1] = word );
		STEP( MINE; slot_ts[1 - expected_parity] = ts );
		STEP( MINE; slot_events[1 - expected_parity] = events );
		STEP( MINE;
			assert(head == expected && parity == expected_parity);
			assert(ts > last_ts && events == last_events + 1);
			last_ts = ts; last_events = events;
			truth[expected] = word; truth[expected + 1] = word;
			head = expected + 2; parity = 1 - expected_parity );
release:	/* Drop for Claim. */
		STEP( assert(control_lines); assert(owner == word); owner = 0; holds = false; holders-- );
		goto let_go;
dead:		/* The kernel ends it. What it claimed stays claimed. */
#ifdef WITNESS_DEAD
		assert(!holds);
#endif
		skip;
let_go:		atomic {
			if
			:: holds -> holders--
			:: else
			fi;
			settle();
			alive[who] = false;
			word = 0; mine = 0; of_session = 0; expected = 0; expected_parity = 0; ts = 0;
			events = 0; holds = false; place = 0; found = 0; since = 0 }
	:: else -> break
	od;
	living--
}

/* Window::owner_is_dead. */
inline owner_is_dead()
{
	if
	:: seen >= 128 ->
		found = t_pid[PLACE(seen)];
		since = t_since[PLACE(seen)];
		if
		:: found & ENTERING -> proved = false
		:: !(found & ENTERING) && t_incarnation[PLACE(seen)] != INCARNATION(seen) ->
			proved = true
		:: else -> proved = (found == 0 || IS_DEAD(found, since))
		fi;
		atomic { found = 0; since = 0 }
	:: else                                                 /* nobody can say */
	fi
}

/* Recording::free_claims_of_the_dead: `held` says whether somebody may write into the memory. */
inline look_for_the_dead()
{
	seen = owner;
	proved = false;
	if
	:: seen != 0 && seen == seen_before ->
#ifdef MUTATION_NO_PROOF
		proved = true;
#else
		owner_is_dead();
#endif
		if
		:: proved ->
			if
			:: d_step { owner == seen ->            /* Claim::free_dead */
				/* Nobody who lives has it. */
				assert(holders == 0);
				owner = 0; seen = 0 }
			:: else
			fi
		:: else
		fi
	:: else
	fi;
	atomic {
		held = (seen != 0 && !foreign);
		seen_before = seen; seen = 0; proved = false }
}

/* All that is committed is whole. */
inline take_all()
{
	snap = head;
	at = 0;
	do
	:: d_step { at < snap -> assert(cell[at] == truth[at]); at++ }
	:: else -> break
	od;
	atomic { at = 0; snap = 0 }
}

/* layout::reset_region. */
inline reset_region()
{
	d_step {
		head = 0; parity = 0;
		slot_ts[0] = 0; slot_ts[1] = 0; slot_events[0] = 0; slot_events[1] = 0;
		last_ts = 0; last_events = 0;
		unit = 0;
		do
		:: unit < UNITS -> truth[unit] = 0; unit++
		:: else -> break
		od;
		unit = 0 }
}

proctype recorder()
{
	byte seen, seen_before, looks, found, since, snap, at;
	bool proved, held, foreign;

	do
	:: session < SESSIONS ->
		/* Slot::build, SessionLayout::reset. The memory is this session's from here on. */
		limit = 0;
		if
#ifdef RESET_HELD
		:: true ->
#else
		:: owner == 0 ->
#endif
			foreign = false;
			reset_region()
		:: else -> foreign = true                       /* NOT_OF_SESSION */
		fi;
		d_step { session++; memory_of = session; seen_before = 0 }
		if
		:: !foreign -> limit = UNITS
		:: else
		fi;
		/* Slot::activate. */
		is_active = true;
		generation++;
		looks = LOOKS;
		do
		:: looks > 0 -> looks--;
			look_for_the_dead();
			if
			:: foreign && seen_before == 0 ->       /* RegionWork::adopt */
				if
				:: atomic { owner == 0 -> owner = RECORDER }
					reset_region();
					owner = 0;
					foreign = false;
					limit = UNITS
				:: else
				fi
			:: !foreign -> take_all()
			:: else
			fi
		:: looks > 0 -> looks--
		:: else -> break
		od;
		/* Slot::deactivate. What a visit to every CPU is for claims is a barrier. */
#ifdef MUTATION_LOOK_FIRST
		seen_before = owner;
		look_for_the_dead();
#endif
		is_active = false;
		generation++;
#ifndef MUTATION_LOOK_FIRST
		/* Recording::finish: waits for claims, a while. */
		look_for_the_dead();
		if
		:: held -> look_for_the_dead()
		:: else
		fi;
#endif
		if
		:: !foreign -> take_all()
		:: else
		fi;
		/* Slot::abandon_complete: the memory stays as long as somebody may write there, and whoever
		 * comes next frees it (Slot::discard). */
#ifndef MUTATION_NOT_WAITED
		do
		:: atomic { held && (living == 0 || !holders || owner == 0) -> skip }
progress_wait:	look_for_the_dead()
		:: held && owner != 0 && owner < 128 && living == 0 -> break
		:: !held -> break
		od;
		if
		:: held -> goto retired
		:: else
		fi;
#endif
		/* Slot::free. */
		d_step { memory_of = 0; unit = 0;
			do
			:: unit < UNITS -> cell[unit] = 0; unit++
			:: else -> break
			od;
			unit = 0 }
#ifdef MUTATION_CONTROL_REUSED
		control_lines = false;
#endif
	:: else -> break
	od;
retired:
	over = true;
	/* Everybody is dead: what can be proved is freed. */
	(living == 0);
	look_for_the_dead();
	look_for_the_dead();
	assert(owner < 128)
}

init
{
	atomic {
		living = PROCESSES;
		run process(1, LIVES);
		if
		:: PROCESSES > 1 -> run process(2, 1)
		:: else
		fi;
		run recorder()
	}
}
