//! The archive of this process's event descriptions, in its own memory, for the window of its next
//! user.
//!
//! A process that becomes another user ([`crate::setuid`]) registers its events again in that
//! user's window, from this archive: the old window was its old user's to change. Sites that still
//! point at words of the old window find [`RETARGET`] there, which no recorder writes. The first
//! record that such a site emits points it at the new window. So the library needs no list of the
//! sites, which only the loader could give, under a lock.
//!
//! Invariant: an event's number in the archive stands for the same bytes for the process's life. An
//! uncertain word is not retargeted, and then its events stay off.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use trackway_abi::window::EVENTS_MAX;
use trackway_window::Window;

use crate::state::process::PROCESS;
use crate::state::window_map::MappedWindow;

/// The value of enable words of a window that the process has left, while it is in another one: the
/// event's word is elsewhere.
pub(crate) const RETARGET: u32 = u32::MAX;

/// Maximum bytes of all descriptions. Further events are off in later windows.
const POOL_BYTES: usize = 512 << 10;
/// Maximum number of descriptions: as many as a window has.
const DESCRIPTIONS_MAX: usize = EVENTS_MAX;
/// An entry of [`EventNumbers::numbers`]: the event is not archived, or several events have the
/// word.
const UNCERTAIN: u16 = u16::MAX;

/// The descriptions, one after the other.
static POOL: Pool = Pool(UnsafeCell::new([0; POOL_BYTES]));
static POOL_USED: AtomicU32 = AtomicU32::new(0);
/// The [`Extent`] of each description. 0: there is none yet.
static EXTENTS: [AtomicU64; DESCRIPTIONS_MAX] = [const { AtomicU64::new(0) }; DESCRIPTIONS_MAX];
static COUNT: AtomicU32 = AtomicU32::new(0);
/// Enable words of events that were registered while the process was in no window.
static WINDOWLESS_WORDS: [AtomicU32; DESCRIPTIONS_MAX] =
    [const { AtomicU32::new(0) }; DESCRIPTIONS_MAX];

/// Enable word of events that are off for good.
static OFF: AtomicU32 = AtomicU32::new(0);

struct Pool(UnsafeCell<[u8; POOL_BYTES]>);

// SAFETY: the thread that allocated bytes writes them once, before it publishes their extent with
// Release; readers saw the extent with Acquire.
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
        // SAFETY: only `store_description` makes extents, inside the pool; their bytes were written
        // before and never again.
        inside.then(|| unsafe {
            core::slice::from_raw_parts(POOL.0.get().cast::<u8>().cast_const().add(at), length)
        })
    }
}

/// Returns the description with this number.
fn description_by_number(number: usize) -> Option<&'static [u8]> {
    // ORDERING: Acquire pairs with the Release in `store_description`: the bytes are there.
    Extent::bytes(EXTENTS.get(number)?.load(Ordering::Acquire))
}

/// Returns the archive number and the description of the event with this number in a window.
/// `None`: this process has not registered the event, or several events may have the number.
pub(crate) fn find_description(
    mapped: &MappedWindow,
    event: usize,
) -> Option<(usize, &'static [u8])> {
    let number = mapped.event_numbers.numbers.get(event)?.load(Ordering::Relaxed);
    if number == UNCERTAIN {
        return None;
    }
    let number = usize::from(number.checked_sub(1)?);
    Some((number, description_by_number(number)?))
}

/// Allocates `count` of `most` items, if as many are left. Returns the first item's number. A
/// failed call allocates nothing at any moment: otherwise another thread could get the same items.
fn allocate_range(used: &AtomicU32, count: usize, most: usize) -> Option<usize> {
    let more = |used: u32| {
        let end = used as usize + count;
        (end <= most).then_some(end as u32)
    };
    // ORDERING: SeqCst, for the count of descriptions: see `add_event`.
    let at = used.fetch_update(Ordering::SeqCst, Ordering::Relaxed, more);
    at.ok().map(|at| at as usize)
}

