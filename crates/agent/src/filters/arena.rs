//! The arena of plans: a few parts of static memory, one of which is being filled at a time.
//!
//! Plans are not freed one by one. When a part is full, the arena removes its links and fills
//! another part that was retired earlier. A retired part is free when
//!
//! 1. some recorder has visited every CPU since then ([`Header::visits_done`]);
//! 2. no thread is inside the part ([`super::readers`]);
//! 3. a second has passed on this process's own clock. The window is hostile: a forged visit could
//!    otherwise overwrite memory that a thread is about to enter. A second is longer than a thread
//!    stays, without being preempted, between the check of a link and the count;
//! 4. no fork child may be in the part's code ([`pin_occupied`]).
//!
//! [`Header::visits_done`]: trackway_abi::window::Header::visits_done

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

use trackway_sys::clock::monotonic_ns;
use trackway_window::Window;

use super::executable_memory::{CODE_KINDS, CodeKind};
use super::plan::{Filter, Plan};
use super::{Link, LinkAction, lanes, readers};
use crate::state::filter_links::{self, place_of};

/// Number of parts.
pub(super) const PARTS: usize = trackway_ring::inside::PARTS;
/// Number of parts of each lane ([`lanes`]).
const PARTS_OF_LANE: usize = PARTS / lanes::LANE_COUNT;
/// Bytes of a part.
const PART_BYTES: usize = 512 << 10;
/// Minimum time between a part's retirement and its next use, in ns.
const RETIREMENT_NS: u64 = 1_000_000_000;

#[repr(align(64))]
struct Memory(UnsafeCell<[u8; PARTS * PART_BYTES]>);

// SAFETY: the owner of the part's lane writes, in places that no link leads to yet; readers come by
// a link, and are counted.
unsafe impl Sync for Memory {}

static MEMORY: Memory = Memory(UnsafeCell::new([0; PARTS * PART_BYTES]));

/// Parts that are never used again.
static PINNED: [AtomicBool; PARTS] = [const { AtomicBool::new(false) }; PARTS];

/// Returns the part of the plan at this place.
#[inline(always)]
pub(super) const fn part_of(at: u32) -> usize {
    at as usize / PART_BYTES % PARTS
}

/// Returns the plan at this place.
///
/// # Safety
/// A link leads to this place, and the caller is inside the plan's part.
#[inline(always)]
pub(super) unsafe fn plan_at<'p>(at: u32) -> &'p Plan {
    // SAFETY: by contract: the plan was written before the link, and stays while a thread is
    // inside.
    unsafe { &*address_of(at) }
}

/// Returns the address of the plan at this place. The caller reads it only inside the plan's part.
#[inline(always)]
pub(super) const fn address_of(at: u32) -> *const Plan {
    let at = at as usize % (PARTS * PART_BYTES);
    MEMORY.0.get().cast::<u8>().cast_const().wrapping_add(at).cast()
}

/// Pins every part that has a thread inside, before a fork: the child has the same code, and no
/// process can detect when the child's thread leaves the code. Any thread; async-signal-safe.
pub(super) fn pin_occupied() {
    for (part, pinned) in PINNED.iter().enumerate() {
        // Other threads may be inside, too, for nanoseconds each. One part more or less does not
        // matter.
        if !readers::is_empty(part) {
            pinned.store(true, Ordering::Relaxed);
        }
    }
}

/// Error: the arena has no memory left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ArenaFull;

/// The contents of a part.
struct Part {
    used: usize,
    /// Used bytes of the part's code memory, by kind.
    code_used: [usize; CODE_KINDS],
    /// The latest plan.
    plans: *const Plan,
    /// The latest filter.
    filters: *const Filter,
    /// Time of the part's retirement, in ns; 0: the part is not retired.
    retired_ns: u64,
    /// Number of the visit that was requested at retirement, and the window of that request.
    visit: u32,
    window: *mut u8,
}

/// The parts of one lane, for the lane's owner. All zeros until it is used.
pub(super) struct Arena {
    /// Number of the lane.
    lane: usize,
    current: usize,
    parts: [Part; PARTS_OF_LANE],
}

/// A mark in the current part.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    used: usize,
    /// Used bytes of the part's code memory, by kind.
    code_used: [usize; CODE_KINDS],
    filters: *const Filter,
}

impl Arena {
    pub(super) const fn new() -> Self {
        Self { lane: 0, current: 0, parts: [const { Part::new() }; PARTS_OF_LANE] }
    }

    /// Sets the lane that the parts belong to.
    pub(super) fn set_lane(&mut self, number: usize) {
        self.lane = number;
    }

    fn part(&mut self) -> &mut Part {
        &mut self.parts[self.current % PARTS_OF_LANE]
    }

