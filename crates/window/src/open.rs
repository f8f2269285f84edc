//! Finding or making the window's file.
//!
//! The file appears complete or not at all: it is made without a name (O_TMPFILE), filled in, and
//! linked. Whoever finds it checks its owner, its mode and its length before mapping it, and
//! follows no symbolic link, and does not wait for anybody.

use core::ffi::CStr;
use core::sync::atomic::Ordering;

use trackway_abi::ABI_VERSION;
use trackway_abi::window::{DATA_OFFSET, MAGIC, WINDOW_BYTES};
use trackway_sys::Errno;
use trackway_sys::file::Fd;
use trackway_sys::memory::Mapping;
use trackway_sys::signal::{Guard, guard_mapping};

use crate::{Window, backed_word};

/// Room for a window's path, in bytes.
pub const NAME_BYTES: usize = 512;

/// Why there is no window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// A system call failed: the file system is absent, full, read-only…
    System(Errno),
    /// The file is not this user's, or others may open it.
    NotOurs,
    /// The file is shorter than what it says is in use: somebody truncated it.
    Truncated,
    /// The file is not a window, or one of another version under this version's name.
    NotAWindow,
    /// The path is too long.
    PathTooLong,
    /// There is none, and none was to be made.
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
    /// Opens the window at `path` for the user `uid`, makes it if `create` and there is none, and
    /// maps it. The descriptor is for whoever allocates memory; others drop it.
    ///
    /// Root makes it for another user, whose it is before it has a name.
    pub fn open(
        folder: &CStr,
        path: &CStr,
        uid: u32,
        create: bool,
    ) -> Result<(Self, Fd), OpenError> {
        let opened = Self::open_by::<false>(folder, path, uid, create)?;
        Ok((opened.window, opened.fd))
    }

    /// The same for a recorder, which must not end when somebody truncates the file: it is guarded
    /// ([`trackway_sys::signal::guard_mapping`]) before anything of it is looked at.
    pub fn open_guarded(
        folder: &CStr,
        path: &CStr,
        uid: u32,
        create: bool,
    ) -> Result<(Self, Fd, Guard), OpenError> {
        let opened = Self::open_by::<true>(folder, path, uid, create)?;
        let guard = opened.guard.ok_or(OpenError::Absent)?;
        Ok((opened.window, opened.fd, guard))
    }

    /// Whether it is guarded is known when this is compiled: no library that is linked into traced
    /// programs has a handler of signals.
    fn open_by<const GUARDED: bool>(
        folder: &CStr,
        path: &CStr,
        uid: u32,
        create: bool,
    ) -> Result<Opened, OpenError> {
        const TRIES: usize = 4;
        for _ in 0..TRIES {
            // Its owner may have a lease on it (fcntl(2), F_SETLEASE), for which others would wait.
            let flags = libc::O_RDWR | libc::O_NOFOLLOW | libc::O_NONBLOCK;
            match Fd::open(path, flags, 0) {
                Ok(fd) => return Self::check_and_map::<GUARDED>(fd, uid),
                Err(Errno(libc::ENOENT)) if create => {}
                Err(Errno(libc::ENOENT)) => return Err(OpenError::Absent),
                Err(errno) => return Err(errno.into()),
            }
            match Self::make::<GUARDED>(folder, path, uid) {
                // Somebody was first: open theirs.
                Err(OpenError::System(Errno(libc::EEXIST))) => {}
                other => return other,
            }
        }
        Err(OpenError::System(Errno(libc::EEXIST)))
    }

    fn make<const GUARDED: bool>(
        folder: &CStr,
        path: &CStr,
        uid: u32,
    ) -> Result<Opened, OpenError> {
        let fd = Fd::open(folder, libc::O_RDWR | libc::O_TMPFILE, 0o600)?;
        fd.set_mode(0o600)?; // whatever the umask is
        if fd.status()?.uid != uid {
            fd.set_owner(uid)?;
        }
        fd.allocate(0, DATA_OFFSET as u64)?;
        let opened = Opened::check_owner_and_map::<GUARDED>(fd, uid)?;
        let header = opened.window.header();
        header.version.store(ABI_VERSION, Ordering::Relaxed);
        header.backed.store(backed_word(DATA_OFFSET as u64), Ordering::Relaxed);
        // Offset zero is "none" in the tables.
        header.arena_used.store(64, Ordering::Relaxed);
        // ORDERING: Release pairs with the Acquire below: a window that says so is complete.
        header.magic.store(MAGIC, Ordering::Release);
        match opened.fd.link_as(path) {
            Ok(()) => Ok(opened),
            Err(errno) => Err(opened.discard(errno.into())),
        }
    }

    fn check_and_map<const GUARDED: bool>(fd: Fd, uid: u32) -> Result<Opened, OpenError> {
        let length = fd.status()?.bytes;
        if length < DATA_OFFSET as u64 {
            return Err(OpenError::Truncated);
        }
        let opened = Opened::check_owner_and_map::<GUARDED>(fd, uid)?;
        let header = opened.window.header();
        // ORDERING: Acquire pairs with the Release in `make`: the rest of the header is there.
        let good = header.magic.load(Ordering::Acquire) == MAGIC
            && header.version.load(Ordering::Relaxed) == ABI_VERSION;
        let error = match opened.window.backed_bytes() {
            Some(bytes) if good => match opened.fd.status() {
                Ok(status) if bytes <= status.bytes => return Ok(opened),
                Ok(_) => OpenError::Truncated,
                Err(errno) => errno.into(),
            },
            _ => OpenError::NotAWindow,
        };
        Err(opened.discard(error))
    }
}

/// A window that nobody knows of yet.
struct Opened {
    window: Window,
    fd: Fd,
    guard: Option<Guard>,
}

impl Opened {
    fn check_owner_and_map<const GUARDED: bool>(fd: Fd, uid: u32) -> Result<Self, OpenError> {
        let status = fd.status()?;
        if !status.is_regular() || status.uid != uid || status.mode & 0o077 != 0 {
            return Err(OpenError::NotOurs);
        }
        // Address space may be limited (RLIMIT_AS): then take what there is, down to 16 MiB.
        // valgrind says EINVAL where it has no room.
        let mut bytes = WINDOW_BYTES;
        let mapping = loop {
            match Mapping::new(&fd, bytes) {
                Ok(mapping) => break mapping,
                Err(Errno(libc::ENOMEM | libc::EINVAL)) if bytes > 16 << 20 => bytes /= 4,
                Err(errno) => return Err(errno.into()),
            }
        };
        let opened = Self { window: Window::new(mapping), fd, guard: None };
        if !GUARDED {
            return Ok(opened);
        }
        match guard_mapping(mapping.base(), mapping.bytes()) {
            Ok(guard) => Ok(Self { guard: Some(guard), ..opened }),
            Err(errno) => Err(opened.discard(errno.into())),
        }
    }

    /// Unmaps it, because of `error`.
    fn discard(self, error: OpenError) -> OpenError {
        if let Some(guard) = self.guard {
            guard.release();
        }
        // SAFETY: nobody else knows this mapping, and we drop our last reference.
        unsafe { self.window.mapping.unmap() };
        error
    }
}
