//! A plan: all filters that are about an event, ready to run.

use core::sync::atomic::AtomicU32;

use trackway_abi::record::HEADROOM_BYTES;
use trackway_abi::record::context::PROCNAME_BYTES;
use trackway_jit::frame::{Entry, Environment, Fill, Frame};
use trackway_jit::framer::{Contexts, FramerView, Leg, Rest, Take};
use trackway_jit::helper::Word;
use trackway_jit::interpret;
use trackway_jit::verify::Verified;

use crate::{application, context};

/// Where the payload begins in the bytes of a frame: in front of it, in the headroom, are values of
/// applications' contexts and the thread's name, for as long as filters look at them.
const BEGIN: usize = HEADROOM_BYTES;
/// Room for the thread's name, straight in front of the payload.
const NAME_BYTES: usize = 24;

const _: () = assert!(PROCNAME_BYTES <= NAME_BYTES && NAME_BYTES < HEADROOM_BYTES);

/// How far before the payload a context's value is, in bytes, besides those that are there already.
/// `None`: there is no room.
pub(super) fn before(staged: &mut application::Staged, place: application::Place) -> Option<u16> {
    let before = application::add_to(staged, place, HEADROOM_BYTES - NAME_BYTES)?;
    Some(u16::from(before) + NAME_BYTES as u16)
}

/// A filter, ready to run on events that have what it needs. It, and all that it points to, lies in
/// one part of the store.
#[derive(Debug)]
pub(super) struct Filter {
    /// The next one that lies in the same part.
    pub(super) next: *const Self,
    /// Which it is: its id, and a hash of its bytes.
    pub(super) key: [u64; 2],
    /// Slots that it needs.
    pub(super) slots: usize,
    pub(super) environment: Environment<'static>,
    /// Its machine code.
    pub(super) entry: Option<Entry>,
    /// Whether that is a leaf: `code::Kind`.
    pub(super) is_leaf: bool,
    /// Its programs, where there is none.
    pub(super) programs: *const Verified<'static>,
    pub(super) programs_count: usize,
}

/// A filter, and how its frame is filled from the event.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub(super) filter: *const Filter,
    /// Machine code that fills slots; `None`: there is none, or nothing for it to do.
    pub(super) fill: Option<Fill>,
    /// What a payload has at least that it reads, in bytes.
    pub(super) coded_bytes: u32,
    pub(super) legs_count: u8,
    pub(super) takes_count: u8,
    pub(super) rest_count: u8,
    pub(super) legs: *const Leg,
    pub(super) takes: *const Take,
    /// What the machine code leaves.
    pub(super) rest: *const Rest,
}

/// All steps for an event in a session.
#[derive(Debug)]
#[repr(align(16))]
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "`quick` looks at them"))]
pub(super) struct Plan {
    /// The next one that lies in the same part.
    pub(super) next: *const Self,
    /// The place of the link that was made with it.
    pub(super) session: u16,
    pub(super) event: u16,
    /// The number of the description that it was made by, plus one.
    pub(super) known: u32,
    /// Most bytes that each of its fields that can be cut may have without being cut, whatever the
    /// others have.
    pub(super) whole_bytes: u16,
    /// Whether something is put in front of the payload for filters to look at: the thread's name,
    /// or contexts of applications.
    pub(super) takes_more: bool,
    /// Whether a filter looks at the thread's name.
    pub(super) takes_procname: bool,
    /// Contexts of applications that filters look at.
    pub(super) applications: application::Staged,
    /// Whether there is one step, and machine code does all of it.
    pub(super) is_quick: bool,
    pub(super) steps_count: u16,
    pub(super) steps: *const Step,
    /// The link.
    pub(super) link: u64,
    /// The filter's machine code on payloads, if it is all that there is to do; else null.
    /// ([`super::quick`] knows where this and what is below lie.)
    pub(super) direct: *const u8,
    /// What a payload has at least that it reads, in bytes.
    pub(super) direct_bytes: usize,
    /// The event's enable word: so it says in which window.
    pub(super) enabled: *const AtomicU32,
    /// The session's generation, and what it must be.
    pub(super) generation: *const u64,
    pub(super) expected: u64,
}

