//! Checks of the window: its location, access to it, its creation, and its contents.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use trackway_abi::ABI_VERSION;
use trackway_abi::session::SESSIONS_MAX;
use trackway_abi::window::DATA_OFFSET;
use trackway_recorder::checkup::{self, SlotOwner};
use trackway_recorder::{ByteCount, RecordError, WindowHandle, versions};
use trackway_sys::Errno;
use trackway_sys::file::{Fd, FileSystem};
use trackway_sys::process::{Users, outer_user};
use trackway_window::OpenError;

use super::Finding;

/// Environment variable with the folder of the window.
const FOLDER_VARIABLE: &str = "TRACKWAY_WINDOW_DIR";
/// Most names in a list on one line.
const LISTED_NAMES_MAX: usize = 4;

/// The state of the window's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WindowFileState {
    Open,
    /// The file does not exist. The value is the result of a test that creates one.
    Absent(Result<(), Errno>),
    Refused(OpenError),
}

/// The status of the file with the window's name, from lstat(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileStatus {
    is_regular: bool,
    owner: u32,
    /// Permission bits of the file.
    mode: u32,
}

/// The state of the window and its folder.
#[derive(Debug)]
pub(super) struct WindowState {
    folder: PathBuf,
    /// True if an environment variable names the folder.
    is_elsewhere: bool,
    path: PathBuf,
    uid: u32,
    state: WindowFileState,
    file: Option<FileStatus>,
    file_system: Option<FileSystem>,
    /// Bytes of the window that have memory.
    backed_bytes: u64,
    occupants: Vec<SlotOwner>,
    refuses_sequences: bool,
    /// This user's windows of other versions, and windows that were moved aside.
    leftovers: Vec<PathBuf>,
    /// Processes with libraries of other versions, by version.
    other_versions: BTreeMap<u32, Vec<u32>>,
}

impl WindowState {
    pub(super) fn inspect() -> Self {
        let folder = checkup::window_folder();
        let uid = Users::current().effective();
        // File names contain the user's id outside this namespace; check `user` reports a missing
        // one.
        let prefix = format!("trackway-{}-v", outer_user(uid).unwrap_or(uid));
        let path = folder.join(format!("{prefix}{ABI_VERSION}"));
        let (home, state) = match WindowHandle::open() {
            Ok(Some(home)) => (Some(home), WindowFileState::Open),
            Ok(None) => (None, WindowFileState::Absent(try_create_window(&folder))),
            Err(RecordError::Window(_, error)) => (None, WindowFileState::Refused(error)),
            Err(_) => (None, WindowFileState::Refused(OpenError::NotAWindow)),
        };
        let file = fs::symlink_metadata(&path).ok().map(|status| FileStatus {
            is_regular: status.is_file(),
            owner: status.uid(),
            mode: status.mode() & 0o7777,
        });
        let home = home.as_ref();
        Self {
            is_elsewhere: std::env::var_os(FOLDER_VARIABLE).is_some(),
            uid,
            state,
            file,
            file_system: to_c_path(&folder).and_then(|path| FileSystem::of(&path).ok()),
            backed_bytes: home.map_or(0, |home| home.window().usable_bytes()),
            occupants: home.map(checkup::list_slot_owners).unwrap_or_default(),
            refuses_sequences: home.is_some_and(checkup::window_disables_sequences),
            leftovers: find_leftover_windows(&folder, &prefix, &path),
            other_versions: versions::other_versions(),
            folder,
            path,
        }
    }

    /// Returns the free bytes in the folder; `None` if the number is unknown.
    pub(super) fn free_bytes(&self) -> Option<u64> {
        self.file_system.map(|file_system| file_system.free_bytes)
    }

    /// Returns the bytes of the window that have memory; 0 if there is no window.
    pub(super) fn backed_bytes(&self) -> u64 {
        self.backed_bytes
    }

    /// Returns the window's folder.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns true if the window disables restartable sequences.
    pub(super) fn disables_sequences(&self) -> bool {
        self.refuses_sequences
    }

    /// Checks that a window exists and is usable, or can be created.
    pub(super) fn check(&self) -> Finding {
        let path = self.path.display();
        match self.state {
            WindowFileState::Open => Finding::good(format!("{path}, {}", self.format_details())),
            WindowFileState::Absent(Ok(())) => {
                let folder = self.folder.display();
                Finding::good(format!(
                    "none yet, can be made in {folder}; {}",
                    self.format_details()
                ))
            }
            WindowFileState::Absent(Err(errno))
            | WindowFileState::Refused(OpenError::System(errno)) => self.check_folder(errno),
            WindowFileState::Refused(OpenError::NotOurs) => self.check_file(),
            WindowFileState::Refused(OpenError::PathTooLong) => Finding::missing(
                format!("the path {path} is too long"),
                format!("let {FOLDER_VARIABLE} be a shorter one"),
            ),
            // `WindowHandle::open_or_make` replaces such a file.
            WindowFileState::Refused(error) => Finding::limited(
                format!("{path} cannot be used: {error}"),
                "the next trackway record puts it aside; start programs that run now again then",
            ),
        }
    }

