//! The server of a folder's file system. A file system in user space (FUSE) can report any owner
//! and any kind for each name, and change its answer each time. So the reported owners prove
//! nothing, and a name may change from a file to a link.
//!
//! The server cannot forge data of the kernel: the file system type FUSE (statfs(2)), the device
//! number (fstat(2)), and the user who opened /dev/fuse, in the mount options (proc(5)).

use std::ffi::CString;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd as _;

use trackway_sys::mount;

/// FUSE_SUPER_MAGIC (linux/magic.h).
const FUSE_MAGIC: u64 = 0x6573_5546;
/// File system type that the host of this virtual machine serves.
const VIRTIOFS_TYPE: &str = "virtiofs";

/// Checks that this user, root or the kernel reports the contents of this folder.
///
/// # Errors
///
/// If another user serves the file system, or its server is unknown.
pub(crate) fn check_server(folder: &fs::File) -> io::Result<()> {
    let path = CString::new(format!("/proc/self/fd/{}", folder.as_raw_fd()))?;
    // (Without /proc, this call does not show FUSE. Such a folder counts as local, as do all
    // folders whose statfs(2) is refused.)
    if mount::magic_of(&path) != Ok(FUSE_MAGIC) {
        return Ok(());
    }
    let device = device_of(&folder.metadata()?);
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    match find_server(&mounts, &device) {
        Some(Server::Machine) => Ok(()),
        Some(Server::User(uid)) if uid == 0 || uid == crate::common::user::effective_uid() => {
            Ok(())
        }
        _ => Err(io::Error::new(
            ErrorKind::PermissionDenied,
            "another user serves the file system that it is on",
        )),
    }
}

/// Returns a device's numbers in the form of mountinfo.
fn device_of(metadata: &fs::Metadata) -> String {
    use std::os::unix::fs::MetadataExt as _;
    let device = metadata.dev();
    format!("{}:{}", libc::major(device), libc::minor(device))
}

/// The server of a file system.
#[derive(Debug, PartialEq, Eq)]
enum Server {
    User(u32),
    Machine,
}

/// Returns the server of this device's file system, from the lines of mountinfo: `36 35 98:0 /root
/// /where rw,noatime master:1 - TYPE SOURCE rw,user_id=1000,…`.
fn find_server(mounts: &str, device: &str) -> Option<Server> {
    mounts.lines().find_map(|line| {
        // No field before the separator contains blanks: mountinfo escapes them as octal numbers.
        let (front, behind) = line.split_once(" - ")?;
        if front.split(' ').nth(2) != Some(device) {
            return None;
        }
        let mut behind = behind.split(' ');
        let (kind, options) = (behind.next()?, behind.nth(1)?);
        if kind == VIRTIOFS_TYPE {
            return Some(Server::Machine);
        }
        // The kernel's own options precede the server's options. A FUSE server sets only its
        // `fsname` and `subtype`, which are in other fields.
        let user = options.split(',').find_map(|option| option.strip_prefix("user_id="))?;
        user.parse().ok().map(Server::User)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
        22 28 0:20 / /proc rw,nosuid - proc proc rw\n\
        61 28 0:52 / /home/ann/far\\040away rw,nosuid,nodev - fuse.sshfs far:/user_id=0 \
         rw,user_id=1000,group_id=1000,allow_other\n\
        62 28 0:53 / /mnt/disk rw - fuseblk /dev/sdb1 rw,user_id=0,group_id=0,blksize=4096\n\
        63 28 0:54 / /mnt/host rw shared:4 - virtiofs host rw\n\
        64 28 0:55 / /mnt/odd rw - fuse odd rw\n";

    #[test]
    fn who_serves_a_file_system_is_what_the_kernel_says() {
        assert_eq!(find_server(MOUNTS, "0:52"), Some(Server::User(1000)));
        assert_eq!(find_server(MOUNTS, "0:53"), Some(Server::User(0)));
        assert_eq!(find_server(MOUNTS, "0:54"), Some(Server::Machine));
        // The server is unknown without `user_id`, and for a device without a mount.
        assert_eq!((find_server(MOUNTS, "0:55"), find_server(MOUNTS, "0:5")), (None, None));
    }

    #[test]
    fn a_folder_of_the_kernels_own_is_served_by_nobody_else() {
        assert!(check_server(&fs::File::open(std::env::temp_dir()).expect("a folder")).is_ok());
    }
}
