//! A subscriber for programs that use `tracing` only for Trackway.
//!
//! A span costs half as much as with the [layer](crate::layer()): the subscriber stores only the
//! data that the span's end needs. This data is in slots of a table, by number, so that every
//! number from a program is safe to use. Threads have lists of free slots, and share surplus slots
//! in a common list.
//!
//! The subscriber takes no locks: a process may fork while other threads run any of this code, and
//! the child, which lacks these threads, continues to make spans.
//!
//! The program's allocator may make spans, too. It is called only when a thread's list of entered
//! spans grows or is freed, while all state is consistent. All other memory comes from the C
//! library.

use core::cell::{Cell, RefCell};
use core::mem::{self, ManuallyDrop};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::alloc::{GlobalAlloc, Layout, System};

use tracing_core::span::{Attributes, Current, Id, Record};
use tracing_core::subscriber::Interest;
use tracing_core::{Event, Metadata};

use crate::callsite::Callsite;
use crate::runtime;

/// Number of slots in a chunk, and number that a thread takes or returns at a time.
const CHUNK_SLOTS: usize = 64;
/// Most chunks: beyond a million simultaneous spans, ends of spans are not recorded.
const CHUNKS_MAX: usize = 16384;
/// Most free slots that a thread keeps: if spans begin in one thread and end in another, slots must
/// return to the first.
const FREE_MAX: usize = 2 * CHUNK_SLOTS;
/// Number of ids that a thread takes at a time.
const IDS_OF_THREAD: u64 = 1024;
/// The number that means no slot.
const NO_SLOT: u32 = 0;

/// Returns a subscriber that only records all spans and events that a recorder requests.
///
/// ```
/// tracing::subscriber::set_global_default(trackway::subscriber())?;
/// tracing::info!(rows = 3_u64, "loaded");
/// # Ok::<(), tracing::subscriber::SetGlobalDefaultError>(())
/// ```
///
/// The subscriber records what the [layer](crate::layer()) records, except for unrequested spans.
/// While a recorder requests none of a span's own events, the subscriber creates no span, and
/// events within it belong to the enclosing span, or to none (`span_id` 0). To record the spans of
/// selected events, select the spans, too.
///
/// An allocator may make spans for its allocations, from the program's first allocation on, if it
/// does nothing else that allocates. Spans may be made, entered and ended in the destructors of
/// thread-local values.
pub fn subscriber() -> Subscriber {
    Subscriber { enters: false }
}

/// A subscriber that [`subscriber`] creates.
#[derive(Debug)]
pub struct Subscriber {
    enters: bool,
}

impl Subscriber {
    /// Sets if each entry and exit of a span is recorded, too: for async programs, in which a span
    /// may be idle between its beginning and its end.
    pub const fn enters(mut self, yes: bool) -> Self {
        self.enters = yes;
        self
    }
}

/// The data of a span, or a free slot.
#[derive(Debug)]
struct Slot {
    /// Number of handles of the span; 0 while the slot is free.
    handles: AtomicU32,
    /// Number of the next free slot, while this slot is free.
    next: AtomicU32,
    /// The span's id in traces; 0 after its end. (Slots and their numbers are reused.)
    id: AtomicU64,
    callsite: AtomicPtr<Callsite>,
}

type Chunk = [Slot; CHUNK_SLOTS];

static CHUNKS: [AtomicPtr<Chunk>; CHUNKS_MAX] =
    [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS_MAX];

/// Number of chunks whose places in [`CHUNKS`] are taken.
static CHUNKS_BEGUN: AtomicUsize = AtomicUsize::new(0);
/// The free slots that belong to no thread.
static SHARED_FREE_LIST: SharedFreeList = SharedFreeList::new();
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// Returns the slot with this number, if it exists: numbers begin at 1.
#[inline(always)]
fn find_slot(number: u64) -> Option<&'static Slot> {
    let index = usize::try_from(number.checked_sub(1)?).ok()?;
    // ORDERING: Acquire pairs with the Release in `add_chunk`: a loaded chunk is complete.
    let chunk = CHUNKS.get(index / CHUNK_SLOTS)?.load(Ordering::Acquire);
    // SAFETY: the pointer is null, or leads to a leaked chunk.
    unsafe { chunk.as_ref() }.map(|chunk| &chunk[index % CHUNK_SLOTS])
}

