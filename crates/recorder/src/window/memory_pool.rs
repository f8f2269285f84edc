//! Memory for sub-buffers: taken from the window in granules, handed out in pieces.

use std::time::{Duration, Instant};

use trackway_abi::window::{GRANULE_BYTES, granule};
use trackway_ring::{Damage, Memory};
use trackway_sys::file::{Fd, free_bytes};
use trackway_window::{AllocateError, Allocator, READABLE_BYTES, Window};

use crate::window::{memory_limit, sandboxes};

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
pub(crate) struct MemoryPool {
    owner: u8,
    /// Free pieces, by size as a power of two.
    free: Vec<(u32, Vec<Piece>)>,
    /// True if half of the free memory is left to other processes.
    modest: bool,
    /// True if waits are allowed (for a moment) while another process has the window locked.
    pub(crate) patient: bool,
    /// Time of the latest search for sandboxes.
    looked: Option<Instant>,
}

/// A place for a sub-buffer, which the session holds in the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Piece {
    /// In bytes of the window.
    offset: u64,
    /// True if it has memory; otherwise the system has it.
    is_backed: bool,
}

impl MemoryPool {
    /// Makes the pool of the session in slot `slot`; a modest one leaves half of the free memory.
    /// No pool takes its control group to the limit.
    pub(crate) fn new(slot: usize, modest: bool) -> Self {
        Self {
            owner: granule::DATA + slot as u8,
            free: Vec::new(),
            modest,
            patient: true,
            looked: None,
        }
    }

    /// Takes a piece of `1 << shift` bytes, backed by memory. Takes more than one from the window
    /// at a time, if more are `expected`.
    pub(crate) fn take(
        &mut self,
        allocator: &Allocator,
        shift: u32,
        expected: u64,
    ) -> Result<u64, AllocateError> {
        let size = 1_u64 << shift;
        if let Some(&piece) = self.free_pieces(shift).last() {
            if !piece.is_backed {
                self.check_room(allocator, size)?;
                let backed = allocator.file().allocate(piece.offset, size);
                backed.map_err(AllocateError::System)?;
            }
            self.free_pieces(shift).pop();
            return Ok(piece.offset);
        }
        let bytes = (size * expected.max(1)).next_multiple_of(GRANULE_BYTES);
        let least = size.next_multiple_of(GRANULE_BYTES);
        let (start, bytes) = match self.take_granules(allocator, bytes) {
            Ok(start) => (start, bytes),
            Err(error) if bytes > least && error != AllocateError::Locked => {
                (self.take_granules(allocator, least)?, least)
            }
            Err(error) => return Err(error),
        };
        // In the order of their addresses: the last one is taken first.
        let pieces = (1..bytes / size).rev();
        let pieces = pieces.map(|number| Piece { offset: start + number * size, is_backed: true });
        self.free_pieces(shift).extend(pieces);
        Ok(start)
    }

    /// Takes back a piece of `1 << shift` bytes at `offset` that is not in use any more: its memory
    /// returns to the system.
    pub(crate) fn put(&mut self, allocator: &Allocator, shift: u32, offset: u64) {
        let is_backed = allocator.file().punch(offset, 1 << shift).is_err();
        let list = self.free_pieces(shift);
        // Pieces with memory are taken first; then those at low addresses.
        list.push(Piece { offset, is_backed });
        list.sort_unstable_by_key(|piece| (piece.is_backed, std::cmp::Reverse(piece.offset)));
    }

    /// Gives back the memory of all free pieces, and returns granules without pieces in use to the
    /// window. If another process has the window locked, they stay, to be used or given back later.
    pub(crate) fn trim(&mut self, allocator: &Allocator) -> Result<(), AllocateError> {
        for (shift, pieces) in &mut self.free {
            for piece in pieces.iter_mut().filter(|piece| piece.is_backed) {
                piece.is_backed = allocator.file().punch(piece.offset, 1 << *shift).is_err();
            }
        }
        let mut whole = Vec::new();
        for (shift, pieces) in &self.free {
            whole.extend(whole_granules(1 << *shift, pieces));
        }
        if whole.is_empty() {
            return Ok(());
        }
        let given = allocator.try_give_back_some(&whole, self.owner);
        // Whatever the result: granules that are not ours any more may be another session's by now.
        for (_, pieces) in &mut self.free {
            pieces.retain(|piece| allocator.owner_at(granule_of(piece)) == self.owner);
        }
        given
    }

    /// Returns the memory that the session holds in the window and the system has, in bytes.
    pub(crate) fn unbacked_bytes(&self) -> u64 {
        let of = |(shift, pieces): &(u32, Vec<Piece>)| {
            (pieces.iter().filter(|piece| !piece.is_backed).count() as u64) << shift
        };
        self.free.iter().map(of).sum()
    }

    fn take_granules(&mut self, allocator: &Allocator, bytes: u64) -> Result<u64, AllocateError> {
        self.check_room(allocator, bytes)?;
        self.detect_sandboxes(allocator.window(), bytes);
        if self.patient {
            allocator.take(bytes, self.owner)
        } else {
            allocator.try_take(bytes, self.owner)
        }
    }