    /// Returns the number, among all parts, of one of the lane's parts.
    const fn number_of(&self, part: usize) -> usize {
        (self.lane % lanes::LANE_COUNT) * PARTS_OF_LANE + part % PARTS_OF_LANE
    }

    /// Returns the part that is being filled.
    pub(super) const fn current(&self) -> usize {
        self.number_of(self.current)
    }

    pub(super) fn mark(&mut self) -> Mark {
        let Part { used, code_used, filters, .. } = *self.part();
        Mark { used, code_used, filters }
    }

    /// Removes everything after the mark. No link may lead to the removed memory.
    pub(super) fn truncate_to(&mut self, mark: Mark) {
        let part = self.part();
        (part.used, part.code_used, part.filters) = (mark.used, mark.code_used, mark.filters);
    }

    /// Allocates `count` values. Returns their address, and their place in bytes.
    fn allocate<T>(&mut self, count: usize) -> Result<(*mut T, u32), ArenaFull> {
        const { assert!(align_of::<T>() <= 64) };
        let current = self.current();
        let part = self.part();
        // The beginning of a part stays free: its place is not a valid place of a plan.
        let at = part.used.max(64).next_multiple_of(align_of::<T>());
        let bytes = size_of::<T>().checked_mul(count).ok_or(ArenaFull)?;
        let end = at.checked_add(bytes).filter(|&end| end <= PART_BYTES).ok_or(ArenaFull)?;
        part.used = end;
        let at = current * PART_BYTES + at;
        let place = MEMORY.0.get().cast::<u8>().wrapping_add(at).cast();
        Ok((place, at as u32))
    }

    /// Stores a value in the current part. Returns the value's address, and its place in bytes.
    pub(super) fn push<T>(&mut self, value: T) -> Result<(*const T, u32), ArenaFull> {
        let (place, at) = self.allocate::<T>(1)?;
        // SAFETY: the memory is aligned, large enough, and not shared.
        unsafe { place.write(value) };
        Ok((place, at))
    }

