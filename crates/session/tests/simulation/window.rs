//! The window in its smallest form that can show errors: slots, enable words, regions, memory.
//!
//! One operation here is atomic in the real window. An operation of several steps takes several
//! turns in [`crate::writer`] and [`crate::recorder`].

use core::time::Duration;

use trackway_schema::glob_matches;
use trackway_session::FilterSpec;

/// Slots of the window, and bits of an enable word.
pub(crate) const SLOTS: usize = trackway_abi::session::SESSIONS_MAX;
/// Events that programs can have.
pub(crate) const NAMES: [&str; 5] = ["app:start", "app:noise", "db:query", "db:noise", "net:send"];
/// The number of events.
pub(crate) const EVENTS: usize = NAMES.len();
/// Number of CPUs.
pub(crate) const CPUS: usize = 2;
/// Regions of a slot: for each CPU, one sequence region and one claim region.
pub(crate) const REGIONS: usize = 2 * CPUS;
/// Number of memory blocks; a channel needs one block.
pub(crate) const BLOCKS: usize = 6;

/// A life of a slot, from its construction to its release, as an index into the ledger's lives.
pub(crate) type Life = usize;
/// An emission, as an index into the ledger's emissions.
pub(crate) type Emission = usize;

/// The states of `trackway_abi::session::state`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum State {
    #[default]
    Free,
    Building,
    Active,
    Ending,
}

/// The record that an emission leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) emission: Emission,
    pub(crate) time: u64,
}

/// The progress of a region in its stream; in the window, one store changes it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The written position in the region.
    pub(crate) position: u64,
    /// Number of records in the stream.
    pub(crate) written: usize,
    /// Number of records that were overwritten before they were written.
    pub(crate) overwritten: u64,
}

/// A ring of records with one writer at a time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Region {
    pub(crate) head: u64,
    pub(crate) ring: Vec<Option<Record>>,
    pub(crate) progress: Progress,
    pub(crate) discarded: u64,
    /// The number of the writer that holds the claim.
    pub(crate) owner: Option<usize>,
    /// True if an earlier life's claim exists: until its release, this life cannot use the region.
    pub(crate) is_foreign: bool,
}

impl Region {
    /// Resets the region. Only the owner may change the owner word.
    pub(crate) fn reset(&mut self, capacity: usize) {
        let owner = self.owner;
        let ring = vec![None; capacity];
        *self = Self { ring, owner, is_foreign: owner.is_some(), ..Self::default() };
    }

    pub(crate) fn place(&self, position: u64) -> usize {
        (position % self.ring.len() as u64) as usize
    }

    /// Returns true if the region has room for a record.
    pub(crate) fn has_room(&self, overwrite: bool) -> bool {
        let used = self.head.saturating_sub(self.progress.position);
        !self.is_foreign && (overwrite || used < self.ring.len() as u64)
    }

    /// Returns the first position that no writer can be overwriting.
    pub(crate) fn trusted(&self, overwrite: bool) -> u64 {
        let oldest = self.head.saturating_add(1).saturating_sub(self.ring.len() as u64);
        if overwrite { oldest.max(self.progress.position) } else { self.progress.position }
    }

    /// Returns the records between two positions, as they are in memory.
    pub(crate) fn copy(&self, from: u64, to: u64) -> Vec<Option<Record>> {
        // Overwritten positions cannot exceed the ring.
        let from = from.max(to.saturating_sub(self.ring.len() as u64));
        (from..to).map(|position| self.ring[self.place(position)]).collect()
    }
}

/// The processes that a channel records.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Processes {
    pub(crate) pids: Vec<u32>,
    pub(crate) executables: Vec<String>,
}

impl Processes {
    pub(crate) fn select(&self, pid: u32, executable: &str) -> bool {
        let is_one = |glob: &String| glob_matches(glob.as_bytes(), executable.as_bytes());
        (self.pids.is_empty() || self.pids.contains(&pid))
            && (self.executables.is_empty() || self.executables.iter().any(is_one))
    }
}

