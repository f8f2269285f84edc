//! The traced command: finding it, starting it with the library, and its end.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};

use trackway_sys::signal::{self, SignalReader, SignalSet};

use crate::elf;
use crate::error::RecordError;

/// Name, in messages, of the library that every traced program loads.
const LIBRARY_NAME: &str = "libtrackway.so";
/// File names of the library, the SONAME first. `libtrackway.so` is a linker script in an
/// installation, and the library itself in cargo's build folder.
const LIBRARY_FILES: [&str; 2] = ["libtrackway.so.1", "libtrackway.so"];
/// Folders of libraries, relative to the folder of this program.
const LIBRARY_FOLDERS: [[&str; 2]; 4] =
    [[".", ""], ["../lib", ""], ["../lib", elf::MULTIARCH], ["../lib64", ""]];
/// Environment variable with the tokens that a process holds.
const TOKEN_VARIABLE: &str = "TRACKWAY_TOKEN";
const PRELOAD_VARIABLE: &str = "LD_PRELOAD";

/// The last function that the command's process calls before exec; it must obey the limits for a
/// child of fork(2).
pub(crate) type PreExecHook = Box<dyn Fn() -> io::Result<()> + Send + Sync>;

/// Bit that marks errors of a [`PreExecHook`]: a failed start reports only an error number.
const FROM_PRE_EXEC_HOOK: i32 = 1 << 16;

/// A command to run, with the path of its program.
#[derive(Debug)]
pub(crate) struct Executable {
    /// Path of the program's file.
    pub(crate) file: PathBuf,
    words: Vec<OsString>,
    /// Environment variables of the command that differ from the recorder's environment.
    pub(crate) environment: Vec<(&'static str, OsString)>,
}

impl Executable {
    /// Finds the command's program like execvp(3).
    pub(crate) fn find(words: &[OsString]) -> Result<Self, RecordError> {
        let name = words.first().map(OsString::as_os_str).unwrap_or_default();
        let file = find_program(name)?;
        Ok(Self { file, words: words.to_vec(), environment: Vec::new() })
    }

    /// Returns the environment variables that enable tracing: the token, and the libraries to
    /// preload. A sanitizer's library must precede them.
    fn tracing_environment(
        &self,
        token: u64,
        libraries: &[PathBuf],
    ) -> [(&'static str, OsString); 2] {
        let mut preload = join_library_paths(libraries);
        if let Some(sanitizer) = elf::needed_sanitizer(&self.file) {
            let value = std::mem::replace(&mut preload, sanitizer.into());
            preload.push(":");
            preload.push(value);
        }
        let token = OsString::from(format!("{token:x}"));
        [
            (TOKEN_VARIABLE, join_variable(TOKEN_VARIABLE, false, token)),
            (PRELOAD_VARIABLE, join_variable(PRELOAD_VARIABLE, true, preload)),
        ]
    }

    /// Starts the command with the inherited state restored. Without libraries the command is not
    /// traced.
    pub(crate) fn start(
        &self,
        token: u64,
        libraries: Option<&[PathBuf]>,
        inherited: InheritedState,
        pre_exec_hook: Option<PreExecHook>,
    ) -> Result<Child, RecordError> {
        // The path avoids a second search, whose system calls would be recorded.
        let mut command = Command::new(&self.file);
        command
            .arg0(&self.words[0])
            .args(&self.words[1..])
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .envs(libraries.into_iter().flat_map(|some| self.tracing_environment(token, some)));
        let InheritedState { signals, ignores_size_limit, files_limit } = inherited;
        // SAFETY: between fork and exec only pthread_sigmask, signal and setrlimit are called,
        // which are async-signal-safe, or a system call and no more; and the hook, which writes to
        // shared memory or to files.
        unsafe {
            command.pre_exec(move || {
                signals.make_current();
                if !ignores_size_limit {
                    signal::restore_size_limit();
                }
                if let Some(limit) = files_limit {
                    let _ = trackway_sys::process::set_descriptor_limit(limit);
                }
                // The hook is called last, so that none of the recorder's own calls is recorded.
                let entered = pre_exec_hook.as_ref().map_or(Ok(()), |enter| enter());
                entered.map_err(|error| {
                    let code = error.raw_os_error().unwrap_or(libc::EIO);
                    io::Error::from_raw_os_error(FROM_PRE_EXEC_HOOK | code)
                })
            });
        }
        command.spawn().map_err(|error| match (error.kind(), error.raw_os_error()) {
            (_, Some(code)) if code & FROM_PRE_EXEC_HOOK != 0 => {
                let why = trackway_sys::Errno(code & !FROM_PRE_EXEC_HOOK);
                RecordError::Kernel(format!("cannot record the command: {why}"), None)
            }
            (io::ErrorKind::NotFound, _) => RecordError::CommandNotFound(self.file.clone()),
            // These errors are a lack of resources before exec, not a fault of the command.
            (_, Some(libc::EMFILE | libc::ENFILE | libc::EAGAIN)) => {
                RecordError::io("start", &self.file)(error)
            }
            _ => RecordError::CommandNotExecutable(self.file.clone(), error.into()),
        })
    }
}

/// The end of the traced command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandEnd {
    /// The command exited with this status.
    Exited(u8),
    /// This signal ended the command.
    Killed(i32),
}

/// State that the command inherits, from before the recorder changed its own state.
#[derive(Clone, Copy)]
pub(crate) struct InheritedState {
    /// Signal mask before the change.
    pub(crate) signals: SignalSet,
    /// True if SIGXFSZ was ignored.
    pub(crate) ignores_size_limit: bool,
    /// Limit on open files before the recorder raised it; `None` if unchanged.
    pub(crate) files_limit: Option<u64>,
}

/// A signal that the recorder received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ForwardedSignal {
    signal: i32,
    /// True if the kernel sent the signal (a key on the terminal, a hangup), false if a process
    /// did.
    by_kernel: bool,
}

