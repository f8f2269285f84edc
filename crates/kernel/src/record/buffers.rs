//! The buffers: one map of the kernel's, an element for each CPU, mapped here.
//!
//! The kernel's programs write it, we read it and say how far they may go; nobody else has it. It
//! is gone when we are: nothing of it has a name.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use trackway_abi::region::{CONTROL_BYTES, PAGE_SHIFT};
use trackway_ring::{Control, Damage, Memory, Region};

use super::layout::{BUFFERS_BYTES_MAX, LEVELS, Layout, TOO_DEEP};
use crate::bpf::{MAP_CREATE, MAP_TYPE_ARRAY, MapCreate, bpf, owned};

/// The map can be mapped (include/uapi/linux/bpf.h).
const F_MMAPABLE: u32 = 1 << 10;

/// The buffers of all CPUs.
#[derive(Debug)]
pub struct Buffers {
    map: OwnedFd,
    base: NonNull<u8>,
    layout: Layout,
    cpus: usize,
    overwrite: bool,
}

// SAFETY: the mapping belongs to this value and stays where it is; what others write there at the
// same time is only read and written as atomics and by raw copies.
unsafe impl Send for Buffers {}
// SAFETY: as above.
unsafe impl Sync for Buffers {}

impl Buffers {
    /// Makes buffers for CPUs 0 to `cpus` − 1. With `overwrite`, programs go round the rings; else
    /// each may be filled once, until [`Self::region`]s are given more room.
    ///
    /// # Errors
    ///
    /// If the kernel has no BPF, lets us have none, or has not as much memory.
    pub fn new(layout: Layout, cpus: usize, overwrite: bool) -> io::Result<Self> {
        let bytes = layout.cpu_bytes().checked_mul(cpus);
        let bytes = bytes.filter(|bytes| (1..=BUFFERS_BYTES_MAX).contains(bytes));
        let bytes = bytes.ok_or(io::ErrorKind::InvalidInput)?;
        let mut create = MapCreate {
            map_type: MAP_TYPE_ARRAY,
            key_size: 4,
            value_size: layout.cpu_bytes() as u32,
            max_entries: cpus as u32,
            map_flags: F_MMAPABLE,
        };
        // SAFETY: there are no addresses in it.
        let map = owned(unsafe { bpf(MAP_CREATE, &mut create) }?);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, where the kernel finds room.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, map.as_raw_fd(), 0)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let buffers = Self { map, base, layout, cpus, overwrite };
        buffers.prepare();
        Ok(buffers)
    }

    /// Says where rings are, and how far they may be written: before any program runs.
    fn prepare(&self) {
        for (cpu, level) in
            (0..self.cpus).flat_map(|cpu| (0..LEVELS).map(move |level| (cpu, level)))
        {
            let Some(region) = self.region(cpu, level) else { continue };
            let ring = self.layout.cpu_bytes() * cpu + self.layout.ring(level);
            let geometry = region.geometry;
            for index in 0..geometry.sub_count() {
                region.back(index, ring as u64 + index * geometry.sub_bytes());
            }
            region.raise_limit(if self.overwrite { u64::MAX } else { geometry.ring_bytes() });
        }
    }

    /// The map, for programs.
    pub fn map_fd(&self) -> RawFd {
        self.map.as_raw_fd()
    }

    /// The layout of each CPU's part.
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// How many CPUs have a part.
    pub const fn cpus(&self) -> usize {
        self.cpus
    }

    /// The region of a CPU and level. Its sub-buffers lie in [`Memory`] that this is.
    pub fn region(&self, cpu: usize, level: usize) -> Option<Region<'_>> {
        if cpu >= self.cpus || level >= LEVELS {
            return None;
        }
        let geometry = self.layout.geometry(level);
        let at = self.layout.cpu_bytes() * cpu + self.layout.control(level);
        // SAFETY: within the mapping, and a multiple of 64 from its page; all of both are atomics.
        let (control, table) = unsafe {
            let control = self.base.add(at);
            let table = control.add(CONTROL_BYTES).cast::<AtomicU32>();
            let count = geometry.sub_count() as usize;
            (control.cast::<Control>().as_ref(), std::slice::from_raw_parts(table.as_ptr(), count))
        };
        Some(Region { control, table, geometry })
    }

    /// Records of an event that found no room, on all CPUs.
    pub fn lost(&self, event: usize) -> u64 {
        if event >= self.layout.events() {
            return 0;
        }
        self.sum(self.layout.lost(event))
    }

    /// Records of any event that found all levels of their CPU taken.
    pub fn too_deep(&self) -> u64 {
        self.sum(TOO_DEEP)
    }

    /// The sum of a word in all CPUs' parts.
    fn sum(&self, at: usize) -> u64 {
        let word = |cpu: usize| {
            let at = self.layout.cpu_bytes() * cpu + at;
            // SAFETY: within the mapping, a multiple of eight.
            let word = unsafe { self.base.add(at).cast::<AtomicU64>().as_ref() };
            word.load(Ordering::Relaxed)
        };
        (0..self.cpus).map(word).fold(0, u64::wrapping_add)
    }

    fn bytes(&self) -> usize {
        self.layout.cpu_bytes() * self.cpus
    }
}

impl Memory for Buffers {
    fn load(&self, at: u64, into: &mut [u8]) -> Result<(), Damage> {
        let end = at.checked_add(into.len() as u64);
        if end.is_none_or(|end| end > self.bytes() as u64) {
            return Err(Damage::Table(at >> PAGE_SHIFT));
        }
        // SAFETY: within the mapping, from where programs may write at the same time: a raw copy.
        unsafe {
            let from = self.base.as_ptr().add(at as usize);
            std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len());
        }
        Ok(())
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: our mapping; regions borrow from this value.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes()) };
    }
}
