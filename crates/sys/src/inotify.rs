//! Names that appear in a folder: inotify(7).

use core::ffi::CStr;

use crate::Errno;
use crate::file::Fd;

/// Size of the buffer for one read, in bytes: the longest event has a header and 256 bytes.
const ROOM_BYTES: usize = 4096;
/// Maximum number of reads in one [`Names::take`].
const READS_MAX: usize = 64;
/// Length of an event's header: inotify(7), `struct inotify_event`.
const HEADER_BYTES: usize = 16;

/// A folder that is watched for new names: of files made, linked, or moved there.
#[derive(Debug)]
pub struct Names(Fd);

/// Buffer for events, with their alignment.
#[repr(align(8))]
struct NameBuffer([u8; ROOM_BYTES]);

impl Names {
    /// Watches this folder.
    ///
    /// # Errors
    ///
    /// Errors are those of inotify_init1(2) and inotify_add_watch(2): ENOENT if there is no such
    /// folder, EMFILE if the user has reached the limit on watches.
    pub fn of(folder: &CStr) -> Result<Self, Errno> {
        // SAFETY: no memory of ours is involved.
        let fd = unsafe { libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK) };
        Errno::check(fd.into())?;
        let watch = Self(Fd::adopt(fd));
        let mask = libc::IN_CREATE | libc::IN_MOVED_TO | libc::IN_ONLYDIR;
        // SAFETY: `folder` is NUL-terminated.
        let added = unsafe { libc::inotify_add_watch(watch.0.raw(), folder.as_ptr(), mask) };
        Errno::check(added.into()).map(|_| watch)
    }

    /// Returns the descriptor, which is readable when names are pending.
    pub const fn fd(&self) -> &Fd {
        &self.0
    }

    /// Passes the names since the last call to `on_name`, up to a limit: the descriptor stays
    /// readable if there are more. Returns false if the kernel dropped names.
    pub fn take(&self, on_name: &mut dyn FnMut(&[u8])) -> bool {
        let mut room = NameBuffer([0; ROOM_BYTES]);
        for _ in 0..READS_MAX {
            // SAFETY: `room` is ours, with its length.
            let read = unsafe { libc::read(self.0.raw(), room.0.as_mut_ptr().cast(), ROOM_BYTES) };
            let Some(bytes) = usize::try_from(read).ok().and_then(|read| room.0.get(..read)) else {
                return true;
            };
            if bytes.is_empty() || !each_name(bytes, on_name) {
                return bytes.is_empty();
            }
        }
        true
    }
}

/// Passes the names in these events to `on_name`; returns false if others were dropped.
fn each_name(mut events: &[u8], on_name: &mut dyn FnMut(&[u8])) -> bool {
    let word = |event: &[u8], at: usize| {
        event.get(at..at + 4).and_then(|word| Some(u32::from_ne_bytes(word.try_into().ok()?)))
    };
    while let (Some(mask), Some(length)) = (word(events, 4), word(events, 12)) {
        if mask & libc::IN_Q_OVERFLOW != 0 {
            return false;
        }
        let end = HEADER_BYTES + length as usize;
        let Some(name) = events.get(HEADER_BYTES..end) else { return true };
        // The kernel pads names with zeros.
        on_name(name.split(|byte| *byte == 0).next().unwrap_or(name));
        events = &events[end..];
    }
    true
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::ffi::CString;
    use std::fs;
    use std::os::unix::ffi::OsStrExt as _;
    use std::string::String;
    use std::vec::Vec;

    use trackway_testkit::TemporaryFolder;

    use super::*;

    #[test]
    fn names_that_come_are_seen_once() {
        let folder = TemporaryFolder::new();
        fs::write(folder.join("before"), "").expect("a file");
        let path = CString::new(folder.path().as_os_str().as_bytes()).expect("a path");
        let names = Names::of(&path).expect("inotify");
        let take = || {
            let mut came = Vec::new();
            let keep = &mut |name: &[u8]| came.push(String::from_utf8_lossy(name).into_owned());
            assert!(names.take(keep));
            came
        };
        assert!(take().is_empty());
        fs::write(folder.join("made"), "").expect("a file");
        fs::hard_link(folder.join("before"), folder.join("linked")).expect("a link");
        fs::rename(folder.join("before"), folder.join("moved")).expect("moved");
        fs::remove_file(folder.join("made")).expect("removed");
        assert_eq!(take(), ["made", "linked", "moved"]);
        assert!(take().is_empty());
        assert_eq!(Names::of(c"/no/such/folder").expect_err("none"), Errno(libc::ENOENT));
    }

    #[test]
    fn events_that_were_dropped_are_told() {
        let mut event = [0_u8; HEADER_BYTES];
        event[4..8].copy_from_slice(&libc::IN_Q_OVERFLOW.to_ne_bytes());
        assert!(!each_name(&event, &mut |_| panic!("no name")));
        // Half an event does no harm either.
        event[4..8].copy_from_slice(&libc::IN_CREATE.to_ne_bytes());
        event[12..16].copy_from_slice(&99_u32.to_ne_bytes());
        assert!(each_name(&event, &mut |_| panic!("no name")));
        assert!(each_name(&event[..7], &mut |_| panic!("no name")));
    }
}
