//! A subscriber of its own, for programs that have no other use for `tracing`.
//!
//! A span costs half of what it costs with the [layer](crate::layer()): nothing is kept of it but
//! what its end needs. Slots for that are in a table, by number, so that no number that a program
//! may think up leads astray. Free slots are in lists of the threads, and what these have too many
//! of in one that all share.
//!
//! Nothing is ever locked: a process may be forked while its other threads are anywhere in here,
//! and the child, which has no such threads, goes on making spans.
//!
//! The program's allocator may make spans, too: here it is only called when the list of spans that
//! a thread is in grows or goes, with nothing half done. All other memory is the C library's.

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

/// Slots that are made at a time, and that threads take and give at a time.
const CHUNK_SLOTS: usize = 64;
/// Most chunks: the ends of spans beyond a million at a time are not recorded.
const CHUNKS_MAX: usize = 16384;
/// Free slots that a thread keeps: where spans are made in one thread and end in another, slots go
/// back to the first.
const FREE_MAX: usize = 2 * CHUNK_SLOTS;
/// Ids that a thread takes at a time.
const IDS_OF_THREAD: u64 = 1024;
/// The number of no slot.
const NO_SLOT: u32 = 0;

/// A subscriber that records all spans and events that a recorder asks for, and does nothing else.
///
/// ```
/// tracing::subscriber::set_global_default(trackway::subscriber())?;
/// tracing::info!(rows = 3_u64, "loaded");
/// # Ok::<(), tracing::subscriber::SetGlobalDefaultError>(())
/// ```
///
/// It records what the [layer](crate::layer()) records, except for unwanted spans: while a recorder
/// wants none of a span's own events, this subscriber makes no span, and what happens in there is
/// recorded as being in the span around, or in none (`span_id` 0). To know the spans of selected
/// events, select the spans, too.
///
/// An allocator may make spans for what it allocates, from the program's first allocation on, if
/// it does nothing else that allocates meanwhile. Spans may be made, entered and ended in the
/// destructors of thread-local values.
pub fn subscriber() -> Subscriber {
    Subscriber { enters: false }
}

/// See [`subscriber`].
#[derive(Debug)]
pub struct Subscriber {
    enters: bool,
}

impl Subscriber {
    /// Records each time that a span is entered and exited, too: for async programs, in which a
    /// span may be idle between its beginning and its end.
    pub const fn enters(mut self, yes: bool) -> Self {
        self.enters = yes;
        self
    }
}

/// The data of a span.
#[derive(Debug)]
struct Slot {
    /// Handles that there are of it; 0 while it is free.
    handles: AtomicU32,
    /// Number of the next free slot, while it is free.
    next: AtomicU32,
    /// The span's id in traces; 0 when it has ended. (Slots, and their numbers, are used again.)
    id: AtomicU64,
    callsite: AtomicPtr<Callsite>,
}

type Chunk = [Slot; CHUNK_SLOTS];

static CHUNKS: [AtomicPtr<Chunk>; CHUNKS_MAX] =
    [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS_MAX];

/// Chunks that were begun: their places in [`CHUNKS`] are taken.
static CHUNKS_BEGUN: AtomicUsize = AtomicUsize::new(0);
/// The slots that no thread has.
static SHARED_FREE_LIST: SharedFreeList = SharedFreeList::new();
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// The slot with this number, if there is one: numbers begin at 1.
#[inline(always)]
fn find_slot(number: u64) -> Option<&'static Slot> {
    let index = usize::try_from(number.checked_sub(1)?).ok()?;
    // ORDERING: Acquire pairs with the Release in `add_chunk`: a chunk is whole when it is seen.
    let chunk = CHUNKS.get(index / CHUNK_SLOTS)?.load(Ordering::Acquire);
    // SAFETY: null, or one that was leaked.
    unsafe { chunk.as_ref() }.map(|chunk| &chunk[index % CHUNK_SLOTS])
}

/// The last slot of the list that begins with `first`, of the `count` first ones if it is longer,
/// and how many these are.
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

