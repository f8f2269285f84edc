//! Checks of installed parts: the library, the preload helpers, the folder of session sockets,
//! other programs.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use trackway_recorder::control::RunFolder;
use trackway_recorder::diagnosis::{Reason, Selection, diagnose};
use trackway_recorder::{RecordError, checkup, parse_preload};
use trackway_sys::process::Users;

use super::Finding;

/// The library's name in linked programs.
const SONAME: &str = "libtrackway.so.1";

/// The library that `trackway record` preloads into its command.
pub(super) struct Libraries(Result<PathBuf, RecordError>);

impl Libraries {
    pub(super) fn inspect() -> Self {
        Self(
            checkup::find_preload_libraries(&[])
                .map(|paths| paths.into_iter().next_back().unwrap_or_default()),
        )
    }

    pub(super) fn check(&self) -> Finding {
        match &self.0 {
            Ok(path) => Finding::good(path.display().to_string()),
            // Other errors are errors of the system, for example without /proc.
            Err(error) => Finding::missing(
                error.to_string(),
                error.hint().unwrap_or_else(|| "see above".into()),
            ),
        }
    }
}

/// The preload helpers of option `--preload`.
pub(super) struct PreloadHelpers {
    found: Vec<&'static str>,
    missing: Vec<&'static str>,
}

impl PreloadHelpers {
    pub(super) fn inspect() -> Self {
        let all = parse_preload("all").unwrap_or_default();
        let (found, missing) =
            all.into_iter().partition(|file| match checkup::find_preload_libraries(&[file]) {
                // Check `library` reports a missing library.
                Err(RecordError::LibraryMissing(name)) => name != *file,
                _ => true,
            });
        Self { found, missing }
    }

    pub(super) fn check(&self) -> Finding {
        let names = |files: &[&str]| {
            let short = |file: &&str| -> String {
                let name = file.strip_prefix("libtrackway-").unwrap_or(file);
                name.strip_suffix(".so").unwrap_or(name).to_owned()
            };
            files.iter().map(short).collect::<Vec<_>>().join(", ")
        };
        match self.missing.as_slice() {
            [] => Finding::good(format!("--preload {}", names(&self.found))),
            missing => Finding::missing(
                format!("not for --preload: {}", names(missing)),
                "install them beside libtrackway.so (make install)",
            ),
        }
    }
}

/// The library that the dynamic loader finds for linked programs.
pub(super) struct LoaderLibrary {
    found: Option<PathBuf>,
    /// The library that `trackway record` preloads.
    own: Option<PathBuf>,
    /// True if the two libraries are identical.
    is_ours: bool,
}

impl LoaderLibrary {
    pub(super) fn inspect() -> Self {
        let found = find_loader_library();
        let own = Libraries::inspect().0.ok();
        let is_ours = match (&found, &own) {
            (Some(found), Some(own)) => {
                let same =
                    |one: &Path, other: &Path| Some(fs::read(one).ok()? == fs::read(other).ok()?);
                found.canonicalize().is_ok_and(|found| found == *own)
                    || same(found, own).unwrap_or(false)
            }
            _ => false,
        };
        Self { found, own, is_ours }
    }

    pub(super) fn check(&self) -> Finding {
        match (&self.found, &self.own) {
            (Some(found), Some(_)) if self.is_ours => {
                Finding::good(format!("linked programs load {}", found.display()))
            }
            (Some(found), Some(own)) => Finding::limited(
                format!("linked programs load another one, {}", found.display()),
                format!("if it is older, install {} in its place", own.display()),
            ),
            (Some(found), None) => {
                Finding::good(format!("linked programs load {}", found.display()))
            }
            (None, own) => {
                let folder = own.as_deref().and_then(Path::parent);
                let folder = folder.map_or("DIR".into(), |folder| folder.display().to_string());
                Finding::limited(
                    format!("programs that are linked with it do not find {SONAME}"),
                    format!(
                        "trackway record gives it to what it starts; for others, ldconfig or \
                         LD_LIBRARY_PATH={folder}"
                    ),
                )
            }
        }
    }
}

