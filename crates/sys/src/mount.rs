//! File systems that are mounted nowhere: made by fsopen(2), reached by their descriptor alone,
//! removed with the descriptor.

use core::ffi::CStr;

use crate::Errno;
use crate::file::Fd;

/// Mount attributes: no set-user-id rights, no devices, no execution (linux/mount.h).
const MOUNT_ATTR_NOSUID: u32 = 0x2;
const MOUNT_ATTR_NODEV: u32 = 0x4;
const MOUNT_ATTR_NOEXEC: u32 = 0x8;
const FSOPEN_CLOEXEC: u32 = 1;
const FSMOUNT_CLOEXEC: u32 = 1;
const FSCONFIG_CMD_CREATE: u32 = 6;

/// Makes a file system of this type, mounted in no folder, and returns its root folder. For types
/// that need no device or option. EPERM without CAP_SYS_ADMIN; ENOSYS before Linux 5.2.
pub fn mount_detached(kind: &CStr) -> Result<Fd, Errno> {
    // SAFETY: `kind` is NUL-terminated.
    let context = unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC) };
    let context = Fd::adopt(Errno::check(context)? as i32);
    let null = core::ptr::null::<u8>();
    // SAFETY: this command takes neither key nor value.
    let made = unsafe {
        libc::syscall(libc::SYS_fsconfig, context.raw(), FSCONFIG_CMD_CREATE, null, null, 0)
    };
    Errno::check(made)?;
    let attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
    // SAFETY: no memory of ours is involved.
    let root =
        unsafe { libc::syscall(libc::SYS_fsmount, context.raw(), FSMOUNT_CLOEXEC, attributes) };
    Ok(Fd::adopt(Errno::check(root)? as i32))
}

/// Returns the kind of file system that `path` is on: its magic number, as statfs(2) lists them.
pub fn magic_of(path: &CStr) -> Result<u64, Errno> {
    let mut status = core::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: `path` is NUL-terminated and `status` has room for what statfs writes.
    Errno::check(unsafe { libc::statfs(path.as_ptr(), status.as_mut_ptr()) }.into())?;
    // SAFETY: statfs succeeded, so it is filled in.
    Ok(unsafe { status.assume_init() }.f_type as u64)
}
