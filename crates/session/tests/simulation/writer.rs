//! Threads of traced programs: `crates/agent/src/emit` and `registration`, and
//! `crates/window/src/rules.rs`, with one access to a shared word per turn.
//!
//! Longer than 600 lines: a list with an arm for each step of a writer.

use crate::mistakes::Mistake;
use crate::simulation::Simulation;
use crate::window::{CPUS, EVENTS, Emission, Life, Record, SLOTS, State};

/// Most successors that a record follows, as in the agent.
const SUCCESSORS_MAX: usize = SLOTS;
/// Most restarts of a sequence before the record uses a claim, as in the agent.
const RESTARTS_MAX: usize = 16;
/// Most decisions of a constructor about one bit, as in the window.
const TRIES_MAX: usize = 16;

/// A traced process.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) executable: &'static str,
    pub(crate) is_alive: bool,
    /// Events that the process's call sites have registered.
    pub(crate) knows: [bool; EVENTS],
    /// The process's decision about each slot, with the generation of the decision.
    decisions: [Option<(u64, bool)>; SLOTS],
}

impl Process {
    pub(crate) fn new(pid: u32, executable: &'static str) -> Self {
        Self { pid, executable, is_alive: true, knows: [false; EVENTS], decisions: [None; SLOTS] }
    }
}

/// A thread of a traced process.
#[derive(Debug, Clone)]
pub(crate) struct Writer {
    pub(crate) process: usize,
    pub(crate) cpu: usize,
    /// True if the thread cannot use restartable sequences.
    pub(crate) claims: bool,
    /// True if the thread gets no turns: SIGSTOP, a debugger.
    pub(crate) is_stopped: bool,
    pub(crate) at: At,
    emission: Emission,
    event: usize,
    /// Bits of the word that the thread has not handled yet, and all bits that it found.
    bits: u32,
    named: u32,
    hops: usize,
    restarts: usize,
}

/// The state of a thread: its next action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum At {
    Idle,
    /// Take the next bit of the word.
    Next,
    /// Load the slot's generation.
    Look {
        slot: usize,
    },
    /// Decide if the process takes part.
    Decide {
        slot: usize,
        generation: u64,
    },
    /// Find the event's id, room, and the place in memory.
    Plan {
        slot: usize,
        generation: u64,
    },
    /// Begin the sequence, which checks the plan.
    Check(Plan),
    /// Write the record after the head, and then commit it.
    Write(Plan),
    Commit(Plan),
    /// Take a claim; then check the generation again, write, and commit.
    Claim {
        slot: usize,
        generation: u64,
    },
    Recheck(Plan),
    WriteClaimed(Plan),
    CommitClaimed(Plan),
    Release {
        slot: usize,
        region: usize,
        then: Then,
    },
    /// Without room: check the generation again, and count the record.
    Discard {
        slot: usize,
        generation: u64,
        region: usize,
    },
    /// Find the successor of a session that is over.
    Follow {
        slot: usize,
    },
    /// Constructor: load the enable word of an event.
    Describe(Describe),
    /// Constructor: read the state that decides about the slot's bit.
    Read(Describe, u32),
    /// Constructor: change the word, if it is unchanged.
    Change(Describe, u32, u32),
    /// Constructor, done with the event: enable the site.
    Aim {
        event: usize,
    },
    Dead,
}

/// The action after the release of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    Next,
    Again,
    /// Count the record: the claimed region had no room, under this generation.
    Discard(u64),
}

/// The planned place of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) slot: usize,
    generation: u64,
    pub(crate) region: usize,
    head: u64,
    block: usize,
    /// The life of the slot at planning, for the checks.
    pub(crate) life: Life,
}

/// A constructor's work on one event and slot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Describe {
    pub(crate) event: usize,
    pub(crate) slot: usize,
    /// The bits that the constructor has set for the slot, or for its successor.
    own_bits: u32,
    tries: usize,
    /// Number of changes of the word at its load, for the checks.
    changes: u64,
    /// The owner of the bit that the constructor will set, for the checks.
    bit_owner: Option<Life>,
}

impl Writer {
    pub(crate) fn new(process: usize, cpu: usize, claims: bool) -> Self {
        Self {
            process,
            cpu,
            claims,
            is_stopped: false,
            at: At::Idle,
            emission: 0,
            event: 0,
            bits: 0,
            named: 0,
            hops: 0,
            restarts: 0,
        }
    }

    /// Returns true if the thread is between a sequence's check and its commit.
    fn is_in_sequence(&self) -> bool {
        matches!(self.at, At::Write(_) | At::Commit(_))
    }