/// Archives a description. Returns its number.
fn store_description(encoded: &[u8]) -> Option<usize> {
    let at = allocate_range(&POOL_USED, encoded.len(), POOL_BYTES)?;
    let number = allocate_range(&COUNT, 1, DESCRIPTIONS_MAX)?;
    // SAFETY: this thread alone allocated the place, and no thread reads the bytes before the
    // extent is there.
    unsafe {
        let place = POOL.0.get().cast::<u8>().add(at);
        core::ptr::copy_nonoverlapping(encoded.as_ptr(), place, encoded.len());
    }
    let extent = Extent { at, length: encoded.len() };
    // ORDERING: Release pairs with the Acquire in `description_by_number`.
    EXTENTS[number].store(extent.to_word(), Ordering::Release);
    Some(number)
}

/// The numbers that archived events have in a window.
pub(crate) struct EventNumbers {
    /// By number in the window: number in the archive, plus one; 0: none.
    numbers: [AtomicU16; EVENTS_MAX],
    /// By number in the archive: number in the window, plus one; 0: it has none.
    window_numbers: [AtomicU16; DESCRIPTIONS_MAX],
}

impl EventNumbers {
    pub(crate) const fn new() -> Self {
        Self {
            numbers: [const { AtomicU16::new(0) }; EVENTS_MAX],
            window_numbers: [const { AtomicU16::new(0) }; DESCRIPTIONS_MAX],
        }
    }

    /// Archives the event of this description, which has the number `index` in the window.
    ///
    /// A thread then points a site at the word, and reads the process's moves afterwards; a move
    /// counts first, then reads this table. All these accesses are SeqCst, so that the thread or
    /// the move finds the other.
    pub(crate) fn add_event(&self, index: usize, encoded: &[u8]) {
        let entry = &self.numbers[index % EVENTS_MAX];
        if entry.load(Ordering::Relaxed) == 0 {
            if let Some(number) = store_description(encoded) {
                self.note(index, number);
            } else {
                entry.store(UNCERTAIN, Ordering::Relaxed);
            }
        } else if self.number_of(index).and_then(description_by_number) != Some(encoded) {
            // The window was changed so that two events have one word.
            entry.store(UNCERTAIN, Ordering::Relaxed);
        }
    }

    /// Stores that an archived event has the number `index` in the window.
    pub(crate) fn note(&self, index: usize, number: usize) {
        let entry = &self.numbers[index % EVENTS_MAX];
        let word = number as u16 + 1;
        // ORDERING: SeqCst: see `add_event`.
        if let Err(other) = entry.compare_exchange(0, word, Ordering::SeqCst, Ordering::Relaxed) {
            let is_same = other == UNCERTAIN
                || description_by_number(usize::from(other) - 1) == description_by_number(number);
            if !is_same {
                entry.store(UNCERTAIN, Ordering::Relaxed);
            }
        }
        self.window_numbers[number % DESCRIPTIONS_MAX].store(index as u16 + 1, Ordering::Relaxed);
    }

    /// Returns the archive number of the event with the number `index` in the window.
    fn number_of(&self, index: usize) -> Option<usize> {
        let word = self.numbers[index % EVENTS_MAX].load(Ordering::Relaxed);
        (word != UNCERTAIN).then(|| usize::from(word).checked_sub(1))?
    }

    /// Returns the enable word of an archived event in the window.
    fn word_of(&self, window: &Window, number: usize) -> Option<&'static AtomicU32> {
        let index = self.window_numbers[number % DESCRIPTIONS_MAX]
            .load(Ordering::Relaxed)
            .checked_sub(1)?;
        Some(&window.event(index.into()).enabled)
    }
}

/// Returns the archived descriptions, with their numbers.
pub(crate) fn archived_descriptions() -> impl Iterator<Item = (usize, &'static [u8])> {
    // ORDERING: SeqCst: see `add_event`.
    let count = COUNT.load(Ordering::SeqCst) as usize;
    (0..count.min(DESCRIPTIONS_MAX))
        .filter_map(|number| Some((number, description_by_number(number)?)))
}

/// Writes `value`, 0 or [`RETARGET`], to the enable words of all windows but `except`, and to the
/// words outside of windows. Sites that still point to these words read the value.
pub(crate) fn set_abandoned_words(value: u32, except: Option<&MappedWindow>) {
    for (mapped, window) in MappedWindow::all() {
        if except.is_some_and(|except| core::ptr::eq(except, mapped)) {
            continue;
        }
        for (index, number) in mapped.event_numbers.numbers.iter().enumerate() {
            // ORDERING: SeqCst: see `add_event`.
            if !matches!(number.load(Ordering::SeqCst), 0 | UNCERTAIN) {
                window.event(index).enabled.store(value, Ordering::Relaxed);
            }
        }
    }
    // ORDERING: SeqCst: see `add_event`.
    let count = COUNT.load(Ordering::SeqCst) as usize;
    for word in &WINDOWLESS_WORDS[..count.min(DESCRIPTIONS_MAX)] {
        word.store(value, Ordering::Relaxed);
    }
}

