//! The real history, which the simulated parts cannot read: the checks compare it with the
//! simulation.
//!
//! A *chain* is a channel with its replacements: a life of a slot, the life of its successor, and
//! so on.

use crate::window::{EVENTS, Emission, Life, REGIONS, Record, Slot, State, Window};
use crate::writer::Process;

/// Number of processes in a history.
pub(crate) const PROCESSES: usize = 4;

/// Facts about a life of a slot.
#[derive(Debug)]
pub(crate) struct LifeFacts {
    pub(crate) session: usize,
    pub(crate) class: u32,
    pub(crate) slot: usize,
    pub(crate) chain: usize,
    pub(crate) overwrites: bool,
    /// Committed records and the number of discarded records, by region, since the region's last
    /// reset.
    pub(crate) committed: [Vec<Record>; REGIONS],
    pub(crate) discarded: [u64; REGIONS],
    /// The events that the slot can record, and the processes that can record in it, with the last
    /// time of each. Every record needs both, though a thread that sleeps between the word and its
    /// decision may observe them at two moments.
    means: CapabilityTimes<EVENTS>,
    takes: CapabilityTimes<PROCESSES>,
    /// True if nothing is promised for the slot's records: a program overwrote it, or a thread was
    /// stopped with a claim for longer than any wait, or its recorder died while clearing it.
    pub(crate) is_tainted: bool,
    /// True while the slot is being cleared.
    pub(crate) is_clearing: bool,
    /// True if the slot's streams are complete.
    pub(crate) is_complete: bool,
    /// True if a request to stop was answered.
    pub(crate) is_stopped: bool,
}

/// The records that must be in a chain.
#[derive(Debug, Default)]
struct DueRecords {
    is_due: [[bool; PROCESSES]; EVENTS],
    /// The last time when a record was not due.
    undue_at: [[u64; PROCESSES]; EVENTS],
}

/// Facts about one call of a tracepoint, from the load of the enable word on.
#[derive(Debug)]
pub(crate) struct EmissionFacts {
    pub(crate) event: usize,
    pub(crate) process: usize,
    loaded_at: u64,
    /// The slots that the call visited, by its bits or as successors, with their lives at that
    /// time.
    slots: Vec<(usize, Option<Life>)>,
    due: Vec<usize>,
    /// The lives in which the call was recorded or counted.
    outcomes: Vec<Life>,
    /// True if the thread was stopped inside a claim for longer than any wait.
    pub(crate) is_outlived: bool,
    /// True if the call followed as many successors as possible.
    pub(crate) is_tired: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) lives: Vec<LifeFacts>,
    chains: Vec<DueRecords>,
    emissions: Vec<EmissionFacts>,
    /// Sessions that a faulty program overwrote.
    tainted: Vec<usize>,
    /// Bits that may be wrong because a program died while it described an event.
    left: Vec<(usize, Life)>,
    /// Bits that a constructor has left to the recorder, and reported.
    reported: Vec<(usize, Life)>,
    /// Bits that a constructor has set after it slept through the end of a slot's life: in the
    /// current life, the event may have no id.
    stray: Vec<(usize, Life)>,
    /// Events whose word changed and changed back before a constructor's exchange: a bit does not
    /// show to which life it belongs.
    doubtful: Vec<usize>,
    /// Number of emissions that were excused because a slot that they visited got another life.
    pub(crate) excused: u64,
    /// Number of emissions that were due, and recorded, in exactly one place.
    pub(crate) due: u64,
}

impl Ledger {
    /// Begins a life of a slot, perhaps as the successor of another life.
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

    /// Notes that a faulty program has overwritten the words of a session.
    pub(crate) fn taint(&mut self, session: usize) {
        self.tainted.push(session);
        for life in self.lives.iter_mut().filter(|life| life.session == session) {
            life.is_tainted = true;
        }
    }

    pub(crate) fn is_tainted(&self, session: usize) -> bool {
        self.tainted.contains(&session)
    }

    /// Notes a bit that a dead constructor may have left wrong.
    pub(crate) fn note_left_bit(&mut self, event: usize, life: Option<Life>) {
        self.left.extend(life.map(|life| (event, life)));
    }

    /// Notes a bit that a constructor has set wrongly, and left to the recorder.
    pub(crate) fn note_reported_bit(&mut self, event: usize, life: Option<Life>) {
        self.reported.extend(life.map(|life| (event, life)));
    }

    /// Returns true if this bit was reported to the recorder, which has not updated it since.
    pub(crate) fn is_reported(&self, event: usize, life: Life) -> bool {
        self.reported.contains(&(event, life))
    }

    /// Notes a bit that was set for another life than the constructor read. Until the recorder has
    /// updated the event, the bit is surplus (0007): it makes nothing due.
    pub(crate) fn note_stray_bit(&mut self, event: usize, life: Option<Life>) {
        self.stray.extend(life.map(|life| (event, life)));
    }

    /// Notes that a bit was cleared.
    pub(crate) fn clear_bit(&mut self, event: usize, life: Option<Life>) {
        self.stray.retain(|&(of, whose)| Some(whose) != life || of != event);
    }

