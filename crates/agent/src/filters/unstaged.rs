//! Plans on events that are not staged: their fields are where the program has them.
//!
//! What a filter takes is read, or copied, once, before it runs: another thread may be writing to a
//! string. What it does not take is not looked at. Strings and sequences are copied to a room;
//! where they find none, or are so long that staging may cut them, the event is staged as ever: so
//! filters give the same answer, whoever asks.

mod chunk;

use core::mem::MaybeUninit;

use trackway_abi::record::context::PROCNAME_BYTES;
use trackway_jit::frame::Frame;
use trackway_jit::framer::{Contexts, Source, scalar_at};
use trackway_jit::helper::Word;
use trackway_schema::Scalar;

use self::chunk::{CHUNK_BYTES, Chunk};
use super::plan::{Plan, Step, Who};
use crate::abi::Argument;
use crate::{application, context};

/// Room for copies, in bytes: some chunks.
const ROOM_BYTES: usize = 1024 + PROCNAME_BYTES.next_multiple_of(CHUNK_BYTES);
/// Bytes of the largest scalar.
const SCALAR_BYTES_MAX: usize = 8;

const _: () = assert!(ROOM_BYTES.is_multiple_of(CHUNK_BYTES));

/// Why a frame is not filled.
enum Unfilled {
    /// The event is not one for the filter.
    Unfit,
    /// There is no room.
    NoRoom,
}

/// Where copies go, one behind the other; first, the thread's name.
///
/// Each begins with a chunk of its own, and is written a chunk at a time, so that a filter that
/// reads some bytes of a short one finds them in one store: a processor waits until a load that
/// takes from several stores can be had from the cache.
#[repr(C, align(16))]
struct Room {
    bytes: [MaybeUninit<u8>; ROOM_BYTES],
    /// A multiple of a chunk; all before it was written.
    used: usize,
    /// Most bytes of one field.
    whole_bytes: usize,
}

impl Room {
    const fn new(whole_bytes: usize) -> Self {
        let bytes = [const { MaybeUninit::uninit() }; ROOM_BYTES];
        Self { bytes, used: 0, whole_bytes }
    }

    /// Copies `size` bytes there; where they are.
    ///
    /// # Safety
    /// There must be so many at `from`; it may be null if there are none.
    #[inline]
    unsafe fn copy(&mut self, from: *const u8, size: usize) -> Result<u32, Unfilled> {
        let at = self.used;
        let end = size.checked_next_multiple_of(CHUNK_BYTES).and_then(|size| at.checked_add(size));
        let end = end.ok_or(Unfilled::NoRoom)?;
        let place = self.bytes.get_mut(at..end).ok_or(Unfilled::NoRoom)?;
        if let Some(last) = place.last_chunk_mut::<CHUNK_BYTES>() {
            // What is behind the copy is written, too.
            *last = [MaybeUninit::new(0); CHUNK_BYTES];
            // SAFETY: by contract, and the place has as many bytes.
            unsafe { core::ptr::copy_nonoverlapping(from, place.as_mut_ptr().cast(), size) };
        }
        self.used = end;
        Ok(at as u32)
    }

    /// Copies a string up to its NUL, reading each byte once: where it is, and how long.
    ///
    /// # Safety
    /// There must be one at `from`.
    #[inline]
    unsafe fn copy_string(&mut self, from: *const u8) -> Result<(u32, usize), Unfilled> {
        let (at, most) = (self.used, self.left());
        let mut length = 0;
        // Each turn fills a chunk of the room.
        while let Some(place) = self.bytes[self.used..].first_chunk_mut::<CHUNK_BYTES>() {
            // SAFETY: there was no NUL before that place.
            let chunk = unsafe { Chunk::of_string(from.wrapping_add(length)) };
            // SAFETY: the place has as many bytes.
            unsafe { place.as_mut_ptr().cast::<Chunk>().write_unaligned(chunk) };
            self.used += CHUNK_BYTES;
            let before = chunk.before_nul();
            length += before;
            if length > most {
                break;
            }
            if before < CHUNK_BYTES {
                return Ok((at as u32, length));
            }
        }
        Err(Unfilled::NoRoom)
    }

    /// Most bytes of the next field.
    fn left(&self) -> usize {
        self.whole_bytes.min(self.bytes.len() - self.used)
    }

    /// What was copied.
    fn filled(&self) -> &[u8] {
        // SAFETY: all that is before `used` was written.
        unsafe { core::slice::from_raw_parts(self.bytes.as_ptr().cast(), self.used) }
    }

    /// The word of elements that are copied there.
    ///
    /// # Safety
    /// There must be as many bytes at `from`, if that is not null.
    #[inline]
    unsafe fn word(&mut self, from: *const u8, size: usize, length: u32) -> Result<u64, Unfilled> {
        // SAFETY: by contract.
        let offset = unsafe { self.copy(from, size)? };
        Ok(Word { offset, length, is_constant: false }.to_bits())
    }

    /// The word of a string, of "(null)" if there is none: as it is recorded.
    ///
    /// # Safety
    /// As [`Self::copy_string`], if it is not null.
    #[inline]
    unsafe fn string(&mut self, from: *const u8) -> Result<u64, Unfilled> {
        let from = if from.is_null() { c"(null)".as_ptr().cast() } else { from };
        // SAFETY: by contract.
        let (offset, length) = unsafe { self.copy_string(from)? };
        // (What finds room is shorter than 2^32.)
        Ok(Word { offset, length: length as u32, is_constant: false }.to_bits())
    }
}