/// Returns the word of an event that is registered while the process is in no window; it is off
/// until the process enters one. `None`: the archive is full.
pub(crate) fn word_without_window(encoded: &[u8]) -> Option<&'static AtomicU32> {
    let count = COUNT.load(Ordering::Relaxed) as usize;
    let found = (0..count.min(DESCRIPTIONS_MAX)).find(|&number| has_description(number, encoded));
    found.or_else(|| store_description(encoded)).map(|number| &WINDOWLESS_WORDS[number])
}

/// Returns the number of the archived event with this word, if that is certain.
pub(crate) fn find_number_by_word(word: *const AtomicU32) -> Option<usize> {
    if let Some((mapped, index)) = MappedWindow::find_by_word(word) {
        return mapped.event_numbers.number_of(index);
    }
    let at =
        (word as usize).wrapping_sub(WINDOWLESS_WORDS.as_ptr() as usize) / size_of::<AtomicU32>();
    (at < DESCRIPTIONS_MAX).then_some(at)
}

/// Returns true if the archived event has this description.
pub(crate) fn has_description(number: usize, encoded: &[u8]) -> bool {
    description_by_number(number) == Some(encoded)
}

/// Returns the present word of the event that had `word`. An event that the present window does not
/// have is off for good. `None`: the process is in no window.
pub(crate) fn current_word(word: *const AtomicU32) -> Option<&'static AtomicU32> {
    let mapped = PROCESS.current_window()?;
    let window = &mapped.window()?;
    let index = Window::event_at(window.base(), word);
    if index < EVENTS_MAX {
        return Some(&window.event(index).enabled); // the word is in the present window
    }
    let found =
        find_number_by_word(word).and_then(|number| mapped.event_numbers.word_of(window, number));
    Some(found.unwrap_or(&OFF))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_that_is_described_twice_is_kept_once() {
        static NUMBERS: EventNumbers = EventNumbers::new();
        NUMBERS.add_event(7, b"described twice");
        let number = NUMBERS.number_of(7).expect("it is kept");
        assert_eq!(description_by_number(number), Some(&b"described twice"[..]));
        NUMBERS.add_event(7, b"described twice");
        assert_eq!(NUMBERS.number_of(7), Some(number));
        assert!(
            has_description(number, b"described twice") && !has_description(number, b"described")
        );
    }

    /// A user who writes to the old window must not decide about records in another user's window.
    #[test]
    fn a_word_of_two_events_is_uncertain() {
        static NUMBERS: EventNumbers = EventNumbers::new();
        NUMBERS.add_event(9, b"one");
        NUMBERS.add_event(9, b"another");
        assert_eq!(NUMBERS.number_of(9), None);
        NUMBERS.add_event(9, b"one");
        assert_eq!(NUMBERS.number_of(9), None, "for good");
        // A conflict that is found later makes the word uncertain, too.
        NUMBERS.add_event(10, b"third");
        NUMBERS.note(10, store_description(b"fourth").expect("room"));
        assert_eq!(NUMBERS.number_of(10), None);
    }

    #[test]
    fn what_finds_no_room_is_refused_and_takes_none() {
        let used = AtomicU32::new(10);
        assert_eq!(allocate_range(&used, 6, 16), Some(10));
        assert_eq!(allocate_range(&used, 1, 16), None);
        assert_eq!(used.load(Ordering::Relaxed), 16);
        // A refused call allocates nothing at any moment.
        extern crate std;
        std::thread::scope(|scope| {
            let other =
                scope.spawn(|| (0..300_000).all(|_| allocate_range(&used, 1, 16).is_none()));
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
        let number = find_number_by_word(word).expect("it is archived");
        assert!(has_description(number, b"in no window"));
        assert_eq!(find_number_by_word(&OFF), None);
        assert_eq!(find_number_by_word(core::ptr::null()), None);
    }
}
