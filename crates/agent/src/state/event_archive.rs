//! What this process has described: kept in its own memory, for the window of its next user.
//!
//! A process that becomes another user (see [`crate::setuid`]) describes everything again in
//! that user's window, from here: what stood in the old window was its old user's to change. Sites
//! that still aim at words of the old window find [`RETARGET`] there, which no recorder means, and
//! are aimed at the new one by the first record that they emit: so nobody has to know where they
//! are, which only the loader does, under a lock.
//!
//! Invariant: an event's number here (`number`) stands for the same bytes for the process's life;
//! whatever is not certain about a word is not followed, and then its events stay off.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use trackway_abi::window::EVENTS_MAX;
use trackway_window::Window;

use crate::state::process::PROCESS;
use crate::state::window_map::MappedWindow;

/// What an enable word holds in the place of a window that the process has left, while it is in
/// another one: look where the event is now.
pub(crate) const RETARGET: u32 = u32::MAX;

/// Most bytes of descriptions that are kept. Events that find no room are off in windows to come.
const POOL_BYTES: usize = 512 << 10;
/// Most descriptions: as many as a window has.
const DESCRIPTIONS_MAX: usize = EVENTS_MAX;
/// In [`EventNumbers::number`]: not kept, or more than one event has that word.
const UNCERTAIN: u16 = u16::MAX;

/// The descriptions, one behind the other.
static POOL: Pool = Pool(UnsafeCell::new([0; POOL_BYTES]));
static POOL_USED: AtomicU32 = AtomicU32::new(0);
/// Where each begins, and how long it is: [`Extent`]. 0: not there, or not yet.
static EXTENTS: [AtomicU64; DESCRIPTIONS_MAX] = [const { AtomicU64::new(0) }; DESCRIPTIONS_MAX];
static COUNT: AtomicU32 = AtomicU32::new(0);
/// Enable words of events that were described while the process was in no window.
static WINDOWLESS_WORDS: [AtomicU32; DESCRIPTIONS_MAX] =
    [const { AtomicU32::new(0) }; DESCRIPTIONS_MAX];

/// The word of events that are off for good.
static OFF: AtomicU32 = AtomicU32::new(0);

struct Pool(UnsafeCell<[u8; POOL_BYTES]>);

// SAFETY: bytes are written once, by whoever took their place, before their extent is published
// with Release; they are read by those who saw the extent with Acquire.
unsafe impl Sync for Pool {}

/// A place in the pool, as a word: never 0, because no description is empty.
struct Extent {
    at: usize,
    length: usize,
}

impl Extent {
    const fn to_word(&self) -> u64 {
        (self.at as u64) << 32 | self.length as u64
    }

    fn bytes(word: u64) -> Option<&'static [u8]> {
        let (at, length) = ((word >> 32) as usize, (word & 0xffff_ffff) as usize);
        let inside = length > 0 && at + length <= POOL_BYTES;
        // SAFETY: extents are made by `add` alone, inside the pool; their bytes were written
        // before and never again.
        inside.then(|| unsafe {
            core::slice::from_raw_parts(POOL.0.get().cast::<u8>().cast_const().add(at), length)
        })
    }
}

/// The description with this number.
fn description(number: usize) -> Option<&'static [u8]> {
    // ORDERING: Acquire pairs with the Release in `add`: the bytes are there.
    Extent::bytes(EXTENTS.get(number)?.load(Ordering::Acquire))
}

/// The description of the event that has this number in the window of a mapped, and its number
/// here, if this process has described it, and knows that it is the only one.
pub(crate) fn find_description(
    mapped: &MappedWindow,
    event: usize,
) -> Option<(usize, &'static [u8])> {
    let number = mapped.event_numbers.numbers.get(event)?.load(Ordering::Relaxed);
    if number == UNCERTAIN {
        return None;
    }
    let number = usize::from(number.checked_sub(1)?);
    Some((number, description(number)?))
}

/// Takes `count` of `most`, if as many are left: where they begin. Who finds too few has never
/// taken any: else what another thread takes meanwhile would be given out again.
fn allocate(used: &AtomicU32, count: usize, most: usize) -> Option<usize> {
    let more = |used: u32| {
        let end = used as usize + count;
        (end <= most).then_some(end as u32)
    };
    // ORDERING: SeqCst, for the count of descriptions: see `keep`.
    let at = used.fetch_update(Ordering::SeqCst, Ordering::Relaxed, more);
    at.ok().map(|at| at as usize)
}

