//! The questions in C: compiled by the installed compiler, and loaded.

use std::ffi::{CString, c_void};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::child;
use trackway_bench_engine::host::workspace::{Workspace, has};

use super::questions::{Question, c_source};

/// A question in C: its arguments are the slots, and the bytes that words in the slots refer to.
pub(super) type Function = unsafe extern "C" fn(slots: *const u64, bytes: *const u8) -> u64;

/// Compilers in order of preference.
const COMPILERS: [&str; 2] = ["clang", "cc"];
/// Compiler flags of the C functions.
const COMPILER_FLAGS: [&str; 4] = ["-std=gnu11", "-O2", "-fPIC", "-shared"];

/// A library of questions. It stays loaded until the process ends: it is small, and so its
/// functions need no lifetime.
pub(super) struct CLibrary {
    handle: *mut c_void,
}

/// Returns the available compiler.
pub(super) fn find_compiler() -> Option<&'static str> {
    COMPILERS.into_iter().find(|name| has(name))
}

impl CLibrary {
    /// Compiles these questions.
    pub(super) fn new(
        compiler: &str,
        workspace: &Workspace,
        questions: &[Question],
    ) -> Result<Self> {
        let (source, library) = (workspace.path("filters.c"), workspace.path("filters.so"));
        fs::write(&source, c_source(questions))
            .map_err(Error::io(format!("cannot write {source:?}")))?;
        let mut command = Command::new(compiler);
        command.args(COMPILER_FLAGS).arg(&source).arg("-o").arg(&library);
        child::run(&mut command, &format!("{compiler} filters.c"))?;
        Ok(Self { handle: load_library(&library)? })
    }

    /// Returns the function of a question.
    pub(super) fn function(&self, question: Question) -> Result<Function> {
        let name = question.c_name();
        let missing = || Error::output("filters.so", format!("it has no function {name}"));
        let symbol = CString::new(name.as_str()).map_err(|_| missing())?;
        // SAFETY: the library was loaded and is never closed.
        let address = unsafe { libc::dlsym(self.handle, symbol.as_ptr()) };
        if address.is_null() {
            return Err(missing());
        }
        // SAFETY: the symbol is one of the functions that `c_source` declares so.
        Ok(unsafe { std::mem::transmute::<*mut c_void, Function>(address) })
    }
}

fn load_library(library: &Path) -> Result<*mut c_void> {
    let failed = || Error::output("filters.so", "it cannot be loaded");
    let path = CString::new(library.as_os_str().as_bytes()).map_err(|_| failed())?;
    // SAFETY: the library was made here, and has no constructors.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() { Err(failed()) } else { Ok(handle) }
}
