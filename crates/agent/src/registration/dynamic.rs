//! Events described at run time: include/trackway/dynamic.h, which states the contract.
//!
//! This interface serves languages without a C preprocessor. A static table holds the data for
//! packing values: two bytes of type and a length for each field. Descriptions are in the window
//! and in [`crate::state::event_archive`].
//!
//! Invariant: each word of an entry is written once. A thread that describes an event writes the
//! missing words, and gets the entry if all words match its description. So describing takes no
//! lock, in any thread or handler. A handle's plan never changes, though other processes of the
//! user may write the window, which decides the entry of an event.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use trackway_abi::record::{CUT, HEADROOM_BYTES, PAYLOAD_BYTES_MAX};
use trackway_schema::{ARRAY_LENGTH_MAX, FIELDS_MAX, LABELS_MAX, LEVEL_NAMES, Scalar, Shape};

use super::dynamic_payload::{
    MARGIN_BYTES, PayloadBuilder, Sizes, Span, append_field, measure_values,
};
use crate::abi::{Event, Field, Value};
use crate::emit::fast_path;
use crate::registration::register;
use crate::state::event_archive;
use crate::state::process::PROCESS;
use crate::state::window_map::MappedWindow;

/// Maximum number of events described at run time: `TRACKWAY_DYNAMIC_MAX`.
const DYNAMIC_MAX: usize = 1024;
/// An event described at run time: `struct trackway_dynamic`.
#[derive(Debug)]
pub struct DynamicEvent {
    /// Enable word of the event, in a window that stays mapped, or in
    /// [`crate::state::event_archive`]; null: the entry is free.
    word: AtomicPtr<AtomicU32>,
    /// Number of fields plus one; 0: unknown yet.
    field_count: AtomicU32,
    /// Encoded plans of the fields ([`FieldPlan::to_word`]); 0: unknown yet.
    fields: [AtomicU32; FIELDS_MAX],
}

static TABLE: [DynamicEvent; DYNAMIC_MAX] = [const { DynamicEvent::new() }; DYNAMIC_MAX];

/// The data for packing a field.
#[derive(Clone, Copy)]
pub(super) struct FieldPlan {
    pub(super) shape: Shape,
    /// Type of the elements; meaningless for `Str` and `Text`.
    pub(super) scalar: Scalar,
    /// Number of elements of an array.
    pub(super) length: u16,
}

impl FieldPlan {
    /// Placeholder for a missing plan.
    const NONE: Self = Self { shape: Shape::Scalar, scalar: Scalar::U8, length: 0 };

    /// Makes the plan of a field. `None`: the field's description breaks a rule.
    fn from_field(field: &Field) -> Option<Self> {
        let shape = Shape::from_code(field.shape)?;
        let scalar = Scalar::from_code(field.scalar);
        let labels = usize::from(field.length);
        let is_valid = match shape {
            Shape::Str | Shape::Text => field.scalar == 0 && field.length == 0,
            Shape::Scalar | Shape::Sequence => scalar.is_some() && field.length == 0,
            Shape::Array => scalar.is_some() && (1..=ARRAY_LENGTH_MAX).contains(&field.length),
            Shape::Enumeration => {
                scalar.is_some_and(|scalar| !scalar.is_float() && scalar != Scalar::Bool)
                    && (1..=LABELS_MAX).contains(&labels)
                    && !field.labels.is_null()
            }
        };
        let length = if shape == Shape::Array { field.length } else { 0 };
        (is_valid && field.reserved() == 0).then(|| Self {
            shape,
            scalar: scalar.unwrap_or(Scalar::U8),
            length,
        })
    }

    /// Encodes the plan as a word, which is never 0.
    const fn to_word(self) -> u32 {
        (self.shape as u32 + 1) | (self.scalar as u32) << 8 | (self.length as u32) << 16
    }

    fn from_word(word: u32) -> Option<Self> {
        let [shape, scalar, ..] = word.wrapping_sub(1).to_le_bytes();
        Some(Self {
            shape: Shape::from_code(shape)?,
            scalar: Scalar::from_code(scalar)?,
            length: (word >> 16) as u16,
        })
    }

    /// Returns the payload bytes that the field takes for any value.
    pub(super) fn fixed_bytes(self) -> usize {
        match self.shape {
            Shape::Scalar | Shape::Enumeration => self.scalar.size_bytes(),
            Shape::Str => 1,
            Shape::Text | Shape::Sequence => size_of::<u32>(),
            Shape::Array => self.scalar.size_bytes() * usize::from(self.length),
        }
    }
}