/// A list of free slots that all threads share: a stack (R. K. Treiber, 1986) whose head changes
/// with one compare-and-exchange, so that a thread that is stopped in between, even for ever (as
/// the threads are that a fork leaves behind), stops no other thread.
///
/// Slots are never freed, so a link may be followed that is out of date: it leads to another slot,
/// or to none. What was found is of use only if the head is then exchanged, and it is not if
/// anything was taken meanwhile, because each taking counts a tag up: below a head with the same
/// tag, no link has changed. The tag would have to come round, 2^32 takings of whole lists, in
/// the time that one thread walks along one.
#[derive(Debug)]
struct SharedFreeList {
    /// The first slot's number in the lower half, the tag in the upper one.
    head: AtomicU64,
}

impl SharedFreeList {
    const fn new() -> Self {
        Self { head: AtomicU64::new(NO_SLOT as u64) }
    }

    /// A list of free slots and how many there are, at most `most`; [`NO_SLOT`] if there are none.
    fn take(&self, most: usize) -> (u32, usize) {
        // ORDERING: Acquire, here and below, pairs with the Release in `give`: the links are seen
        // of all lists that were given before (each exchange goes on with the release of the last).
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let first = head as u32;
            let Some((last, count)) = walk_free_list(first, most) else { return (NO_SLOT, 0) };
            let tag = (head >> 32).wrapping_add(1) << 32;
            let rest = tag | u64::from(last.next.load(Ordering::Relaxed));
            // ORDERING: Acquire: as above, where another thread's head is found.
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

    /// Takes back a list that ends with `last`.
    fn give(&self, first: u32, last: &Slot) {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            last.next.store(head as u32, Ordering::Relaxed);
            let longer = head & !u64::from(u32::MAX) | u64::from(first);
            // ORDERING: Release publishes the list's links, and what their spans left; see `take`.
            let given = Ordering::Release;
            match self.head.compare_exchange_weak(head, longer, given, Ordering::Relaxed) {
                Ok(_) => return,
                Err(found) => head = found,
            }
        }
    }
}

/// Makes a chunk, and gives the list of its slots, which is the caller's, and their number;
/// [`NO_SLOT`] where there is no memory, or no room for more.
///
/// The memory is the C library's whatever the program's allocator is: that may make spans itself,
/// and it is called without anything in here being half done.
#[cold]
fn add_chunk() -> (u32, usize) {
    let one_more = |begun: usize| (begun < CHUNKS_MAX).then_some(begun + 1);
    // SAFETY: the layout is not empty.
    let chunk = unsafe { System.alloc_zeroed(Layout::new::<Chunk>()) }.cast::<Chunk>();
    // SAFETY: null, or the caller's alone; a slot may be all zeros: free, the last of its list.
    let Some(slots) = (unsafe { chunk.as_ref() }) else { return (NO_SLOT, 0) };
    let begun = CHUNKS_BEGUN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
    let Ok(index) = begun else {
        // SAFETY: of that layout, and no other code has seen it.
        unsafe { System.dealloc(chunk.cast(), Layout::new::<Chunk>()) };
        return (NO_SLOT, 0);
    };
    let first = (index * CHUNK_SLOTS + 1) as u32;
    for (slot, next) in slots.iter().zip(first + 1..first + CHUNK_SLOTS as u32) {
        slot.next.store(next, Ordering::Relaxed);
    }
    // ORDERING: Release publishes the slots; see `slot`. A fork before leaves its child a chunk
    // less.
    CHUNKS[index].store(chunk, Ordering::Release);
    (first, CHUNK_SLOTS)
}

/// The data of a thread, from its beginning to its very end: without a destructor, it can be used
/// in those of other thread-local values, whichever comes first. [`ENDING`] has one.
struct ThreadState {
    /// Free slots, linked by `next`.
    free: Cell<u32>,
    free_count: Cell<usize>,
    /// Number of free slots that is too large: [`KEEPS_NONE`], or [`FREE_MAX`] while `ENDING` is
    /// there.
    free_max: Cell<usize>,
    next_id: Cell<u64>,
    ids_end: Cell<u64>,
    /// The spans that it is in, the innermost last. Borrowed only as far as it is free: an
    /// allocator that makes spans itself is called from here, when the list grows.
    entered: ManuallyDrop<RefCell<Vec<Entered>>>,
}

const _: () = assert!(!mem::needs_drop::<ThreadState>());

