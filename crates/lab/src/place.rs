//! Where the lab works: a scratch folder, the header and library beside our executable, the
//! compiler. All that is made here is removed when it goes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::child;
use crate::error::{Error, Result};
use crate::workload::SOURCES;

/// Folder of memory-backed files.
const SHARED_MEMORY: &str = "/dev/shm";

/// Trackway's own parts, found from where its executable is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kit {
    /// The executable.
    pub(crate) trackway: PathBuf,
    /// Folder with trackway/trackway.h, if there is one.
    pub(crate) include: Option<PathBuf>,
    /// libtrackway.so, if there is one.
    pub(crate) library: Option<PathBuf>,
    /// Folder of the Rust crate's sources: in a checkout.
    pub(crate) rust_crate: Option<PathBuf>,
}

impl Kit {
    /// Of the executable `trackway`: in a checkout (target/release) or below a PREFIX (bin).
    pub(crate) fn of(trackway: PathBuf) -> Self {
        let folder = trackway.parent().unwrap_or(Path::new("/")).to_owned();
        let includes = [folder.join("../include"), folder.join("../../include")];
        let architecture = std::env::consts::ARCH;
        let libraries = [
            folder.join("libtrackway.so"),
            folder.join("../lib/libtrackway.so"),
            folder.join(format!("../lib/{architecture}-linux-gnu/libtrackway.so")),
            folder.join("../lib64/libtrackway.so"),
        ];
        let include = includes.into_iter().find(|path| path.join("trackway/trackway.h").is_file());
        let library = libraries.into_iter().find(|path| path.is_file());
        let rust_crate = Some(folder.join("../../crates/rust"));
        let rust_crate = rust_crate.filter(|path| path.join("Cargo.toml").is_file());
        Self { trackway, include, library, rust_crate }
    }
}

/// The lab's place while it works.
#[derive(Debug)]
pub(crate) struct Place {
    /// Trackway's parts.
    pub(crate) kit: Kit,
    /// Scratch folder.
    dir: PathBuf,
    /// Folder of a Trackway window that only the lab uses.
    window_dir: PathBuf,
}

impl Place {
    /// A new place, with the workloads' sources in it.
    pub(crate) fn new(kit: Kit) -> Result<Self> {
        let unique = format!("trackway-lab-{}", std::process::id());
        let shared = Path::new(SHARED_MEMORY);
        let base = std::env::temp_dir();
        let window_base = if shared.is_dir() { shared } else { &base };
        let window_dir = window_base.join(format!("{unique}-window"));
        let place = Self { kit, dir: base.join(unique), window_dir };
        for dir in [&place.dir, &place.window_dir] {
            make_dir(dir)?;
        }
        for source in &SOURCES {
            let path = place.path(source.name);
            fs::write(&path, source.text).map_err(Error::io(format!("cannot write {path:?}")))?;
        }
        Ok(place)
    }

    /// A place with nothing in it but a name for the executable.
    #[cfg(test)]
    pub(crate) fn at(trackway: PathBuf) -> Self {
        let kit = Kit { trackway, include: None, library: None, rust_crate: None };
        Self { kit, dir: PathBuf::new(), window_dir: PathBuf::new() }
    }

    /// A path in the scratch folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The window's folder.
    pub(crate) fn window_dir(&self) -> &Path {
        &self.window_dir
    }

    /// Removes what is at `name` in the scratch folder, if anything is.
    pub(crate) fn clear(&self, name: &str) {
        // What is not there needs no removing; what cannot be removed goes with the folder.
        let _ = fs::remove_dir_all(self.path(name));
    }

    /// Compiles `NAME.c` of the workloads to `NAME`, unless that was done.
    pub(crate) fn compile(&self, name: &str, flags: &[&str]) -> Result<PathBuf> {
        self.compile_as(name, name, flags)
    }

    /// Compiles `NAME.c` of the workloads to `PROGRAM`, unless that was done.
    pub(crate) fn compile_as(&self, name: &str, program: &str, flags: &[&str]) -> Result<PathBuf> {
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
    pub(crate) fn compile_cxx(&self, name: &str, flag: &str) -> Result<PathBuf> {
        let object = self.path(&format!("{name}.o"));
        let mut cxx = Command::new("c++");
        cxx.args(["-O2", "-std=c++17", "-c", flag]).arg(self.path(&format!("{name}.cc")));
        child::run(cxx.arg("-o").arg(&object), &format!("c++ {name}.cc"))?;
        Ok(object)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for dir in [&self.dir, &self.window_dir] {
            // There is nobody left to be told.
            let _ = fs::remove_dir_all(dir);
        }
    }
}

/// Removes what runs left behind that were killed, and whose guardians were, too: folders that have
/// our form of name, are this user's, and of a process that is gone.
pub(crate) fn sweep() {
    for base in [std::env::temp_dir(), PathBuf::from(SHARED_MEMORY)] {
        let Ok(entries) = fs::read_dir(base) else { continue };
        for entry in entries.filter_map(|entry| entry.ok()) {
            if is_left(&entry) {
                // What is not ours cannot be removed, and need not be.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

fn is_left(entry: &fs::DirEntry) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let name = entry.file_name();
    let pid = name.to_str().and_then(|name| name.strip_prefix("trackway-lab-"));
    let pid = pid.map(|name| name.strip_suffix("-window").unwrap_or(name));
    let Some(pid) = pid.and_then(|pid| pid.parse::<u32>().ok()) else { return false };
    // SAFETY: geteuid has no preconditions.
    let us = unsafe { libc::geteuid() };
    let is_ours = entry.metadata().is_ok_and(|it| it.is_dir() && it.uid() == us);
    is_ours && !Path::new(&format!("/proc/{pid}")).exists()
}

/// Makes a folder that only this user can enter.
pub(crate) fn make_dir(path: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(Error::io(format!("cannot make {path:?}")))
}

/// Whether a program is installed.
pub(crate) fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_killed_runs_left_is_swept_away_and_nothing_else() {
        let temp = std::env::temp_dir();
        // No process has so great a number: PID_MAX_LIMIT is 2^22.
        let left = temp.join("trackway-lab-4200000");
        let ours = temp.join(format!("trackway-lab-{}", std::process::id()));
        let other = temp.join(format!("trackway-lab-kept-{}", std::process::id()));
        for folder in [&left, &ours, &other] {
            fs::create_dir_all(folder).expect("a folder");
        }
        fs::write(left.join("file"), "x").expect("a file");
        sweep();
        assert!(!left.exists() && ours.exists() && other.exists());
        for folder in [&ours, &other] {
            fs::remove_dir_all(folder).expect("removed");
        }
    }

    #[test]
    fn the_kit_is_found_in_a_checkout_and_below_a_prefix() {
        let root = std::env::temp_dir().join(format!("trackway-lab-kit-{}", std::process::id()));
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
        let checkout = Kit::of(root.join("target/release/trackway"));
        assert_eq!(checkout.include, Some(root.join("target/release/../../include")));
        assert_eq!(checkout.library, Some(root.join("target/release/libtrackway.so")));
        assert_eq!(checkout.rust_crate, Some(root.join("target/release/../../crates/rust")));
        let prefix = Kit::of(root.join("bin/trackway"));
        assert_eq!(prefix.rust_crate, None);
        assert_eq!((prefix.include.is_some(), prefix.library), (true, None));
        fs::remove_dir_all(root).expect("removed");
    }
}