/// The slot of a channel.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slot {
    pub(crate) state: State,
    pub(crate) generation: u64,
    pub(crate) is_paused: bool,
    pub(crate) overwrites: bool,
    pub(crate) rules: String,
    /// For each event, true if the rules select it.
    pub(crate) selects: [bool; EVENTS],
    /// Odd while the rules change; it is never reset.
    pub(crate) revision: u64,
    pub(crate) processes: Processes,
    pub(crate) blocking: Option<Duration>,
    pub(crate) filters: Vec<FilterSpec>,
    pub(crate) successor: Option<usize>,
    pub(crate) has_id: [bool; EVENTS],
    pub(crate) regions: [Region; REGIONS],
    pub(crate) block: Option<usize>,
    /// The session that owns the slot, and the class of its streams.
    pub(crate) session: usize,
    pub(crate) class: u32,
    /// True if the slot's recorder is dead, or has left the slot.
    pub(crate) is_left: bool,
    /// True if only the slot's memory must still be given back.
    pub(crate) is_complete: bool,
    /// Time when the slot was freed; 0: it was never used.
    pub(crate) freed_at: u64,
    // From here on, only the checks use these fields.
    pub(crate) life: Option<Life>,
    /// True if state that writers cache was changed, but the generation not yet.
    pub(crate) is_unpublished: bool,
    /// True while rules or bits are being changed.
    pub(crate) is_changing: bool,
}

impl Slot {
    pub(crate) fn set_rules(&mut self, text: String) {
        for (selects, name) in self.selects.iter_mut().zip(NAMES) {
            *selects = rules_select(&text, name);
        }
        self.rules = text;
    }

    /// Returns true if constructors may set bits for the slot.
    pub(crate) fn is_open(&self) -> bool {
        self.state == State::Active && !self.is_paused
    }
}

/// Returns true if rules select an event. Implemented again from docs/design/0007, without levels,
/// to check the results of `ChannelSpec::rules_text`.
pub(crate) fn rules_select(text: &str, name: &str) -> bool {
    let matches = |pattern: &str| glob_matches(pattern.as_bytes(), name.as_bytes());
    let excluded = text.lines().filter_map(|line| line.strip_prefix('!')).any(matches);
    !excluded && text.lines().any(|line| !line.starts_with('!') && matches(line))
}

/// The whole window.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) slots: Vec<Slot>,
    /// The enable word of each event.
    pub(crate) words: [u32; EVENTS],
    /// Number of changes of each enable word, for the checks only.
    pub(crate) changes: [u64; EVENTS],
    /// True for each event that is in the table.
    pub(crate) is_ready: [bool; EVENTS],
    /// `events_revision`: incremented for a new event, or for a bit that the recorder must check.
    pub(crate) news: u64,
    /// The life that owns each block of memory.
    pub(crate) blocks: [Option<Life>; BLOCKS],
    /// True if anything except records has changed since the ledger's last observation.
    pub(crate) is_changed: bool,
}

impl Window {
    pub(crate) fn new() -> Self {
        Self {
            slots: vec![Slot::default(); SLOTS],
            words: [0; EVENTS],
            changes: [0; EVENTS],
            is_ready: [false; EVENTS],
            news: 0,
            blocks: [None; BLOCKS],
            is_changed: true,
        }
    }

    pub(crate) fn has_bit(&self, event: usize, slot: usize) -> bool {
        self.words[event] >> slot & 1 != 0
    }

    pub(crate) fn set_bit(&mut self, event: usize, slot: usize, on: bool) {
        self.set_word(event, self.words[event] & !(1 << slot) | u32::from(on) << slot);
    }

    pub(crate) fn set_word(&mut self, event: usize, word: u32) {
        self.changes[event] += u64::from(self.words[event] != word);
        self.words[event] = word;
    }
}
