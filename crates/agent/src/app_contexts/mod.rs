//! Application contexts: values that a program sets, for the thread that sets them, and that a
//! session records with each event or a filter asks for (docs/design/0010-application-contexts.md).
//!
//! A context is known by a hash of its name ([`names`]); each thread has a place for its value, in
//! thread-local memory ([`values`]). Who records or filters reads what the thread has set: nothing
//! of the program is called. Any thread, any signal handler; no allocation, no system call.

mod names;
mod session_list;
mod values;

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicU32, Ordering};

use trackway_jit::Kind;

use names::{CONTEXTS_MAX, hash};
pub(crate) use names::{ContextIndex, count};
pub(crate) use session_list::{SessionContexts, read_session_list};
use values::{TEXT_BYTES, Value};

/// Longest name, provider and colon included, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = trackway_abi::session::APPLICATION_BYTES_MAX;

/// `struct trackway_abi_context` of include/trackway/abi/abi.h.
#[repr(C)]
#[derive(Debug)]
pub struct Context {
    /// `TRACKWAY_ABI_VERSION` of the header that made it.
    version: u16,
    /// Its size there, in bytes.
    size: u16,
    /// `enum trackway_abi_context_kind`.
    kind: u8,
    reserved: [u8; 3],
    /// Its place, plus one; 0: not known yet; [`NOWHERE`].
    place: AtomicU32,
    more_reserved: u32,
    provider: *const c_char,
    name: *const c_char,
}

/// In [`Context::place`]: it has none.
const NOWHERE: u32 = u32::MAX;

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<Context>() == 32 && offset_of!(Context, kind) == 4);
    assert!(offset_of!(Context, place) == 8 && offset_of!(Context, provider) == 16);
    assert!(offset_of!(Context, name) == 24);
};

/// `struct trackway_abi_context_value`: a value, or that there is none.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SavedValue {
    words: [u64; values::TEXT_WORDS],
    is_set: u64,
}

const _: () = assert!(size_of::<SavedValue>() == 40);

impl Context {
    /// Where its value is; `None`: of another version, of no kind, or there is no room for it.
    #[inline]
    fn place(&self) -> Option<ContextIndex> {
        match self.place.load(Ordering::Relaxed) {
            0 => self.find_place(),
            known => ContextIndex::new(known.wrapping_sub(1) as usize),
        }
    }

    #[cold]
    #[inline(never)]
    fn find_place(&self) -> Option<ContextIndex> {
        let place = self.declare();
        let known = place.map_or(NOWHERE, |place| place.index() as u32 + 1);
        self.place.store(known, Ordering::Relaxed);
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
        names::declare(hash([provider, b":", name].into_iter().flatten().copied()), kind)
    }
}

/// Sets the calling thread's value of a context that is a number: an integer, extended to 64 bits
/// by its own sign, or the bits of an `f64`.
pub fn set_number(context: &Context, bits: u64) {
    if let Some(place) = context.place()
        && !place.is_text()
    {
        values::set(place, Value::number(bits));
    }
}

/// Sets the calling thread's value of a context that is a string: `length` bytes, or up to the
/// first NUL among them, cut to what there is room for.
///
/// # Safety
/// `text` is null, or points to `length` bytes, or to a NUL before.
pub unsafe fn set_text(context: &Context, text: *const u8, length: usize) {
    if let Some(place) = context.place()
        && place.is_text()
    {
        // SAFETY: the caller's promise is the same.
        values::set(place, unsafe { Value::text(text, length) });
    }
}

/// Takes the calling thread's value of a context away.
pub fn clear(context: &Context) {
    if let Some(place) = context.place() {
        values::clear(place);
    }
}

/// The calling thread's value of a context, for [`put`].
pub fn get(context: &Context) -> SavedValue {
    match context.place().and_then(values::get) {
        Some(value) => SavedValue { words: value.words(), is_set: 1 },
        None => SavedValue { words: [0; values::TEXT_WORDS], is_set: 0 },
    }
}

/// Gives the context the value, or none, that [`get`] found.
pub fn put(context: &Context, saved: &SavedValue) {
    let Some(place) = context.place() else { return };
    if saved.is_set == 0 {
        values::clear(place);
    } else {
        values::set(place, Value::from_words(saved.words));
    }
}

/// The place of the context of this name, `provider:name`, if the process has it.
pub(crate) fn find_context(name: &[u8]) -> Option<ContextIndex> {
    names::find(hash(name.iter().copied()))
}

/// How far before the end of a room, in bytes, [`write_values`] puts the value of each place, by
/// its number; 0: not at all.
pub(crate) type StagedOffsets = [u8; CONTEXTS_MAX];

/// Where the value of a place goes, besides those that `staged` has already, in a room of so many
/// bytes: as far before its end. `None`: it is full.
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

/// Puts the calling thread's values before `end`, as this says; false if one of them is not set.
///
/// # Safety
/// There is the room that was said when it was made.
pub(crate) unsafe fn write_values(end: *mut u8, staged: &StagedOffsets) -> bool {
    let wanted = (0..).zip(staged).filter(|(_, before)| **before != 0);
    for (place, before) in wanted {
        let Some((place, value)) =
            ContextIndex::new(place).and_then(|of| Some((of, values::get(of)?)))
        else {
            return false;
        };
        let at = end.wrapping_sub(usize::from(*before));
        // SAFETY: the caller's room has as many.
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
