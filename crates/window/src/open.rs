//! Finding or making the window's file.
//!
//! The file appears complete or not at all: it is made without a name (O_TMPFILE), filled in, and
//! linked. A process that opens the file checks owner, mode and length before it maps the file. It
//! follows no symbolic link, and does not wait for other processes.

use core::ffi::CStr;
use core::sync::atomic::Ordering;

use trackway_abi::ABI_VERSION;
use trackway_abi::window::{DATA_OFFSET, GRANULE_BYTES, MAGIC, WINDOW_BYTES};
use trackway_sys::Errno;
use trackway_sys::clock::sleep_ns;
use trackway_sys::file::{Fd, Status};
use trackway_sys::memory::Mapping;
use trackway_sys::process::{Resource, limit_of};
use trackway_sys::signal::{Guard, guard_mapping};
use trackway_sys::valgrind::runs_in_valgrind;

use crate::{Window, backed_word};

/// Space for a window's path, in bytes.
pub const NAME_BYTES: usize = 512;

/// Smallest address space that is tried for a window in a process, in bytes.
const LEAST_BYTES: u64 = 16 << 20;
/// Smallest readable part of the window in a traced program, in bytes. Nearly all sessions fit, so
/// that their begin needs no further mapping.
pub const READABLE_BYTES: u64 = 256 << 20;
/// Bytes beyond the used part that a program with limited address space maps.
const ROOM_BYTES: u64 = 16 << 20;
/// Divisor of a program's limit on address space (RLIMIT_AS) that gives the share for a window.
const LIMIT_DIVISOR: u64 = 8;

/// The part of the window that a process maps, in bytes.
///
/// Some tools walk through all readable memory of a traced program, page by page: leak checkers,
/// dumpers, debuggers. Beyond the file's end each page costs them a signal: memcheck 2 ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Size of the readable and writable part.
    pub(crate) readable: u64,
    /// Size of the reserved address space.
    pub(crate) reserved: u64,
}

impl Extent {
    pub(crate) const WHOLE: Self = Self { readable: WINDOW_BYTES, reserved: WINDOW_BYTES };

    /// Returns the part that a traced program maps of a window whose file has `length` bytes.
    fn of_guest(length: u64) -> Self {
        Self::of_guest_in(length, limit_of(Resource::AddressSpace), runs_in_valgrind())
    }

    /// Returns the part that a traced program maps, with this limit on its address space.
    /// `is_walked` is true in valgrind.
    ///
    /// The limit serves the program, so the window takes only a small, fixed share of it.
    pub(crate) fn of_guest_in(length: u64, limit: Option<u64>, is_walked: bool) -> Self {
        let readable = match is_walked {
            true => readable_for(length, true),
            false => readable_for(length, false).max(READABLE_BYTES),
        };
        let Some(limit) = limit else { return Self { readable, reserved: WINDOW_BYTES } };
        let in_use = length.saturating_add(ROOM_BYTES);
        let share = (limit / LIMIT_DIVISOR).max(in_use.min(limit / 2)).max(LEAST_BYTES);
        let reserved = (share - share % GRANULE_BYTES).min(WINDOW_BYTES);
        Self { readable: readable.min(reserved), reserved }
    }
}

/// Returns the size of the readable part in a traced program if `in_use` bytes are in use. If a
/// tool walks through all memory, nothing beyond them is readable; otherwise as much again, for
/// later sessions.
fn readable_for(in_use: u64, is_walked: bool) -> u64 {
    let readable = if is_walked { in_use } else { in_use.saturating_mul(2) };
    readable.min(WINDOW_BYTES).next_multiple_of(GRANULE_BYTES)
}

/// Returns the new size of the readable part for a program in whose window more is in use than is
/// readable.
pub fn readable_when_extended(in_use: u64) -> u64 {
    readable_for(in_use, runs_in_valgrind())
}