    /// Stores copies of values in the current part.
    pub(super) fn push_all<T: Copy>(&mut self, values: &[T]) -> Result<&'static [T], ArenaFull> {
        let (place, _) = self.allocate::<T>(values.len())?;
        // SAFETY: the memory is aligned, large enough, and not shared. Only a thread inside the
        // part reads the slice, which is never freed alone.
        unsafe {
            core::ptr::copy_nonoverlapping(values.as_ptr(), place, values.len());
            Ok(core::slice::from_raw_parts(place, values.len()))
        }
    }

    /// Allocates `count` values, which no thread reads before they are written.
    pub(super) fn allocate_for<T>(&mut self, count: usize) -> Result<*mut T, ArenaFull> {
        self.allocate(count).map(|(place, _)| place)
    }

    /// Returns the used bytes of the part's code memory.
    pub(super) fn code_used(&mut self, kind: CodeKind) -> usize {
        self.part().code_used[kind as usize]
    }

    /// Adds to the used bytes of the part's code memory.
    pub(super) fn add_code_bytes(&mut self, kind: CodeKind, bytes: usize) {
        let used = &mut self.part().code_used[kind as usize];
        *used = (*used + bytes).next_multiple_of(16);
    }

    /// Returns the filters in the current part, the latest first.
    pub(super) fn filters(&self) -> impl Iterator<Item = &'static Filter> + use<> {
        let mut next = self.parts[self.current % PARTS_OF_LANE].filters;
        core::iter::from_fn(move || {
            // SAFETY: null, or stored since the part's last reuse.
            let filter = unsafe { next.as_ref() }?;
            next = filter.next;
            Some(filter)
        })
    }

    /// Adds a filter to the current part.
    pub(super) fn push_filter(&mut self, filter: Filter) -> Result<*const Filter, ArenaFull> {
        let next = self.part().filters;
        let (filter, _) = self.push(Filter { next, ..filter })?;
        self.part().filters = filter;
        Ok(filter)
    }

    /// Stores a plan. Returns its link, with this tag.
    pub(super) fn push_plan(&mut self, plan: Plan, tag: u32) -> Result<Link, ArenaFull> {
        let next = self.part().plans;
        let (place, at) = self.allocate::<Plan>(1)?;
        let link = if plan.has_direct() {
            Link::to_quick_plan(tag, at)
        } else {
            Link::new(tag, super::LinkAction::Plan(at))
        };
        // SAFETY: the memory is aligned, large enough, and not shared.
        unsafe { place.write(Plan { next, link: link.0, ..plan }) };
        self.part().plans = place;
        Ok(link)
    }

    /// Continues in another part, because the current part is full.
    pub(super) fn switch_part(&mut self, window: &Window) -> Result<(), ArenaFull> {
        let now_ns = monotonic_ns();
        let current = self.current;
        let mut others = (1..PARTS_OF_LANE).map(|step| (current + step) % PARTS_OF_LANE);
        let next = others.find(|&part| self.is_free(part, window, now_ns)).ok_or(ArenaFull)?;
        self.retire(self.current, window, now_ns);
        self.current = next;
        *self.part() = Part::new();
        Ok(())
    }

    /// Removes a part's links, and requests a visit.
    fn retire(&mut self, index: usize, window: &Window, now_ns: u64) {
        let part = &mut self.parts[index % PARTS_OF_LANE];
        let mut next = part.plans;
        // SAFETY: null, or stored since the part's last reuse.
        while let Some(plan) = unsafe { next.as_ref() } {
            let place = place_of(plan.session.into(), plan.event.into());
            if place.load(Ordering::Relaxed) == plan.link {
                // ORDERING: SeqCst: the link is removed before readers are counted; see `readers`.
                place.store(0, Ordering::SeqCst);
            }
            next = plan.next;
        }
        part.plans = core::ptr::null();
        part.retired_ns = now_ns.max(1);
        part.request_visit(window);
    }

    /// Returns true if a part may be used again.
    fn is_free(&mut self, index: usize, window: &Window, now_ns: u64) -> bool {
        let number = self.number_of(index);
        let part = &mut self.parts[index % PARTS_OF_LANE];
        if part.used == 0 && part.code_used == [0; CODE_KINDS] {
            return true;
        }
        if part.window != window.base() {
            // The process is in another window now, whose recorder has not received the request.
            part.retired_ns = now_ns.max(1);
            part.request_visit(window);
        }
        // ORDERING: Acquire pairs with the Release of the recorder that has made the visit.
        let done = window.header().visits_done.load(Ordering::Acquire);
        done.wrapping_sub(part.visit).cast_signed() >= 0
            && now_ns.saturating_sub(part.retired_ns) >= RETIREMENT_NS
            && !PINNED[number].load(Ordering::Relaxed)
            && readers::is_empty(number)
    }

    /// Resets the state of the parent's threads, in a fork child. A part with a thread inside stays
    /// unchanged, because a signal handler may have interrupted this thread inside.
    pub(super) fn reset_in_fork_child(&mut self) {
        let first = self.number_of(0);
        for (number, part) in (first..).zip(&mut self.parts) {
            if readers::is_empty(number) {
                // Links are void, since all decisions are.
                *part = Part::new();
            } else {
                PINNED[number].store(true, Ordering::Relaxed);
                part.plans = core::ptr::null();
                part.filters = core::ptr::null();
            }
        }
        let free = self.parts.iter().position(|part| part.used == 0);
        self.current = free.unwrap_or(self.current);
    }

    /// Recovers the arena from any state that a gone owner left. A list may lead to unwritten
    /// memory, and a part that was being retired may carry an old time, so no list is used. `used`
    /// and `code_used` were stored before any link that leads there (Release), so nothing in use is
    /// overwritten.
    ///
    /// Removes the links to all parts of the lane. The linker makes them again on demand.
    pub(super) fn recover(&mut self, window: &Window) {
        let numbers = self.number_of(0)..self.number_of(0) + PARTS_OF_LANE;
        for place in filter_links::link_places() {
            let link = place.load(Ordering::Relaxed);
            let leads_here = |link| match Link(link).action() {
                LinkAction::Plan(at) => numbers.contains(&part_of(at)),
                _ => false,
            };
            if leads_here(link) {
                // Another lane may have stored its own link there meanwhile.
                // ORDERING: SeqCst, as in `retire`.
                let _ = place.compare_exchange(link, 0, Ordering::SeqCst, Ordering::Relaxed);
            }
        }
        let (now_ns, current) = (monotonic_ns(), self.current % PARTS_OF_LANE);
        for (index, part) in self.parts.iter_mut().enumerate() {
            part.plans = core::ptr::null();
            part.filters = core::ptr::null();
            if index != current {
                part.retired_ns = now_ns.max(1);
                part.request_visit(window);
            }
        }
    }
}

impl Part {
    const fn new() -> Self {
        Self {
            used: 0,
            code_used: [0; CODE_KINDS],
            plans: core::ptr::null(),
            filters: core::ptr::null(),
            retired_ns: 0,
            visit: 0,
            window: core::ptr::null_mut(),
        }
    }

    /// Requests a visit to every CPU.
    fn request_visit(&mut self, window: &Window) {
        // ORDERING: Release pairs with the Acquire of the recorder: the links are gone by then.
        let before = window.header().visits_asked.fetch_add(1, Ordering::Release);
        self.visit = before.wrapping_add(1);
        self.window = window.base();
    }
}
