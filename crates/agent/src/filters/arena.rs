//! Where plans lie: a few parts of static memory, of which one is being filled at a time.
//!
//! Nothing is ever freed by itself. When a part is full, its links are taken away, and another part
//! is filled that was given up before; a part may be used anew when
//!
//! 1. some recorder has visited every CPU since it was given up ([`Header::visits_done`]);
//! 2. nobody is inside ([`super::readers`]);
//! 3. a second has gone by on this process's own clock: the window is hostile, and who forges the
//!    visit could have memory written over that a thread is about to enter, if it stands between
//!    the check of a link and the count for so long, without being preempted;
//! 4. no fork child may be in its code (see [`pin`]).
//!
//! [`Header::visits_done`]: trackway_abi::window::Header::visits_done

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

use trackway_sys::clock::monotonic_ns;
use trackway_window::Window;

use super::executable_memory::{KINDS, Kind};
use super::plan::{Filter, Plan};
use super::{Link, LinkAction, lanes, readers};
use crate::state::filter_links::{self, place_of};

/// How many parts there are.
pub(super) const PARTS: usize = trackway_ring::inside::PARTS;
/// How many of them each lane of `lanes` has.
const PARTS_OF_LANE: usize = PARTS / lanes::LANES;
/// Size of a part, in bytes.
const PART_BYTES: usize = 512 << 10;
/// How long a part rests at least, in ns.
const RETIREMENT_NS: u64 = 1_000_000_000;

#[repr(align(64))]
struct Memory(UnsafeCell<[u8; PARTS * PART_BYTES]>);

// SAFETY: written by who holds the part's lane of `lanes`, in places that no link leads to yet;
// read by those who came by a link, and are counted.
unsafe impl Sync for Memory {}

static MEMORY: Memory = Memory(UnsafeCell::new([0; PARTS * PART_BYTES]));

/// Parts that are never used anew.
static PINNED: [AtomicBool; PARTS] = [const { AtomicBool::new(false) }; PARTS];

/// The part in which the plan at this place lies.
#[inline(always)]
pub(super) const fn part_of(at: u32) -> usize {
    at as usize / PART_BYTES % PARTS
}

/// The plan at this place.
///
/// # Safety
/// A link action that there is one, and the caller is inside of its part.
#[inline(always)]
pub(super) unsafe fn plan_at<'p>(at: u32) -> &'p Plan {
    // SAFETY: by contract: it was written before the link, and has_stayed while somebody is inside.
    unsafe { &*address_of(at) }
}

/// Where that is, for who looks at it only when he is inside.
#[inline(always)]
pub(super) const fn address_of(at: u32) -> *const Plan {
    let at = at as usize % (PARTS * PART_BYTES);
    MEMORY.0.get().cast::<u8>().cast_const().wrapping_add(at).cast()
}

/// Never uses anew what somebody is inside of who is about to fork: in the child, which has the
/// same code, nobody could say when he has come out. Any thread; async-signal-safe.
pub(super) fn pin_occupied() {
    for (part, pinned) in PINNED.iter().enumerate() {
        // Others are inside, too, for nanoseconds each; and one part more or less does not matter.
        if !readers::is_empty(part) {
            pinned.store(true, Ordering::Relaxed);
        }
    }
}

/// There is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ArenaFull;

/// What has been put into a part.
struct Part {
    used: usize,
    /// Of its code, by kind.
    code_used: [usize; KINDS],
    /// The latest plan.
    plans: *const Plan,
    /// The latest filter.
    filters: *const Filter,
    /// When it was given up, in ns; 0: it was not.
    retired_ns: u64,
    /// What a visit answers that was asked for then, and in which window.
    visit: u32,
    window: *mut u8,
}

/// The parts of a lane of `lanes`, for who holds it. (All zeros until it is used.)
pub(super) struct Arena {
    /// Which lane's.
    lane: usize,
    current: usize,
    parts: [Part; PARTS_OF_LANE],
}