/// Reason why a window could not be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// A system call failed: the file system is absent, full, read-only…
    System(Errno),
    /// The file belongs to another user, or others may open it.
    NotOurs,
    /// The file is shorter than the part that its header declares in use: it was truncated.
    Truncated,
    /// The file is not a window, or has another version under this version's name.
    NotAWindow,
    /// The path is too long.
    PathTooLong,
    /// No window exists, and none was to be made.
    Absent,
}

impl From<Errno> for OpenError {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

impl core::fmt::Display for OpenError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::System(errno) => write!(formatter, "{errno}"),
            Self::NotOurs => {
                formatter.write_str("it belongs to another user or others may open it")
            }
            Self::Truncated => formatter.write_str("it has been truncated"),
            Self::NotAWindow => formatter.write_str("it is not a Trackway window"),
            Self::PathTooLong => formatter.write_str("its path is too long"),
            Self::Absent => formatter.write_str("there is none"),
        }
    }
}

impl core::error::Error for OpenError {}

/// Writes the path of `uid`'s window below `folder` into `into`.
pub fn window_name<'into>(
    folder: &[u8],
    uid: u32,
    into: &'into mut [u8; NAME_BYTES],
) -> Result<&'into CStr, OpenError> {
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        let end = at + bytes.len();
        into.get_mut(at..end)
            .map(|room| room.copy_from_slice(bytes))
            .ok_or(OpenError::PathTooLong)?;
        at = end;
        Ok::<(), OpenError>(())
    };
    put(folder)?;
    put(b"/trackway-")?;
    put_decimal(uid, &mut put)?;
    put(b"-v")?;
    put_decimal(ABI_VERSION, &mut put)?;
    put(b"\0")?;
    CStr::from_bytes_until_nul(into).map_err(|_| OpenError::PathTooLong)
}

fn put_decimal(
    value: u32,
    put: &mut impl FnMut(&[u8]) -> Result<(), OpenError>,
) -> Result<(), OpenError> {
    let mut divisor = 1_000_000_000;
    let mut leading = true;
    while divisor > 0 {
        let digit = (value / divisor % 10) as u8;
        leading &= digit == 0 && divisor > 1;
        if !leading {
            put(&[b'0' + digit])?;
        }
        divisor /= 10;
    }
    Ok(())
}

impl Window {
    /// Opens the window at `path` for the user `uid` and maps all of it. With `create`, makes a
    /// missing window. Returns the descriptor for allocation; other callers drop it.
    ///
    /// Root can make a window for another user, who owns it before it gets its name.
    pub fn open(
        folder: &CStr,
        path: &CStr,
        uid: u32,
        create: bool,
    ) -> Result<(Self, Fd), OpenError> {
        let opened = Self::open_by::<false>(folder, path, uid, create, |_| Extent::WHOLE)?;
        Ok((opened.window, opened.fd))
    }

    /// Opens the window for the library in a traced program. Makes the used part and some more
    /// readable: see [`Extent::of_guest`].
    pub fn open_as_guest(
        folder: &CStr,
        path: &CStr,
        uid: u32,
        create: bool,
    ) -> Result<(Self, Fd), OpenError> {
        let opened = Self::open_by::<false>(folder, path, uid, create, Extent::of_guest)?;
        Ok((opened.window, opened.fd))
    }

    /// Opens the window for a recorder, which must survive a truncation of the file. The window is
    /// guarded ([`trackway_sys::signal::guard_mapping`]) before its first access.
    pub fn open_guarded(
        folder: &CStr,
        path: &CStr,
        uid: u32,
        create: bool,
    ) -> Result<(Self, Fd, Guard), OpenError> {
        let opened = Self::open_by::<true>(folder, path, uid, create, |_| Extent::WHOLE)?;
        let guard = opened.guard.ok_or(OpenError::Absent)?;
        Ok((opened.window, opened.fd, guard))
    }