/// Value of `free_max` for a thread that has not used its list yet, or is ending: each slot is
/// given back.
const KEEPS_NONE: usize = 1;

/// A span that a thread is in. It is not held by that: with its guard forgotten, it ends before it
/// is exited. Then its slot has another id, and the thread is in no span, as with the layer.
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

/// Gives a thread's free slots back when it ends. What comes later keeps nothing.
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
    /// A number that no other span of this process has.
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

    /// Returns true if the thread may keep what it has until [`ThreadEndGuard`] gives it back; sees
    /// to that.
    fn may_keep(&self) -> bool {
        let is_there = ENDING.try_with(|_| ()).is_ok();
        self.free_max.set(if is_there { FREE_MAX } else { KEEPS_NONE });
        is_there
    }

    /// The number of a free slot, which is the caller's, or [`NO_SLOT`].
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

    /// Gets free slots, if there are any: one that is about to be taken, where none may be kept.
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

    /// Gives the first `count` free slots, or all that there are, to other threads.
    #[cold]
    fn give_back(&self, count: usize) {
        let first = self.free.get();
        if let Some((last, count)) = walk_free_list(first, count) {
            self.free.set(last.next.load(Ordering::Relaxed));
            self.free_count.set(self.free_count.get() - count);
            SHARED_FREE_LIST.give(first, last);
        }
    }

    /// Notes that the thread is in this span, too, but not while the list is growing.
    #[inline(always)]
    fn enter(&self, entered: Entered) {
        let Ok(mut list) = self.entered.try_borrow_mut() else { return };
        if list.len() == list.capacity() {
            self.may_keep();
        }
        list.push(entered);
    }

    /// Notes that it is no longer in the span with this number, whether or not it has ended.
    #[inline(always)]
    fn exit(&self, number: u64) {
        let Ok(mut list) = self.entered.try_borrow_mut() else { return };
        // The innermost, but where guards are dropped out of order.
        let place = list.iter().rposition(|one| u64::from(one.number) == number);
        if let Some(place) = place {
            list.remove(place);
        }
        drop(list);
        if self.free_max.get() == KEEPS_NONE {
            self.free_list_of_entered();
        }
    }

    /// Frees the list of spans that the thread is in, if it is in none.
    #[cold]
    fn free_list_of_entered(&self) {
        let take = |mut list: core::cell::RefMut<'_, Vec<Entered>>| {
            list.is_empty().then(|| mem::take(&mut *list))
        };
        // Dropped when it is borrowed no more: the allocator may make spans.
        drop(self.entered.try_borrow_mut().ok().and_then(take));
    }

    /// The span that the thread is in.
    #[inline(always)]
    fn current(&self) -> Option<Entered> {
        let innermost = *self.entered.try_borrow().ok()?.last()?;
        // Relaxed: the id is unique, and while the span has not ended its slot has no other.
        let is_open =
            find_slot(innermost.number.into())?.id.load(Ordering::Relaxed) == innermost.id;
        is_open.then_some(innermost)
    }

    #[inline(always)]
    fn current_id(&self) -> Option<u64> {
        self.current().map(|entered| entered.id)
    }
}

/// The id in traces of a span that `tracing` knows as `id`.
fn id_of(id: &Id) -> Option<u64> {
    find_slot(id.into_u64()).map(|slot| slot.id.load(Ordering::Relaxed))
}

/// A span's slot and callsite, while there are handles of it.
#[inline(always)]
fn find_span(id: &Id) -> Option<(&'static Slot, &'static Callsite)> {
    let slot = find_slot(id.into_u64())?;
    // SAFETY: null, or a callsite, which is never freed.
    let callsite = unsafe { slot.callsite.load(Ordering::Relaxed).as_ref() }?;
    Some((slot, callsite))
}

impl tracing_core::Subscriber for Subscriber {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if runtime::find_register_function().is_none() {
            return Interest::never();
        }
        Callsite::find_or_add(metadata);
        // Not `always`: events are switched on and off without this process knowing.
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
                // Relaxed: the id goes to other threads in a way that orders all of it.
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
        // ORDERING: Acquire and Release as of any count of references: what was done through other
        // handles has happened before the slot is used again. One handle is the caller's alone.
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