impl DynamicEvent {
    const fn new() -> Self {
        Self {
            word: AtomicPtr::new(core::ptr::null_mut()),
            field_count: AtomicU32::new(0),
            fields: [const { AtomicU32::new(0) }; FIELDS_MAX],
        }
    }

    /// Finds the entry of the event with this enable word, or takes a free entry for it.
    fn find_or_take(word: &AtomicU32) -> Option<&'static Self> {
        let key = core::ptr::from_ref(word).cast_mut();
        let first = key as usize / size_of::<trackway_abi::window::Event>();
        let probes = (0..DYNAMIC_MAX).map(|probe| (first + probe) % DYNAMIC_MAX);
        probes.map(|place| &TABLE[place]).find(|entry| {
            let free = core::ptr::null_mut();
            let taken =
                entry.word.compare_exchange(free, key, Ordering::Relaxed, Ordering::Relaxed);
            taken.is_ok() || taken == Err(key)
        })
    }

    /// Finds the entry of an event with this description that had its word in an earlier window.
    #[cold]
    fn find_by_description(encoded: &[u8]) -> Option<&'static Self> {
        TABLE.iter().find(|entry| {
            let known = event_archive::find_number_by_word(entry.word.load(Ordering::Relaxed));
            known.is_some_and(|known| event_archive::has_description(known, encoded))
        })
    }

    /// Fills the entry with these encoded plans ([`FieldPlan::to_word`]). Returns false if the
    /// entry has other fields, or if another thread is filling it with other fields.
    fn fill(&self, fields: &[u32]) -> bool {
        let set = |number: &AtomicU32, value: u32| {
            let set = number.compare_exchange(0, value, Ordering::Relaxed, Ordering::Relaxed);
            set.is_ok() || set == Err(value)
        };
        set(&self.field_count, fields.len() as u32 + 1)
            && self.fields.iter().zip(fields).all(|(number, &field)| set(number, field))
    }

    /// Returns the plans of `count` fields. `None`: the event has another number of fields.
    #[inline(never)] // writes the result in place
    fn plans(&self, count: usize) -> Option<FieldPlans> {
        if count > FIELDS_MAX || self.field_count.load(Ordering::Relaxed) as usize != count + 1 {
            return None;
        }
        let mut plans = FieldPlans { plans: [FieldPlan::NONE; FIELDS_MAX], count, fixed_bytes: 0 };
        for (plan, field) in plans.plans.iter_mut().zip(&self.fields).take(count) {
            *plan = FieldPlan::from_word(field.load(Ordering::Relaxed))?;
            plans.fixed_bytes += plan.fixed_bytes();
        }
        (plans.fixed_bytes <= PAYLOAD_BYTES_MAX).then_some(plans)
    }

    fn word(&self) -> &'static AtomicU32 {
        // SAFETY: a handle's entry has an enable word, static or in a window that stays mapped.
        unsafe { &*self.word.load(Ordering::Relaxed) }
    }

    /// Replaces the enable word, unless another thread has replaced it.
    fn retarget(&self, from: *const AtomicU32, to: *const AtomicU32) {
        let (from, to) = (from.cast_mut(), to.cast_mut());
        let _ = self.word.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns true if a session records the event: `trackway_dynamic_enabled`.
    pub fn is_enabled(&self) -> bool {
        match self.word().load(Ordering::Relaxed) {
            0 => false,
            event_archive::RETARGET => self.retarget_and_check(),
            _ => true,
        }
    }

    /// Retargets the enable word of a process that has changed its user, and returns true if a
    /// session records the event.
    #[cold]
    fn retarget_and_check(&self) -> bool {
        let word = self.word();
        let Some(now) = event_archive::current_word(word) else { return false };
        self.retarget(word, now);
        now.load(Ordering::Relaxed) != 0
    }
}

/// The plans of an event's fields.
pub(super) struct FieldPlans {
    pub(super) plans: [FieldPlan; FIELDS_MAX],
    pub(super) count: usize,
    /// Sum of the fixed bytes of all fields: at most the maximum payload.
    pub(super) fixed_bytes: usize,
}

impl FieldPlans {
    pub(super) fn as_slice(&self) -> &[FieldPlan] {
        &self.plans[..self.count]
    }
}

