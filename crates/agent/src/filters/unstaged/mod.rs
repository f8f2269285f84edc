//! Evaluation of plans on events that are not staged: the fields are still in the program's memory.
//!
//! Before a filter runs, each field that the filter needs is read or copied once, because another
//! thread may be writing to it. Other fields are not read. Strings and sequences are copied to a
//! buffer. If they do not fit, or are so long that staging may cut them, the event is staged as
//! usual. So filters give the same verdict for staged and unstaged events.

mod chunk;

use core::mem::MaybeUninit;

use trackway_abi::record::context::PROCNAME_BYTES;
use trackway_jit::frame::Frame;
use trackway_jit::framer::{Contexts, Source, scalar_at};
use trackway_jit::helper::Word;
use trackway_schema::Scalar;

use self::chunk::{CHUNK_BYTES, StringChunk};
use super::plan::{Emitter, Plan, Step};
use crate::abi::Argument;
use crate::app_contexts;
use crate::contexts;

/// Bytes of the buffer: a multiple of a chunk.
const BUFFER_BYTES: usize = 1024 + PROCNAME_BYTES.next_multiple_of(CHUNK_BYTES);
/// Bytes of the largest scalar.
const SCALAR_BYTES_MAX: usize = 8;

const _: () = assert!(BUFFER_BYTES.is_multiple_of(CHUNK_BYTES));

/// The reason why a frame is not filled.
enum FrameError {
    /// The filter does not apply to the event.
    Inapplicable,
    /// The buffer is full.
    NoRoom,
}

/// The buffer for copies, one after the other; the thread's name comes first.
///
/// Each copy begins with a chunk of its own and is written by chunks, so a filter that reads a few
/// bytes of a short copy finds them in one store. (A load that takes bytes from several stores
/// waits for the cache.)
#[repr(C, align(16))]
struct CopyBuffer {
    bytes: [MaybeUninit<u8>; BUFFER_BYTES],
    /// Number of used bytes: a multiple of a chunk. All bytes before it are written.
    used: usize,
    /// Maximum bytes of one field.
    uncut_bytes: usize,
}

impl CopyBuffer {
    const fn new(uncut_bytes: usize) -> Self {
        let bytes = [const { MaybeUninit::uninit() }; BUFFER_BYTES];
        Self { bytes, used: 0, uncut_bytes }
    }

    /// Copies `size` bytes. Returns the offset of the copy.
    ///
    /// # Safety
    /// `from` has `size` readable bytes, and may be null if `size` is 0.
    #[inline]
    unsafe fn copy(&mut self, from: *const u8, size: usize) -> Result<u32, FrameError> {
        let at = self.used;
        let end = size.checked_next_multiple_of(CHUNK_BYTES).and_then(|size| at.checked_add(size));
        let end = end.ok_or(FrameError::NoRoom)?;
        let place = self.bytes.get_mut(at..end).ok_or(FrameError::NoRoom)?;
        if let Some(last) = place.last_chunk_mut::<CHUNK_BYTES>() {
            // The bytes after the copy are written, too.
            *last = [MaybeUninit::new(0); CHUNK_BYTES];
            // SAFETY: by contract, and the place has as many bytes.
            unsafe { core::ptr::copy_nonoverlapping(from, place.as_mut_ptr().cast(), size) };
        }
        self.used = end;
        Ok(at as u32)
    }

    /// Copies a string up to its NUL, reading each byte once. Returns the copy's offset and length.
    ///
    /// # Safety
    /// A string that ends with a NUL is at `from`.
    #[inline]
    unsafe fn copy_string(&mut self, from: *const u8) -> Result<(u32, usize), FrameError> {
        let (at, most) = (self.used, self.free_bytes());
        let mut length = 0;
        // Each turn fills a chunk of the buffer.
        while let Some(place) = self.bytes[self.used..].first_chunk_mut::<CHUNK_BYTES>() {
            // SAFETY: no earlier byte of the string is a NUL.
            let chunk = unsafe { StringChunk::read_string(from.wrapping_add(length)) };
            // SAFETY: the place has as many bytes.
            unsafe { place.as_mut_ptr().cast::<StringChunk>().write_unaligned(chunk) };
            self.used += CHUNK_BYTES;
            let before = chunk.count_before_nul();
            length += before;
            if length > most {
                break;
            }
            if before < CHUNK_BYTES {
                return Ok((at as u32, length));
            }
        }
        Err(FrameError::NoRoom)
    }

    /// Returns the maximum bytes of the next field.
    fn free_bytes(&self) -> usize {
        self.uncut_bytes.min(self.bytes.len() - self.used)
    }

    /// Returns all copies.
    fn as_slice(&self) -> &[u8] {
        // SAFETY: everything before `used` is written.
        unsafe { core::slice::from_raw_parts(self.bytes.as_ptr().cast(), self.used) }
    }

    /// Copies elements. Returns the word that refers to the copy.
    ///
    /// # Safety
    /// `from` has `size` readable bytes, or is null.
    #[inline]
    unsafe fn copy_elements(
        &mut self,
        from: *const u8,
        size: usize,
        length: u32,
    ) -> Result<u64, FrameError> {
        // SAFETY: by contract.
        let offset = unsafe { self.copy(from, size)? };
        Ok(Word { offset, length, is_constant: false }.to_bits())
    }