/// Returns the last of the first `count` slots in the list that begins with `first`, and the number
/// of these slots.
fn walk_free_list(first: u32, count: usize) -> Option<(&'static Slot, usize)> {
    let mut last = find_slot(first.into())?;
    for walked in 1..count {
        match find_slot(last.next.load(Ordering::Relaxed).into()) {
            Some(next) => last = next,
            None => return Some((last, walked)),
        }
    }
    Some((last, count))
}

/// A list of free slots that all threads share: a stack (R. K. Treiber, 1986) whose head changes by
/// one compare-and-exchange. A thread that is stopped in between, even for ever (like threads that
/// a fork does not copy), stops no other thread.
///
/// Slots are never freed, so a thread may follow an outdated link: it leads to another slot, or to
/// none. The result is used only if the exchange of the head succeeds. It fails after any removal
/// meanwhile, because each removal increments a tag: below a head with an equal tag, no link has
/// changed. A wrong success needs a wrap-around of the tag, 2^32 removals of whole lists, while one
/// thread walks one list.
#[derive(Debug)]
struct SharedFreeList {
    /// The first slot's number in the lower half, the tag in the upper half.
    head: AtomicU64,
}

impl SharedFreeList {
    const fn new() -> Self {
        Self { head: AtomicU64::new(NO_SLOT as u64) }
    }

    /// Removes a list of at most `most` free slots; returns its first slot and length, or
    /// [`NO_SLOT`].
    fn take(&self, most: usize) -> (u32, usize) {
        // ORDERING: Acquire, here and below, pairs with the Release in `give`: the links of all
        // lists that were given before are visible (each exchange continues the release sequence of
        // the last).
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let first = head as u32;
            let Some((last, count)) = walk_free_list(first, most) else { return (NO_SLOT, 0) };
            let tag = (head >> 32).wrapping_add(1) << 32;
            let rest = tag | u64::from(last.next.load(Ordering::Relaxed));
            // ORDERING: Acquire, as for the first load, when the exchange reads another thread's
            // head.
            let taken = Ordering::Acquire;
            match self.head.compare_exchange_weak(head, rest, taken, Ordering::Acquire) {
                Ok(_) => {
                    last.next.store(NO_SLOT, Ordering::Relaxed);
                    return (first, count);
                }
                Err(found) => head = found,
            }
        }
    }

    /// Adds a list of free slots that begins with `first` and ends with `last`.
    fn give(&self, first: u32, last: &Slot) {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            last.next.store(head as u32, Ordering::Relaxed);
            let longer = head & !u64::from(u32::MAX) | u64::from(first);
            // ORDERING: Release publishes the list's links, and the last writes of their spans; see
            // `take`.
            let given = Ordering::Release;
            match self.head.compare_exchange_weak(head, longer, given, Ordering::Relaxed) {
                Ok(_) => return,
                Err(found) => head = found,
            }
        }
    }
}

/// Creates a chunk; returns the first slot of its list, which belongs to the caller, and the number
/// of slots. Returns [`NO_SLOT`] if memory is short, or the table is full.
///
/// The memory comes from the C library, whatever the program's allocator is. That allocator may
/// make spans itself; no state of this module is inconsistent when the C library is called.
#[cold]
fn add_chunk() -> (u32, usize) {
    let one_more = |begun: usize| (begun < CHUNKS_MAX).then_some(begun + 1);
    // SAFETY: the layout is not empty.
    let chunk = unsafe { System.alloc_zeroed(Layout::new::<Chunk>()) }.cast::<Chunk>();
    // SAFETY: the pointer is null, or belongs to the caller; an all-zero slot is valid: free, last
    // of a list.
    let Some(slots) = (unsafe { chunk.as_ref() }) else { return (NO_SLOT, 0) };
    let begun = CHUNKS_BEGUN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
    let Ok(index) = begun else {
        // SAFETY: the chunk has this layout, and no other code has a pointer to it.
        unsafe { System.dealloc(chunk.cast(), Layout::new::<Chunk>()) };
        return (NO_SLOT, 0);
    };
    let first = (index * CHUNK_SLOTS + 1) as u32;
    for (slot, next) in slots.iter().zip(first + 1..first + CHUNK_SLOTS as u32) {
        slot.next.store(next, Ordering::Relaxed);
    }
    // ORDERING: Release publishes the slots; see `find_slot`. A child of an earlier fork lacks this
    // chunk.
    CHUNKS[index].store(chunk, Ordering::Release);
    (first, CHUNK_SLOTS)
}