/// Who emits.
pub(super) struct Who {
    pub(super) pid: u32,
    pub(super) tid: u32,
    /// `PROCNAME_BYTES` bytes; looked at only if the plan takes the name.
    pub(super) name: *const u8,
}

impl Step {
    /// Whether machine code fills all slots.
    pub(super) const fn is_coded(&self) -> bool {
        self.fill.is_some() && self.rest_count == 0
    }

    /// Fills a frame from the payload behind [`BEGIN`]; false if the event is not one for the
    /// filter.
    ///
    /// # Safety
    /// What it points to is there.
    unsafe fn fill(&self, frame: &mut Frame<'_>, contexts: &Contexts) -> bool {
        // SAFETY: by contract; `link` has put so many there.
        let (legs, takes, rest) = unsafe {
            (
                core::slice::from_raw_parts(self.legs, self.legs_count.into()),
                core::slice::from_raw_parts(self.takes, self.takes_count.into()),
                core::slice::from_raw_parts(self.rest, self.rest_count.into()),
            )
        };
        let Some(fill) = self.fill else {
            return FramerView { legs, takes }.fill(frame, BEGIN, contexts);
        };
        let payload = frame.bytes().get(BEGIN..).unwrap_or_default();
        if payload.len() < self.coded_bytes as usize {
            return false;
        }
        // SAFETY: the framer's code, on a payload with as many bytes; the rest is set behind it.
        unsafe { frame.fill_by(fill, payload.as_ptr(), takes.len()) };
        FramerView::fill_rest(legs, rest, frame, BEGIN, contexts)
    }
}

impl Plan {
    /// Whether [`super::quick`] is for it.
    #[inline(always)]
    pub(super) const fn has_direct(&self) -> bool {
        !self.direct.is_null()
    }

    /// Whether the filter says that the event is recorded, where there is one, and machine code
    /// does all of it; `None`: see [`Self::passes`].
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub(super) unsafe fn passes_quickly(&self, payload: *const u8, size: usize) -> Option<bool> {
        if !self.is_quick {
            return None;
        }
        // SAFETY: by contract; there is one step.
        let step = unsafe { &*self.steps };
        // SAFETY: by contract.
        step.fill.map(|fill| unsafe { step.passes_quickly(fill, payload, size) })
    }

    /// Whether all filters say that the event is recorded.
    ///
    /// # Safety
    /// What it points to is there. `payload` has `size` bytes, with headroom before them.
    pub(super) unsafe fn passes(&self, payload: *mut u8, size: usize, who: &Who) -> bool {
        let bytes = payload.wrapping_sub(BEGIN);
        let mut procname = Word { offset: 0, length: 0, is_constant: false };
        if self.takes_more {
            // SAFETY: the caller's payload and name.
            let Some(length) = (unsafe { self.put_in_front(payload, who) }) else { return false };
            procname.length = length;
            procname.offset = (BEGIN - NAME_BYTES) as u32;
        }
        let contexts = context::for_filters(who.pid, who.tid, procname);
        // SAFETY: headroom and payload lie one behind the other, and nobody else writes there.
        // (What of the headroom nobody has written is not looked at: no word speaks of it.)
        let bytes = unsafe { core::slice::from_raw_parts(bytes, BEGIN + size) };
        // SAFETY: by contract; `link` has put so many there.
        let steps =
            unsafe { core::slice::from_raw_parts(self.steps, usize::from(self.steps_count)) };
        // SAFETY: by contract.
        steps.iter().all(|step| unsafe { step.passes(bytes, &contexts) })
    }

