//! The workspace of the bench: a scratch folder, the header and the library next to the executable,
//! and the compiler. A workspace removes its folders when it is dropped.
//!
//! Main invariant: in folders that every user may write to, the bench only works in a folder that
//! it has created, that no other user can enter, and whose name could not be predicted.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::workload::Source;
use crate::error::{Error, Result};
use crate::host::child;

/// Name of the measured program.
const PROGRAM: &str = "trackway";
/// Folder of memory-backed files.
const SHARED_MEMORY: &str = "/dev/shm";
/// Prefix of folder names, before the process id and a random number.
const FOLDER_PREFIX: &str = "trackway-lab-";
/// Suffix of the name of the window's folder.
const WINDOW_SUFFIX: &str = "-window";

/// Trackway's executable, headers and libraries, found next to each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildTools {
    /// Path of the executable `trackway`.
    pub trackway: PathBuf,
    /// Folder with trackway/trackway.h, if it exists.
    pub include: Option<PathBuf>,
    /// Path of libtrackway.so, if it exists.
    pub library: Option<PathBuf>,
    /// Folder of the Rust crate's sources, if the bench belongs to a checkout.
    pub rust_crate: Option<PathBuf>,
}

impl BuildTools {
    /// Returns a command that does almost nothing and succeeds: `trackway --version`, which always
    /// exists.
    pub fn nothing(&self) -> [&OsStr; 2] {
        [self.trackway.as_os_str(), OsStr::new("--version")]
    }

    /// Finds the executable `trackway`, next to this one or else in `PATH`, and its headers and
    /// libraries.
    ///
    /// # Errors
    ///
    /// If the executable is in neither place.
    pub fn find() -> Result<Self> {
        let own = std::env::current_exe();
        let own = own.map_err(Error::io("cannot find our own executable"))?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = own.parent().map(Path::to_owned).into_iter();
        let folders = folders.chain(std::env::split_paths(&path).filter(|it| it.is_absolute()));
        let mut programs = folders.map(|folder| folder.join(PROGRAM));
        let found = programs.find(|program| program.is_file());
        let missing = "it is neither beside trackway-bench nor in PATH";
        found.map(Self::of).ok_or_else(|| Error::output(PROGRAM, missing))
    }

    /// Finds the parts of the executable `trackway`: in a checkout (target/release) or below a
    /// PREFIX (bin).
    pub fn of(trackway: PathBuf) -> Self {
        let folder = trackway.parent().unwrap_or(Path::new("/")).to_owned();
        let includes = [folder.join("../include"), folder.join("../../include")];
        let architecture = std::env::consts::ARCH;
        // Where Trackway is installed, libtrackway.so is a linker script.
        let libraries = [
            folder.join("libtrackway.so"),
            folder.join("../lib/libtrackway.so.1"),
            folder.join(format!("../lib/{architecture}-linux-gnu/libtrackway.so.1")),
            folder.join("../lib64/libtrackway.so.1"),
        ];
        let include = includes.into_iter().find(|path| path.join("trackway/trackway.h").is_file());
        let library = libraries.into_iter().find(|path| path.is_file());
        let rust_crate = Some(folder.join("../../crates/rust"));
        let rust_crate = rust_crate.filter(|path| path.join("Cargo.toml").is_file());
        Self { trackway, include, library, rust_crate }
    }

    /// Makes the tools for an executable without headers and libraries.
    #[cfg(any(test, feature = "fixtures"))]
    pub const fn without_parts(trackway: PathBuf) -> Self {
        Self { trackway, include: None, library: None, rust_crate: None }
    }
}

/// The folders and tools of the bench while it works.
#[derive(Debug)]
pub struct Workspace {
    /// Executable, headers and libraries of Trackway.
    pub tools: BuildTools,
    /// Scratch folder.
    dir: PathBuf,
    /// Folder of a Trackway window that only the bench uses.
    window_dir: PathBuf,
    /// Locks on the folders, which show that the folders are in use, even to runs in another
    /// process id namespace.
    _locks: Vec<File>,
}

impl Workspace {
    /// Makes a workspace with the workloads' sources in it.
    pub fn new(tools: BuildTools, sources: &[Source]) -> Result<Self> {
        let shared = Path::new(SHARED_MEMORY);
        let base = std::env::temp_dir();
        // Scripts and commands of other tracers contain the folder names.
        if base.as_os_str().as_bytes().iter().any(u8::is_ascii_control) {
            return Err(Error::output("TMPDIR", "has a control character in it"));
        }
        let window_base = if shared.is_dir() { shared } else { &base };
        let mut workspace = Self::of(tools);
        // The folders are created one after the other, so that the first is removed if the second
        // fails.
        workspace.dir = create_locked_folder(&base, "", &mut workspace._locks)?;
        workspace.window_dir =
            create_locked_folder(window_base, WINDOW_SUFFIX, &mut workspace._locks)?;
        for source in sources {
            let path = workspace.path(source.name);
            fs::write(&path, source.text).map_err(Error::io(format!("cannot write {path:?}")))?;
        }
        Ok(workspace)
    }