    /// Opens or makes the window. The guard is chosen at compile time: no library that is linked
    /// into traced programs has a signal handler.
    fn open_by<const GUARDED: bool>(
        folder: &CStr,
        path: &CStr,
        uid: u32,
        create: bool,
        extent: fn(u64) -> Extent,
    ) -> Result<Opened, OpenError> {
        const TRIES: usize = 16;
        const PAUSE_NS: u64 = 200_000;
        for _ in 0..TRIES {
            // The file's owner may hold a lease on it (fcntl(2), F_SETLEASE), for which a blocking
            // open would wait.
            let flags = libc::O_RDWR | libc::O_NOFOLLOW | libc::O_NONBLOCK;
            match Fd::open(path, flags, 0) {
                Ok(fd) => return Self::check_and_map::<GUARDED>(fd, uid, extent),
                Err(Errno(libc::ENOENT)) if create => {}
                // The file is locked briefly while another process compacts it
                // (`Allocator::compact`).
                Err(Errno(libc::EWOULDBLOCK)) => {
                    sleep_ns(PAUSE_NS);
                    continue;
                }
                Err(Errno(libc::ENOENT)) => return Err(OpenError::Absent),
                Err(errno) => return Err(errno.into()),
            }
            match Self::make::<GUARDED>(folder, path, uid, extent) {
                // Another process made the window first: open that window.
                Err(OpenError::System(Errno(libc::EEXIST))) => {}
                other => return other,
            }
        }
        Err(OpenError::System(Errno(libc::EWOULDBLOCK)))
    }

    fn make<const GUARDED: bool>(
        folder: &CStr,
        path: &CStr,
        uid: u32,
        extent: fn(u64) -> Extent,
    ) -> Result<Opened, OpenError> {
        let fd = Fd::open(folder, libc::O_RDWR | libc::O_TMPFILE, 0o600)?;
        fd.set_mode(0o600)?; // independent of the umask
        if fd.status()?.uid != uid {
            fd.set_owner(uid)?;
        }
        fd.allocate(0, DATA_OFFSET as u64)?;
        let opened = Opened::check_owner_and_map::<GUARDED>(fd, uid, extent)?;
        let header = opened.window.header();
        header.version.store(ABI_VERSION, Ordering::Relaxed);
        header.backed.store(backed_word(DATA_OFFSET as u64), Ordering::Relaxed);
        // Offset zero means "none" in the tables.
        header.arena_used.store(64, Ordering::Relaxed);
        // ORDERING: Release pairs with the Acquire below: a window with this magic number is
        // complete.
        header.magic.store(MAGIC, Ordering::Release);
        match opened.fd.link_as(path) {
            Ok(()) => Ok(opened),
            Err(errno) => Err(opened.discard(errno.into())),
        }
    }

    fn check_and_map<const GUARDED: bool>(
        fd: Fd,
        uid: u32,
        extent: fn(u64) -> Extent,
    ) -> Result<Opened, OpenError> {
        let status = fd.status()?;
        if status.bytes < DATA_OFFSET as u64 {
            return Err(OpenError::Truncated);
        }
        if is_compact(&status) && status.uid == uid {
            // The whole fixed part must have memory again before a process touches it.
            fd.allocate(0, DATA_OFFSET as u64)?;
        }
        let opened = Opened::check_owner_and_map::<GUARDED>(fd, uid, extent)?;
        let header = opened.window.header();
        // ORDERING: Acquire pairs with the Release in `make`: the rest of the header is complete.
        let good = header.magic.load(Ordering::Acquire) == MAGIC
            && header.version.load(Ordering::Relaxed) == ABI_VERSION
            && opened.window.backed_bytes().is_some();
        let error = match opened.all_is_backed() {
            Ok(true) if good => return Ok(opened),
            Ok(false) if good => OpenError::Truncated,
            Err(errno) => errno.into(),
            _ => OpenError::NotAWindow,
        };
        Err(opened.discard(error))
    }
}

/// Returns true if this window is compact: see [`crate::Allocator::compact`].
pub(crate) const fn is_compact(status: &Status) -> bool {
    status.allocated_bytes < DATA_OFFSET as u64
}