impl ForwardedSignal {
    /// Returns the signals that users send to started programs, and that would end the recorder.
    pub(crate) fn all() -> SignalSet {
        let named = [
            libc::SIGINT,
            libc::SIGQUIT,
            libc::SIGTERM,
            libc::SIGHUP,
            libc::SIGUSR1,
            libc::SIGUSR2,
            libc::SIGALRM,
        ];
        let all: Vec<i32> = named.into_iter().chain(libc::SIGRTMIN()..=libc::SIGRTMAX()).collect();
        SignalSet::of(&all)
    }

    /// Returns the next pending signal.
    pub(crate) fn next(reader: &SignalReader) -> Option<Self> {
        reader.next().map(|(signal, by_kernel)| Self { signal, by_kernel })
    }

    /// Returns the signal to send to the command; `None` for a signal of a key, which the terminal
    /// has already sent to the command.
    pub(crate) const fn forwarded(self) -> Option<i32> {
        if self.is_key() { None } else { Some(self.signal) }
    }

    /// Makes a received signal, sent by the kernel (for example, the terminal) or by a process.
    #[cfg(test)]
    pub(crate) const fn new(signal: i32, by_kernel: bool) -> Self {
        Self { signal, by_kernel }
    }

    pub(crate) const fn signal(self) -> i32 {
        self.signal
    }

    /// Returns the signal's name, as in kill(1).
    pub(crate) const fn name_of(signal: i32) -> &'static str {
        match signal {
            libc::SIGINT => "SIGINT",
            libc::SIGQUIT => "SIGQUIT",
            libc::SIGTERM => "SIGTERM",
            libc::SIGHUP => "SIGHUP",
            _ => "a signal",
        }
    }

    /// Returns true if a key on the terminal sent the signal, also to the command.
    pub(crate) const fn is_key(self) -> bool {
        self.by_kernel && matches!(self.signal, libc::SIGINT | libc::SIGQUIT)
    }

    /// Returns true if a process requests the end of the recording with the signal.
    pub(crate) const fn requests_end(self) -> bool {
        !self.by_kernel && matches!(self.signal, libc::SIGINT | libc::SIGTERM)
    }

    /// Returns true if the signal ends the recording after an earlier signal requested its end.
    pub(crate) const fn confirms_end(self) -> bool {
        self.ends_programs() && !self.is_key()
    }

    /// Returns true if the signal interrupts the final writing of a trace.
    pub(crate) fn interrupts(self) -> bool {
        self.ends_programs() && !signal::is_ignored(self.signal)
    }

    const fn ends_programs(self) -> bool {
        matches!(self.signal, libc::SIGINT | libc::SIGQUIT | libc::SIGTERM | libc::SIGHUP)
    }
}

/// Returns the value of environment variable `variable` with `value` added, in front or at the end.
fn join_variable(variable: &str, in_front: bool, value: OsString) -> OsString {
    let Some(theirs) = std::env::var_os(variable).filter(|value| !value.is_empty()) else {
        return value;
    };
    let (mut first, second) = if in_front { (value, theirs) } else { (theirs, value) };
    first.push(":");
    first.push(second);
    first
}

fn join_library_paths(libraries: &[PathBuf]) -> OsString {
    libraries.iter().map(|path| path.as_os_str()).collect::<Vec<_>>().join(OsStr::new(":"))
}

