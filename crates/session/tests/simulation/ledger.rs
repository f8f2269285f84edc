//! The real history, which the world may not look at: the checks compare it with the world.
//!
//! A *chain* is a channel through its replacements: a life of a slot, its successor's, and so on.

use crate::window::{EVENTS, Emission, Life, REGIONS, Record, Slot, State, Window};
use crate::writer::Process;

/// Most processes of a history.
pub(crate) const PROCESSES: usize = 4;

/// A life of a slot.
#[derive(Debug)]
pub(crate) struct LifeFacts {
    pub(crate) session: usize,
    pub(crate) class: u32,
    pub(crate) slot: usize,
    pub(crate) chain: usize,
    pub(crate) overwrites: bool,
    /// Records that were committed, and the number of discarded ones, by region, since that was
    /// begun again.
    pub(crate) committed: [Vec<Record>; REGIONS],
    pub(crate) discarded: [u64; REGIONS],
    /// Records whether it can record an event, and whether a process can record in it, and when
    /// they last could: there may be no record without both, though a thread that sleeps between
    /// the word and its decision finds them at two moments.
    means: CapabilityTimes<EVENTS>,
    takes: CapabilityTimes<PROCESSES>,
    /// True if nothing is promised of its records: it was overwritten, or a thread was stopped with
    /// a claim on it for longer than any wait, or it was being cleared when its recorder died.
    pub(crate) is_tainted: bool,
    /// It is being cleared.
    pub(crate) is_clearing: bool,
    /// Its streams are complete.
    pub(crate) is_complete: bool,
    /// A request to stop was answered.
    pub(crate) is_stopped: bool,
}

/// The records due to a chain.
#[derive(Debug, Default)]
struct DueRecords {
    is_due: [[bool; PROCESSES]; EVENTS],
    /// When it was not, last.
    undue_at: [[u64; PROCESSES]; EVENTS],
}

/// One call of a tracepoint, from the load of the enable word on.
#[derive(Debug)]
pub(crate) struct EmissionFacts {
    pub(crate) event: usize,
    pub(crate) process: usize,
    loaded_at: u64,
    /// The slots that it came to, by its bits or as successors, with whose they were.
    slots: Vec<(usize, Option<Life>)>,
    due: Vec<usize>,
    /// Lives in which it was recorded or counted.
    outcomes: Vec<Life>,
    /// True if its thread was stopped inside a claim for longer than any wait.
    pub(crate) is_outlived: bool,
    /// True if it followed the most successors that a record follows.
    pub(crate) is_tired: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) lives: Vec<LifeFacts>,
    chains: Vec<DueRecords>,
    emissions: Vec<EmissionFacts>,
    /// Sessions that were overwritten.
    tainted: Vec<usize>,
    /// Bits that a program which died while it described an event may have left wrong.
    left: Vec<(usize, Life)>,
    /// Bits that a constructor has left to the recorder, and reported.
    reported: Vec<(usize, Life)>,
    /// Bits that a constructor has set which had slept since another life of the slot: the event
    /// may have no id in this one.
    stray: Vec<(usize, Life)>,
    /// Events whose word a constructor took for what it had read, where it was the same again: a
    /// bit does not say whose it is, nor since when.
    doubtful: Vec<usize>,
    /// Number of emissions that were excused because the slot that they had found was another's.
    pub(crate) excused: u64,
    /// Emissions that had to be, and were, in one place.
    pub(crate) due: u64,
}

impl Ledger {
    /// A slot begins a life, perhaps in the place of another one.
    pub(crate) fn begin_life(
        &mut self,
        (session, class): (usize, u32),
        slot: usize,
        of: Option<Life>,
        overwrites: bool,
    ) -> Life {
        let chain = of.map_or(self.chains.len(), |of| self.lives[of].chain);
        if of.is_none() {
            self.chains.push(DueRecords::default());
        }
        self.lives.push(LifeFacts {
            session,
            class,
            slot,
            chain,
            overwrites,
            committed: Default::default(),
            discarded: Default::default(),
            means: CapabilityTimes::default(),
            takes: CapabilityTimes::default(),
            is_tainted: self.tainted.contains(&session),
            is_clearing: false,
            is_complete: false,
            is_stopped: false,
        });
        self.lives.len() - 1
    }

