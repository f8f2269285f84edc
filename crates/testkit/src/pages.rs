//! Memory that traps beside its ends, and memory that can be executed.
#![expect(unsafe_code, reason = "mappings")]

use std::marker::PhantomData;
use std::ptr::null_mut;

/// Multiple of every page size on which this code runs.
const PAGE: usize = 1 << 16;

/// A mapping with a page without access at both ends.
#[derive(Debug)]
struct Mapping {
    start: *mut u8,
    size: usize,
}

impl Mapping {
    /// Maps at least `size` bytes between the two pages.
    fn new(size: usize) -> Self {
        let size = size.max(1).next_multiple_of(PAGE) + 2 * PAGE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping where nothing was.
        let start = unsafe { libc::mmap(null_mut(), size, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED, "there is no memory");
        let mapping = Self { start: start.cast(), size };
        mapping.protect(libc::PROT_READ | libc::PROT_WRITE);
        mapping
    }

    fn protect(&self, protection: i32) {
        let size = self.size - 2 * PAGE;
        // SAFETY: the middle of our own mapping, which is not borrowed yet.
        let result = unsafe { libc::mprotect(self.first().cast(), size, protection) };
        assert_eq!(result, 0, "memory may be protected");
    }

    fn first(&self) -> *mut u8 {
        self.start.wrapping_add(PAGE)
    }

    /// Returns the start of a value of this size that ends where access ends.
    fn last(&self, size: usize) -> *mut u8 {
        self.start.wrapping_add(self.size - PAGE - size)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping; borrows from it are borrows from the owner of this.
        unsafe { libc::munmap(self.start.cast(), self.size) };
    }
}

/// Code that can be executed and not written.
#[derive(Debug)]
pub struct Executable(Mapping);

impl Executable {
    /// Copies this code into executable memory.
    ///
    /// # Panics
    /// Panics if there is no such memory.
    pub fn new(code: &[u8]) -> Self {
        let mapping = Mapping::new(code.len());
        // SAFETY: the mapping has room for it and is writable.
        unsafe { mapping.first().copy_from_nonoverlapping(code.as_ptr(), code.len()) };
        mapping.protect(libc::PROT_READ | libc::PROT_EXEC);
        Self(mapping)
    }

    /// Returns the start of the code; valid as long as this value lives.
    pub fn start(&self) -> *const u8 {
        self.0.first()
    }
}

/// Bytes that end directly before memory without access.
#[derive(Debug)]
pub struct GuardedBytes {
    mapping: Mapping,
    size: usize,
}

impl GuardedBytes {
    /// Copies these bytes.
    ///
    /// # Panics
    /// Panics if there is no such memory.
    pub fn new(bytes: &[u8]) -> Self {
        let mapping = Mapping::new(bytes.len());
        let start = mapping.last(bytes.len());
        // SAFETY: the mapping has room for them and is writable.
        unsafe { start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Self { mapping, size: bytes.len() }
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: initialized by `new`, and there as long as the mapping is.
        unsafe { std::slice::from_raw_parts(self.mapping.last(self.size), self.size) }
    }
}

/// A value that ends directly before memory without access.
#[derive(Debug)]
pub struct GuardedValue<T> {
    mapping: Mapping,
    value: PhantomData<T>,
}

impl<T> GuardedValue<T> {
    /// Stores the value.
    ///
    /// # Panics
    /// Panics if there is no such memory, or if the value needs to be dropped.
    pub fn new(value: T) -> Self {
        assert!(!std::mem::needs_drop::<T>(), "nobody drops it");
        let mapping = Mapping::new(size_of::<T>());
        // SAFETY: the mapping has room for it, and the end of a page is aligned for anything whose
        // size is a multiple of its alignment.
        unsafe { mapping.last(size_of::<T>()).cast::<T>().write(value) };
        Self { mapping, value: PhantomData }
    }

    /// Returns the value.
    pub fn get(&self) -> &T {
        // SAFETY: written by `new`, and there as long as the mapping is.
        unsafe { &*self.mapping.last(size_of::<T>()).cast::<T>() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns true if reading this byte ends a child.
    fn reading_traps(at: *const u8) -> bool {
        // SAFETY: the child does nothing but read and end.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: a fault affects the child alone.
                unsafe { at.read_volatile() };
                // SAFETY: ends the child at once, without what the parent has registered.
                unsafe { libc::_exit(0) }
            }
            child => {
                let mut status = 0;
                // SAFETY: waits for our own child.
                assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV
            }
        }
    }

    #[test]
    fn the_byte_behind_the_end_traps() {
        let guarded = GuardedBytes::new(b"abc");
        assert_eq!(guarded.bytes(), b"abc");
        let start = guarded.bytes().as_ptr();
        assert!(!reading_traps(start.wrapping_add(2)));
        assert!(reading_traps(start.wrapping_add(3)));
        let value = GuardedValue::new([1_u64, 2]);
        assert_eq!(value.get(), &[1, 2]);
        assert!(reading_traps(value.get().as_ptr_range().end.cast()));
    }
}