    /// Copies a string, or "(null)" for a null pointer. Returns the word that refers to the copy.
    ///
    /// # Safety
    /// The contract of [`Self::copy_string`] applies, if `from` is not null.
    #[inline]
    unsafe fn copy_string_or_null(&mut self, from: *const u8) -> Result<u64, FrameError> {
        let from = if from.is_null() { c"(null)".as_ptr().cast() } else { from };
        // SAFETY: by contract.
        let (offset, length) = unsafe { self.copy_string(from)? };
        // A string that fits is shorter than 2^32.
        Ok(Word { offset, length: length as u32, is_constant: false }.to_bits())
    }
}

impl Plan {
    /// Evaluates the plan on an event whose description has the number `description_number`.
    /// `None`: the event must be staged.
    ///
    /// Supports only plans of one filter, because a stateful filter must not run again when the
    /// next filter finds the buffer full. Supports no application contexts, whose place is before a
    /// payload.
    ///
    /// # Safety
    /// All memory that the plan points to is valid. `arguments` belong to an event with that
    /// description.
    pub(super) unsafe fn passes_unstaged(
        &self,
        arguments: *const Argument,
        description_number: u32,
        emitter: &Emitter,
    ) -> Option<bool> {
        let has_applications =
            self.uses_headroom && self.applications != app_contexts::StagedOffsets::default();
        if self.description_number != description_number
            || self.steps_count != 1
            || has_applications
        {
            return None;
        }
        // SAFETY: by contract; the plan has one step.
        let step = unsafe { &*self.steps };
        let mut buffer = CopyBuffer::new(self.uncut_bytes.into());
        let mut procname = Word { offset: 0, length: 0, is_constant: false };
        if self.takes_procname {
            // SAFETY: a thread's name has as many bytes.
            let name = unsafe { core::slice::from_raw_parts(emitter.name, PROCNAME_BYTES) };
            let end = name.iter().position(|&byte| byte == 0);
            procname.length = end.unwrap_or(PROCNAME_BYTES) as u32;
            // SAFETY: the bytes of a slice.
            let copied = unsafe { buffer.copy(name.as_ptr(), name.len()) };
            procname.offset = copied.ok()?;
        }
        let contexts = contexts::filter_contexts(emitter.pid, emitter.tid, procname);
        // SAFETY: by contract.
        unsafe { step.passes_unstaged(arguments, &mut buffer, &contexts) }
    }
}

impl Step {
    /// Evaluates the filter on the arguments.
    ///
    /// # Safety
    /// The contract of [`Plan::passes_unstaged`] applies.
    unsafe fn passes_unstaged(
        &self,
        arguments: *const Argument,
        buffer: &mut CopyBuffer,
        contexts: &Contexts,
    ) -> Option<bool> {
        // SAFETY: by contract; the plan builder has stored `takes_count` values.
        let (filter, takes) = unsafe {
            (&*self.filter, core::slice::from_raw_parts(self.takes, self.takes_count.into()))
        };
        let mut frame = Frame::new(&filter.environment, &[]);
        for take in takes {
            let (field, source) = take.source(contexts);
            // SAFETY: the framer has found the field in the event's description.
            let argument = unsafe { &*arguments.add(field) };
            // SAFETY: by contract, the argument has the type in the description.
            let value = match unsafe { value_of(source, argument, buffer) } {
                Ok(value) => value,
                Err(FrameError::Inapplicable) => return Some(false),
                Err(FrameError::NoRoom) => return None,
            };
            frame.push(value);
        }
        frame.set_bytes(buffer.as_slice());
        // SAFETY: by contract.
        Some(unsafe { self.run(&frame) })
    }
}

/// Returns the value of a frame's slot.
///
/// # Safety
/// The argument belongs to a field of the source's type.
#[inline]
unsafe fn value_of(
    source: Source,
    argument: &Argument,
    buffer: &mut CopyBuffer,
) -> Result<u64, FrameError> {
    let Argument { at, length } = *argument;
    // SAFETY: by contract, in all cases: a scalar is at `at`; a string has its NUL; a text,
    // sequence or array has all its elements, or is null.
    unsafe {
        match source {
            Source::Context(value) => Ok(value),
            Source::Scalar(scalar, within) => scalar_of(scalar, at, within.into()),
            Source::Str => buffer.copy_string_or_null(at),
            Source::Text if length > buffer.free_bytes() => Err(FrameError::NoRoom),
            Source::Text if at.is_null() => buffer.copy_string_or_null(at),
            Source::Text => buffer.copy_elements(at, length, length as u32),
            Source::Sequence(scalar) => {
                let count = if at.is_null() { 0 } else { length };
                let size = count.saturating_mul(scalar.size_bytes());
                if size > buffer.free_bytes() {
                    return Err(FrameError::NoRoom);
                }
                buffer.copy_elements(at, size, count as u32)
            }
            Source::Array(scalar, count) => {
                let size = usize::from(count) * scalar.size_bytes();
                if at.is_null() {
                    return Err(FrameError::NoRoom); // recorded as zeros, which staging writes
                }
                buffer.copy_elements(at, size, count.into())
            }
            Source::Element(scalar, _)
                if length.saturating_mul(scalar.size_bytes()) > buffer.uncut_bytes =>
            {
                Err(FrameError::NoRoom)
            }
            Source::Element(scalar, index) => {
                if at.is_null() || usize::from(index) >= length {
                    return Err(FrameError::Inapplicable);
                }
                scalar_of(scalar, at, usize::from(index) * scalar.size_bytes())
            }
        }
    }
}

/// Returns the scalar that lies `within` bytes after `at`; zero for an array that is null.
///
/// # Safety
/// The scalar is readable, if `at` is not null.
#[inline]
unsafe fn scalar_of(scalar: Scalar, at: *const u8, within: usize) -> Result<u64, FrameError> {
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
    scalar_at(&bytes, 0, scalar).ok_or(FrameError::Inapplicable)
}
