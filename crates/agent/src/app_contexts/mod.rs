//! Application contexts: values that a program sets for its threads. A session records them with
//! each event, and filters read them (docs/design/0010-application-contexts.md).
//!
//! The hash of its name identifies a context ([`names`]). Each thread has a slot for its value, in
//! thread-local memory ([`values`]). Recording and filtering read the thread's value and call no
//! function of the program. Any thread, any signal handler; no allocation, no system call.

mod names;
mod session_list;
mod values;

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicU32, Ordering};

use trackway_jit::Kind;

use names::{CONTEXTS_MAX, hash_name};
pub(crate) use names::{ContextIndex, contexts_count};
pub(crate) use session_list::{SessionContexts, read_session_list};
use values::{TEXT_BYTES, Value};

/// Longest name, provider and colon included, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = trackway_abi::session::APPLICATION_BYTES_MAX;

/// An application context, `struct trackway_abi_context` in include/trackway/abi/abi.h.
#[repr(C)]
#[derive(Debug)]
pub struct Context {
    /// Version (`TRACKWAY_ABI_VERSION`) of the header that declared the context.
    version: u16,
    /// Size of the structure in that header, in bytes.
    size: u16,
    /// Kind of the value: `enum trackway_abi_context_kind`.
    kind: u8,
    reserved: [u8; 3],
    /// Index of the context plus one; 0: unknown; [`NO_INDEX`]: none.
    index: AtomicU32,
    more_reserved: u32,
    provider: *const c_char,
    name: *const c_char,
}

/// Value of [`Context::index`] for a context without an index.
const NO_INDEX: u32 = u32::MAX;

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<Context>() == 32 && offset_of!(Context, kind) == 4);
    assert!(offset_of!(Context, index) == 8 && offset_of!(Context, provider) == 16);
    assert!(offset_of!(Context, name) == 24);
};

/// `struct trackway_abi_context_value`: a value, or none.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SavedValue {
    words: [u64; values::TEXT_WORDS],
    is_set: u64,
}

const _: () = assert!(size_of::<SavedValue>() == 40);

impl Context {
    /// Returns the context's index. `None`: the descriptor has another version or no kind, or all
    /// indices are taken.
    #[inline]
    fn index(&self) -> Option<ContextIndex> {
        match self.index.load(Ordering::Relaxed) {
            0 => self.find_index(),
            known => ContextIndex::new(known.wrapping_sub(1) as usize),
        }
    }

    #[cold]
    #[inline(never)]
    fn find_index(&self) -> Option<ContextIndex> {
        let place = self.declare();
        let known = place.map_or(NO_INDEX, |place| place.index() as u32 + 1);
        self.index.store(known, Ordering::Relaxed);
        place
    }

    fn declare(&self) -> Option<ContextIndex> {
        let is_known = self.version == crate::abi::VERSION
            && usize::from(self.size) >= size_of::<Self>()
            && !self.provider.is_null()
            && !self.name.is_null();
        let kind = Kind::from_code(self.kind).filter(|&kind| kind != Kind::Sequence)?;
        if !is_known {
            return None;
        }
        // SAFETY: names of a descriptor are C strings, by contract.
        let (provider, name) =
            unsafe { (CStr::from_ptr(self.provider), CStr::from_ptr(self.name)) };
        let (provider, name) = (provider.to_bytes(), name.to_bytes());
        if provider.is_empty()
            || name.is_empty()
            || provider.len() + 1 + name.len() > NAME_BYTES_MAX
        {
            return None;
        }
        names::declare_context(
            hash_name([provider, b":", name].into_iter().flatten().copied()),
            kind,
        )
    }
}

/// Sets the calling thread's value of a numeric context: an integer, sign-extended to 64 bits, or
/// the bits of an `f64`.
pub fn set_number(context: &Context, bits: u64) {
    if let Some(place) = context.index()
        && !place.is_text()
    {
        values::set_value(place, Value::number(bits));
    }
}

/// Sets the calling thread's value of a string context: `length` bytes, or fewer up to their first
/// NUL, cut to the slot's size.
///
/// # Safety
/// `text` is null, or points to `length` bytes, or to fewer bytes and a NUL.
pub unsafe fn set_text(context: &Context, text: *const u8, length: usize) {
    if let Some(place) = context.index()
        && place.is_text()
    {
        // SAFETY: the caller upholds the same contract.
        values::set_value(place, unsafe { Value::text(text, length) });
    }
}

/// Clears the calling thread's value of a context.
pub fn clear_value(context: &Context) {
    if let Some(place) = context.index() {
        values::clear_value(place);
    }
}

/// Returns the calling thread's value of a context, for [`restore_value`].
pub fn save_value(context: &Context) -> SavedValue {
    match context.index().and_then(values::read_value) {
        Some(value) => SavedValue { words: value.words(), is_set: 1 },
        None => SavedValue { words: [0; values::TEXT_WORDS], is_set: 0 },
    }
}

/// Restores the value, or its absence, that [`save_value`] returned.
pub fn restore_value(context: &Context, saved: &SavedValue) {
    let Some(place) = context.index() else { return };
    if saved.is_set == 0 {
        values::clear_value(place);
    } else {
        values::set_value(place, Value::from_words(saved.words));
    }
}

/// Returns the index of the context with this name, `provider:name`, if the process has it.
pub(crate) fn find_context(name: &[u8]) -> Option<ContextIndex> {
    names::find_by_hash(hash_name(name.iter().copied()))
}

/// Distances of values before the end of a buffer, in bytes, by context index, for
/// [`write_values`]; 0: the value is not written.
pub(crate) type StagedOffsets = [u8; CONTEXTS_MAX];

/// Allocates the value of a context in a buffer of `room` bytes, in addition to those in `staged`.
/// Returns its distance before the buffer's end. `None`: the buffer is full.
pub(crate) fn add_offset(
    staged: &mut StagedOffsets,
    place: ContextIndex,
    room: usize,
) -> Option<u8> {
    let known = staged[place.index()];
    if known != 0 {
        return Some(known);
    }
    let bytes = if place.is_text() { TEXT_BYTES } else { size_of::<u64>() };
    let used = staged.iter().copied().max().unwrap_or(0);
    let before = u8::try_from(usize::from(used) + bytes).ok()?;
    if usize::from(before) > room {
        return None;
    }
    staged[place.index()] = before;
    Some(before)
}

/// Writes the calling thread's values at the distances in `staged` before `end`. Returns false if
/// one of them is not set.
///
/// # Safety
/// The buffer before `end` has all bytes for which `staged` was made.
pub(crate) unsafe fn write_values(end: *mut u8, staged: &StagedOffsets) -> bool {
    let wanted = (0..).zip(staged).filter(|(_, before)| **before != 0);
    for (place, before) in wanted {
        let Some((place, value)) =
            ContextIndex::new(place).and_then(|of| Some((of, values::read_value(of)?)))
        else {
            return false;
        };
        let at = end.wrapping_sub(usize::from(*before));
        // SAFETY: the caller's buffer has as many bytes.
        unsafe {
            if place.is_text() {
                at.cast::<[u8; TEXT_BYTES]>().write_unaligned(value.bytes().0);
            } else {
                at.cast::<u64>().write_unaligned(value.bits());
            }
        }
    }
    true
}
