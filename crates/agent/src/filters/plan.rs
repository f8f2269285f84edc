//! A plan: all filters that apply to an event, ready to run.

use core::sync::atomic::AtomicU32;

use trackway_abi::record::HEADROOM_BYTES;
use trackway_abi::record::context::PROCNAME_BYTES;
use trackway_jit::frame::{Entry, Environment, Fill, Frame};
use trackway_jit::framer::{AnchorStep, Contexts, FramerView, RemainingSlot, ValuePlace};
use trackway_jit::helper::Word;
use trackway_jit::interpret;
use trackway_jit::verify::Verified;

use crate::app_contexts;
use crate::contexts;
use crate::payload::StagedPayload;

/// Offset of the payload in the bytes of a frame. The headroom before it holds the values of
/// application contexts and the thread's name while filters read them.
const PAYLOAD_OFFSET: usize = HEADROOM_BYTES;
/// Bytes for the thread's name, directly before the payload.
const NAME_BYTES: usize = 24;

const _: () = assert!(PROCNAME_BYTES <= NAME_BYTES && NAME_BYTES < HEADROOM_BYTES);

/// Allocates a context's value in the headroom, in addition to the present ones. Returns its
/// distance before the payload, in bytes. `None`: the headroom is full.
pub(super) fn add_offset(
    staged: &mut app_contexts::StagedOffsets,
    place: app_contexts::ContextIndex,
) -> Option<u16> {
    let before = app_contexts::add_offset(staged, place, HEADROOM_BYTES - NAME_BYTES)?;
    Some(u16::from(before) + NAME_BYTES as u16)
}

/// A filter, ready to run on events that have everything it needs. All memory that the filter
/// points to lies in its part of the arena.
#[derive(Debug)]
pub(super) struct Filter {
    /// The next filter in the same part.
    pub(super) next: *const Self,
    /// The filter's id, and a hash of its bytes.
    pub(super) key: [u64; 2],
    /// Number of frame slots that the filter needs.
    pub(super) slots: usize,
    pub(super) environment: Environment<'static>,
    /// Machine code of the filter.
    pub(super) entry: Option<Entry>,
    /// True if the machine code is a leaf (`executable_memory::CodeKind`).
    pub(super) is_leaf: bool,
    /// Programs for the interpreter, if there is no machine code.
    pub(super) programs: *const Verified<'static>,
    pub(super) programs_count: usize,
}

/// A filter, with the rules that fill its frame from the event.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub(super) filter: *const Filter,
    /// Machine code that fills slots; `None`: there is no code, or no slot for it to fill.
    pub(super) fill: Option<Fill>,
    /// Minimum bytes of a payload that the machine code reads.
    pub(super) coded_bytes: u32,
    pub(super) legs_count: u8,
    pub(super) takes_count: u8,
    pub(super) rest_count: u8,
    pub(super) legs: *const AnchorStep,
    pub(super) takes: *const ValuePlace,
    /// Slots that the machine code does not fill.
    pub(super) rest: *const RemainingSlot,
}

/// All steps for an event in a session.
#[derive(Debug)]
#[repr(align(16))]
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "`quick` looks at them"))]
pub(super) struct Plan {
    /// The next plan in the same part.
    pub(super) next: *const Self,
    /// Session and event of the plan's link.
    pub(super) session: u16,
    pub(super) event: u16,
    /// Number of the event's description, plus one.
    pub(super) description_number: u32,
    /// Maximum bytes of a variable field that staging never cuts, for any sizes of the other
    /// fields.
    pub(super) uncut_bytes: u16,
    /// True if the headroom receives values for filters: the thread's name, or application
    /// contexts.
    pub(super) uses_headroom: bool,
    /// True if a filter reads the thread's name.
    pub(super) takes_procname: bool,
    /// Application contexts that filters read.
    pub(super) applications: app_contexts::StagedOffsets,
    /// True if the plan has one step, which machine code executes completely.
    pub(super) is_quick: bool,
    pub(super) steps_count: u16,
    pub(super) steps: *const Step,
    /// The link to this plan.
    pub(super) link: u64,
    /// Machine code on payloads for the plan's only filter; null: there is none.
    /// ([`super::single_sequence`] uses the offsets of this field and of the next ones.)
    pub(super) direct: *const u8,
    /// Minimum bytes of a payload that the machine code in `direct` reads.
    pub(super) direct_bytes: usize,
    /// The event's enable word, which also identifies the window.
    pub(super) enabled: *const AtomicU32,
    /// The address of the session's generation, and its required value.
    pub(super) generation: *const u64,
    pub(super) expected: u64,
}