    fn of(tools: BuildTools) -> Self {
        Self { tools, dir: PathBuf::new(), window_dir: PathBuf::new(), _locks: Vec::new() }
    }

    /// Makes a workspace that only has the path of an executable.
    #[cfg(any(test, feature = "fixtures"))]
    pub fn for_executable(trackway: PathBuf) -> Self {
        Self::of(BuildTools::without_parts(trackway))
    }

    /// Returns a path in the scratch folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Returns the window's folder.
    pub fn window_dir(&self) -> &Path {
        &self.window_dir
    }

    /// Removes the file or folder `name` in the scratch folder, if there is one.
    pub fn clear(&self, name: &str) {
        // A missing file needs no removal; one that cannot be removed now is removed with the
        // folder.
        let _ = fs::remove_dir_all(self.path(name));
    }

    /// Compiles `NAME.c` of the workloads to `NAME`, unless `NAME` exists.
    pub fn compile(&self, name: &str, flags: &[&str]) -> Result<PathBuf> {
        self.compile_as(name, name, flags)
    }

    /// Compiles `NAME.c` of the workloads to `PROGRAM`, unless `PROGRAM` exists.
    pub fn compile_as(&self, name: &str, program: &str, flags: &[&str]) -> Result<PathBuf> {
        let program = self.path(program);
        if program.is_file() {
            return Ok(program);
        }
        let mut cc = Command::new("cc");
        cc.args(["-O2", "-std=gnu11", "-D_GNU_SOURCE", "-I"]).arg(&self.dir);
        cc.arg(self.path(&format!("{name}.c"))).arg("-o").arg(&program);
        cc.args(flags).arg("-lpthread");
        child::run(&mut cc, &format!("cc {name}.c"))?;
        Ok(program)
    }

    /// Compiles `NAME.cc` of the workloads to an object file.
    pub fn compile_cxx(&self, name: &str, flag: &str) -> Result<PathBuf> {
        let object = self.path(&format!("{name}.o"));
        let mut cxx = Command::new("c++");
        cxx.args(["-O2", "-std=c++17", "-c", flag]).arg(self.path(&format!("{name}.cc")));
        child::run(cxx.arg("-o").arg(&object), &format!("c++ {name}.cc"))?;
        Ok(object)
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        for dir in [&self.dir, &self.window_dir] {
            // In `drop`, an error cannot be reported.
            let _ = fs::remove_dir_all(dir);
        }
    }
}