/// The data of a thread, valid until the thread's very end: it has no destructor, so destructors of
/// other thread-local values can use it in any order. [`ENDING`] has the destructor.
struct ThreadState {
    /// First free slot of the thread; slots are linked by `next`.
    free: Cell<u32>,
    free_count: Cell<usize>,
    /// Number of free slots that is too many: [`KEEPS_NONE`], or [`FREE_MAX`] while `ENDING`
    /// exists.
    free_max: Cell<usize>,
    next_id: Cell<u64>,
    ids_end: Cell<u64>,
    /// The spans that the thread has entered, the innermost last. Borrowed with `try_borrow`: when
    /// the list grows, it calls an allocator that may make spans itself.
    entered: ManuallyDrop<RefCell<Vec<Entered>>>,
}

const _: () = assert!(!mem::needs_drop::<ThreadState>());

/// Value of `free_max` for a thread that has not used its list yet, or is ending: the thread
/// returns each slot.
const KEEPS_NONE: usize = 1;

/// A span that a thread has entered. This entry does not keep the span alive: if its guard is
/// forgotten, the span ends before its exit. Then its slot has another id, and the thread is in no
/// span, as with the layer.
#[derive(Debug, Clone, Copy)]
struct Entered {
    number: u32,
    id: u64,
}

thread_local! {
    static THREAD: ThreadState = const {
        ThreadState {
            free: Cell::new(NO_SLOT),
            free_count: Cell::new(0),
            free_max: Cell::new(KEEPS_NONE),
            next_id: Cell::new(0),
            ids_end: Cell::new(0),
            entered: ManuallyDrop::new(RefCell::new(Vec::new())),
        }
    };
    static ENDING: ThreadEndGuard = const { ThreadEndGuard };
}

/// Returns a thread's free slots when the thread ends. Afterwards, the thread keeps no slots.
struct ThreadEndGuard;

impl Drop for ThreadEndGuard {
    fn drop(&mut self) {
        THREAD.with(|thread| {
            thread.free_max.set(KEEPS_NONE);
            thread.give_back(FREE_MAX);
            thread.free_list_of_entered();
        });
    }
}

impl ThreadState {
    /// Returns an id that no other span of this process has.
    #[inline(always)]
    fn new_id(&self) -> u64 {
        let mut id = self.next_id.get();
        if id == self.ids_end.get() {
            id = NEXT_ID.fetch_add(IDS_OF_THREAD, Ordering::Relaxed);
            self.ids_end.set(id + IDS_OF_THREAD);
        }
        self.next_id.set(id + 1);
        id
    }

    /// Returns true if the thread may keep free slots, because [`ThreadEndGuard`] will return them;
    /// sets `free_max` accordingly.
    fn may_keep(&self) -> bool {
        let is_there = ENDING.try_with(|_| ()).is_ok();
        self.free_max.set(if is_there { FREE_MAX } else { KEEPS_NONE });
        is_there
    }

    /// Takes a free slot; returns its number, or [`NO_SLOT`].
    #[inline(always)]
    fn take_slot(&self) -> u32 {
        if self.free.get() == NO_SLOT {
            self.refill();
        }
        let number = self.free.get();
        if let Some(slot) = find_slot(number.into()) {
            self.free.set(slot.next.load(Ordering::Relaxed));
            self.free_count.set(self.free_count.get() - 1);
        }
        number
    }

