//! The application contexts that a session records, as indices of this process.
//!
//! The list is read once for a generation of the session, and again when the process has one more
//! context. One word for each session caches it, so no thread reads half of it.

use core::sync::atomic::{AtomicU64, Ordering, fence};

use trackway_abi::record::context::{APPLICATIONS_MAX, APPLICATIONS_ROOM, NOTHING};
use trackway_abi::session::{APPLICATIONS_BYTES_MAX, SESSIONS_MAX};
use trackway_window::Window;

use super::names::{self, ContextIndex};
use super::values;
use crate::state::process::PROCESS;

/// By session, its list and the list's key ([`SessionContexts::cache_key`]). 0: nothing yet.
static CACHE: [AtomicU64; SESSIONS_MAX] = [const { AtomicU64::new(0) }; SESSIONS_MAX];

/// The contexts that a session records. Four bits for each context hold its index plus one, or 0 if
/// the process does not have it; the number of contexts follows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SessionContexts(u64);

/// Number of bits for one context.
const PLACE_BITS: usize = 4;
/// First of the three bits for the number of contexts.
const COUNT_AT: usize = PLACE_BITS * APPLICATIONS_MAX;
/// First bit of the list's key.
const KEY_AT: usize = COUNT_AT + 4;

const _: () = assert!(names::CONTEXTS_MAX < 1 << PLACE_BITS && APPLICATIONS_MAX < 8);

impl SessionContexts {
    /// Returns the key of a list: the generation of the session, the window, and the number of
    /// contexts. The lowest bits of the generation suffice, because it rises by one.
    #[inline(always)]
    fn cache_key(generation: u64) -> u64 {
        let moves = PROCESS.moves() & 0x7f;
        (generation & 0xffff_ffff) << 12 | moves << 5 | 1 << 4 | names::contexts_count() as u64
    }

    /// Returns the cached list of a session's generation. `None`: [`read_session_list`] must read
    /// it.
    #[inline(always)]
    pub(crate) fn find_cached(session: usize, generation: u64) -> Option<Self> {
        let word = CACHE[session % SESSIONS_MAX].load(Ordering::Relaxed);
        (word >> KEY_AT == Self::cache_key(generation)).then_some(Self(word))
    }

    const fn count(self) -> usize {
        let count = (self.0 >> COUNT_AT & 7) as usize;
        if count < APPLICATIONS_MAX { count } else { APPLICATIONS_MAX }
    }

    const fn place(self, number: usize) -> Option<ContextIndex> {
        let place = self.0 >> (PLACE_BITS * number) & ((1 << PLACE_BITS) - 1);
        match place.checked_sub(1) {
            Some(place) => ContextIndex::new(place as usize),
            None => None,
        }
    }

    /// Writes the calling thread's values backward, like all contexts, so that they end at `end`.
    /// Returns their size in bytes, and true if a value did not fit; such a value is written as not
    /// set. Without `with_values`, all are written as not set.
    ///
    /// # Safety
    /// There is headroom before `end`.
    pub(crate) unsafe fn write(self, end: *mut u8, with_values: bool) -> (usize, bool) {
        let (mut at, mut is_cut) = (end, false);
        let mut left = if with_values { APPLICATIONS_ROOM } else { 0 };
        for number in (0..self.count()).rev() {
            let place = self.place(number);
            let value = place.and_then(|place| Some((place, values::read_value(place)?)));
            // SAFETY: the headroom holds so many bytes, the other contexts and the longest header
            // (asserted in `trackway_abi::record`).
            unsafe {
                if let Some((place, value)) = value {
                    let (bytes, length) = value.bytes();
                    let count = if place.is_text() { length + 1 } else { size_of::<u64>() };
                    // Each context that follows takes at least the byte that means "not set".
                    if 1 + count + number <= left {
                        // The bytes of a number are already in the order of a record.
                        at = at.sub(count);
                        core::ptr::copy_nonoverlapping(bytes.as_ptr(), at, count);
                        at = at.sub(1);
                        at.write(place.kind() as u8);
                        left -= 1 + count;
                        continue;
                    }
                    is_cut = true;
                }
                at = at.sub(1);
                at.write(NOTHING);
                left = left.saturating_sub(1);
            }
        }
        // SAFETY: both addresses are in one piece of memory.
        (unsafe { end.offset_from_unsigned(at) }, is_cut)
    }
}

/// Returns the contexts that a session records in this generation. `None`: the session has another
/// generation.
#[cold]
#[inline(never)] // keeps its frame off its callers' stack
pub(crate) fn read_session_list(
    window: &Window,
    index: usize,
    generation: u64,
) -> Option<SessionContexts> {
    if let Some(known) = SessionContexts::find_cached(index, generation) {
        return Some(known);
    }
    // Computed first: a context that is declared later changes the key.
    let key = SessionContexts::cache_key(generation);
    let session = window.session(index);
    let mut names = [0; APPLICATIONS_BYTES_MAX];
    let length = session.applications_bytes.load(Ordering::Relaxed) as usize;
    let names = &mut names[..length.min(APPLICATIONS_BYTES_MAX)];
    for (byte, shared) in names.iter_mut().zip(&session.applications) {
        *byte = shared.load(Ordering::Relaxed);
    }
    // ORDERING: Acquire keeps the names before the check of their generation: they are written
    // before it is raised.
    fence(Ordering::Acquire);
    if session.generation.load(Ordering::Relaxed) != generation {
        return None;
    }
    let (mut word, mut count) = (0, 0);
    let names = names.split(|&byte| byte == b'\n').filter(|name| !name.is_empty());
    for (number, name) in names.take(APPLICATIONS_MAX).enumerate() {
        let place = super::find_context(name).map_or(0, |place| place.index() as u64 + 1);
        word |= place << (PLACE_BITS * number);
        count = number as u64 + 1;
    }
    let wanted = SessionContexts(word | count << COUNT_AT | key << KEY_AT);
    CACHE[index % SESSIONS_MAX].store(wanted.0, Ordering::Relaxed);
    Some(wanted)
}