    fn format_details(&self) -> String {
        let mut text = match self.backed_bytes {
            0 => String::new(),
            bytes => format!("{}, ", ByteCount(bytes)),
        };
        if let Some(file_system) = self.file_system {
            text += &format!("{} free", ByteCount(file_system.free_bytes));
            // `noexec` does no harm: the machine code of filters is never in the window.
            text += if file_system.is_noexec { ", noexec" } else { "" };
        }
        if self.is_elsewhere {
            text += &format!(" ({FOLDER_VARIABLE})");
        }
        text
    }

    /// Explains why the window can be neither opened nor created.
    fn check_folder(&self, errno: Errno) -> Finding {
        let folder = self.folder.display();
        let is_link = self.file.is_some_and(|file| !file.is_regular);
        match errno.0 {
            libc::ENOENT | libc::ENOTDIR if self.is_elsewhere => Finding::missing(
                format!("there is no folder {folder}, which {FOLDER_VARIABLE} names"),
                format!("make it, or unset {FOLDER_VARIABLE}"),
            ),
            libc::ENOENT | libc::ENOTDIR => Finding::missing(
                format!("there is no folder {folder}"),
                format!("mount -t tmpfs tmpfs {folder}, or let {FOLDER_VARIABLE} name another one"),
            ),
            libc::EROFS => Finding::missing(
                format!("{folder} is read-only"),
                format!("mount -o remount,rw {folder}, or let {FOLDER_VARIABLE} name another one"),
            ),
            libc::EACCES | libc::EPERM => Finding::missing(
                format!("{folder}: no permission to write there"),
                format!("chmod 1777 {folder}, or let {FOLDER_VARIABLE} name another one"),
            ),
            libc::ENOSPC | libc::EDQUOT => Finding::missing(
                format!("no room for a window ({}) in {folder}", ByteCount(DATA_OFFSET as u64)),
                format_enlarge_command(&self.folder),
            ),
            libc::EFBIG => Finding::missing(
                format!("files may not be as long as a window ({})", ByteCount(DATA_OFFSET as u64)),
                "raise the limit on the size of files (ulimit -f)",
            ),
            libc::EOVERFLOW => Finding::missing(
                "it has no name, because its user has none outside this user namespace",
                "see user",
            ),
            libc::EOPNOTSUPP => Finding::missing(
                format!("the file system of {folder} has no files without a name (O_TMPFILE)"),
                format!("let {FOLDER_VARIABLE} name a folder in a tmpfs"),
            ),
            _ if is_link => Finding::missing(
                format!("{} is no file: {errno}", self.path.display()),
                format!("remove it, or let {FOLDER_VARIABLE} name another folder"),
            ),
            _ => Finding::missing(
                format!("{folder}: {errno}"),
                format!("let {FOLDER_VARIABLE} name another folder"),
            ),
        }
    }

    /// Explains why the file with the window's name is not trustworthy.
    fn check_file(&self) -> Finding {
        let path = self.path.display();
        match self.file {
            Some(file) if file.is_regular && file.owner == self.uid => Finding::missing(
                format!("others may open {path} (mode {:o})", file.mode),
                format!("if nobody else could have changed it: chmod 600 {path}; else remove it"),
            ),
            Some(file) => Finding::missing(
                format!("{path} belongs to user {}, or is no file", file.owner),
                format!("have it removed, or let {FOLDER_VARIABLE} name a folder of your own"),
            ),
            None => Finding::missing(format!("{path} comes and goes"), "try again"),
        }
    }

    /// Lists the recorders, and checks that the window has room for another one.
    pub(super) fn check_recordings(&self) -> Finding {
        let folders = |is_wanted: &dyn Fn(&SlotOwner) -> bool| -> BTreeSet<&Path> {
            let wanted = self.occupants.iter().filter(|occupant| is_wanted(occupant));
            wanted.map(|occupant| occupant.folder.as_path()).collect()
        };
        let paths = |folders: &BTreeSet<&Path>| {
            format_first_names(folders.iter().map(|folder| folder.display().to_string()))
        };
        let dead = folders(&|occupant| occupant.is_orphan);
        if !dead.is_empty() {
            return Finding::limited(
                format!("the recorder is dead, events are still in memory: {}", paths(&dead)),
                "trackway recover; the next trackway record does it, too",
            );
        }
        let taken = self.occupants.len();
        if taken >= SESSIONS_MAX {
            return Finding::missing(
                format!("all {SESSIONS_MAX} channels of the window are in use"),
                "end some of this user's recordings",
            );
        }
        let alive = folders(&|occupant| !occupant.is_orphan);
        Finding::good(match taken {
            0 => format!("none under way, room for {SESSIONS_MAX}"),
            _ => format!("{taken} of {SESSIONS_MAX} under way: {}", paths(&alive)),
        })
    }