/// Keeps a description; its number.
fn store_description(encoded: &[u8]) -> Option<usize> {
    let at = allocate(&POOL_USED, encoded.len(), POOL_BYTES)?;
    let number = allocate(&COUNT, 1, DESCRIPTIONS_MAX)?;
    // SAFETY: the place was taken by us alone, and nobody reads it before the extent is there.
    unsafe {
        let place = POOL.0.get().cast::<u8>().add(at);
        core::ptr::copy_nonoverlapping(encoded.as_ptr(), place, encoded.len());
    }
    let extent = Extent { at, length: encoded.len() };
    // ORDERING: Release pairs with the Acquire in `description`.
    EXTENTS[number].store(extent.to_word(), Ordering::Release);
    Some(number)
}

/// Which number event has which number in a mapped's window.
pub(crate) struct EventNumbers {
    /// By number there: number here, plus one; 0: none.
    numbers: [AtomicU16; EVENTS_MAX],
    /// By number here: number there, plus one; 0: it has none.
    window_numbers: [AtomicU16; DESCRIPTIONS_MAX],
}

impl EventNumbers {
    pub(crate) const fn new() -> Self {
        Self {
            numbers: [const { AtomicU16::new(0) }; EVENTS_MAX],
            window_numbers: [const { AtomicU16::new(0) }; DESCRIPTIONS_MAX],
        }
    }

    /// Notes that the event of this description has the number `index` there.
    ///
    /// Whoever then aims a site at it looks at the process's moves afterwards; who moves counts the
    /// move first, then looks here. All of it is SeqCst, so that one of them sees the other.
    pub(crate) fn add_event(&self, index: usize, encoded: &[u8]) {
        let entry = &self.numbers[index % EVENTS_MAX];
        if entry.load(Ordering::Relaxed) == 0 {
            if let Some(number) = store_description(encoded) {
                self.note(index, number);
            } else {
                entry.store(UNCERTAIN, Ordering::Relaxed);
            }
        } else if self.number_of(index).and_then(description) != Some(encoded) {
            // Somebody has changed the window, and gives two events one word.
            entry.store(UNCERTAIN, Ordering::Relaxed);
        }
    }

    /// Notes that a number event has the number `index` there.
    pub(crate) fn note(&self, index: usize, number: usize) {
        let entry = &self.numbers[index % EVENTS_MAX];
        let word = number as u16 + 1;
        // ORDERING: SeqCst: see `keep`.
        if let Err(other) = entry.compare_exchange(0, word, Ordering::SeqCst, Ordering::Relaxed) {
            let is_same =
                other == UNCERTAIN || description(usize::from(other) - 1) == description(number);
            if !is_same {
                entry.store(UNCERTAIN, Ordering::Relaxed);
            }
        }
        self.window_numbers[number % DESCRIPTIONS_MAX].store(index as u16 + 1, Ordering::Relaxed);
    }

    /// The number here of the event that has the number `index` there.
    fn number_of(&self, index: usize) -> Option<usize> {
        let word = self.numbers[index % EVENTS_MAX].load(Ordering::Relaxed);
        (word != UNCERTAIN).then(|| usize::from(word).checked_sub(1))?
    }

    /// The enable word there of a number event.
    fn word_of(&self, window: &Window, number: usize) -> Option<&'static AtomicU32> {
        let index = self.window_numbers[number % DESCRIPTIONS_MAX]
            .load(Ordering::Relaxed)
            .checked_sub(1)?;
        Some(&window.event(index.into()).enabled)
    }
}

/// Returns the descriptions that this process has, with their numbers here.
pub(crate) fn all() -> impl Iterator<Item = (usize, &'static [u8])> {
    // ORDERING: SeqCst: see `keep`.
    let count = COUNT.load(Ordering::SeqCst) as usize;
    (0..count.min(DESCRIPTIONS_MAX)).filter_map(|number| Some((number, description(number)?)))
}

/// Writes `value`, 0 or [`RETARGET`], where sites look that aim at a window which the process has
/// left, or at none: at every mapped but `except`, which may show its window.
pub(crate) fn set_abandoned_words(value: u32, except: Option<&MappedWindow>) {
    for (mapped, window) in MappedWindow::all() {
        if except.is_some_and(|except| core::ptr::eq(except, mapped)) {
            continue;
        }
        for (index, number) in mapped.event_numbers.numbers.iter().enumerate() {
            // ORDERING: SeqCst: see `keep`.
            if !matches!(number.load(Ordering::SeqCst), 0 | UNCERTAIN) {
                window.event(index).enabled.store(value, Ordering::Relaxed);
            }
        }
    }
    // ORDERING: SeqCst: see `keep`.
    let count = COUNT.load(Ordering::SeqCst) as usize;
    for word in &WINDOWLESS_WORDS[..count.min(DESCRIPTIONS_MAX)] {
        word.store(value, Ordering::Relaxed);
    }
}

