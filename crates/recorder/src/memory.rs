//! Memory for sub-buffers: taken from the window in granules, handed out in pieces.

use trackway_abi::window::{GRANULE_BYTES, granule};
use trackway_ring::{Damage, Memory};
use trackway_sys::file::{Fd, free_bytes};
use trackway_window::{AllocateError, Allocator};

use crate::cgroup;

/// Sub-buffers read with pread(2): a file that was truncated is an error then, not a signal.
pub(crate) struct FileMemory<'file>(pub(crate) &'file Fd);

impl Memory for FileMemory<'_> {
    fn load(&self, at: u64, into: &mut [u8]) -> Result<(), Damage> {
        match self.0.read_at(into, at) {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(Damage::Table(at)),
        }
    }
}

/// A session's memory for sub-buffers.
#[derive(Debug)]
pub(crate) struct Pool {
    owner: u8,
    /// Free pieces, by size as a power of two.
    free: Vec<(u32, Vec<u64>)>,
    /// Whether to leave half of what is free to others.
    modest: bool,
    /// Whether to wait (for a moment) while another process has the window locked.
    pub(crate) patient: bool,
}

impl Pool {
    /// The pool of the session in slot `slot`; a modest one leaves half of what is free. No
    /// pool takes its control group to the limit.
    pub(crate) fn new(slot: usize, modest: bool) -> Self {
        Self { owner: granule::DATA + slot as u8, free: Vec::new(), modest, patient: true }
    }

    /// A piece of `1 << shift` bytes, backed by memory. More than one is taken from the window at
    /// a time, if more are `expected`.
    pub(crate) fn take(
        &mut self,
        allocator: &Allocator,
        shift: u32,
        expected: u64,
    ) -> Result<u64, AllocateError> {
        if let Some(piece) = self.list(shift).pop() {
            return Ok(piece);
        }
        let size = 1_u64 << shift;
        let bytes = (size * expected.max(1)).next_multiple_of(GRANULE_BYTES);
        let least = size.next_multiple_of(GRANULE_BYTES);
        let (start, bytes) = match self.take_granules(allocator, bytes) {
            Ok(start) => (start, bytes),
            Err(error) if bytes > least && error != AllocateError::Locked => {
                (self.take_granules(allocator, least)?, least)
            }
            Err(error) => return Err(error),
        };
        let list = self.list(shift);
        // In the order of their addresses: `pop` takes from the end.
        list.extend((0..bytes / size).rev().map(|number| start + number * size));
        list.pop().ok_or(AllocateError::NoSpace)
    }

    fn take_granules(&self, allocator: &Allocator, bytes: u64) -> Result<u64, AllocateError> {
        let headroom = cgroup::headroom_bytes();
        let share = if self.modest { 2 } else { 1 };
        if bytes > headroom / share {
            return Err(AllocateError::System(trackway_sys::Errno(libc::ENOMEM)));
        }
        if self.modest {
            let free = free_bytes(allocator.file()).map_err(AllocateError::System)?;
            if bytes > free / share {
                return Err(AllocateError::System(trackway_sys::Errno(libc::ENOSPC)));
            }
        }
        if self.patient {
            allocator.take(bytes, self.owner)
        } else {
            allocator.try_take(bytes, self.owner)
        }
    }

    fn list(&mut self, shift: u32) -> &mut Vec<u64> {
        let place = match self.free.iter().position(|(of, _)| *of == shift) {
            Some(place) => place,
            None => {
                self.free.push((shift, Vec::new()));
                self.free.len() - 1
            }
        };
        &mut self.free[place].1
    }
}
