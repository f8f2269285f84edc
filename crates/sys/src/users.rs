//! Users by name and number: from passwd(5) and the C library's other sources.

use core::ffi::CStr;
use core::mem::MaybeUninit;

/// Size of the buffer for an entry's strings, in bytes. A longer entry is not found.
const ROOM_BYTES: usize = 16 << 10;

/// Returns the number of the user called `name`, if there is one.
pub fn user_called(name: &CStr) -> Option<u32> {
    let mut room = [0_u8; ROOM_BYTES];
    let mut entry = MaybeUninit::<libc::passwd>::uninit();
    let mut found = core::ptr::null_mut();
    // SAFETY: the name is a C string, entry and room are ours, with the room's length.
    unsafe {
        let (entry, room) = (entry.as_mut_ptr(), room.as_mut_ptr().cast());
        let failed = libc::getpwnam_r(name.as_ptr(), entry, room, ROOM_BYTES, &mut found);
        (failed == 0 && !found.is_null()).then(|| (*found).pw_uid)
    }
}

/// Returns the first group of user `uid`, and the length of the path of its home, which is written
/// into `home` and cut to fit; `None` if no user has that number.
pub fn account_of(uid: u32, home: &mut [u8]) -> Option<(u32, usize)> {
    let mut room = [0_u8; ROOM_BYTES];
    let mut entry = MaybeUninit::<libc::passwd>::uninit();
    let mut found = core::ptr::null_mut();
    // SAFETY: entry and room are ours, with the room's length; the path lies in the room.
    let (group, path) = unsafe {
        let (entry, room) = (entry.as_mut_ptr(), room.as_mut_ptr().cast());
        let failed = libc::getpwuid_r(uid, entry, room, ROOM_BYTES, &mut found);
        if failed != 0 || found.is_null() {
            return None;
        }
        let path = (*found).pw_dir;
        ((*found).pw_gid, if path.is_null() { c"/" } else { CStr::from_ptr(path) })
    };
    let length = path.to_bytes().len().min(home.len());
    home[..length].copy_from_slice(&path.to_bytes()[..length]);
    Some((group, length))
}

/// Writes the name of user `uid` into `into`, as far as it fits; returns its length in bytes, or 0
/// if no user has that number.
pub fn name_of(uid: u32, into: &mut [u8]) -> usize {
    let mut room = [0_u8; ROOM_BYTES];
    let mut entry = MaybeUninit::<libc::passwd>::uninit();
    let mut found = core::ptr::null_mut();
    // SAFETY: entry and room are ours, with the room's length; the name lies in the room.
    let name = unsafe {
        let (entry, room) = (entry.as_mut_ptr(), room.as_mut_ptr().cast());
        let failed = libc::getpwuid_r(uid, entry, room, ROOM_BYTES, &mut found);
        if failed != 0 || found.is_null() || (*found).pw_name.is_null() {
            return 0;
        }
        CStr::from_ptr((*found).pw_name)
    };
    let length = name.to_bytes().len().min(into.len());
    into[..length].copy_from_slice(&name.to_bytes()[..length]);
    length
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_has_a_name_and_a_number() {
        assert_eq!(user_called(c"root"), Some(0));
        assert_eq!(user_called(c"nobody of this name"), None);
        let mut name = [0; 8];
        assert_eq!(name_of(0, &mut name), 4);
        assert_eq!(&name[..4], b"root");
        assert_eq!(name_of(0, &mut name[..2]), 2);
        assert_eq!(name_of(u32::MAX - 7, &mut name), 0);
        let mut home = [0; 64];
        assert_eq!(account_of(0, &mut home), Some((0, 5)));
        assert_eq!(&home[..5], b"/root");
        assert_eq!(account_of(u32::MAX - 7, &mut home), None);
    }
}
