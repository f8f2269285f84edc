//! Descriptors and files.

use core::ffi::CStr;

use crate::Errno;

/// The unit in which stat(2) counts blocks, in bytes.
const BLOCK_BYTES: u64 = 512;

/// A descriptor that is closed when dropped.
#[derive(Debug)]
pub struct Fd(i32);

/// The results of fstat(2) that are used here.
#[derive(Debug, Clone, Copy)]
pub struct Status {
    /// File type and permission bits.
    pub mode: u32,
    /// User id of the owner.
    pub uid: u32,
    /// Length, in bytes.
    pub bytes: u64,
    /// Allocated memory or disk space, in bytes.
    pub allocated_bytes: u64,
    /// Number of the device.
    pub device: u64,
    /// Number of the inode.
    pub inode: u64,
    /// Number of hard links.
    pub links: u64,
}

impl Status {
    /// Returns true if the file is a regular file.
    pub const fn is_regular(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFREG
    }
}

/// Checks that RLIMIT_FSIZE allows files of this size.
fn check_size_limit(bytes: u64) -> Result<(), Errno> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is ours.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) } == 0;
    if known && bytes > limit.rlim_cur { Err(Errno(libc::EFBIG)) } else { Ok(()) }
}

impl Fd {
    /// Opens a file: open(2) with these flags (O_CLOEXEC added) and mode.
    pub fn open(path: &CStr, flags: i32, mode: u32) -> Result<Self, Errno> {
        // SAFETY: `path` is NUL-terminated.
        let fd = unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC, mode) };
        Errno::check(fd.into()).map(|_| Self(fd))
    }

    /// Takes over a descriptor that the kernel has just returned.
    pub(crate) const fn adopt(fd: i32) -> Self {
        Self(fd)
    }

    /// Returns the number of the descriptor.
    pub const fn raw(&self) -> i32 {
        self.0
    }

    /// Returns the status of the file: fstat(2).
    pub fn status(&self) -> Result<Status, Errno> {
        let mut stat = core::mem::MaybeUninit::<libc::stat>::uninit();
        // SAFETY: `stat` has room for what fstat writes.
        Errno::check(unsafe { libc::fstat(self.0, stat.as_mut_ptr()) }.into())?;
        // SAFETY: fstat succeeded, so it is filled in.
        Ok(status_from_stat(&unsafe { stat.assume_init() }))
    }

    /// Backs `[offset, offset + bytes)` with memory and makes the file that long: fallocate(2).
    /// Returns EFBIG if RLIMIT_FSIZE forbids it; the kernel would send SIGXFSZ, which kills.
    pub fn allocate(&self, offset: u64, bytes: u64) -> Result<(), Errno> {
        check_size_limit(offset.saturating_add(bytes))?;
        self.fallocate(0, offset, bytes)
    }

    /// Makes the file this long, without memory: ftruncate(2). EFBIG if RLIMIT_FSIZE forbids it.
    pub fn lengthen(&self, bytes: u64) -> Result<(), Errno> {
        check_size_limit(bytes)?;
        self.shorten(bytes)
    }

    /// Frees the memory of `[offset, offset + bytes)`, which reads as zero then: fallocate(2).
    pub fn punch(&self, offset: u64, bytes: u64) -> Result<(), Errno> {
        self.fallocate(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, offset, bytes)
    }

    /// Makes the file shorter: ftruncate(2). No process may touch the part after the new end any
    /// more.
    pub fn shorten(&self, bytes: u64) -> Result<(), Errno> {
        // SAFETY: no memory of ours is involved.
        Errno::check(unsafe { libc::ftruncate(self.0, bytes.cast_signed()) }.into()).map(|_| ())
    }

    fn fallocate(&self, mode: i32, offset: u64, bytes: u64) -> Result<(), Errno> {
        loop {
            // SAFETY: no memory of ours is involved.
            let result =
                unsafe { libc::fallocate(self.0, mode, offset.cast_signed(), bytes.cast_signed()) };
            match Errno::check(result.into()) {
                Err(Errno(libc::EINTR)) => {}
                other => return other.map(|_| ()),
            }
        }
    }

    /// Reads by pread(2) until `into` is full; returns `Ok(false)` if the file ends before.
    pub fn read_at(&self, mut into: &mut [u8], mut offset: u64) -> Result<bool, Errno> {
        while !into.is_empty() {
            // SAFETY: `into` is ours, with its length.
            let read = unsafe {
                libc::pread(self.0, into.as_mut_ptr().cast(), into.len(), offset.cast_signed())
            };
            match Errno::check(read as i64) {
                Ok(0) => return Ok(false),
                Ok(count) => {
                    offset += count.cast_unsigned();
                    into = &mut into[count as usize..];
                }
                Err(Errno(libc::EINTR)) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(true)
    }

    /// Takes an exclusive lock (flock(2)); returns false if another process holds the lock. The
    /// lock is held until the last copy of the descriptor is closed. Never waits: any process that
    /// can open the file may hold the lock for good.
    pub fn try_lock(&self) -> Result<bool, Errno> {
        // SAFETY: no memory of ours is involved.
        let result = unsafe { libc::flock(self.0, libc::LOCK_EX | libc::LOCK_NB) };
        match Errno::check(result.into()) {
            Ok(_) => Ok(true),
            Err(Errno(libc::EWOULDBLOCK | libc::EINTR)) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Releases the lock of [`Fd::try_lock`].
    pub fn unlock(&self) {
        // SAFETY: no memory of ours is involved.
        unsafe { libc::flock(self.0, libc::LOCK_UN) };
    }

    /// Takes a lease (fcntl(2), F_SETLEASE); returns false if another process has the file open or
    /// mapped. Until [`Fd::end_lease`], open(2) with O_NONBLOCK fails with EWOULDBLOCK. Works for
    /// the owner of the file, and with CAP_LEASE.
    pub fn try_lease(&self) -> Result<bool, Errno> {
        /// fcntl(2): the signal that announces an open of a leased file.
        const F_SETSIG: libc::c_int = 10;
        // SAFETY: no memory of ours is involved. The default signal, SIGIO, would end a process.
        let result = unsafe {
            libc::fcntl(self.0, F_SETSIG, libc::SIGURG);
            libc::fcntl(self.0, libc::F_SETLEASE, libc::F_WRLCK)
        };
        match Errno::check(result.into()) {
            Ok(_) => Ok(true),
            Err(Errno(libc::EAGAIN)) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Releases the lease of [`Fd::try_lease`].
    pub fn end_lease(&self) {
        // SAFETY: no memory of ours is involved.
        unsafe { libc::fcntl(self.0, libc::F_SETLEASE, libc::F_UNLCK) };
    }

    /// Sets the mode of the file: fchmod(2).
    pub fn set_mode(&self, mode: u32) -> Result<(), Errno> {
        // SAFETY: no memory of ours is involved.
        Errno::check(unsafe { libc::fchmod(self.0, mode) }.into()).map(|_| ())
    }

    /// Gives the file to user `uid`: fchown(2). The group stays.
    pub fn set_owner(&self, uid: u32) -> Result<(), Errno> {
        const SAME: libc::gid_t = libc::gid_t::MAX;
        // SAFETY: no memory of ours is involved.
        Errno::check(unsafe { libc::fchown(self.0, uid, SAME) }.into()).map(|_| ())
    }

    /// Gives the open file a name: linkat(2) of an O_TMPFILE file, through /proc as in open(2).
    /// Fails with EEXIST if the name exists.
    pub fn link_as(&self, path: &CStr) -> Result<(), Errno> {
        let mut name = [0_u8; 40];
        write_fd_path(&mut name, self.0);
        // SAFETY: both paths are NUL-terminated.
        let result = unsafe {
            libc::linkat(
                libc::AT_FDCWD,
                name.as_ptr().cast(),
                libc::AT_FDCWD,
                path.as_ptr(),
                libc::AT_SYMLINK_FOLLOW,
            )
        };
        Errno::check(result.into()).map(|_| ())
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours and is not used again.
        unsafe { libc::close(self.0) };
    }
}

/// Returns the status of the file at `path`: stat(2), following links.
pub fn status_of(path: &CStr) -> Result<Status, Errno> {
    let mut stat = core::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `path` is NUL-terminated and `stat` has room for what stat writes.
    Errno::check(unsafe { libc::stat(path.as_ptr(), stat.as_mut_ptr()) }.into())?;
    // SAFETY: stat succeeded, so it is filled in.
    Ok(status_from_stat(&unsafe { stat.assume_init() }))
}

/// Checks that the calling thread may write to `path`, with its effective ids: faccessat(2).
pub fn check_writable(path: &CStr) -> Result<(), Errno> {
    let (folder, flags) = (libc::AT_FDCWD, libc::AT_EACCESS);
    // SAFETY: `path` is NUL-terminated.
    Errno::check(unsafe { libc::faccessat(folder, path.as_ptr(), libc::W_OK, flags) }.into())
        .map(|_| ())
}

/// Removes a name: unlink(2).
pub fn unlink(path: &CStr) -> Result<(), Errno> {
    // SAFETY: `path` is NUL-terminated.
    Errno::check(unsafe { libc::unlink(path.as_ptr()) }.into()).map(|_| ())
}

/// Returns the bytes that the file system of `fd` has free for unprivileged users.
pub fn free_bytes(fd: &Fd) -> Result<u64, Errno> {
    let mut status = core::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: `status` has room for what fstatvfs writes.
    Errno::check(unsafe { libc::fstatvfs(fd.raw(), status.as_mut_ptr()) }.into())?;
    // SAFETY: fstatvfs succeeded, so it is filled in.
    let status = unsafe { status.assume_init() };
    Ok(status.f_bavail.saturating_mul(status.f_frsize))
}

/// The results of statvfs(3) that are used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSystem {
    /// Bytes free for unprivileged users.
    pub free_bytes: u64,
    /// True if no file there can be executed.
    pub is_noexec: bool,
}

impl FileSystem {
    /// Returns the file system that contains `path`.
    pub fn of(path: &CStr) -> Result<Self, Errno> {
        let mut status = core::mem::MaybeUninit::<libc::statvfs>::uninit();
        // SAFETY: `path` is NUL-terminated and `status` has room for what statvfs writes.
        Errno::check(unsafe { libc::statvfs(path.as_ptr(), status.as_mut_ptr()) }.into())?;
        // SAFETY: statvfs succeeded, so it is filled in.
        let status = unsafe { status.assume_init() };
        Ok(Self {
            free_bytes: status.f_bavail.saturating_mul(status.f_frsize),
            is_noexec: status.f_flag & libc::ST_NOEXEC != 0,
        })
    }
}

#[allow(clippy::useless_conversion, reason = "links have 64 bits on x86-64, 32 elsewhere")]
fn status_from_stat(stat: &libc::stat) -> Status {
    Status {
        mode: stat.st_mode,
        uid: stat.st_uid,
        bytes: stat.st_size.cast_unsigned(),
        allocated_bytes: stat.st_blocks.cast_unsigned().saturating_mul(BLOCK_BYTES),
        device: stat.st_dev,
        inode: stat.st_ino,
        links: stat.st_nlink.into(),
    }
}

/// Writes "/proc/self/fd/N" and a NUL.
fn write_fd_path(into: &mut [u8; 40], fd: i32) {
    let prefix = b"/proc/self/fd/";
    into[..prefix.len()].copy_from_slice(prefix);
    let mut digits = [0_u8; 10];
    let mut count = 0;
    let mut rest = fd.unsigned_abs();
    loop {
        digits[count] = b'0' + (rest % 10) as u8;
        rest /= 10;
        count += 1;
        if rest == 0 {
            break;
        }
    }
    for place in 0..count {
        into[prefix.len() + place] = digits[count - 1 - place];
    }
}