    /// Notes that an event may have two bits for one chain from now on.
    pub(crate) fn note_doubtful_event(&mut self, event: usize) {
        self.doubtful.push(event);
    }

    /// Returns true if a constructor that died may have left this bit wrong.
    pub(crate) fn may_be_left(&self, event: usize, life: Life) -> bool {
        self.left.contains(&(event, life))
    }

    /// Returns true if a dead constructor, or a process that overwrote a session, may have left a
    /// bit in a slot that became free.
    pub(crate) fn may_be_left_in(&self, event: usize, slot: usize) -> bool {
        let mut lives = self.lives.iter().enumerate().filter(|(_, life)| life.slot == slot);
        lives.any(|(life, facts)| {
            facts.is_tainted || self.may_be_left(event, life) || self.is_reported(event, life)
        })
    }

    /// Notes that the recorder has corrected a bit.
    pub(crate) fn note_corrected_bit(&mut self, event: usize, life: Option<Life>) {
        for wrong in [&mut self.left, &mut self.reported, &mut self.stray] {
            wrong.retain(|&(of, whose)| Some(whose) != life || of != event);
        }
    }

    /// Notes which slots record which events of which processes, at `now`.
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
            // A recovery ends a session's slots in any order.
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
                // Applies to stopped slots, too: a thread that found the bit before it was cleared
                // may sleep until the slot is started again.
                facts.means.now[event] |=
                    slot.selects[event] || bit && (slot.is_changing || is_unsure);
                for (number, process) in processes.iter().enumerate() {
                    let takes = slot.processes.select(process.pid, process.executable);
                    facts.takes.now[number] |=
                        slot.is_unpublished || takes && slot.state == State::Active;
                    // A constructor may work on the bit: only the recorder clears it. A recorder
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

    /// Notes that a thread loads an enable word.
    pub(crate) fn begin_emission(
        &mut self,
        window: &Window,
        event: usize,
        process: usize,
        now: u64,
    ) -> Emission {
        let word = window.words[event];
        let bits = (0..window.slots.len()).filter(|slot| word >> slot & 1 != 0);
        // A bit of a slot that is being built, or is free, belongs to an earlier life.
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

    /// Notes a record that is committed in a region; `is_late`: the record will not be written any
    /// more.
    pub(crate) fn commit_record(
        &mut self,
        life: Life,
        (region, is_late): (usize, bool),
        record: Record,
    ) -> Result<(), String> {
        let emission = &self.emissions[record.emission];
        let (event, process, since) = (emission.event, emission.process, emission.loaded_at);
        // Design §3.3, 0007 "rules": a channel has no record that its rules did not select, in any
        // of its lives.
        let chain = self.lives[life].chain;
        let could = |of: &LifeFacts| {
            of.chain == chain && of.means.since(event, since) && of.takes.since(process, since)
        };
        if !self.lives[life].is_tainted && !self.lives.iter().any(could) {
            return Err(format!("life {life} has event {event}, which nobody asked it to record"));
        }
        let facts = &mut self.lives[life];
        // 0007 "stop": no record is committed afterwards.
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

    /// Notes that a record found no room, and was counted in a region.
    pub(crate) fn discard_record(&mut self, life: Life, region: usize, emission: Emission) {
        self.lives[life].discarded[region] += 1;
        self.emissions[emission].outcomes.push(life);
    }

    /// Discards the records and loss counts of a region. Writers that began before the session was
    /// stopped for the discard may still find no room and count a lost record.
    pub(crate) fn clear_region(&mut self, life: Life, region: usize) {
        let facts = &mut self.lives[life];
        facts.committed[region].clear();
        facts.discarded[region] = 0;
        facts.is_clearing = true;
    }

    /// Notes that the streams of a life are cleared, too.
    pub(crate) fn note_cleared(&mut self, life: Life) {
        self.lives[life].is_clearing = false;
    }

    /// Checks a finished emission: it is once in every chain where it was due, and in no chain
    /// twice (design §3.3; 0007 "contexts, sizes, loss mode": neither lost nor doubled).
    pub(crate) fn finish_emission(
        &mut self,
        window: &Window,
        emission: Emission,
    ) -> Result<(), String> {
        let facts = &self.emissions[emission];
        // 0007: a thread that slept while one of its slots got another life cannot notice that.
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

    /// Returns true if a slot between an emission's slot and the chain's last slot has another life
    /// now: then no writer finds the way.
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
    /// Notes that the emission follows to a successor.
    pub(crate) fn note_successor(&mut self, slot: usize, life: Option<Life>) {
        self.slots.push((slot, life));
    }
}

impl LifeFacts {
    /// Ends the current observation: abilities until now count until `now`.
    fn note(&mut self, now: u64) {
        self.means.note(now);
        self.takes.note(now);
    }
}

/// For each member of a set: if it is able now, and when it was last able.
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

/// For each event and process that a chain's rules select: the state of the event's bit.
type SelectedBits = [[Option<bool>; PROCESSES]; EVENTS];

impl DueRecords {
    /// Once a bit is set, the events that the rules select are due as long as the rules select
    /// them, even if the bit is cleared: that needs a reason.
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