/// How much had been put into the current part.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    used: usize,
    /// Of its code, by kind.
    code_used: [usize; KINDS],
    filters: *const Filter,
}

impl Arena {
    pub(super) const fn new() -> Self {
        Self { lane: 0, current: 0, parts: [const { Part::new() }; PARTS_OF_LANE] }
    }

    /// Whose parts they are.
    pub(super) fn set_lane(&mut self, number: usize) {
        self.lane = number;
    }

    fn part(&mut self) -> &mut Part {
        &mut self.parts[self.current % PARTS_OF_LANE]
    }

    /// The number among all parts of one of the lane's.
    const fn number_of(&self, part: usize) -> usize {
        (self.lane % lanes::LANES) * PARTS_OF_LANE + part % PARTS_OF_LANE
    }

    /// Which part is being filled.
    pub(super) const fn current(&self) -> usize {
        self.number_of(self.current)
    }

    pub(super) fn mark(&mut self) -> Mark {
        let Part { used, code_used, filters, .. } = *self.part();
        Mark { used, code_used, filters }
    }

    /// Takes back what was put there since; no link leads to it.
    pub(super) fn truncate_to(&mut self, mark: Mark) {
        let part = self.part();
        (part.used, part.code_used, part.filters) = (mark.used, mark.code_used, mark.filters);
    }

    /// Room for `count` values: where it is, and its place in bytes.
    fn allocate<T>(&mut self, count: usize) -> Result<(*mut T, u32), ArenaFull> {
        const { assert!(align_of::<T>() <= 64) };
        let current = self.current();
        let part = self.part();
        // Nothing lies at the beginning, whose place is no plan's.
        let at = part.used.max(64).next_multiple_of(align_of::<T>());
        let bytes = size_of::<T>().checked_mul(count).ok_or(ArenaFull)?;
        let end = at.checked_add(bytes).filter(|&end| end <= PART_BYTES).ok_or(ArenaFull)?;
        part.used = end;
        let at = current * PART_BYTES + at;
        let place = MEMORY.0.get().cast::<u8>().wrapping_add(at).cast();
        Ok((place, at as u32))
    }

    /// Puts a value into the current part; its place in bytes.
    pub(super) fn push<T>(&mut self, value: T) -> Result<(*const T, u32), ArenaFull> {
        let (place, at) = self.allocate::<T>(1)?;
        // SAFETY: the room is aligned, large enough, and nobody else's.
        unsafe { place.write(value) };
        Ok((place, at))
    }