    /// Overwrites the words of a session.
    pub(crate) fn taint(&mut self, session: usize) {
        self.tainted.push(session);
        for life in self.lives.iter_mut().filter(|life| life.session == session) {
            life.is_tainted = true;
        }
    }

    pub(crate) fn is_tainted(&self, session: usize) -> bool {
        self.tainted.contains(&session)
    }

    /// Bits that a constructor has in hand and may be wrong about.
    pub(crate) fn note_left_bit(&mut self, event: usize, life: Option<Life>) {
        self.left.extend(life.map(|life| (event, life)));
    }

    /// Notes bits that a constructor has set wrongly, and leaves to the recorder.
    pub(crate) fn note_reported_bit(&mut self, event: usize, life: Option<Life>) {
        self.reported.extend(life.map(|life| (event, life)));
    }

    /// Returns true if this bit was reported to the recorder, which has not updated it since.
    pub(crate) fn is_reported(&self, event: usize, life: Life) -> bool {
        self.reported.contains(&(event, life))
    }

    /// A bit is set for a life that was not looked at before. It is a bit too many (0007), until
    /// the recorder has come to the event: nothing is due because of it.
    pub(crate) fn note_stray_bit(&mut self, event: usize, life: Option<Life>) {
        self.stray.extend(life.map(|life| (event, life)));
    }

    /// It is off.
    pub(crate) fn clear_bit(&mut self, event: usize, life: Option<Life>) {
        self.stray.retain(|&(of, whose)| Some(whose) != life || of != event);
    }

    /// An event may have two bits for one chain from here on.
    pub(crate) fn note_doubtful_event(&mut self, event: usize) {
        self.doubtful.push(event);
    }

    /// Returns true if a constructor that died may have left this bit wrong.
    pub(crate) fn may_be_left(&self, event: usize, life: Life) -> bool {
        self.left.contains(&(event, life))
    }

    /// Returns true if a dead constructor, or a process that overwrote a session, may have left a
    /// bit in a slot since it became free.
    pub(crate) fn may_be_left_in(&self, event: usize, slot: usize) -> bool {
        let mut lives = self.lives.iter().enumerate().filter(|(_, life)| life.slot == slot);
        lives.any(|(life, facts)| {
            facts.is_tainted || self.may_be_left(event, life) || self.is_reported(event, life)
        })
    }

    /// The recorder has made the bit right.
    pub(crate) fn note_corrected_bit(&mut self, event: usize, life: Option<Life>) {
        for wrong in [&mut self.left, &mut self.reported, &mut self.stray] {
            wrong.retain(|&(of, whose)| Some(whose) != life || of != event);
        }
    }

    /// Takes note of who records what, at `now`.
    pub(crate) fn observe(
        &mut self,
        window: &Window,
        processes: &[Process],
        in_hand: &dyn Fn(usize, usize) -> bool,
        now: u64,
    ) {
        for life in &mut self.lives {
            life.note(now);
        }
        let mut selected = vec![SelectedBits::default(); self.chains.len()];
        for (index, slot) in window.slots.iter().enumerate() {
            let Some(life) = slot.life.filter(|_| slot.state != State::Free) else { continue };
            // Who recovers ends a session's slots in any order.
            let has_heir = slot.successor.is_none_or(|heir| {
                let heir = &window.slots[heir];
                let is_kin = |of: Life| self.lives[of].chain == self.lives[life].chain;
                heir.state == State::Active && heir.life.is_some_and(is_kin)
            });
            let facts = &mut self.lives[life];
            for (event, selected) in selected[facts.chain].iter_mut().enumerate() {
                let bit = window.has_bit(event, index);
                let mut wrong = self.left.iter().chain(&self.reported);
                let is_unsure = in_hand(event, index) || wrong.any(|&of| of == (event, life));
                let is_stray = self.stray.contains(&(event, life));
                // Also while it is stopped: who found the bit before it was cleared may sleep
                // until it is started again.
                facts.means.now[event] |=
                    slot.selects[event] || bit && (slot.is_changing || is_unsure);
                for (number, process) in processes.iter().enumerate() {
                    let takes = slot.processes.select(process.pid, process.executable);
                    facts.takes.now[number] |=
                        slot.is_unpublished || takes && slot.state == State::Active;
                    // The one that has it in hand: only the recorder takes a bit away. A recorder
                    // that was killed while bits moved has left some between two slots.
                    let is_cut_short = slot.is_left && slot.is_changing;
                    let is_sure = has_heir && takes && !slot.is_unpublished && !is_cut_short;
                    if is_sure && slot.is_open() && slot.selects[event] {
                        let is_on = bit && !is_stray;
                        selected[number] = Some(selected[number].unwrap_or(false) || is_on);
                    }
                }
            }
        }
        for (due, selected) in self.chains.iter_mut().zip(&selected) {
            due.observe(selected, now);
        }
    }

