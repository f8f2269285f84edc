//! Reads a few bytes of a string at once, up to its NUL.
//!
//! Invariant: a page is read only if it holds a byte before the NUL, or the NUL itself. Bytes after
//! the NUL are read but have no meaning, as in the C library's strlen(3).

#[cfg(target_arch = "x86_64")]
use core::arch::x86_64::{__m128i, _mm_cmpeq_epi8, _mm_movemask_epi8, _mm_setzero_si128};

/// Bytes of a chunk.
pub(super) const CHUNK_BYTES: usize = 16;
/// Size of the smallest pages, in bytes.
#[cfg(target_arch = "x86_64")]
const PAGE_BYTES: usize = 4096;

/// A chunk of a string: on x86-64 in an SSE2 register, which every processor has.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct StringChunk(__m128i);

#[cfg(not(target_arch = "x86_64"))]
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct StringChunk([u8; CHUNK_BYTES]);

impl StringChunk {
    /// Reads a chunk of the string at `from`.
    ///
    /// # Safety
    /// A string that ends with a NUL is at `from`.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) unsafe fn read_string(from: *const u8) -> Self {
        if from.addr() % PAGE_BYTES > PAGE_BYTES - CHUNK_BYTES {
            // SAFETY: by contract.
            let bytes = unsafe { read_string_by_bytes(from) };
            // SAFETY: an `__m128i` holds any bytes.
            return Self(unsafe { core::mem::transmute::<[u8; CHUNK_BYTES], __m128i>(bytes) });
        }
        let chunk: __m128i;
        // SAFETY: a load from a page that has the string's first byte. In assembly, because the
        // language does not allow reads beyond a string.
        unsafe {
            core::arch::asm!(
                "movdqu {chunk}, [{from}]",
                chunk = out(xmm_reg) chunk,
                from = in(reg) from,
                options(readonly, nostack, preserves_flags),
            );
        }
        Self(chunk)
    }

    /// Reads a chunk of the string at `from`, without an SSE2 register.
    ///
    /// # Safety
    /// A string that ends with a NUL is at `from`.
    #[cfg(not(target_arch = "x86_64"))]
    pub(super) unsafe fn read_string(from: *const u8) -> Self {
        // SAFETY: by contract.
        Self(unsafe { read_string_by_bytes(from) })
    }

    /// Returns the number of bytes before the first NUL; the chunk's size if there is no NUL.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) fn count_before_nul(self) -> usize {
        // SAFETY: instructions that every such processor has.
        let is_nul = unsafe { _mm_movemask_epi8(_mm_cmpeq_epi8(self.0, _mm_setzero_si128())) };
        (is_nul | 1 << CHUNK_BYTES).trailing_zeros() as usize
    }

    /// Returns the number of bytes before the first NUL; the chunk's size if there is no NUL.
    #[cfg(not(target_arch = "x86_64"))]
    pub(super) fn count_before_nul(self) -> usize {
        self.0.iter().position(|&byte| byte == 0).unwrap_or(CHUNK_BYTES)
    }
}

/// Reads the bytes of a string up to its NUL, followed by zeros.
///
/// # Safety
/// A string that ends with a NUL is at `from`.
#[cfg_attr(target_arch = "x86_64", cold)]
#[inline(never)]
unsafe fn read_string_by_bytes(from: *const u8) -> [u8; CHUNK_BYTES] {
    let mut bytes = [0; CHUNK_BYTES];
    for (index, byte) in bytes.iter_mut().enumerate() {
        // SAFETY: no earlier byte is a NUL, so the string continues.
        *byte = unsafe { from.wrapping_add(index).read() };
        if *byte == 0 {
            break;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// READ strings at every distance from a page's end, before an unreadable page. EXPECT that
    /// each string is read completely, without a fault.
    #[test]
    fn nothing_is_read_behind_the_last_page() {
        const PAGE: usize = 4096;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, anywhere.
        let start =
            unsafe { libc::mmap(core::ptr::null_mut(), 2 * PAGE, protection, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        let start: *mut u8 = start.cast();
        // SAFETY: the second page is the test's.
        let guarded = unsafe { libc::mprotect(start.add(PAGE).cast(), PAGE, libc::PROT_NONE) };
        assert_eq!(guarded, 0);
        for room in 1..=2 * CHUNK_BYTES {
            for length in 0..room {
                let mut bytes = [0; 2 * CHUNK_BYTES];
                (1..).zip(&mut bytes[..length]).for_each(|(value, byte)| *byte = value);
                // SAFETY: within the first page, up to its end at most.
                let chunk = unsafe {
                    let place = start.add(PAGE - room);
                    place.copy_from_nonoverlapping(bytes.as_ptr(), length + 1);
                    StringChunk::read_string(place)
                };
                let before = length.min(CHUNK_BYTES);
                assert_eq!(chunk.count_before_nul(), before, "{length} bytes of {room}");
                // SAFETY: a chunk is its bytes.
                let read: [u8; CHUNK_BYTES] = unsafe { core::mem::transmute(chunk) };
                assert_eq!(read[..before], bytes[..before], "{length} bytes of {room}");
            }
        }
        // SAFETY: the mapping is the test's, and nothing uses it any more.
        unsafe { libc::munmap(start.cast(), 2 * PAGE) };
    }
}