/// Describes an event: `trackway_dynamic_describe`. The error is a negative errno.
///
/// # Safety
/// The names are null or C strings. `fields` has `count` elements that meet the header's contract.
pub unsafe fn describe_event(
    provider: *const c_char,
    name: *const c_char,
    level: c_uint,
    fields: *const Field,
    count: c_uint,
) -> Result<&'static DynamicEvent, c_int> {
    let moves = PROCESS.moves();
    if !PROCESS.has_started() {
        return Err(-libc::ENODEV);
    }
    let mapped = PROCESS.current_window();
    let count = count as usize;
    if count > FIELDS_MAX || level as usize >= LEVEL_NAMES.len() {
        return Err(-libc::EINVAL);
    }
    let fields: &[Field] = match (count, fields.is_null()) {
        (0, _) => &[],
        (_, true) => return Err(-libc::EINVAL),
        // SAFETY: the caller passes `count` fields.
        (_, false) => unsafe { core::slice::from_raw_parts(fields, count) },
    };
    let mut words = [0; FIELDS_MAX];
    let mut fixed_bytes = 0;
    for (number, (field, word)) in fields.iter().zip(&mut words).enumerate() {
        let plan = FieldPlan::from_field(field).ok_or(-libc::EINVAL)?;
        // SAFETY: the caller's names are C strings or null.
        let same = |other: &Field| unsafe {
            register::c_string_bytes(other.name) == register::c_string_bytes(field.name)
        };
        if fields[..number].iter().any(same) {
            return Err(-libc::EINVAL);
        }
        fixed_bytes += plan.fixed_bytes();
        *word = plan.to_word();
    }
    if fixed_bytes > PAYLOAD_BYTES_MAX {
        return Err(-libc::EINVAL);
    }
    // SAFETY: the caller's names are C strings or null.
    let (provider, name) =
        unsafe { (register::c_string_bytes(provider), register::c_string_bytes(name)) };
    let words = &words[..count];
    let found = |encoded: &[u8]| entry_of(mapped, moves, encoded, words);
    // SAFETY: the caller's names and fields, whose shapes were checked.
    let found = unsafe { register::with_encoding(provider, name, level as u8, fields, found) };
    found.unwrap_or(Err(-libc::EINVAL))
}

/// Returns the entry of the event with this description, names and fields.
fn entry_of(
    mapped: Option<&'static MappedWindow>,
    moves: u64,
    encoded: &[u8],
    fields: &[u32],
) -> Result<&'static DynamicEvent, c_int> {
    let word = register::find_or_intern_word(mapped, encoded).ok_or(-libc::ENOSPC)?;
    // After a move, the number may come from the zeros that replace the window.
    if PROCESS.moves() != moves {
        return Err(-libc::EAGAIN);
    }
    /// Number of moves of a process that has never changed its user.
    const MOVES_OF_START: u64 = 1;
    let before =
        if moves > MOVES_OF_START { DynamicEvent::find_by_description(encoded) } else { None };
    if let Some(entry) = before.filter(|entry| entry.fill(fields)) {
        entry.retarget(entry.word(), word);
        return Ok(entry);
    }
    // The entry may belong to another event if another process changed the window.
    DynamicEvent::find_or_take(word).filter(|entry| entry.fill(fields)).ok_or(-libc::ENOSPC)
}

/// Records an event: `trackway_dynamic_record`.
///
/// # Safety
/// `values` has `count` elements, whose data meets the header's contract.
pub unsafe fn record_event(event: &DynamicEvent, values: *const Value, count: c_uint) -> c_int {
    if !event.is_enabled() {
        return 0;
    }
    // SAFETY: the caller upholds the same contract.
    unsafe { record_enabled(event, values, count as usize) }
}

/// Records an enabled event.
///
/// # Safety
/// The contract of [`record_event()`] applies.
#[inline(never)] // takes its stack only while a session records
unsafe fn record_enabled(event: &DynamicEvent, values: *const Value, count: usize) -> c_int {
    if count > 0 && values.is_null() {
        return -libc::EINVAL;
    }
    let Some(plans) = event.plans(count) else { return -libc::EINVAL };
    let values: &[Value] = match count {
        0 => &[],
        // SAFETY: the caller passes `count` values.
        _ => unsafe { core::slice::from_raw_parts(values, count) },
    };
    let mut sizes = Sizes { spans: [Span::default(); FIELDS_MAX], bytes: 0, is_cut: false };
    // SAFETY: the caller upholds the same contract.
    if let Err(errno) = unsafe { measure_values(&plans, values, &mut sizes) } {
        return errno;
    }
    /// Payload bytes that suffice for nearly all events.
    const SHORT_BYTES: usize = 512;
    // SAFETY: the caller upholds the contract; the values have been measured.
    unsafe {
        if sizes.bytes <= SHORT_BYTES {
            emit_with_buffer::<{ SHORT_BYTES + MARGIN_BYTES }>(event, &plans, values, &sizes);
        } else {
            emit_with_buffer::<{ PAYLOAD_BYTES_MAX + MARGIN_BYTES }>(event, &plans, values, &sizes);
        }
    }
    0
}