/// A window that no other code uses yet.
struct Opened {
    window: Window,
    fd: Fd,
    guard: Option<Guard>,
}

impl Opened {
    /// Returns true if the file is as long as its header declares. A process that gives memory back
    /// changes the header first and shortens the file then, so a second check finds a valid length.
    /// A truncation by another program does not change the header.
    fn all_is_backed(&self) -> Result<bool, Errno> {
        const LOOKS: usize = 64;
        for _ in 0..LOOKS {
            let backed = self.window.backed_bytes().unwrap_or(u64::MAX);
            if backed <= self.fd.status()?.bytes {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn check_owner_and_map<const GUARDED: bool>(
        fd: Fd,
        uid: u32,
        extent: fn(u64) -> Extent,
    ) -> Result<Self, OpenError> {
        let status = fd.status()?;
        if !status.is_regular() || status.uid != uid || status.mode & 0o077 != 0 {
            return Err(OpenError::NotOurs);
        }
        // If the address space is short, takes a smaller part, down to 16 MiB. valgrind reports
        // EINVAL if it has no space.
        let Extent { readable, mut reserved } = extent(status.bytes);
        let mapping = loop {
            match Mapping::new(&fd, readable, reserved) {
                Ok(mapping) => break mapping,
                Err(Errno(libc::ENOMEM | libc::EINVAL)) if reserved > LEAST_BYTES => reserved /= 4,
                Err(errno) => return Err(errno.into()),
            }
        };
        let opened = Self { window: Window::new(mapping), fd, guard: None };
        if !GUARDED {
            return Ok(opened);
        }
        match guard_mapping(mapping.base(), mapping.reserved()) {
            Ok(guard) => Ok(Self { guard: Some(guard), ..opened }),
            Err(errno) => Err(opened.discard(errno.into())),
        }
    }

    /// Unmaps the window and returns `error`.
    fn discard(self, error: OpenError) -> OpenError {
        if let Some(guard) = self.guard {
            guard.release();
        }
        // SAFETY: no other code knows this mapping, and this drops the last reference.
        unsafe { self.window.mapping.unmap() };
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_program_reads_what_is_in_use_and_some_more() {
        let extent = |length| Extent::of_guest_in(length, None, false);
        let ordinary = Extent { readable: READABLE_BYTES, reserved: WINDOW_BYTES };
        assert_eq!(extent(2 * MIB), ordinary);
        assert_eq!(extent(100 * MIB), ordinary);
        assert_eq!(extent(200 * MIB), Extent { readable: 400 * MIB, ..ordinary });
        // This applies to any length of the file.
        for length in [40 << 30, WINDOW_BYTES, u64::MAX] {
            assert_eq!(extent(length), Extent { readable: WINDOW_BYTES, ..ordinary });
        }
    }

    #[test]
    fn where_all_is_walked_through_nothing_is_readable_behind_the_end() {
        let extent = |length| Extent::of_guest_in(length, None, true);
        assert_eq!(extent(3 * MIB).readable, 3 * MIB);
        assert_eq!(extent(3 * MIB + 1).readable, 3 * MIB + GRANULE_BYTES);
    }

    #[test]
    fn of_a_limit_on_address_space_little_is_taken() {
        let reserved = |length, limit| {
            let extent = Extent::of_guest_in(length, Some(limit), false);
            assert!(extent.readable <= extent.reserved, "{extent:?}");
            extent.reserved
        };
        assert_eq!(reserved(3 * MIB, 1 << 30), 128 * MIB);
        assert_eq!(reserved(3 * MIB, 1 << 62), WINDOW_BYTES);
        // The used part fits, as long as half of the limit is left.
        assert_eq!(reserved(300 * MIB, 1 << 30), 316 * MIB);
        assert_eq!(reserved(900 * MIB, 1 << 30), 512 * MIB);
        assert_eq!(reserved(3 * MIB, 8 * MIB), LEAST_BYTES, "it is tried");
    }
}