    /// Returns the slot and region of the thread's claim.
    pub(crate) fn claim(&self) -> Option<(usize, usize)> {
        match self.at {
            At::Recheck(plan) | At::WriteClaimed(plan) | At::CommitClaimed(plan) => {
                Some((plan.slot, plan.region))
            }
            At::Release { slot, region, .. } => Some((slot, region)),
            _ => None,
        }
    }

    /// Returns the emission of the thread's current call, if there is one.
    pub(crate) fn emission(&self) -> Option<Emission> {
        let is_other = matches!(
            self.at,
            At::Idle | At::Describe(_) | At::Read(..) | At::Change(..) | At::Aim { .. } | At::Dead
        );
        (!is_other).then_some(self.emission)
    }

    /// Returns the event and slot on which a constructor works.
    pub(crate) fn describes(&self) -> Option<Describe> {
        match self.at {
            At::Describe(of) | At::Read(of, _) | At::Change(of, ..) => Some(of),
            _ => None,
        }
    }

    /// Simulates that the kernel runs another thread on the CPU: a sequence restarts from its plan.
    pub(crate) fn preempt(&mut self) {
        if let At::Write(plan) | At::Commit(plan) = self.at {
            self.restarts += 1;
            self.at = At::Plan { slot: plan.slot, generation: plan.generation };
        }
    }
}

impl Simulation {
    /// Takes one step of a thread.
    // Longer than 70 lines: an arm for each state.
    pub(crate) fn step_writer(&mut self, number: usize) -> Result<(), String> {
        let (cpu, at) = (self.writers[number].cpu, self.writers[number].at);
        // The thread runs, so no other thread runs on its CPU.
        for other in 0..self.writers.len() {
            if other != number && self.writers[other].cpu == cpu {
                self.facts.restarts += u64::from(self.writers[other].is_in_sequence());
                self.writers[other].preempt();
            }
        }
        if at != At::Idle {
            let cpu = self.writers[number].cpu;
            self.log_step(|| format!("thread {number} on CPU {cpu}: {at:?}"));
        }
        let next = match at {
            At::Idle => self.begin_call(number),
            At::Next => return self.next_bit(number),
            At::Look { slot } => {
                At::Decide { slot, generation: self.window.slots[slot].generation }
            }
            At::Decide { slot, generation } => self.decide(number, slot, generation),
            At::Plan { slot, generation } => self.plan(number, slot, generation)?,
            At::Check(plan) => self.check(number, plan),
            At::Write(plan) => {
                self.write(number, plan)?;
                At::Commit(plan)
            }
            At::Commit(plan) => {
                self.commit(number, plan)?;
                At::Next
            }
            At::Claim { slot, generation } => self.claim(number, slot, generation)?,
            At::Recheck(plan) => self.recheck(plan)?,
            At::WriteClaimed(plan) => {
                self.write(number, plan)?;
                At::CommitClaimed(plan)
            }
            At::CommitClaimed(plan) => {
                self.commit(number, plan)?;
                At::Release { slot: plan.slot, region: plan.region, then: Then::Next }
            }
            At::Release { slot, region, then } => {
                let owner = &mut self.window.slots[slot].regions[region].owner;
                if *owner == Some(number) {
                    *owner = None;
                }
                match then {
                    Then::Next => At::Next,
                    Then::Again => At::Look { slot },
                    Then::Discard(generation) => At::Discard { slot, generation, region },
                }
            }
            At::Discard { slot, generation, region } => {
                self.discard(number, (slot, generation), region)
            }
            At::Follow { slot } => self.follow(number, slot),
            At::Describe(of) => {
                let changes = self.window.changes[of.event];
                At::Read(Describe { changes, ..of }, self.window.words[of.event])
            }
            At::Read(of, word) => self.read(of, word),
            At::Change(of, word, into) => self.change(of, word, into),
            At::Aim { event } => {
                let process = self.writers[number].process;
                self.processes[process].knows[event] = true;
                At::Idle
            }
            At::Dead => At::Dead,
        };
        self.writers[number].at = next;
        Ok(())
    }

