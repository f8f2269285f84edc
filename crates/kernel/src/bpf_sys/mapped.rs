//! A mapped kernel array: memory that BPF programs share with this process.
//!
//! The map has no name: the kernel frees it with its last descriptor, mapping and program.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use trackway_abi::region::CONTROL_BYTES;
use trackway_ring::{Control, Geometry, Region};

use crate::bpf_sys::bpf::{MAP_CREATE, MAP_TYPE_ARRAY, MapCreate, bpf, own_fd};

/// The flag of a map that processes can mmap (include/uapi/linux/bpf.h).
const F_MMAPABLE: u32 = 1 << 10;

/// A kernel array mapped into this process.
#[derive(Debug)]
pub(crate) struct MappedArray {
    map: OwnedFd,
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value and stays in place; concurrent writes by programs are
// read and written as atomics and by raw copies only.
unsafe impl Send for MappedArray {}
// SAFETY: threads access the mapping, which stays in place, by atomics and raw copies only.
unsafe impl Sync for MappedArray {}

impl MappedArray {
    /// Creates an array of `count` elements, all zero. `element_bytes` is a multiple of eight.
    ///
    /// # Errors
    ///
    /// If BPF is not available to this process, or the kernel has too little memory.
    pub(crate) fn new(element_bytes: usize, count: usize) -> io::Result<Self> {
        let too_large = || io::Error::from(io::ErrorKind::InvalidInput);
        let bytes = element_bytes.checked_mul(count).ok_or_else(too_large)?;
        let mut create = MapCreate {
            map_type: MAP_TYPE_ARRAY,
            key_size: 4,
            value_size: u32::try_from(element_bytes).map_err(|_| too_large())?,
            max_entries: u32::try_from(count).map_err(|_| too_large())?,
            map_flags: F_MMAPABLE,
        };
        // SAFETY: the attribute contains no addresses.
        let map = own_fd(unsafe { bpf(MAP_CREATE, &mut create) }?);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let (any, fd) = (std::ptr::null_mut(), map.as_raw_fd());
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe { libc::mmap(any, bytes, access, libc::MAP_SHARED, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { map, base, bytes })
    }

    /// Returns the map's descriptor.
    pub(crate) fn fd(&self) -> RawFd {
        self.map.as_raw_fd()
    }

    /// Returns the address of `count` values at offset `at`, if they are aligned and within the
    /// mapping.
    fn address_at<T>(&self, at: usize, count: usize) -> Option<NonNull<T>> {
        let bytes = size_of::<T>().checked_mul(count)?;
        let is_within = at.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        // SAFETY: the address is within the mapping.
        (is_within && at.is_multiple_of(align_of::<T>()))
            .then(|| unsafe { self.base.add(at) }.cast())
    }

    /// Returns the word at offset `at`.
    pub(crate) fn word(&self, at: usize) -> Option<&AtomicU64> {
        // SAFETY: the word is within the mapping, aligned, and an atomic.
        self.address_at(at, 1).map(|place| unsafe { place.as_ref() })
    }

    /// Returns the region with control lines at offset `at`, followed by the region's table.
    pub(crate) fn region(&self, at: usize, geometry: Geometry) -> Option<Region<'_>> {
        let count = geometry.sub_count() as usize;
        let control = self.address_at::<Control>(at, 1)?;
        let table = self.address_at::<AtomicU32>(at + CONTROL_BYTES, count)?;
        // SAFETY: control lines and table are within the mapping, aligned, and consist of atomics.
        let (control, table) = unsafe {
            (control.as_ref(), std::slice::from_raw_parts(table.as_ptr().cast_const(), count))
        };
        Some(Region { control, table, geometry })
    }

    /// Copies the bytes at offset `at`; returns false if they are not within the mapping.
    pub(crate) fn copy(&self, at: usize, into: &mut [u8]) -> bool {
        let Some(from) = self.address_at::<u8>(at, into.len()) else { return false };
        // SAFETY: the bytes are within the mapping; programs may write there at the same time, so
        // this is a raw copy.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), into.as_mut_ptr(), into.len()) };
        true
    }
}

impl Drop for MappedArray {
    fn drop(&mut self) {
        // SAFETY: our mapping; references into it borrow this value.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