    /// Likewise copies of values.
    pub(super) fn push_all<T: Copy>(&mut self, values: &[T]) -> Result<&'static [T], ArenaFull> {
        let (place, _) = self.allocate::<T>(values.len())?;
        // SAFETY: as above. What is lent for ever is looked at by who is inside only.
        unsafe {
            core::ptr::copy_nonoverlapping(values.as_ptr(), place, values.len());
            Ok(core::slice::from_raw_parts(place, values.len()))
        }
    }

    /// Room for so many values, which nobody looks at before they are written.
    pub(super) fn allocate_for<T>(&mut self, count: usize) -> Result<*mut T, ArenaFull> {
        self.allocate(count).map(|(place, _)| place)
    }

    /// Room for code: how much of it is used.
    pub(super) fn code_used(&mut self, kind: Kind) -> usize {
        self.part().code_used[kind as usize]
    }

    /// LinkAction that so much more of it is.
    pub(super) fn use_code(&mut self, kind: Kind, bytes: usize) {
        let used = &mut self.part().code_used[kind as usize];
        *used = (*used + bytes).next_multiple_of(16);
    }

    /// The filters in the current part, the latest first.
    pub(super) fn filters(&self) -> impl Iterator<Item = &'static Filter> + use<> {
        let mut next = self.parts[self.current % PARTS_OF_LANE].filters;
        core::iter::from_fn(move || {
            // SAFETY: null, or put there since the part was used anew.
            let filter = unsafe { next.as_ref() }?;
            next = filter.next;
            Some(filter)
        })
    }

    /// Adds a filter to them.
    pub(super) fn push_filter(&mut self, filter: Filter) -> Result<*const Filter, ArenaFull> {
        let next = self.part().filters;
        let (filter, _) = self.push(Filter { next, ..filter })?;
        self.part().filters = filter;
        Ok(filter)
    }

    /// Puts a plan there; its link, with the number of this tag.
    pub(super) fn push_plan(&mut self, plan: Plan, tag: u32) -> Result<Link, ArenaFull> {
        let next = self.part().plans;
        let (place, at) = self.allocate::<Plan>(1)?;
        let link = if plan.has_direct() {
            Link::quick(tag, at)
        } else {
            Link::new(tag, super::LinkAction::Plan(at))
        };
        // SAFETY: as in `put`.
        unsafe { place.write(Plan { next, link: link.0, ..plan }) };
        self.part().plans = place;
        Ok(link)
    }

    /// Goes on in another part, because this one is full.
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

    /// Takes a part's links away, and asks for a visit.
    fn retire(&mut self, index: usize, window: &Window, now_ns: u64) {
        let part = &mut self.parts[index % PARTS_OF_LANE];
        let mut next = part.plans;
        // SAFETY: null, or put there since the part was used anew.
        while let Some(plan) = unsafe { next.as_ref() } {
            let place = place_of(plan.session.into(), plan.event.into());
            if place.load(Ordering::Relaxed) == plan.link {
                // ORDERING: SeqCst: taken away before who is inside is counted; see `inside`.
                place.store(0, Ordering::SeqCst);
            }
            next = plan.next;
        }
        part.plans = core::ptr::null();
        part.retired_ns = now_ns.max(1);
        part.request_visit(window);
    }

    /// Whether a part may be used anew.
    fn is_free(&mut self, index: usize, window: &Window, now_ns: u64) -> bool {
        let number = self.number_of(index);
        let part = &mut self.parts[index % PARTS_OF_LANE];
        if part.used == 0 && part.code_used == [0; KINDS] {
            return true;
        }
        if part.window != window.base() {
            // The process lives elsewhere, where nobody has heard of it.
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

    /// Forgets, in a fork child, what only threads of the parent knew: parts that somebody is
    /// inside of stay as they are, because it may be this thread, which a signal handler has
    /// interrupted.
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

    /// Goes on from whatever state somebody has left this in who is gone, in the middle of
    /// anything: lists may lead to what was never written, and a part that was being given up may
    /// say that it has rested long ago. So no list is believed. What `used` and `code_used` say was
    /// stored before any link that leads to there was (Release), so nothing that is in use is
    /// written over.
    ///
    /// Links to all parts are taken away, and made anew when they are needed.
    pub(super) fn recover(&mut self, window: &Window) {
        let numbers = self.number_of(0)..self.number_of(0) + PARTS_OF_LANE;
        for place in filter_links::all() {
            let link = place.load(Ordering::Relaxed);
            let leads_here = |link| match Link(link).action() {
                LinkAction::Plan(at) => numbers.contains(&part_of(at)),
                _ => false,
            };
            if leads_here(link) {
                // Unless another lane has stored its own there meanwhile.
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
            code_used: [0; KINDS],
            plans: core::ptr::null(),
            filters: core::ptr::null(),
            retired_ns: 0,
            visit: 0,
            window: core::ptr::null_mut(),
        }
    }

    /// Asks for a visit to every CPU.
    fn request_visit(&mut self, window: &Window) {
        // ORDERING: Release pairs with the Acquire of the recorder: the links are gone by then.
        let before = window.header().visits_asked.fetch_add(1, Ordering::Release);
        self.visit = before.wrapping_add(1);
        self.window = window.base();
    }
}