    /// Gets free slots, if possible: only one slot if the thread may keep none.
    #[cold]
    fn refill(&self) {
        let most = if self.may_keep() { CHUNK_SLOTS } else { 1 };
        let mut list = SHARED_FREE_LIST.take(most);
        if list.0 == NO_SLOT {
            list = add_chunk();
        }
        self.free.set(list.0);
        self.free_count.set(list.1);
        if list.1 > most
            && let Some(first) = find_slot(list.0.into())
        {
            self.free.set(first.next.load(Ordering::Relaxed));
            self.free_count.set(list.1 - 1);
            self.give_back(FREE_MAX);
            first.next.store(NO_SLOT, Ordering::Relaxed);
            self.free.set(list.0);
            self.free_count.set(1);
        }
    }

    #[inline(always)]
    fn give_slot(&self, number: u32, slot: &Slot) {
        slot.next.store(self.free.get(), Ordering::Relaxed);
        self.free.set(number);
        self.free_count.set(self.free_count.get() + 1);
        if self.free_count.get() >= self.free_max.get() {
            self.give_too_many();
        }
    }

    #[cold]
    fn give_too_many(&self) {
        if self.free_max.get() == FREE_MAX {
            self.give_back(CHUNK_SLOTS);
        } else if !self.may_keep() {
            self.give_back(FREE_MAX);
        }
    }

    /// Returns the first `count` free slots, or all of them, to the shared list.
    #[cold]
    fn give_back(&self, count: usize) {
        let first = self.free.get();
        if let Some((last, count)) = walk_free_list(first, count) {
            self.free.set(last.next.load(Ordering::Relaxed));
            self.free_count.set(self.free_count.get() - count);
            SHARED_FREE_LIST.give(first, last);
        }
    }

    /// Notes that the thread has entered a span; does nothing while the list is growing.
    #[inline(always)]
    fn enter(&self, entered: Entered) {
        let Ok(mut list) = self.entered.try_borrow_mut() else { return };
        if list.len() == list.capacity() {
            self.may_keep();
        }
        list.push(entered);
    }

    /// Notes that the thread has exited the span with this number, whether or not the span has
    /// ended.
    #[inline(always)]
    fn exit(&self, number: u64) {
        let Ok(mut list) = self.entered.try_borrow_mut() else { return };
        // Usually the innermost span, unless guards are dropped out of order.
        let place = list.iter().rposition(|one| u64::from(one.number) == number);
        if let Some(place) = place {
            list.remove(place);
        }
        drop(list);
        if self.free_max.get() == KEEPS_NONE {
            self.free_list_of_entered();
        }
    }

    /// Frees the list of entered spans, if it is empty.
    #[cold]
    fn free_list_of_entered(&self) {
        let take = |mut list: core::cell::RefMut<'_, Vec<Entered>>| {
            list.is_empty().then(|| mem::take(&mut *list))
        };
        // Drops the list after the borrow has ended, because the allocator may make spans.
        drop(self.entered.try_borrow_mut().ok().and_then(take));
    }

    /// Returns the innermost span that the thread has entered, if it has not ended.
    #[inline(always)]
    fn current(&self) -> Option<Entered> {
        let innermost = *self.entered.try_borrow().ok()?.last()?;
        // Relaxed: the id is unique, and the slot keeps it until the span ends.
        let is_open =
            find_slot(innermost.number.into())?.id.load(Ordering::Relaxed) == innermost.id;
        is_open.then_some(innermost)
    }

    #[inline(always)]
    fn current_id(&self) -> Option<u64> {
        self.current().map(|entered| entered.id)
    }
}

/// Returns a span's id in traces, for its id in `tracing`.
fn id_of(id: &Id) -> Option<u64> {
    find_slot(id.into_u64()).map(|slot| slot.id.load(Ordering::Relaxed))
}

/// Returns a span's slot and callsite, while the span has handles.
#[inline(always)]
fn find_span(id: &Id) -> Option<(&'static Slot, &'static Callsite)> {
    let slot = find_slot(id.into_u64())?;
    // SAFETY: the pointer is null, or leads to a callsite, which is never freed.
    let callsite = unsafe { slot.callsite.load(Ordering::Relaxed).as_ref() }?;
    Some((slot, callsite))
}