/// The word of an event that is described while the process is in no window: off, until it is in
/// one. `None`: there is no room.
pub(crate) fn word_without_window(encoded: &[u8]) -> Option<&'static AtomicU32> {
    let count = COUNT.load(Ordering::Relaxed) as usize;
    let found = (0..count.min(DESCRIPTIONS_MAX)).find(|&number| has_description(number, encoded));
    found.or_else(|| store_description(encoded)).map(|number| &WINDOWLESS_WORDS[number])
}

/// The number event whose word this is, if that is certain.
pub(crate) fn find_by_word(word: *const AtomicU32) -> Option<usize> {
    if let Some((mapped, _, index)) = MappedWindow::find_by_word(word) {
        return mapped.event_numbers.number_of(index);
    }
    let at =
        (word as usize).wrapping_sub(WINDOWLESS_WORDS.as_ptr() as usize) / size_of::<AtomicU32>();
    (at < DESCRIPTIONS_MAX).then_some(at)
}

/// Whether the number event's description is this.
pub(crate) fn has_description(number: usize, encoded: &[u8]) -> bool {
    description(number) == Some(encoded)
}

/// Where the event that has had `word` is now. What cannot be found in the process's window is off
/// for good. `None`: the process is in no window.
pub(crate) fn current_word(word: *const AtomicU32) -> Option<&'static AtomicU32> {
    let mapped = PROCESS.current_window()?;
    let window = &mapped.window()?;
    let index = Window::event_at(window.base(), word);
    if index < EVENTS_MAX {
        return Some(&window.event(index).enabled); // it is there already
    }
    let found = find_by_word(word).and_then(|number| mapped.event_numbers.word_of(window, number));
    Some(found.unwrap_or(&OFF))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_that_is_described_twice_is_kept_once() {
        static PLACES: EventNumbers = EventNumbers::new();
        PLACES.add_event(7, b"described twice");
        let number = PLACES.number_of(7).expect("it is kept");
        assert_eq!(description(number), Some(&b"described twice"[..]));
        PLACES.add_event(7, b"described twice");
        assert_eq!(PLACES.number_of(7), Some(number));
        assert!(
            has_description(number, b"described twice") && !has_description(number, b"described")
        );
    }

    /// A user who writes into his window may not decide what is recorded in another one's.
    #[test]
    fn a_word_that_two_events_are_given_is_nobodys() {
        static PLACES: EventNumbers = EventNumbers::new();
        PLACES.add_event(9, b"one");
        PLACES.add_event(9, b"another");
        assert_eq!(PLACES.number_of(9), None);
        PLACES.add_event(9, b"one");
        assert_eq!(PLACES.number_of(9), None, "for good");
        // Nor where it is found out later.
        PLACES.add_event(10, b"third");
        PLACES.note(10, store_description(b"fourth").expect("room"));
        assert_eq!(PLACES.number_of(10), None);
    }

    #[test]
    fn what_finds_no_room_is_refused_and_takes_none() {
        let used = AtomicU32::new(10);
        assert_eq!(allocate(&used, 6, 16), Some(10));
        assert_eq!(allocate(&used, 1, 16), None);
        assert_eq!(used.load(Ordering::Relaxed), 16);
        // At no moment either.
        extern crate std;
        std::thread::scope(|scope| {
            let other = scope.spawn(|| (0..300_000).all(|_| allocate(&used, 1, 16).is_none()));
            while !other.is_finished() {
                assert_eq!(used.load(Ordering::Relaxed), 16);
            }
            assert!(other.join().expect("no panic"));
        });
        assert_eq!(Extent::bytes(Extent { at: POOL_BYTES - 1, length: 2 }.to_word()), None);
        assert_eq!(Extent::bytes(0), None);
    }

    #[test]
    fn an_event_in_no_window_has_one_word() {
        let word = word_without_window(b"in no window").expect("room");
        assert!(core::ptr::eq(word, word_without_window(b"in no window").expect("it")));
        let number = find_by_word(word).expect("it is number");
        assert!(has_description(number, b"in no window"));
        assert_eq!(find_by_word(&OFF), None);
        assert_eq!(find_by_word(core::ptr::null()), None);
    }
}