    /// Begins a call at a registered call site, or the load of a module.
    fn begin_call(&mut self, number: usize) -> At {
        let event = self.random.next_below(EVENTS as u64) as usize;
        let process = self.writers[number].process;
        // Loaded modules describe new events, and events that other modules have described.
        let is_known = self.processes[process].knows[event];
        if !is_known || !self.is_calm && self.random.once_in(8) {
            if self.is_calm || !self.random.once_in(3) {
                return At::Idle;
            }
            self.window.news += u64::from(!self.window.is_ready[event]);
            self.window.is_ready[event] = true;
            self.window.is_changed = true;
            return At::Describe(Describe { event, ..Describe::default() });
        }
        if self.random.once_in(5) {
            self.writers[number].cpu = self.random.next_below(CPUS as u64) as usize;
        }
        self.observe_changes();
        let emission = self.ledger.begin_emission(&self.window, event, process, self.now);
        let word = self.window.words[event];
        let writer = &mut self.writers[number];
        (writer.event, writer.emission) = (event, emission);
        (writer.bits, writer.named) = (word, word);
        self.log_step(|| {
            format!("thread {number}: emission {emission} of event {event}: {word:#b}")
        });
        At::Next
    }

    fn next_bit(&mut self, number: usize) -> Result<(), String> {
        let writer = &mut self.writers[number];
        if writer.bits == 0 {
            let emission = writer.emission;
            writer.at = At::Idle;
            self.observe_changes();
            return self.ledger.finish_emission(&self.window, emission);
        }
        let slot = writer.bits.trailing_zeros() as usize;
        writer.bits &= writer.bits - 1;
        (writer.hops, writer.restarts) = (0, 0);
        writer.at = At::Look { slot };
        Ok(())
    }

    /// Decides if the process takes part, once for each generation.
    fn decide(&mut self, number: usize, index: usize, generation: u64) -> At {
        let process = self.writers[number].process;
        let process = &mut self.processes[process];
        let slot = &self.window.slots[index];
        let takes = match process.decisions[index] {
            Some((of, takes)) if of == generation => takes,
            _ => {
                let takes =
                    slot.is_open() && slot.processes.select(process.pid, process.executable);
                process.decisions[index] = Some((generation, takes));
                takes
            }
        };
        match takes {
            true => At::Plan { slot: index, generation },
            false if slot.state != State::Active => At::Follow { slot: index },
            false => At::Next,
        }
    }

    fn plan(&mut self, number: usize, index: usize, generation: u64) -> Result<At, String> {
        let slot = &self.window.slots[index];
        let writer = &self.writers[number];
        // A layout is valid only for the generation in which it was read.
        let Some((life, block)) = slot.life.zip(slot.block) else {
            return Ok(At::Look { slot: index });
        };
        if slot.generation != generation && self.mistake != Some(Mistake::GenerationUnchecked) {
            return Ok(At::Look { slot: index });
        }
        if !slot.has_id[writer.event] {
            return Ok(At::Next);
        }
        if writer.claims || writer.restarts >= RESTARTS_MAX {
            return Ok(At::Claim { slot: index, generation });
        }
        let region = 2 * writer.cpu;
        if !slot.regions[region].has_room(slot.overwrites) {
            return Ok(At::Discard { slot: index, generation, region });
        }
        let head = slot.regions[region].head;
        Ok(At::Check(Plan { slot: index, generation, region, head, block, life }))
    }

    /// Handles a full region: counts the record there if the session's generation is unchanged.
    /// Otherwise a successor may have room, and this count may never be read. In the agent, some
    /// instructions separate the check from the addition; if the session ends between them, the
    /// count is lost.
    fn discard(&mut self, number: usize, (index, generation): (usize, u64), region: usize) -> At {
        let slot = &mut self.window.slots[index];
        if slot.generation != generation && self.mistake != Some(Mistake::DiscardUnchecked) {
            self.facts.spared += 1;
            return At::Look { slot: index };
        }
        slot.regions[region].discarded += 1;
        self.facts.discards += 1;
        if let Some(life) = slot.life {
            self.ledger.discard_record(life, region, self.writers[number].emission);
        }
        At::Next
    }

    fn check(&mut self, number: usize, plan: Plan) -> At {
        let slot = &self.window.slots[plan.slot];
        let is_same = slot.generation == plan.generation
            || self.mistake == Some(Mistake::GenerationUnchecked);
        if !is_same {
            return At::Look { slot: plan.slot };
        }
        if slot.regions[plan.region].head == plan.head {
            return At::Write(plan);
        }
        self.writers[number].restarts += 1;
        At::Plan { slot: plan.slot, generation: plan.generation }
    }