/// Builds a record's payload in `BYTES` bytes of stack, and emits the record.
///
/// # Safety
/// The contract of [`record_event()`] applies; `sizes` measures the values, which fit `BYTES`.
#[inline(never)] // one stack frame for each size
unsafe fn emit_with_buffer<const BYTES: usize>(
    event: &DynamicEvent,
    plans: &FieldPlans,
    values: &[Value],
    sizes: &Sizes,
) {
    let mut bytes = [0; BYTES];
    let mut staged = PayloadBuilder { bytes: &mut bytes, end: HEADROOM_BYTES };
    let mut spans = sizes.spans.iter().copied();
    for (&plan, value) in plans.as_slice().iter().zip(values) {
        let span = match plan.shape {
            Shape::Str | Shape::Text | Shape::Sequence => spans.next().unwrap_or_default(),
            _ => Span::default(),
        };
        // SAFETY: the caller upholds the same contract; the spans fit the buffer.
        unsafe { append_field(&mut staged, plan, value, span) };
    }
    let size = staged.end - HEADROOM_BYTES;
    let word = event.word();
    let mut handle = Event::with_enable_word(word);
    // SAFETY: the payload has headroom and tailroom; the handle has the enable word, which is all
    // that `emit` reads.
    unsafe {
        let payload = bytes.as_mut_ptr().add(HEADROOM_BYTES);
        fast_path::emit(&raw mut handle, payload, size | if sizes.is_cut { CUT } else { 0 });
    }
    if !core::ptr::eq(handle.enabled, word) {
        event.retarget(word, handle.enabled);
    }
}

const _: () = assert!(size_of::<*const c_void>() == size_of::<u64>());

#[cfg(test)]
mod tests {
    use super::*;

    const fn plan_word(shape: Shape, length: u16) -> u32 {
        FieldPlan { shape, scalar: Scalar::U64, length }.to_word()
    }

    #[test]
    fn plans_are_words_and_back() {
        for shape in 0..=5 {
            let shape = Shape::from_code(shape).expect("a shape");
            let plan = FieldPlan { shape, scalar: Scalar::Bool, length: ARRAY_LENGTH_MAX };
            let back = FieldPlan::from_word(plan.to_word()).expect("a plan");
            assert_eq!((back.shape, back.scalar, back.length), (shape, Scalar::Bool, 1024));
        }
        assert!(FieldPlan::from_word(0).is_none() && FieldPlan::from_word(u32::MAX).is_none());
    }

    /// A window that another process has changed may give two events one entry.
    #[test]
    fn an_entry_is_of_one_event_for_good() {
        let (array, text) = (plan_word(Shape::Array, 400), plan_word(Shape::Text, 0));
        let entry = DynamicEvent::new();
        assert!(entry.plans(0).is_none() && entry.plans(1).is_none(), "nobody's yet");
        assert!(entry.fill(&[array, text]));
        assert!(entry.fill(&[array, text]), "described again");
        for other in [&[array][..], &[text, array], &[array, text, text], &[]] {
            assert!(!entry.fill(other));
            assert!(entry.fill(&[array, text]), "as it was");
        }
        assert!(entry.plans(1).is_none() && entry.plans(3).is_none());
        assert!(entry.plans(usize::MAX).is_none());
        let plans = entry.plans(2).expect("its plans");
        assert_eq!(plans.as_slice()[0].to_word(), array);
        let empty = DynamicEvent::new();
        assert!(empty.fill(&[]) && empty.plans(0).is_some() && !empty.fill(&[array]));
    }

    /// Two threads fill one entry with different events at the same time. EXPECT that one thread
    /// gets the entry, which then has the fields of that thread's event.
    #[test]
    fn an_entry_that_two_fill_at_a_time_is_one_of_them() {
        extern crate std;
        use std::sync::Barrier;

        const ROUNDS: usize = 2_000;
        let (array, text) = (plan_word(Shape::Array, 100), plan_word(Shape::Text, 0));
        let events = [[array, text], [array, array]];
        for _ in 0..ROUNDS {
            let (entry, barrier) = (DynamicEvent::new(), Barrier::new(2));
            let fill = |fields| {
                barrier.wait();
                entry.fill(fields)
            };
            let filled = std::thread::scope(|scope| {
                let other = scope.spawn(|| fill(&events[0]));
                let ours = fill(&events[1]);
                [other.join().expect("no panic"), ours]
            });
            assert_ne!(filled[0], filled[1], "they differ in one field");
            let plans = entry.plans(2).expect("its plans");
            let second = plans.as_slice()[1].to_word();
            assert_eq!(second, if filled[0] { text } else { array });
        }
    }
}