    /// Puts what filters look at besides into the headroom; how long the thread's name is. `None`:
    /// the thread has not set what a filter looks at, so it does not let the event pass.
    ///
    /// # Safety
    /// The payload has headroom, and the name `PROCNAME_BYTES` bytes, if the plan takes it.
    #[inline(never)] // for the stack of those who do not come here
    unsafe fn put_in_front(&self, payload: *mut u8, who: &Who) -> Option<u32> {
        let mut length = 0;
        if self.takes_procname {
            let at = payload.wrapping_sub(NAME_BYTES);
            // SAFETY: the headroom is ours, and the name has as many bytes.
            let name = unsafe {
                core::ptr::copy_nonoverlapping(who.name, at, PROCNAME_BYTES);
                core::slice::from_raw_parts(at, PROCNAME_BYTES)
            };
            let end = name.iter().position(|&byte| byte == 0);
            length = end.unwrap_or(PROCNAME_BYTES) as u32;
        }
        // SAFETY: so is what lies before the name.
        let are_set =
            unsafe { application::stage(payload.wrapping_sub(NAME_BYTES), &self.applications) };
        are_set.then_some(length)
    }
}

impl Step {
    /// # Safety
    /// What it points to is there.
    unsafe fn passes(&self, bytes: &[u8], contexts: &Contexts) -> bool {
        // SAFETY: by contract.
        let filter = unsafe { &*self.filter };
        let mut frame = Frame::new(&filter.environment, bytes);
        // SAFETY: by contract.
        let is_filled = unsafe { self.fill(&mut frame, contexts) };
        // SAFETY: likewise.
        is_filled && unsafe { self.run(&frame) }
    }

    /// The filter's answer about a frame that is filled.
    ///
    /// # Safety
    /// What it points to is there.
    #[inline(always)]
    pub(super) unsafe fn run(&self, frame: &Frame<'_>) -> bool {
        // SAFETY: by contract.
        let filter = unsafe { &*self.filter };
        match filter.entry {
            // SAFETY: the entry is code of a program that was verified for as many slots.
            Some(entry) => unsafe { filter.run(entry, frame) != 0 },
            // SAFETY: by contract.
            None => unsafe { filter.is_interpreted_true(frame) },
        }
    }

    /// The same, if machine code does all of it.
    ///
    /// # Safety
    /// As above; `payload` has `size` bytes.
    #[inline(always)]
    unsafe fn passes_quickly(&self, fill: Fill, payload: *const u8, size: usize) -> bool {
        // SAFETY: by contract.
        let filter = unsafe { &*self.filter };
        let Some(entry) = filter.entry else { return false };
        if size < self.coded_bytes as usize {
            return false;
        }
        let mut frame = Frame::new(&filter.environment, &[]);
        // SAFETY: the framer's code fills all slots, from a payload with as many bytes; the entry
        // is code of a program that was verified for as many slots.
        unsafe {
            frame.fill_by(fill, payload, filter.slots);
            filter.run(entry, &frame) != 0
        }
    }
}

impl Filter {
    /// Runs its machine code, so that who interrupts it can unwind.
    ///
    /// # Safety
    /// It is that, and what it points to is there.
    #[inline(always)]
    unsafe fn run(&self, entry: Entry, frame: &Frame<'_>) -> u64 {
        // SAFETY: code of a program that was verified for as many slots.
        unsafe {
            if self.is_leaf {
                frame.run(entry, self.slots)
            } else {
                frame.run_unwindable(entry, self.slots)
            }
        }
    }

    /// # Safety
    /// What it points to is there.
    #[cold]
    #[inline(never)] // for the stack of those who do not come here
    unsafe fn is_interpreted_true(&self, frame: &Frame<'_>) -> bool {
        // SAFETY: by contract; `link` has put so many there.
        let programs = unsafe { core::slice::from_raw_parts(self.programs, self.programs_count) };
        interpret::run(programs, frame).is_ok_and(|outcome| outcome.answer != 0)
    }
}