    fn write(&mut self, number: usize, plan: Plan) -> Result<(), String> {
        let slot = &mut self.window.slots[plan.slot];
        // Design §5, 0007 "memory": while a writer may write to memory, the memory has no second
        // user. (Except after a faulty program has overwritten the word that permits writing.)
        let is_tainted = self.ledger.lives[plan.life].is_tainted;
        if self.window.blocks[plan.block] != Some(plan.life) && !is_tainted {
            return Err(format!("thread {number} writes to memory that is another's: {plan:?}"));
        }
        if slot.life == Some(plan.life) {
            let region = &mut slot.regions[plan.region];
            let place = region.place(plan.head);
            let emission = self.writers[number].emission;
            region.ring[place] = Some(Record { emission, time: self.now });
        }
        Ok(())
    }

    fn commit(&mut self, number: usize, plan: Plan) -> Result<(), String> {
        let slot = &mut self.window.slots[plan.slot];
        if slot.life != Some(plan.life) {
            if self.ledger.lives[plan.life].is_tainted {
                return Ok(());
            }
            return Err(format!("thread {number} commits where another session is: {plan:?}"));
        }
        let region = &mut slot.regions[plan.region];
        let place = region.place(plan.head);
        region.head = plan.head + 1;
        let emission = self.writers[number].emission;
        let is_late = region.is_foreign || slot.state != State::Active;
        let record = region.ring[place].unwrap_or(Record { emission, time: self.now });
        self.facts.commits += 1;
        self.ledger.commit_record(plan.life, (plan.region, is_late), record)
    }

    /// Takes a claim region, beginning with the current CPU's.
    fn claim(&mut self, number: usize, index: usize, generation: u64) -> Result<At, String> {
        let slot = &mut self.window.slots[index];
        let Some((life, block)) = slot.life.zip(slot.block) else {
            return Ok(At::Look { slot: index });
        };
        let cpu = self.writers[number].cpu;
        for region in (0..CPUS).map(|next| 2 * ((cpu + next) % CPUS) + 1) {
            let owned = &mut slot.regions[region];
            if owned.owner.is_some() || !owned.has_room(slot.overwrites) {
                continue;
            }
            owned.owner = Some(number);
            let head = owned.head;
            return Ok(At::Recheck(Plan { slot: index, generation, region, head, block, life }));
        }
        Ok(At::Discard { slot: index, generation, region: 2 * cpu + 1 })
    }

    /// Checks the generation again: the recorder waits only for visible claims, and this one is
    /// visible now.
    fn recheck(&mut self, plan: Plan) -> Result<At, String> {
        let slot = &self.window.slots[plan.slot];
        let is_same =
            slot.generation == plan.generation || self.mistake == Some(Mistake::ClaimUnchecked);
        let then = if !is_same {
            Then::Again
        } else if slot.regions[plan.region].head != plan.head {
            // Another writer committed between the plan and the claim.
            return Ok(At::Recheck(Plan { head: slot.regions[plan.region].head, ..plan }));
        } else if !slot.regions[plan.region].has_room(slot.overwrites) {
            Then::Discard(plan.generation)
        } else {
            return Ok(At::WriteClaimed(plan));
        };
        Ok(At::Release { slot: plan.slot, region: plan.region, then })
    }

    /// Follows to the next successor that has the event enabled now, unless the site also found the
    /// successor's bit and handles it.
    fn follow(&mut self, number: usize, from: usize) -> At {
        let (word, successor) =
            (self.window.words[self.writers[number].event], self.window.slots[from].successor);
        self.log_step(|| format!("thread {number}: the word is {word:#b}, the heir {successor:?}"));
        let writer = &mut self.writers[number];
        let mut slot = from;
        writer.hops += 1;
        for _ in 0..SUCCESSORS_MAX {
            let Some(successor) = self.window.slots[slot].successor else { return At::Next };
            slot = successor % SLOTS;
            // The named slot may belong to another session, if the recorder was killed before the
            // successor was complete.
            let slots = &self.window.slots;
            if slots[slot].session != slots[from].session {
                return At::Next;
            }
            let is_on = self.window.words[writer.event] >> slot & 1 != 0;
            if is_on && writer.hops <= SUCCESSORS_MAX {
                if writer.named >> slot & 1 != 0 {
                    return At::Next;
                }
                self.facts.followed += 1;
                let life = self.window.slots[slot].life;
                self.ledger.emission(writer.emission).note_successor(slot, life);
                return At::Look { slot };
            }
        }
        // There are too many successors.
        self.ledger.emission(writer.emission).is_tired = true;
        At::Next
    }

