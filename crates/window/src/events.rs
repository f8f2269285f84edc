//! The table of events: descriptions interned by content, enable words, ids.
//!
//! Insertion is lock-free, and a process may die at any step: a slot goes EMPTY → FILLING → READY,
//! and a process that dies in between costs that slot. Two processes that insert the same event at
//! the same moment may fill two slots; both work, as two events with one name.

use core::sync::atomic::{AtomicU8, Ordering};

use trackway_abi::session::state;
use trackway_abi::window::{ARENA_BYTES, ARENA_OFFSET, EVENTS_MAX, event_state};
use trackway_schema::{ENCODED_BYTES_MAX, Heading};

use crate::Window;

/// Most slots that an insertion examines.
const PROBES_MAX: usize = 256;
/// Most checks of a slot that another process is filling, before the insertion continues with the
/// next slot.
const FILLING_CHECKS_MAX: usize = 2000;

/// A copy of an encoded description.
pub struct DescriptionBytes {
    bytes: [u8; ENCODED_BYTES_MAX],
    length: usize,
}

impl DescriptionBytes {
    /// Returns the encoded bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Window {
    /// Finds or adds the event with this encoded description. Returns its index; `None` if the
    /// table or the arena is full (counted in the header).
    pub fn intern_event(&self, encoded: &[u8]) -> Option<u32> {
        let hash = trackway_schema::fnv1a_hash(encoded);
        let first = hash as usize % EVENTS_MAX;
        for index in (0..PROBES_MAX).map(|probe| (first + probe) % EVENTS_MAX) {
            let event = self.event(index);
            match self.settled_state(index) {
                event_state::READY
                    if event.hash.load(Ordering::Relaxed) == hash
                        && self.description_is(index, encoded) =>
                {
                    return Some(index as u32);
                }
                event_state::EMPTY => {
                    // ORDERING: Acquire orders the filling after the taking; the partner is the
                    // Release that made the slot READY, for readers of the slot.
                    let taken = event.state.compare_exchange(
                        event_state::EMPTY,
                        event_state::FILLING,
                        Ordering::Acquire,
                        Ordering::Relaxed,
                    );
                    if taken.is_err() {
                        // Another process took the slot: check again, because it may contain this
                        // event.
                        if self.settled_state(index) == event_state::READY
                            && self.description_is(index, encoded)
                        {
                            return Some(index as u32);
                        }
                        continue;
                    }
                    return self.fill_event(index, hash, encoded);
                }
                _ => {}
            }
        }
        self.header().events_refused.fetch_add(1, Ordering::Relaxed);
        None
    }

    fn settled_state(&self, index: usize) -> u32 {
        let state = &self.event(index).state;
        for _ in 0..FILLING_CHECKS_MAX {
            // ORDERING: Acquire pairs with the Release that makes a slot READY.
            match state.load(Ordering::Acquire) {
                event_state::FILLING => core::hint::spin_loop(),
                settled => return settled,
            }
        }
        event_state::FILLING
    }