/// The thread that emits.
pub(super) struct Emitter {
    pub(super) pid: u32,
    pub(super) tid: u32,
    /// `PROCNAME_BYTES` bytes; read only if the plan takes the name.
    pub(super) name: *const u8,
}

impl Step {
    /// Returns true if machine code fills all slots.
    pub(super) const fn is_coded(&self) -> bool {
        self.fill.is_some() && self.rest_count == 0
    }

    /// Fills a frame from the payload at [`PAYLOAD_OFFSET`]. Returns false if the filter does not
    /// apply to the event.
    ///
    /// # Safety
    /// All memory that the step points to is valid.
    unsafe fn fill(&self, frame: &mut Frame<'_>, contexts: &Contexts) -> bool {
        // SAFETY: by contract; the plan builder has stored as many values as the counts.
        let (legs, takes, rest) = unsafe {
            (
                core::slice::from_raw_parts(self.legs, self.legs_count.into()),
                core::slice::from_raw_parts(self.takes, self.takes_count.into()),
                core::slice::from_raw_parts(self.rest, self.rest_count.into()),
            )
        };
        let Some(fill) = self.fill else {
            return FramerView { legs, takes }.fill(frame, PAYLOAD_OFFSET, contexts);
        };
        let payload = frame.bytes().get(PAYLOAD_OFFSET..).unwrap_or_default();
        if payload.len() < self.coded_bytes as usize {
            return false;
        }
        // SAFETY: the framer's code, on a payload with as many bytes; `fill_rest` sets the other
        // slots.
        unsafe { frame.fill_by(fill, payload.as_ptr(), takes.len()) };
        FramerView::fill_rest(legs, rest, frame, PAYLOAD_OFFSET, contexts)
    }
}

impl Plan {
    /// Returns true if [`super::single_sequence`] can run the plan.
    #[inline(always)]
    pub(super) const fn has_direct(&self) -> bool {
        !self.direct.is_null()
    }

    /// Evaluates the plan, if it has one filter that machine code evaluates completely. `None`:
    /// only [`Self::passes`] can evaluate the plan.
    ///
    /// # Safety
    /// The contract of [`Self::passes`] applies.
    #[inline(always)]
    pub(super) unsafe fn passes_quickly(&self, staged: StagedPayload) -> Option<bool> {
        if !self.is_quick {
            return None;
        }
        // SAFETY: by contract; the plan has one step.
        let step = unsafe { &*self.steps };
        // SAFETY: by contract.
        step.fill.map(|fill| unsafe { step.passes_quickly(fill, staged) })
    }

    /// Returns true if all filters pass the event.
    ///
    /// # Safety
    /// All memory that the plan points to is valid. The payload has headroom.
    pub(super) unsafe fn passes(&self, staged: StagedPayload, emitter: &Emitter) -> bool {
        let (payload, size) = (staged.start, staged.size());
        let bytes = payload.wrapping_sub(PAYLOAD_OFFSET);
        let mut procname = Word { offset: 0, length: 0, is_constant: false };
        if self.uses_headroom {
            // SAFETY: the caller's payload and name.
            let Some(length) = (unsafe { self.write_headroom(payload, emitter) }) else {
                return false;
            };
            procname.length = length;
            procname.offset = (PAYLOAD_OFFSET - NAME_BYTES) as u32;
        }
        let contexts = contexts::filter_contexts(emitter.pid, emitter.tid, procname);
        // SAFETY: headroom and payload are adjacent, and no other thread writes there. (Unwritten
        // bytes of the headroom are never read: no word refers to them.)
        let bytes = unsafe { core::slice::from_raw_parts(bytes, PAYLOAD_OFFSET + size) };
        // SAFETY: by contract; the plan builder has stored `steps_count` steps.
        let steps =
            unsafe { core::slice::from_raw_parts(self.steps, usize::from(self.steps_count)) };
        // SAFETY: by contract.
        steps.iter().all(|step| unsafe { step.passes(bytes, &contexts) })
    }