impl Plan {
    /// As [`Plan::passes`], of an event whose description has the number `known`; `None`: it has to
    /// be staged.
    ///
    /// One filter only: one that counts must not be asked again when the next one finds no room.
    /// And none that looks at contexts of applications, which have their place before a payload.
    ///
    /// # Safety
    /// What it points to is there. `arguments` are those of an event with that description.
    pub(super) unsafe fn passes_unstaged(
        &self,
        arguments: *const Argument,
        known: u32,
        who: &Who,
    ) -> Option<bool> {
        let has_applications =
            self.takes_more && self.applications != application::Staged::default();
        if self.known != known || self.steps_count != 1 || has_applications {
            return None;
        }
        // SAFETY: by contract; there is one step.
        let step = unsafe { &*self.steps };
        let mut room = Room::new(self.whole_bytes.into());
        let mut procname = Word { offset: 0, length: 0, is_constant: false };
        if self.takes_procname {
            // SAFETY: a thread's name has as many bytes.
            let name = unsafe { core::slice::from_raw_parts(who.name, PROCNAME_BYTES) };
            let end = name.iter().position(|&byte| byte == 0);
            procname.length = end.unwrap_or(PROCNAME_BYTES) as u32;
            // SAFETY: they are those of a slice.
            let copied = unsafe { room.copy(name.as_ptr(), name.len()) };
            procname.offset = copied.ok()?;
        }
        let contexts = context::for_filters(who.pid, who.tid, procname);
        // SAFETY: by contract.
        unsafe { step.passes_unstaged(arguments, &mut room, &contexts) }
    }
}

impl Step {
    /// # Safety
    /// As [`Plan::passes_unstaged`].
    unsafe fn passes_unstaged(
        &self,
        arguments: *const Argument,
        room: &mut Room,
        contexts: &Contexts,
    ) -> Option<bool> {
        // SAFETY: by contract; `link` has put so many there.
        let (filter, takes) = unsafe {
            (&*self.filter, core::slice::from_raw_parts(self.takes, self.takes_count.into()))
        };
        let mut frame = Frame::new(&filter.environment, &[]);
        for take in takes {
            let (field, source) = take.source(contexts);
            // SAFETY: the framer has found the field in the event's description.
            let argument = unsafe { &*arguments.add(field) };
            // SAFETY: by contract it is what the description says.
            let value = match unsafe { value_of(source, argument, room) } {
                Ok(value) => value,
                Err(Unfilled::Unfit) => return Some(false),
                Err(Unfilled::NoRoom) => return None,
            };
            frame.push(value);
        }
        frame.set_bytes(room.filled());
        // SAFETY: by contract.
        Some(unsafe { self.run(&frame) })
    }
}

/// What a slot is filled with.
///
/// # Safety
/// The argument is of a field as the source says.
#[inline]
unsafe fn value_of(source: Source, argument: &Argument, room: &mut Room) -> Result<u64, Unfilled> {
    let Argument { at, length } = *argument;
    // SAFETY: by contract, in all of them: a scalar is at `at`; a string has its NUL; a text,
    // sequence or array has as many elements as it says, or is null.
    unsafe {
        match source {
            Source::Context(value) => Ok(value),
            Source::Scalar(scalar, within) => scalar_of(scalar, at, within.into()),
            Source::Str => room.string(at),
            Source::Text if length > room.left() => Err(Unfilled::NoRoom),
            Source::Text if at.is_null() => room.string(at),
            Source::Text => room.word(at, length, length as u32),
            Source::Sequence(scalar) => {
                let count = if at.is_null() { 0 } else { length };
                let size = count.saturating_mul(scalar.size_bytes());
                if size > room.left() {
                    return Err(Unfilled::NoRoom);
                }
                room.word(at, size, count as u32)
            }
            Source::Array(scalar, count) => {
                let size = usize::from(count) * scalar.size_bytes();
                if at.is_null() {
                    return Err(Unfilled::NoRoom); // zeros: let them be staged
                }
                room.word(at, size, count.into())
            }
            Source::Element(scalar, _)
                if length.saturating_mul(scalar.size_bytes()) > room.whole_bytes =>
            {
                Err(Unfilled::NoRoom)
            }
            Source::Element(scalar, index) => {
                if at.is_null() || usize::from(index) >= length {
                    return Err(Unfilled::Unfit);
                }
                scalar_of(scalar, at, usize::from(index) * scalar.size_bytes())
            }
        }
    }
}

/// The scalar that lies `within` bytes behind `at`; that of an array that is null is zero.
///
/// # Safety
/// It must be there, if `at` is not null.
#[inline]
unsafe fn scalar_of(scalar: Scalar, at: *const u8, within: usize) -> Result<u64, Unfilled> {
    let mut bytes = [0; SCALAR_BYTES_MAX];
    if !at.is_null() {
        // SAFETY: by contract; no scalar is longer.
        unsafe {
            core::ptr::copy_nonoverlapping(
                at.wrapping_add(within),
                bytes.as_mut_ptr(),
                scalar.size_bytes(),
            );
        }
    }
    scalar_at(&bytes, 0, scalar).ok_or(Unfilled::Unfit)
}