/// Finds the library like the dynamic loader: environment, cache, default folders (ld.so(8)).
fn find_loader_library() -> Option<PathBuf> {
    let folders = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let named = std::env::split_paths(&folders).map(|folder| folder.join(SONAME));
    let cached =
        fs::read("/etc/ld.so.cache").ok().and_then(|bytes| find_in_loader_cache(&bytes, SONAME));
    let usual = ["/lib64", "/usr/lib64", "/lib", "/usr/lib"];
    let usual = usual.iter().map(|folder| Path::new(folder).join(SONAME));
    named.chain(cached).chain(usual).find(|path| path.is_file())
}

/// Returns the path of a library in ldconfig's cache, as glibc 2.32 and later write it:
///
/// ```text
/// 0   "glibc-ld.so.cache1.1"
/// 20  u32 number of entries, u32 length of the strings, 20 bytes
/// 48  entries: i32 flags, u32 name, u32 path (both from the start), u32, u64
///     strings, each with a NUL
/// ```
fn find_in_loader_cache(bytes: &[u8], name: &str) -> Option<PathBuf> {
    const HEAD_BYTES: usize = 48;
    const ENTRY_BYTES: usize = 24;
    let word =
        |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize);
    let string = |at: usize| bytes.get(at..)?.split(|&byte| byte == 0).next();
    if !bytes.starts_with(b"glibc-ld.so.cache1.1") {
        return None;
    }
    let entries = bytes.get(HEAD_BYTES..)?.chunks_exact(ENTRY_BYTES).len().min(word(20)?);
    (0..entries).map(|number| HEAD_BYTES + number * ENTRY_BYTES).find_map(|entry| {
        let is_it = string(word(entry + 4)?)? == name.as_bytes();
        let path = string(word(entry + 8)?)?;
        is_it.then(|| PathBuf::from(OsString::from_vec(path.to_vec())))
    })
}

/// The status of a folder, from lstat(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FolderStatus {
    is_folder: bool,
    owner: u32,
    /// Permission bits of the folder.
    mode: u32,
}

impl FolderStatus {
    fn inspect(path: &Path) -> Option<Self> {
        let status = fs::symlink_metadata(path).ok()?;
        let mode = status.permissions().mode() & 0o7777;
        Some(Self { is_folder: status.is_dir(), owner: status.uid(), mode })
    }
}

/// The folder with the sockets of `trackway session`.
#[derive(Debug)]
pub(super) struct SocketFolder {
    uid: u32,
    path: PathBuf,
    folder: Option<FolderStatus>,
    above: Option<FolderStatus>,
    /// True if an environment variable names the folder.
    is_named: bool,
    /// True if systemd(1) runs on this machine, and so can start sessions.
    has_systemd: bool,
}

impl SocketFolder {
    pub(super) fn inspect() -> Self {
        let uid = Users::current().effective();
        // Uses the recorder's own path, which may be relative.
        let run = RunFolder::new();
        let path = std::path::absolute(run.path()).unwrap_or_else(|_| run.path().to_owned());
        Self {
            uid,
            folder: FolderStatus::inspect(&path),
            above: path.parent().and_then(FolderStatus::inspect),
            is_named: RunFolder::is_named(),
            has_systemd: Path::new("/run/systemd/system").is_dir(),
            path,
        }
    }