/// Removes the leftovers of runs that were killed together with their cleanup shells. Leftovers are
/// folders, not links, that have the bench's form of name, belong to this user, and name a process
/// that has ended. A process of another container is invisible here; the lock on the folder shows
/// that it is alive.
pub fn remove_leftovers() {
    for base in [std::env::temp_dir(), PathBuf::from(SHARED_MEMORY)] {
        let Ok(entries) = fs::read_dir(base) else { continue };
        for entry in entries.filter_map(|entry| entry.ok()) {
            if is_leftover_folder(&entry) {
                // Folders of other users cannot be removed, and need not be.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

fn is_leftover_folder(entry: &fs::DirEntry) -> bool {
    let name = entry.file_name();
    let Some(pid) = name.to_str().and_then(parse_maker_pid) else { return false };
    // The entry itself is checked: the target of a link may belong to another user.
    let is_ours = entry.metadata().is_ok_and(|it| it.is_dir() && it.uid() == own_user());
    is_ours
        && !Path::new(&format!("/proc/{pid}")).exists()
        && File::open(entry.path()).is_ok_and(|folder| folder.try_lock().is_ok())
}

/// Returns the id of the process that made a folder of this name, if the name has the bench's form.
/// Names of earlier versions have no random number.
fn parse_maker_pid(name: &str) -> Option<u32> {
    let name = name.strip_prefix(FOLDER_PREFIX)?;
    let name = name.strip_suffix(WINDOW_SUFFIX).unwrap_or(name);
    let (pid, random) = name.split_once('-').unwrap_or((name, "0"));
    u64::from_str_radix(random, 16).ok()?;
    pid.parse().ok()
}

/// Returns the effective user id.
fn own_user() -> u32 {
    // SAFETY: geteuid has no preconditions.
    unsafe { libc::geteuid() }
}

/// Makes a new folder in `base`, which all users may write to. The folder is locked until this
/// process ends.
fn create_locked_folder(base: &Path, suffix: &str, locks: &mut Vec<File>) -> Result<PathBuf> {
    let what = || format!("cannot make a folder in {}", base.display());
    let mut bytes = [0; 8];
    let random = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    random.map_err(Error::io("cannot read /dev/urandom"))?;
    let (pid, random) = (std::process::id(), u64::from_ne_bytes(bytes));
    let path = base.join(format!("{FOLDER_PREFIX}{pid}-{random:016x}{suffix}"));
    // Only the last folder is created: mkdir(2) rejects an existing name, also a link.
    fs::DirBuilder::new().mode(0o700).create(&path).map_err(Error::io(what()))?;
    let folder = File::open(&path).map_err(Error::io(what()))?;
    // Without locks, only process ids show which runs are alive.
    let _ = folder.try_lock();
    locks.push(folder);
    Ok(path)
}

/// Makes a folder that only this user can enter, within an existing one that no other user can
/// enter; an existing folder of this user is accepted.
pub fn create_private_dir(path: &Path) -> Result<()> {
    let is_ours = || {
        // The entry itself is checked: the target of a link may belong to another user.
        fs::symlink_metadata(path).is_ok_and(|it| it.is_dir() && it.uid() == own_user())
    };
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && is_ours() => Ok(()),
        made => made.map_err(Error::io(format!("cannot make {path:?}"))),
    }
}

/// Returns true if a program is installed.
pub fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_killed_runs_left_is_swept_away_and_nothing_else() {
        let base = std::env::temp_dir();
        let own = std::process::id();
        // No process id is as large: PID_MAX_LIMIT is 2^22.
        let left = base.join(format!("trackway-lab-4200000-{own:016x}"));
        let linked = base.join(format!("trackway-lab-4200001-{own:016x}"));
        let locked = base.join(format!("trackway-lab-4200002-{own:016x}"));
        let ours = base.join(format!("trackway-lab-{own}-0"));
        let other = base.join(format!("trackway-lab-kept-{own}"));
        for folder in [&left, &locked, &ours, &other] {
            fs::create_dir_all(folder).expect("a folder");
            fs::write(folder.join("file"), "x").expect("a file");
        }
        std::os::unix::fs::symlink(&other, &linked).expect("a link");
        let lock = File::open(&locked).expect("it");
        lock.try_lock().expect("a lock");
        remove_leftovers();
        assert!(!left.exists() && ours.exists() && linked.exists() && locked.exists());
        assert!(other.join("file").exists());
        drop(lock);
        remove_leftovers();
        assert!(!locked.exists());
        fs::remove_file(linked).expect("removed");
        for folder in [&ours, &other] {
            fs::remove_dir_all(folder).expect("removed");
        }
    }

    #[test]
    fn folders_are_new_and_for_nobody_else_and_go() {
        let places = [(); 2].map(|()| {
            Workspace::new(BuildTools::without_parts("it".into()), &[]).expect("a place")
        });
        let folders = places.each_ref().map(|workspace| workspace.path(""));
        assert_ne!(folders[0], folders[1]);
        for folder in &folders {
            let about = fs::symlink_metadata(folder).expect("a folder");
            assert!(about.is_dir());
            assert_eq!((about.uid(), about.mode() & 0o777), (own_user(), 0o700));
            let name = folder.file_name().and_then(|name| name.to_str()).expect("a name");
            assert_eq!(parse_maker_pid(name), Some(std::process::id()));
        }
        drop(places);
        assert!(!folders[0].exists() && !folders[1].exists());
        for name in ["trackway-lab-", "trackway-lab-7-x", "trackway-lab-x-7", "trackway-lab-7-8-9"]
        {
            assert_eq!(parse_maker_pid(name), None, "{name}");
        }
    }

    #[test]
    fn folders_are_made_in_those_that_are_there_and_behind_no_link() {
        let workspace =
            Workspace::new(BuildTools::without_parts("it".into()), &[]).expect("a place");
        let folder = workspace.path("one");
        for _ in 0..2 {
            create_private_dir(&folder).expect("one");
        }
        let mode = fs::symlink_metadata(&folder).expect("a folder").mode() & 0o777;
        assert_eq!(mode, 0o700);
        create_private_dir(&workspace.path("none/one")).expect_err("nobody asked for its parent");
        std::os::unix::fs::symlink(&folder, workspace.path("link")).expect("a link");
        std::fs::write(workspace.path("file"), "").expect("a file");
        for name in ["link", "file"] {
            create_private_dir(&workspace.path(name)).expect_err(name);
        }
    }

    #[test]
    fn the_kit_is_found_in_a_checkout_and_below_a_prefix() {
        let root = std::env::temp_dir().join(format!("trackway-lab-tools-{}", std::process::id()));
        for dir in ["include/trackway", "target/release", "bin", "lib", "crates/rust"] {
            fs::create_dir_all(root.join(dir)).expect("a folder");
        }
        let files = [
            "include/trackway/trackway.h",
            "target/release/libtrackway.so",
            "crates/rust/Cargo.toml",
        ];
        for file in files {
            fs::write(root.join(file), "").expect("a file");
        }
        let checkout = BuildTools::of(root.join("target/release/trackway"));
        assert_eq!(checkout.include, Some(root.join("target/release/../../include")));
        assert_eq!(checkout.library, Some(root.join("target/release/libtrackway.so")));
        assert_eq!(checkout.rust_crate, Some(root.join("target/release/../../crates/rust")));
        let prefix = BuildTools::of(root.join("bin/trackway"));
        assert_eq!(prefix.rust_crate, None);
        assert_eq!((prefix.include.is_some(), prefix.library), (true, None));
        fs::remove_dir_all(root).expect("removed");
    }
}