impl tracing_core::Subscriber for Subscriber {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if runtime::find_register_function().is_none() {
            return Interest::never();
        }
        Callsite::find_or_add(metadata);
        // Not `always`: sessions switch events on and off without notifying `tracing`.
        Interest::sometimes()
    }

    #[inline]
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        Callsite::find(metadata).is_none_or(Callsite::may_be_on)
    }

    #[inline]
    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let Some(callsite) = Callsite::find_or_add(attributes.metadata()) else {
            return Id::from_u64(u64::MAX);
        };
        let begin = |thread: &ThreadState| {
            let id = thread.new_id();
            callsite.record_begin(attributes, id, || match attributes.parent() {
                Some(parent) => id_of(parent),
                None if attributes.is_contextual() => thread.current_id(),
                None => None,
            });
            let number = thread.take_slot();
            if let Some(slot) = find_slot(number.into()) {
                slot.id.store(id, Ordering::Relaxed);
                slot.callsite.store(ptr::from_ref(callsite).cast_mut(), Ordering::Relaxed);
                // Relaxed: programs pass the id to other threads with their own synchronisation.
                slot.handles.store(1, Ordering::Relaxed);
            }
            number
        };
        match THREAD.with(begin) {
            NO_SLOT => Id::from_u64(u64::MAX),
            number => Id::from_u64(number.into()),
        }
    }

    fn record(&self, id: &Id, record: &Record<'_>) {
        if let Some((slot, callsite)) = find_span(id) {
            callsite.record(record, slot.id.load(Ordering::Relaxed));
        }
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let Some(callsite) = Callsite::find_or_add(event.metadata()) else { return };
        callsite.record_event(event, || match event.parent() {
            Some(parent) => id_of(parent),
            None if event.is_contextual() => THREAD.with(ThreadState::current_id),
            None => None,
        });
    }

    #[inline]
    fn enter(&self, id: &Id) {
        let Some((slot, callsite)) = find_span(id) else { return };
        let entered = Entered { number: id.into_u64() as u32, id: slot.id.load(Ordering::Relaxed) };
        THREAD.with(|thread| thread.enter(entered));
        if self.enters {
            callsite.record_enter(entered.id);
        }
    }

    #[inline]
    fn exit(&self, id: &Id) {
        if self.enters
            && let Some((slot, callsite)) = find_span(id)
        {
            callsite.record_exit(slot.id.load(Ordering::Relaxed));
        }
        THREAD.with(|thread| thread.exit(id.into_u64()));
    }

    #[inline]
    fn clone_span(&self, id: &Id) -> Id {
        if let Some(slot) = find_slot(id.into_u64()) {
            slot.handles.fetch_add(1, Ordering::Relaxed);
        }
        id.clone()
    }

    #[inline]
    fn try_close(&self, id: Id) -> bool {
        let Some((slot, callsite)) = find_span(&id) else { return false };
        // ORDERING: Acquire and Release as in any reference count: all uses by other handles happen
        // before the slot is reused. A single handle belongs to the caller alone.
        match slot.handles.load(Ordering::Acquire) {
            0 => return false,
            1 => slot.handles.store(0, Ordering::Relaxed),
            _ if slot.handles.fetch_sub(1, Ordering::AcqRel) > 1 => return false,
            _ => {}
        }
        callsite.record_end(slot.id.load(Ordering::Relaxed));
        slot.callsite.store(ptr::null_mut(), Ordering::Relaxed);
        slot.id.store(0, Ordering::Relaxed);
        THREAD.with(|thread| thread.give_slot(id.into_u64() as u32, slot));
        true
    }

    fn current_span(&self) -> Current {
        let Some(innermost) = THREAD.with(ThreadState::current) else { return Current::none() };
        let id = Id::from_u64(innermost.number.into());
        match find_span(&id) {
            Some((_, callsite)) => Current::new(id, callsite.metadata),
            None => Current::none(),
        }
    }
}

#[cfg(test)]
#[path = "subscriber_tests.rs"]
mod tests;