    /// Checks for windows that this version does not use.
    pub(super) fn check_leftovers(&self) -> Finding {
        if let Some((&version, pids)) = self.other_versions.first_key_value() {
            return Finding::limited(
                format!(
                    "processes with a libtrackway.so {} than this trackway: {}",
                    versions::describe_age(version),
                    format_first_names(pids.iter().map(u32::to_string))
                ),
                versions::remedy_for_version(version),
            );
        }
        if self.leftovers.is_empty() {
            return Finding::good("none of other versions");
        }
        let paths = |separator| {
            let paths = self.leftovers.iter().map(|path| path.display().to_string());
            paths.collect::<Vec<_>>().join(separator)
        };
        Finding::limited(
            format!("windows that this version does not use: {}", paths(", ")),
            format!("if they are not another installation's: rm {}", paths(" ")),
        )
    }
}

/// Formats the first names, and the number of remaining ones.
fn format_first_names(names: impl Iterator<Item = String>) -> String {
    let names: Vec<String> = names.collect();
    let mut text = names.iter().take(LISTED_NAMES_MAX).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > LISTED_NAMES_MAX {
        text += &format!(" and {} more", names.len() - LISTED_NAMES_MAX);
    }
    text
}

/// Returns a command that enlarges a tmpfs folder.
pub(super) fn format_enlarge_command(folder: &Path) -> String {
    let mount = format!("mount -o remount,size=64M {}", folder.display());
    match folder == Path::new("/dev/shm") {
        true => format!("{mount}; of a container: docker run --shm-size=64m"),
        false => mount,
    }
}

fn to_c_path(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().as_bytes()).ok()
}

/// Tries to create a window like `Window::open`, but leaves no named file.
fn try_create_window(folder: &Path) -> Result<(), Errno> {
    let folder = to_c_path(folder).ok_or(Errno(libc::EINVAL))?;
    let file = Fd::open(&folder, libc::O_RDWR | libc::O_TMPFILE, 0o600)?;
    file.allocate(0, DATA_OFFSET as u64)
}