    /// Reads the state that decides about a slot's bit, like `trackway_window::rules`. The word was
    /// loaded before, so the exchange fails if the recorder has changed the word meanwhile.
    fn read(&mut self, mut of: Describe, word: u32) -> At {
        let through = self.next_slot(of);
        let slot = &self.window.slots[of.slot];
        of.tries += 1;
        if of.own_bits != 0 && self.mistake == Some(Mistake::RulesNotLookedAtAgain) {
            return through;
        }
        if of.tries > TRIES_MAX {
            self.leave_to_recorder(of, of.own_bits | 1 << of.slot);
            return through;
        }
        let heir = slot.successor.filter(|_| self.mistake != Some(Mistake::SuccessorUnseen));
        let target = heir.map_or(of.slot, |heir| heir % SLOTS);
        // A recorder that rewrites rules updates the event afterwards.
        let is_open = slot.is_open()
            && self.window.slots[target].is_open()
            && slot.revision.is_multiple_of(2);
        let wanted = if slot.selects[of.event] && is_open { 1 << target } else { 0 };
        if wanted != 0 {
            self.window.slots[target].has_id[of.event] = true;
            of.bit_owner = self.window.slots[target].life;
        }
        // Beside an obsolete bit, sites would record the event twice: the recorder moves that bit.
        let late = self.predecessors(target) & word;
        let wrong = of.own_bits & !wanted;
        let into = match self.mistake {
            Some(Mistake::OldBitLeft) => word | wanted,
            Some(Mistake::BitMovedByOthers) if wanted != 0 => word & !late | wanted,
            Some(Mistake::BitTakenBack) if wrong != 0 => word & !wrong,
            _ if late != 0 => word,
            _ => word | wanted,
        };
        if into == word {
            self.leave_to_recorder(of, wrong | wanted & !word);
            return through;
        }
        At::Change(of, word, into)
    }

    /// Leaves bits to the recorder, and notifies it.
    fn leave_to_recorder(&mut self, of: Describe, wrong: u32) {
        if wrong == 0 || self.mistake == Some(Mistake::WrongBitUntold) {
            return;
        }
        self.window.news += 1;
        for slot in (0..SLOTS).filter(|slot| wrong >> slot & 1 != 0) {
            self.ledger.note_reported_bit(of.event, self.window.slots[slot].life);
        }
    }

    /// Returns a constructor's state for the next slot.
    fn next_slot(&self, of: Describe) -> At {
        let is_there = |slot: &usize| self.window.slots[*slot].life.is_some();
        match (of.slot + 1..SLOTS).find(is_there) {
            Some(slot) => At::Describe(Describe { slot, own_bits: 0, tries: 0, ..of }),
            None => At::Aim { event: of.event },
        }
    }

    fn change(&mut self, mut of: Describe, word: u32, into: u32) -> At {
        let now = self.window.words[of.event];
        if now != word && self.mistake != Some(Mistake::BitSetBlindly) {
            return At::Describe(of);
        }
        let (set, cleared) = (into & !word, word & !into);
        // The word is equal, but may have changed and changed back.
        if now == word && self.window.changes[of.event] != of.changes {
            self.facts.mistaken += 1;
            self.ledger.note_doubtful_event(of.event);
        }
        for slot in (0..SLOTS).filter(|slot| set >> slot & 1 != 0) {
            let life = self.window.slots[slot].life;
            if life != of.bit_owner {
                self.facts.stray += 1;
                self.ledger.note_stray_bit(of.event, life);
            }
        }
        self.window.set_word(of.event, now & !cleared | set);
        of.own_bits = of.own_bits & !cleared | set;
        self.window.is_changed = true;
        At::Describe(of)
    }

    /// Kills a thread, with its process or alone.
    pub(crate) fn kill_writer(&mut self, number: usize) {
        match self.writers[number].at {
            At::Describe(of) | At::Read(of, _) | At::Change(of, ..) => {
                // The next constructor also handles the slots that this one has not reached.
                for slot in of.slot..SLOTS {
                    self.ledger.note_left_bit(of.event, self.window.slots[slot].life);
                }
                self.leave(of);
            }
            _ => {}
        }
        self.writers[number].at = At::Dead;
    }

    /// Leaves bits that a constructor may have set for old rules.
    fn leave(&mut self, of: Describe) {
        for slot in (0..SLOTS).filter(|slot| of.own_bits >> slot & 1 != 0) {
            self.ledger.note_left_bit(of.event, self.window.slots[slot].life);
        }
    }

    /// Returns true if a constructor works on the bit of an event in a slot; the bit may be wrong.
    pub(crate) fn is_in_hand(writers: &[Writer], event: usize, slot: usize) -> bool {
        writers.iter().any(|writer| {
            writer.describes().is_some_and(|of| {
                of.event == event && (of.own_bits >> slot & 1 != 0 || of.slot == slot)
            })
        })
    }
}