fn find_program(name: &OsStr) -> Result<PathBuf, RecordError> {
    let not_found = || RecordError::CommandNotFound(PathBuf::from(name));
    if name.is_empty() {
        return Err(not_found());
    }
    if name.as_encoded_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return match path.metadata() {
            Ok(status) if is_executable(&status) => Ok(path),
            Ok(_) => {
                let denied = io::Error::from_raw_os_error(libc::EACCES);
                Err(RecordError::CommandNotExecutable(path, denied.into()))
            }
            Err(_) => Err(not_found()),
        };
    }
    let folders = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let mut denied = None;
    for folder in std::env::split_paths(&folders) {
        let path = folder.join(name);
        match path.metadata() {
            Ok(status) if is_executable(&status) => return Ok(path),
            Ok(_) => denied = denied.or(Some(path)),
            Err(_) => {}
        }
    }
    Err(match denied {
        Some(path) => RecordError::CommandNotExecutable(
            path,
            io::Error::from_raw_os_error(libc::EACCES).into(),
        ),
        None => not_found(),
    })
}

fn is_executable(status: &std::fs::Metadata) -> bool {
    status.is_file() && status.permissions().mode() & 0o111 != 0
}

/// Returns the paths of these preload helpers and of libtrackway.so, beside this program.
///
/// libtrackway.so is last: so the helpers' functions precede those that it wraps itself (vfork,
/// clone), and its constructor runs before theirs, which may record.
pub(crate) fn find_preload_libraries(
    helpers: &[&'static str],
) -> Result<Vec<PathBuf>, RecordError> {
    let program = std::env::current_exe().map_err(RecordError::io("find", "/proc/self/exe"))?;
    let folder = program.parent().unwrap_or(Path::new("/"));
    helpers
        .iter()
        .copied()
        .chain(std::iter::once(LIBRARY_NAME))
        .map(|name| {
            let path = find_library(folder, name).ok_or(RecordError::LibraryMissing(name))?;
            let bytes = path.as_os_str().as_encoded_bytes();
            if bytes.iter().any(|byte| byte.is_ascii_whitespace() || *byte == b':') {
                return Err(RecordError::LibraryPath(path));
            }
            Ok(path)
        })
        .collect()
}

/// Returns a shell's exit status for a command that this signal ended.
pub(crate) fn status_of_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// Finds the ELF file of the library `name` in the library folders, relative to `folder`.
fn find_library(folder: &Path, name: &'static str) -> Option<PathBuf> {
    let files = if name == LIBRARY_NAME { &LIBRARY_FILES[..] } else { &[name] };
    LIBRARY_FOLDERS
        .iter()
        .map(|[place, within]| folder.join(place).join(within))
        .flat_map(|folder| files.iter().map(move |file| folder.join(file)))
        .filter_map(|path| path.canonicalize().ok())
        .find(|path| is_elf(path))
}

/// Returns true if the dynamic loader can load this file; linker scripts may have a library's name,
/// too.
fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    read.is_ok() && magic == object::elf::ELFMAG
}

/// Converts a process's exit status.
pub(crate) fn command_end_from(status: ExitStatus) -> CommandEnd {
    match (status.code(), status.signal()) {
        (Some(code), _) => CommandEnd::Exited(code as u8),
        (None, Some(signal)) => CommandEnd::Killed(signal),
        (None, None) => CommandEnd::Exited(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linker_script_is_never_preloaded() {
        let root = trackway_testkit::TemporaryFolder::new_in(&std::env::temp_dir());
        let (bin, lib) = (root.path().join("bin"), root.path().join("lib"));
        for folder in [&bin, &lib] {
            std::fs::create_dir(folder).unwrap();
        }
        let write = |file: &str, text: &[u8]| std::fs::write(lib.join(file), text).unwrap();
        let found =
            || find_library(&bin, LIBRARY_NAME).map(|path| path.file_name().unwrap().to_owned());
        write("libtrackway.so", b"INPUT(trackway-link.o libtrackway.so.1)\n");
        assert_eq!(found(), None, "the script alone");
        write("libtrackway.so.1", b"\x7fELF of the library");
        assert_eq!(found().unwrap(), "libtrackway.so.1");
        std::fs::remove_file(lib.join("libtrackway.so.1")).unwrap();
        write("libtrackway.so", b"\x7fELF of the library");
        assert_eq!(found().unwrap(), "libtrackway.so", "as cargo builds it");
    }

    #[test]
    fn commands_are_found_as_the_shell_finds_them() {
        assert!(find_program(OsStr::new("sh")).is_ok());
        assert!(find_program(OsStr::new("/bin/sh")).is_ok());
        for name in ["", "no-such-command-anywhere", "/no/such/command"] {
            let error = find_program(OsStr::new(name)).unwrap_err();
            assert_eq!(error.exit_status(), 127, "{name}");
        }
        for name in ["/etc/passwd", "/etc"] {
            assert_eq!(find_program(OsStr::new(name)).unwrap_err().exit_status(), 126, "{name}");
        }
    }
}