    /// A thread loads an enable word.
    pub(crate) fn begin_emission(
        &mut self,
        window: &Window,
        event: usize,
        process: usize,
        now: u64,
    ) -> Emission {
        let word = window.words[event];
        let bits = (0..window.slots.len()).filter(|slot| word >> slot & 1 != 0);
        // A bit of a slot that is being built, or is free, is one of an earlier life.
        let life_of = |slot: &Slot| match slot.state {
            State::Active | State::Ending => slot.life,
            State::Free | State::Building => None,
        };
        let is_due = |chain: &usize| self.chains[*chain].is_due[event][process];
        self.emissions.push(EmissionFacts {
            event,
            process,
            loaded_at: now,
            slots: bits.map(|slot| (slot, life_of(&window.slots[slot]))).collect(),
            due: (0..self.chains.len()).filter(is_due).collect(),
            outcomes: Vec::new(),
            is_outlived: false,
            is_tired: false,
        });
        self.emissions.len() - 1
    }

    pub(crate) fn emission(&mut self, emission: Emission) -> &mut EmissionFacts {
        &mut self.emissions[emission]
    }

    /// Notes a record that is committed in a region: late, if it will not be written any more.
    pub(crate) fn commit_record(
        &mut self,
        life: Life,
        (region, is_late): (usize, bool),
        record: Record,
    ) -> Result<(), String> {
        let emission = &self.emissions[record.emission];
        let (event, process, since) = (emission.event, emission.process, emission.loaded_at);
        // Design §3.3, 0007 "rules": nothing that was not asked for, of the channel, whichever life
        // of it the record comes to.
        let chain = self.lives[life].chain;
        let could = |of: &LifeFacts| {
            of.chain == chain && of.means.since(event, since) && of.takes.since(process, since)
        };
        if !self.lives[life].is_tainted && !self.lives.iter().any(could) {
            return Err(format!("life {life} has event {event}, which nobody asked it to record"));
        }
        let facts = &mut self.lives[life];
        // 0007 "stop": nothing is recorded afterwards.
        if facts.is_stopped && !facts.is_tainted && !emission.is_outlived {
            return Err(format!("life {life} was stopped, and something is committed in it"));
        }
        facts.committed[region].push(record);
        if emission.is_outlived && (is_late || facts.is_clearing) {
            facts.is_tainted = true;
        }
        self.emissions[record.emission].outcomes.push(life);
        Ok(())
    }

    /// A record finds no room, and is counted in a region.
    pub(crate) fn discard_record(&mut self, life: Life, region: usize, emission: Emission) {
        self.lives[life].discarded[region] += 1;
        self.emissions[emission].outcomes.push(life);
    }

    /// Forgets what was recorded in a region, and what was counted there: also by writers that were
    /// on their way when the session was stopped for it, and find no room meanwhile.
    pub(crate) fn clear_region(&mut self, life: Life, region: usize) {
        let facts = &mut self.lives[life];
        facts.committed[region].clear();
        facts.discarded[region] = 0;
        facts.is_clearing = true;
    }

    /// Its streams are gone, too.
    pub(crate) fn note_cleared(&mut self, life: Life) {
        self.lives[life].is_clearing = false;
    }