    /// Detects processes in sandboxes, if processes may have to map more of the window for so many
    /// more bytes: those that are marked make no system call for that.
    fn detect_sandboxes(&mut self, window: &Window, bytes: u64) {
        const PERIOD: Duration = Duration::from_secs(1);
        let is_mapped = window.usable_bytes().saturating_add(bytes) <= READABLE_BYTES;
        if is_mapped || self.looked.is_some_and(|looked| looked.elapsed() < PERIOD) {
            return;
        }
        sandboxes::mark_sandboxed_processes(window);
        self.looked = Some(Instant::now());
    }

    /// Checks that there is memory for so many more bytes, all of which are required: before the
    /// first of them is taken.
    pub(crate) fn check_all(&self, allocator: &Allocator, bytes: u64) -> Result<(), AllocateError> {
        self.check_room(allocator, bytes)?;
        let free = free_bytes(allocator.file()).map_err(AllocateError::System)?;
        if bytes > free {
            return Err(AllocateError::System(trackway_sys::Errno(libc::ENOSPC)));
        }
        Ok(())
    }

    /// Checks that so many more bytes leave enough to other processes.
    fn check_room(&self, allocator: &Allocator, bytes: u64) -> Result<(), AllocateError> {
        let headroom = memory_limit::headroom_bytes();
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
        Ok(())
    }

    fn free_pieces(&mut self, shift: u32) -> &mut Vec<Piece> {
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

/// Returns the start of a piece's granule, or of its first one.
fn granule_of(piece: &Piece) -> u64 {
    piece.offset / GRANULE_BYTES * GRANULE_BYTES
}

/// Granules in which nothing is used, of these free pieces of `size` bytes.
fn whole_granules(size: u64, pieces: &[Piece]) -> Vec<u64> {
    let mut offsets: Vec<u64> = pieces.iter().map(granule_of).collect();
    offsets.sort_unstable();
    let runs = offsets.chunk_by(|one, other| one == other);
    runs.filter(|run| run.len() as u64 * size >= GRANULE_BYTES)
        .flat_map(|run| (run[0]..run[0] + size.max(GRANULE_BYTES)).step_by(GRANULE_BYTES as usize))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;
    use std::path::Path;

    use trackway_testkit::TemporaryFolder;

    use super::*;
    use crate::window::handle::WindowHandle;

    #[test]
    fn granules_that_are_free_go_back_and_others_stay() {
        let folder = TemporaryFolder::new_in(Path::new("/dev/shm"));
        let handle = WindowHandle::open_in(folder.path(), true).expect("a window");
        let allocator = &handle.allocator;
        let mut pool = MemoryPool::new(3, false);
        let shift = GRANULE_BYTES.ilog2() - 2;
        let pieces: Vec<u64> =
            (0..8).map(|_| pool.take(allocator, shift, 12).expect("memory")).collect();
        let large = pool.take(allocator, GRANULE_BYTES.ilog2() + 1, 1).expect("memory");
        // Four that are not in use yet are there, too.
        assert_eq!(allocator.bytes_of(3), 5 * GRANULE_BYTES);
        assert_eq!(pool.unbacked_bytes(), 0);
        // All of the second granule, and a part of the first.
        pieces[1..].iter().rev().for_each(|piece| pool.put(allocator, shift, *piece));
        pool.put(allocator, GRANULE_BYTES.ilog2() + 1, large);
        pool.trim(allocator).expect("the window is not locked");
        assert_eq!(allocator.bytes_of(3), GRANULE_BYTES);
        assert_eq!(allocator.owner_at(pieces[0]), granule::DATA + 3);
        assert_eq!(allocator.owner_at(large), granule::FREE);
        // Pieces that stayed hold no memory, and are used first.
        let blocks = || std::fs::metadata(&handle.path).expect("the window").blocks() * 512;
        assert_eq!(pool.unbacked_bytes(), 3 << shift);
        let before = blocks();
        assert_eq!(pool.take(allocator, shift, 1), Ok(pieces[1]));
        assert_eq!((blocks() - before, pool.unbacked_bytes()), (1 << shift, 2 << shift));
        pool.put(allocator, shift, pieces[1]);
        assert_eq!(blocks(), before);
        // Another handle has the window open: the next attempt succeeds.
        let other = WindowHandle::open_in(folder.path(), false).expect("the window");
        pool.put(allocator, shift, pieces[0]);
        let locked = other.allocator.exclusively(|| pool.trim(allocator)).expect("a lock");
        assert_eq!(locked, Err(AllocateError::Locked));
        assert_eq!(allocator.bytes_of(3), GRANULE_BYTES);
        pool.trim(allocator).expect("nobody is at it");
        assert_eq!(allocator.bytes_of(3), 0);
        assert!(pool.take(allocator, shift, 1).is_ok());
    }
}