    pub(super) fn check(&self) -> Finding {
        let path = self.path.display();
        let by = if self.is_named { " (TRACKWAY_RUN_DIR)" } else { "" };
        if let Some(folder) = self.folder {
            if !folder.is_folder || folder.owner != self.uid {
                return Finding::missing(
                    format!("{path} is no folder of this user's{by}"),
                    match self.is_named {
                        true => "let TRACKWAY_RUN_DIR name another folder, or unset it",
                        false => "have it removed; sessions can be told nothing meanwhile",
                    },
                );
            }
            if folder.mode & 0o077 != 0 {
                return Finding::missing(
                    format!("others may look into {path} (mode {:o}){by}", folder.mode),
                    format!("chmod 700 {path}"),
                );
            }
        } else {
            let may_make = |above: FolderStatus| {
                let is_ours = self.uid == 0 || above.owner == self.uid;
                above.is_folder && (is_ours || above.mode & 0o002 != 0)
            };
            if !self.above.is_some_and(may_make) {
                return Finding::missing(
                    format!("{path}, where their sockets are, cannot be made{by}"),
                    match self.is_named {
                        true => "make the folder above it, or let TRACKWAY_RUN_DIR name another",
                        false => {
                            "let XDG_RUNTIME_DIR be a folder of your own (loginctl enable-linger)"
                        }
                    },
                );
            }
        }
        let systemd = if self.has_systemd { "; systemd can start them" } else { "" };
        Finding::good(format!("their sockets are in {path}{by}{systemd}"))
    }
}

/// babeltrace2, another reader of traces.
pub(super) struct Babeltrace(Option<PathBuf>);

impl Babeltrace {
    pub(super) fn inspect() -> Self {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let mut paths = std::env::split_paths(&folders).map(|folder| folder.join("babeltrace2"));
        Self(paths.find(|path| path.is_file()))
    }

    pub(super) fn check(&self) -> Finding {
        match &self.0 {
            Some(path) => Finding::good(path.display().to_string()),
            None => Finding::missing(
                "not installed, and not needed: trackway print shows the same",
                "apt install babeltrace2, to compare",
            ),
        }
    }
}