    /// A thread is through with an emission: where it was due it is, once; elsewhere not twice
    /// (design §3.3; 0007 "contexts, sizes, loss mode": neither lost nor doubled).
    pub(crate) fn finish_emission(
        &mut self,
        window: &Window,
        emission: Emission,
    ) -> Result<(), String> {
        let facts = &self.emissions[emission];
        // 0007: who slept while a slot that it had come to became another's cannot know.
        let is_lost = facts.slots.iter().any(|&(slot, life)| window.slots[slot].life != life);
        let is_twice = is_lost || self.doubtful.contains(&facts.event);
        for chain in 0..self.chains.len() {
            if self.lives.iter().any(|life| life.chain == chain && life.is_tainted) {
                continue;
            }
            let is_kin = |life: &&Life| self.lives[**life].chain == chain;
            let count = facts.outcomes.iter().filter(is_kin).count();
            if count > 1 && !(is_twice && count <= facts.slots.len()) {
                return Err(format!("emission {emission} is in chain {chain} {count} times"));
            }
            let due = &self.chains[chain];
            let (event, process) = (facts.event, facts.process);
            let is_due = facts.due.contains(&chain)
                && due.is_due[event][process]
                && due.undue_at[event][process] < facts.loaded_at;
            if !is_due {
                continue;
            }
            if is_lost || facts.is_tired || self.is_cut(window, facts, chain) {
                self.excused += 1;
                continue;
            }
            self.due += 1;
            if count == 0 {
                let slots = &facts.slots;
                return Err(format!(
                    "emission {emission} of event {event} by process {process} is nowhere in \
                     chain {chain}; it came to {slots:?}"
                ));
            }
        }
        Ok(())
    }

    /// Returns true if a slot on the way from an emission's slot to the chain's last one is
    /// another's by now: then no writer finds the way.
    fn is_cut(&self, window: &Window, emission: &EmissionFacts, chain: usize) -> bool {
        let is_kin = |life: &Life| self.lives[*life].chain == chain;
        let found = emission.slots.iter().filter_map(|slot| slot.1).filter(is_kin).min();
        let is_gone = |life: Life| window.slots[self.lives[life].slot].life != Some(life);
        found.is_some_and(|found| {
            (found..self.lives.len()).any(|life| is_kin(&life) && is_gone(life))
        })
    }
}

impl EmissionFacts {
    /// It follows to a successor.
    pub(crate) fn note_successor(&mut self, slot: usize, life: Option<Life>) {
        self.slots.push((slot, life));
    }
}

impl LifeFacts {
    /// Before it is looked at anew: what it can record now it could until now.
    fn note(&mut self, now: u64) {
        self.means.note(now);
        self.takes.note(now);
    }
}

/// The members of a set that can do something, and when each last could.
#[derive(Debug)]
struct CapabilityTimes<const COUNT: usize> {
    now: [bool; COUNT],
    last: [u64; COUNT],
}

impl<const COUNT: usize> Default for CapabilityTimes<COUNT> {
    fn default() -> Self {
        Self { now: [false; COUNT], last: [0; COUNT] }
    }
}

impl<const COUNT: usize> CapabilityTimes<COUNT> {
    fn since(&self, which: usize, time: u64) -> bool {
        self.now[which] || self.last[which] >= time
    }

    fn note(&mut self, time: u64) {
        for (now, last) in self.now.iter_mut().zip(&mut self.last) {
            if std::mem::take(now) {
                *last = time;
            }
        }
    }
}

/// The events that a chain's rules select, by event and process, and whether its bit is set.
type SelectedBits = [[Option<bool>; PROCESSES]; EVENTS];

impl DueRecords {
    /// Once a bit is on, what its rules select is due for as long as they do, whatever becomes of
    /// the bit: it may be cleared only for a reason.
    fn observe(&mut self, selected: &SelectedBits, now: u64) {
        let is_due = self.is_due.iter_mut().flatten();
        let undue_at = self.undue_at.iter_mut().flatten();
        for ((is_due, undue_at), selected) in is_due.zip(undue_at).zip(selected.iter().flatten()) {
            *is_due = selected.is_some_and(|bit| bit || *is_due);
            if !*is_due {
                *undue_at = now;
            }
        }
    }
}
