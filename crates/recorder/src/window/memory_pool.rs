//! Memory for sub-buffers: the pool takes granules from the window and hands out pieces.

use std::time::{Duration, Instant};

use trackway_abi::window::{GRANULE_BYTES, granule};
use trackway_ring::{Damage, Memory};
use trackway_sys::file::{Fd, free_bytes};
use trackway_window::{AllocateError, Allocator, READABLE_BYTES, Window};

use crate::window::{memory_limit, sandboxes};

/// Reads sub-buffers with pread(2), so that a truncated file causes an error instead of a signal.
pub(crate) struct FileMemory<'file>(pub(crate) &'file Fd);

impl Memory for FileMemory<'_> {
    fn load(&self, at: u64, into: &mut [u8]) -> Result<(), Damage> {
        match self.0.read_at(into, at) {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(Damage::Table(at)),
        }
    }
}

/// Pool of a session's memory for sub-buffers.
#[derive(Debug)]
pub(crate) struct MemoryPool {
    owner: u8,
    /// Free pieces, by size as a power of two.
    free: Vec<(u32, Vec<Piece>)>,
    /// True if the pool leaves half of the free memory to other processes.
    modest: bool,
    /// True if the pool may wait briefly while another process has the window locked.
    pub(crate) patient: bool,
    /// Time of the latest search for sandboxes.
    looked: Option<Instant>,
}

/// Space for a sub-buffer that the session owns in the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Piece {
    /// Offset in the window, in bytes.
    offset: u64,
    /// True if the piece has memory; otherwise its memory is returned to the system.
    is_backed: bool,
}

impl MemoryPool {
    /// Makes the pool of the session in slot `slot`. A `modest` pool leaves half of the free memory
    /// to others. No pool fills its control group to the limit.
    pub(crate) fn new(slot: usize, modest: bool) -> Self {
        Self {
            owner: granule::DATA + slot as u8,
            free: Vec::new(),
            modest,
            patient: true,
            looked: None,
        }
    }

    /// Takes a piece of `1 << shift` bytes with memory. Takes several pieces from the window at
    /// once if more are `expected`.
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
        // Pieces are handed out in the order of their addresses: the last one in the list first.
        let pieces = (1..bytes / size).rev();
        let pieces = pieces.map(|number| Piece { offset: start + number * size, is_backed: true });
        self.free_pieces(shift).extend(pieces);
        Ok(start)
    }

    /// Takes back an unused piece of `1 << shift` bytes at `offset`, and returns its memory to the
    /// system.
    pub(crate) fn put(&mut self, allocator: &Allocator, shift: u32, offset: u64) {
        let is_backed = allocator.file().punch(offset, 1 << shift).is_err();
        let list = self.free_pieces(shift);
        // Pieces with memory are handed out first, then those at low addresses.
        list.push(Piece { offset, is_backed });
        list.sort_unstable_by_key(|piece| (piece.is_backed, std::cmp::Reverse(piece.offset)));
    }

    /// Returns the memory of all free pieces to the system, and wholly free granules to the window.
    /// If another process has the window locked, the pool keeps the granules for later.
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
        // Even after a failure, granules that the pool lost may already belong to another session.
        for (_, pieces) in &mut self.free {
            pieces.retain(|piece| allocator.owner_at(granule_of(piece)) == self.owner);
        }
        given
    }

    /// Returns the size of pieces that the session owns in the window but that have no memory, in
    /// bytes.
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

    /// Marks processes in sandboxes if processes may have to map more of the window for `bytes`
    /// more bytes: marked processes make no system call for that.
    fn detect_sandboxes(&mut self, window: &Window, bytes: u64) {
        const PERIOD: Duration = Duration::from_secs(1);
        let is_mapped = window.usable_bytes().saturating_add(bytes) <= READABLE_BYTES;
        if is_mapped || self.looked.is_some_and(|looked| looked.elapsed() < PERIOD) {
            return;
        }
        sandboxes::mark_sandboxed_processes(window);
        self.looked = Some(Instant::now());
    }

    /// Checks, before the first byte is taken, that memory for all `bytes` required bytes is free.
    pub(crate) fn check_all(&self, allocator: &Allocator, bytes: u64) -> Result<(), AllocateError> {
        self.check_room(allocator, bytes)?;
        let free = free_bytes(allocator.file()).map_err(AllocateError::System)?;
        if bytes > free {
            return Err(AllocateError::System(trackway_sys::Errno(libc::ENOSPC)));
        }
        Ok(())
    }

    /// Checks that taking `bytes` bytes leaves enough memory to other processes.
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

/// Returns the start of the granule in which a piece begins.
fn granule_of(piece: &Piece) -> u64 {
    piece.offset / GRANULE_BYTES * GRANULE_BYTES
}

/// Returns the granules that are wholly free, according to these free pieces of `size` bytes.
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
        // The pool also holds four pieces that are not in use yet.
        assert_eq!(allocator.bytes_of(3), 5 * GRANULE_BYTES);
        assert_eq!(pool.unbacked_bytes(), 0);
        // The whole second granule and a part of the first become free.
        pieces[1..].iter().rev().for_each(|piece| pool.put(allocator, shift, *piece));
        pool.put(allocator, GRANULE_BYTES.ilog2() + 1, large);
        pool.trim(allocator).expect("the window is not locked");
        assert_eq!(allocator.bytes_of(3), GRANULE_BYTES);
        assert_eq!(allocator.owner_at(pieces[0]), granule::DATA + 3);
        assert_eq!(allocator.owner_at(large), granule::FREE);
        // Free pieces of the granule that stayed hold no memory, and are handed out first.
        let blocks = || std::fs::metadata(&handle.path).expect("the window").blocks() * 512;
        assert_eq!(pool.unbacked_bytes(), 3 << shift);
        let before = blocks();
        assert_eq!(pool.take(allocator, shift, 1), Ok(pieces[1]));
        assert_eq!((blocks() - before, pool.unbacked_bytes()), (1 << shift, 2 << shift));
        pool.put(allocator, shift, pieces[1]);
        assert_eq!(blocks(), before);
        // While another handle holds the lock, the return fails; the next attempt succeeds.
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