/// Finds files in `folder` whose names have this user's window prefix, except `window`.
fn find_leftover_windows(folder: &Path, prefix: &str, window: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
        .map(|entry| entry.path())
        .filter(|path| path != window)
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    fn window_in_state(state: WindowFileState) -> WindowState {
        WindowState {
            folder: "/dev/shm".into(),
            is_elsewhere: false,
            path: "/dev/shm/trackway-7-v1".into(),
            uid: 7,
            state,
            file: None,
            file_system: Some(FileSystem { free_bytes: 3 << 30, is_noexec: true }),
            backed_bytes: 0,
            occupants: Vec::new(),
            refuses_sequences: false,
            leftovers: Vec::new(),
            other_versions: BTreeMap::new(),
        }
    }

    #[test]
    fn windows_that_are_there_or_can_be_made_are_good() {
        let there = WindowState {
            backed_bytes: 2 << 20,
            is_elsewhere: true,
            ..window_in_state(WindowFileState::Open)
        };
        let fact = "/dev/shm/trackway-7-v1, 2.0 MiB, 3.0 GiB free, noexec (TRACKWAY_WINDOW_DIR)";
        assert_eq!(there.check(), Finding::good(fact));
        let absent = window_in_state(WindowFileState::Absent(Ok(()))).check();
        assert_eq!((absent.verdict, absent.hint), (Verdict::Good, None));
        assert!(absent.fact.starts_with("none yet, can be made in /dev/shm; 3.0 GiB free"));
    }

    #[test]
    fn what_keeps_a_window_from_being_made_is_named() {
        let absent = |errno| window_in_state(WindowFileState::Absent(Err(Errno(errno))));
        let cases = [
            (libc::ENOENT, "no folder /dev/shm", "mount -t tmpfs"),
            (libc::ENOTDIR, "no folder /dev/shm", "mount -t tmpfs"),
            (libc::EROFS, "read-only", "remount,rw"),
            (libc::EACCES, "permission", "chmod 1777"),
            (libc::ENOSPC, "2.0 MiB", "--shm-size="),
            (libc::EFBIG, "2.0 MiB", "ulimit -f"),
            (libc::EOPNOTSUPP, "O_TMPFILE", "tmpfs"),
            (libc::EOVERFLOW, "user namespace", "see user"),
            (libc::EIO, "Input/output error", "another folder"),
        ];
        for (errno, fact, hint) in cases {
            let finding = absent(errno).check();
            assert_eq!(finding.verdict, Verdict::Missing, "{finding:?}");
            assert!(finding.fact.contains(fact), "{finding:?}");
            assert!(finding.hint.as_ref().is_some_and(|has| has.contains(hint)), "{finding:?}");
        }
        let elsewhere = WindowState { is_elsewhere: true, ..absent(libc::ENOENT) }.check();
        assert_eq!(elsewhere.hint.as_deref(), Some("make it, or unset TRACKWAY_WINDOW_DIR"));
    }

    #[test]
    fn windows_that_are_not_to_be_believed_are_told_apart() {
        let refused = |error, file| {
            WindowState { file, ..window_in_state(WindowFileState::Refused(error)) }.check()
        };
        let file = FileStatus { is_regular: true, owner: 7, mode: 0o644 };
        let open = refused(OpenError::NotOurs, Some(file));
        assert_eq!(open.fact, "others may open /dev/shm/trackway-7-v1 (mode 644)");
        let other = refused(OpenError::NotOurs, Some(FileStatus { owner: 8, ..file }));
        assert!(other.fact.contains("belongs to user 8"), "{other:?}");
        let link = FileStatus { is_regular: false, ..file };
        let link = refused(OpenError::System(Errno(libc::ELOOP)), Some(link));
        assert!(link.fact.contains("is no file"), "{link:?}");
        for finding in [open, other, link] {
            assert_eq!(finding.verdict, Verdict::Missing);
        }
        // The next recording replaces such files.
        for error in [OpenError::Truncated, OpenError::NotAWindow] {
            assert_eq!(refused(error, Some(file)).verdict, Verdict::Limited);
        }
    }

    #[test]
    fn dead_recorders_and_full_windows_are_said() {
        let occupant = |folder: &str, is_orphan| SlotOwner { folder: folder.into(), is_orphan };
        let judge = |occupants| {
            WindowState { occupants, ..window_in_state(WindowFileState::Open) }.check_recordings()
        };
        assert_eq!(judge(Vec::new()), Finding::good("none under way, room for 32"));
        // Two channels of one session are one recording.
        let alive = judge(vec![occupant("/a", false), occupant("/a", false)]);
        assert_eq!(alive, Finding::good("2 of 32 under way: /a"));
        assert_eq!(judge(vec![occupant("/a", false); SESSIONS_MAX]).verdict, Verdict::Missing);
        let mut dead = vec![occupant("/a", false); SESSIONS_MAX];
        dead[1] = occupant("/b", true);
        let dead = judge(dead);
        assert_eq!(dead.verdict, Verdict::Limited, "the next recording frees it");
        assert!(dead.fact.ends_with("memory: /b"), "{dead:?}");
        let many = judge((0..9).map(|n| occupant(&format!("/{n}"), true)).collect());
        assert!(many.fact.ends_with("/0, /1, /2, /3 and 5 more"), "{many:?}");
    }

    #[test]
    fn what_other_versions_left_is_said() {
        assert_eq!(window_in_state(WindowFileState::Open).check_leftovers().verdict, Verdict::Good);
        let leftovers = vec!["/dev/shm/trackway-7-v0".into(), "/dev/shm/x".into()];
        let mut seen = WindowState { leftovers, ..window_in_state(WindowFileState::Open) };
        let finding = seen.check_leftovers();
        let hint = finding.hint.as_deref().unwrap_or_default();
        assert!(hint.ends_with("rm /dev/shm/trackway-7-v0 /dev/shm/x"), "{hint}");
        // Processes use windows of another version.
        seen.other_versions.insert(ABI_VERSION + 1, vec![12, 13]);
        let finding = seen.check_leftovers();
        assert!(finding.fact.ends_with("newer than this trackway: 12, 13"), "{finding:?}");
        assert_eq!(finding.hint.as_deref(), Some(versions::remedy_for_version(ABI_VERSION + 1)));
    }

    #[test]
    fn leftovers_are_this_users_files_but_the_window() {
        let folder = std::env::temp_dir().join(format!("trackway-doctor-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        for name in ["trackway-7-v0", "trackway-7-v1", "trackway-7-v1.unusable-5", "trackway-77-v1"]
        {
            fs::write(folder.join(name), "").expect("a file");
        }
        let found = find_leftover_windows(&folder, "trackway-7-v", &folder.join("trackway-7-v1"));
        let expected = ["trackway-7-v0", "trackway-7-v1.unusable-5"].map(|name| folder.join(name));
        fs::remove_dir_all(&folder).expect("removed");
        assert_eq!(found, expected);
    }
}