/// Checks for running processes that have events but cannot be recorded in their current state.
pub(super) fn check_programs() -> Finding {
    let mut reasons = diagnose(&Selection::all());
    reasons.retain(Reason::excludes_processes);
    let sentences: Vec<String> = reasons.iter().map(Reason::to_string).collect();
    if sentences.is_empty() {
        return Finding::good("every running process with events has the library");
    }
    let hints: Vec<Cow<'_, str>> = reasons.iter().filter_map(Reason::hint).collect();
    Finding::limited(sentences.join("; "), hints.join("; "))
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn libraries_that_cannot_be_preloaded_are_missing() {
        let judge = |error| Libraries(Err(error)).check();
        let absent = judge(RecordError::LibraryMissing("libtrackway.so"));
        assert_eq!(absent.verdict, Verdict::Missing);
        assert!(absent.fact.contains("libtrackway.so") && absent.hint.is_some(), "{absent:?}");
        assert_eq!(judge(RecordError::LibraryPath("/a b".into())).verdict, Verdict::Missing);
        assert_eq!(Libraries(Ok("/l".into())).check(), Finding::good("/l"));
    }

    #[test]
    fn helpers_go_by_their_short_names() {
        let (found, missing) = (vec!["libtrackway-libc.so"], vec!["libtrackway-fd.so"]);
        let all = PreloadHelpers { found: found.clone(), missing: Vec::new() }.check();
        assert_eq!(all, Finding::good("--preload libc"));
        let some = PreloadHelpers { found, missing }.check();
        assert_eq!((some.verdict, some.fact.as_str()), (Verdict::Missing, "not for --preload: fd"));
    }

    #[test]
    fn the_loaders_library_is_the_commands_or_another() {
        let judge = |found: Option<&str>, own: Option<&str>, is_ours| {
            LoaderLibrary { found: found.map(PathBuf::from), own: own.map(PathBuf::from), is_ours }
                .check()
        };
        assert_eq!(judge(Some("/l"), Some("/o"), true).verdict, Verdict::Good);
        assert_eq!(judge(Some("/l"), None, false).verdict, Verdict::Good);
        let other = judge(Some("/l"), Some("/o"), false);
        assert!(other.fact.contains("another one, /l"), "{other:?}");
        let none = judge(None, Some("/opt/lib/o"), false);
        let hint = none.hint.as_deref().unwrap_or_default();
        assert!(hint.ends_with("LD_LIBRARY_PATH=/opt/lib"), "{hint}");
        assert_eq!((other.verdict, none.verdict), (Verdict::Limited, Verdict::Limited));
    }

    #[test]
    fn the_loaders_cache_is_read_and_not_believed() {
        let mut cache = b"glibc-ld.so.cache1.1".to_vec();
        let put = |cache: &mut Vec<u8>, words: &[u32]| {
            words.iter().for_each(|word| cache.extend(word.to_ne_bytes()));
        };
        put(&mut cache, &[2, 0, 0, 0, 0, 0, 0]);
        assert_eq!(cache.len(), 48);
        let strings = 48 + 2 * 24;
        put(&mut cache, &[1, strings, strings + 5, 0, 0, 0]);
        put(&mut cache, &[1, strings + 12, strings + 15, 0, 0, 0]);
        cache.extend(b"some\0/a/b/c\0it\0/d/it\0");
        assert_eq!(find_in_loader_cache(&cache, "it"), Some("/d/it".into()));
        assert_eq!(find_in_loader_cache(&cache, "other"), None);
        // Truncated caches, and caches with invalid lengths.
        for end in 0..cache.len() {
            let found = find_in_loader_cache(&cache[..end], "it");
            assert!(found.is_none_or(|path| "/d/it".starts_with(path.to_str().unwrap_or("?"))));
        }
        cache[20..24].fill(0xff);
        cache[48 + 24 + 4..][..4].fill(0xff);
        assert_eq!(find_in_loader_cache(&cache, "it"), None);
    }

    #[test]
    fn sockets_are_where_only_their_user_looks() {
        let private = FolderStatus { is_folder: true, owner: 7, mode: 0o700 };
        let shared = FolderStatus { is_folder: true, owner: 0, mode: 0o1777 };
        let sockets = |folder, above, is_named| {
            let path = "/s".into();
            SocketFolder { uid: 7, path, folder, above, is_named, has_systemd: false }.check()
        };
        let judge = |folder, above| sockets(folder, above, false);
        assert_eq!(judge(Some(private), None), Finding::good("their sockets are in /s"));
        assert_eq!(judge(None, Some(shared)).verdict, Verdict::Good);
        assert_eq!(judge(None, Some(private)).verdict, Verdict::Good);
        let closed = FolderStatus { mode: 0o755, ..shared };
        let others = FolderStatus { mode: 0o750, ..private };
        let file = FolderStatus { is_folder: false, ..private };
        for (folder, above) in [
            (None, None),
            (None, Some(closed)),
            (None, Some(file)),
            (Some(shared), None),
            (Some(others), None),
            (Some(file), None),
        ] {
            assert_eq!(judge(folder, above).verdict, Verdict::Missing, "{folder:?} {above:?}");
            let named = sockets(folder, above, true);
            assert_eq!(named.verdict, Verdict::Missing, "{folder:?} {above:?}");
            assert!(named.fact.ends_with("(TRACKWAY_RUN_DIR)"), "{named:?}");
            let hint = named.hint.unwrap_or_default();
            assert!(!hint.contains("XDG_RUNTIME_DIR"), "it would not help: {hint}");
        }
        let named = sockets(Some(private), None, true);
        assert_eq!(named, Finding::good("their sockets are in /s (TRACKWAY_RUN_DIR)"));
        let systemd = SocketFolder {
            uid: 0,
            path: "/run/trackway".into(),
            folder: None,
            above: Some(closed),
            is_named: false,
            has_systemd: true,
        };
        assert!(systemd.check().fact.ends_with("systemd can start them"));
    }

    #[test]
    fn another_reader_is_not_needed() {
        assert_eq!(Babeltrace(Some("/b".into())).check(), Finding::good("/b"));
        assert_eq!(Babeltrace(None).check().verdict, Verdict::Missing);
    }
}