    fn fill_event(&self, index: usize, hash: u64, encoded: &[u8]) -> Option<u32> {
        let header = self.header();
        let event = self.event(index);
        let bytes = u32::try_from(encoded.len()).ok()?;
        // Space is never taken and then given back: the arena would hand out space twice that other
        // processes take in between.
        let arena_used = &header.arena_used;
        let taken = (0..FILLING_CHECKS_MAX).find_map(|_| {
            let used = arena_used.load(Ordering::Relaxed);
            let end = used.checked_add(bytes).filter(|&end| end as usize <= ARENA_BYTES);
            let Some(end) = end else { return Some(None) };
            let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
            arena_used.compare_exchange(used, end, success, failure).ok().map(Some)
        });
        let Some(used) = taken.flatten() else {
            event.state.store(event_state::EMPTY, Ordering::Relaxed);
            header.events_refused.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        for (place, &byte) in encoded.iter().enumerate() {
            self.arena_byte(used as usize + place).store(byte, Ordering::Relaxed);
        }
        event.enabled.store(0, Ordering::Relaxed);
        event.hash.store(hash, Ordering::Relaxed);
        event.description_offset.store(used, Ordering::Relaxed);
        event.description_bytes.store(bytes, Ordering::Relaxed);
        header.events_used.fetch_max(index as u32 + 1, Ordering::Relaxed);
        // ORDERING: SeqCst, first half of a Dekker pair with the activation in `trackway_recorder`:
        // this process makes the event READY, then looks for active sessions; a recorder makes its
        // session ACTIVE, then looks for READY events. At least one of them finds the other.
        event.state.store(event_state::READY, Ordering::SeqCst);
        // ORDERING: Release: a reader of this revision also finds the event.
        header.events_revision.fetch_add(1, Ordering::Release);
        Some(index as u32)
    }

    /// Returns a copy of the description of event `index`, if the event exists. The copy is not
    /// decoded and not trusted yet.
    pub fn description(&self, index: usize) -> Option<DescriptionBytes> {
        let (offset, length) = self.description_range(index)?;
        let mut copy = DescriptionBytes { bytes: [0; ENCODED_BYTES_MAX], length };
        for (place, byte) in copy.bytes[..length].iter_mut().enumerate() {
            *byte = self.arena_byte(offset + place).load(Ordering::Relaxed);
        }
        Some(copy)
    }

    /// Copies the beginning of event `index`'s description, which rules match, into `beginning`.
    pub(crate) fn read_heading<'copy>(
        &self,
        index: usize,
        beginning: &'copy mut [u8; Heading::BYTES_MAX],
    ) -> Option<Heading<'copy>> {
        let (offset, length) = self.description_range(index)?;
        let copy = &mut beginning[..length.min(Heading::BYTES_MAX)];
        for (place, byte) in copy.iter_mut().enumerate() {
            *byte = self.arena_byte(offset + place).load(Ordering::Relaxed);
        }
        Heading::read(copy)
    }

    fn description_range(&self, index: usize) -> Option<(usize, usize)> {
        let event = self.event(index);
        // ORDERING: Acquire pairs with the SeqCst store in `fill_event`.
        if event.state.load(Ordering::Acquire) != event_state::READY {
            return None;
        }
        let offset = event.description_offset.load(Ordering::Relaxed) as usize;
        let length = event.description_bytes.load(Ordering::Relaxed) as usize;
        let inside = length <= ENCODED_BYTES_MAX && offset.checked_add(length)? <= ARENA_BYTES;
        inside.then_some((offset, length))
    }

    fn description_is(&self, index: usize, encoded: &[u8]) -> bool {
        let Some((offset, length)) = self.description_range(index) else { return false };
        length == encoded.len()
            && encoded.iter().enumerate().all(|(place, &byte)| {
                self.arena_byte(offset + place).load(Ordering::Relaxed) == byte
            })
    }

    fn arena_byte(&self, place: usize) -> &'static AtomicU8 {
        debug_assert!(place < ARENA_BYTES);
        // SAFETY: the arena belongs to the fixed part of the window; callers bounded `place`.
        unsafe { &*self.base().add(ARENA_OFFSET + place % ARENA_BYTES).cast() }
    }

    /// Returns the slots of sessions that may be recording: the second half of the Dekker pair that
    /// `fill_event` explains.
    pub fn active_sessions(&self) -> impl Iterator<Item = usize> + use<> {
        let window = *self;
        // ORDERING: SeqCst, both: sessions are checked after the event is READY; the partner is the
        // recorder, which makes its session ACTIVE before it checks events.
        core::sync::atomic::fence(Ordering::SeqCst);
        (0..trackway_abi::session::SESSIONS_MAX).filter(move |&index| {
            window.session(index).state.load(Ordering::SeqCst) == state::ACTIVE
        })
    }
}