    /// Writes the additional values for filters into the headroom. Returns the length of the
    /// thread's name. `None`: the thread has not set a value that a filter reads, so the event does
    /// not pass.
    ///
    /// # Safety
    /// The payload has headroom, and the name `PROCNAME_BYTES` bytes, if the plan takes it.
    #[inline(never)] // keeps its frame off its callers' stack
    unsafe fn write_headroom(&self, payload: *mut u8, emitter: &Emitter) -> Option<u32> {
        let mut length = 0;
        if self.takes_procname {
            let at = payload.wrapping_sub(NAME_BYTES);
            // SAFETY: the headroom is the caller's, and the name has as many bytes.
            let name = unsafe {
                core::ptr::copy_nonoverlapping(emitter.name, at, PROCNAME_BYTES);
                core::slice::from_raw_parts(at, PROCNAME_BYTES)
            };
            let end = name.iter().position(|&byte| byte == 0);
            length = end.unwrap_or(PROCNAME_BYTES) as u32;
        }
        // SAFETY: the headroom before the name is the caller's, too.
        let are_set = unsafe {
            app_contexts::write_values(payload.wrapping_sub(NAME_BYTES), &self.applications)
        };
        are_set.then_some(length)
    }
}

impl Step {
    /// Evaluates one filter.
    ///
    /// # Safety
    /// All memory that the step points to is valid.
    unsafe fn passes(&self, bytes: &[u8], contexts: &Contexts) -> bool {
        // SAFETY: by contract.
        let filter = unsafe { &*self.filter };
        let mut frame = Frame::new(&filter.environment, bytes);
        // SAFETY: by contract.
        let is_filled = unsafe { self.fill(&mut frame, contexts) };
        // SAFETY: by contract; the frame is filled.
        is_filled && unsafe { self.run(&frame) }
    }

    /// Runs the filter on a filled frame.
    ///
    /// # Safety
    /// All memory that the step points to is valid.
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

    /// Evaluates the filter by machine code alone.
    ///
    /// # Safety
    /// The contract of [`Self::passes`] applies.
    #[inline(always)]
    unsafe fn passes_quickly(&self, fill: Fill, staged: StagedPayload) -> bool {
        // SAFETY: by contract.
        let filter = unsafe { &*self.filter };
        let Some(entry) = filter.entry else { return false };
        if staged.size_and_flags < self.coded_bytes as usize {
            return false;
        }
        let mut frame = Frame::new(&filter.environment, &[]);
        // SAFETY: the framer's code fills all slots, from a payload with as many bytes; the entry
        // is code of a program that was verified for as many slots.
        unsafe {
            frame.fill_by(fill, staged.start, filter.slots);
            filter.run(entry, &frame) != 0
        }
    }
}

impl Filter {
    /// Runs the filter's machine code, so that an interrupting handler can unwind.
    ///
    /// # Safety
    /// `entry` is the filter's code, and all memory that the filter points to is valid.
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

    /// Interprets the filter on a filled frame.
    ///
    /// # Safety
    /// All memory that the filter points to is valid.
    #[cold]
    #[inline(never)] // keeps its frame off its callers' stack
    unsafe fn is_interpreted_true(&self, frame: &Frame<'_>) -> bool {
        // SAFETY: by contract; the plan builder has stored `programs_count` programs.
        let programs = unsafe { core::slice::from_raw_parts(self.programs, self.programs_count) };
        interpret::run(programs, frame).is_ok_and(|outcome| outcome.answer != 0)
    }
}
