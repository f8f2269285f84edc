//! Programs that tests compile: once in each test process, for all of its tests. Otherwise some
//! test programs spend half of their time in the compiler.
//!
//! The programs are stored as bytes, so that no file must be removed at the end.

use std::collections::HashMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};

/// Input of a compilation, without the parts that are constant while tests run: headers and
/// libraries of the checkout, and compilers.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct CompilationInput {
    pub(crate) compiler: String,
    /// Name of the source file, which determines the language and the value of `__FILE__`.
    pub(crate) file: String,
    pub(crate) text: String,
    pub(crate) is_linked: bool,
    pub(crate) flags: Vec<String>,
}

/// Compiled programs. A test waits for a program that another test is compiling.
type CompiledPrograms = HashMap<CompilationInput, Arc<OnceLock<Vec<u8>>>>;

impl CompilationInput {
    /// Writes the program to `path`: the first time by `compile`, later from the stored bytes.
    pub(crate) fn put(self, path: &Path, compile: impl FnOnce()) {
        static PROGRAMS: OnceLock<Mutex<CompiledPrograms>> = OnceLock::new();
        let programs = PROGRAMS.get_or_init(Mutex::default);
        // A test that fails while it compiles does not hold this lock.
        let program =
            Arc::clone(programs.lock().expect("nothing fails in it").entry(self).or_default());
        let mut is_first = false;
        let bytes = program.get_or_init(|| {
            is_first = true;
            compile();
            fs::read(path).expect("what was compiled")
        });
        if !is_first {
            write_program(path, bytes);
        }
    }
}

/// Writes a program that a test will run. Another process does the writing: a child that another
/// thread forks would keep the file open for writing until its exec, and every other exec of the
/// file would fail meanwhile (ETXTBSY).
fn write_program(path: &Path, bytes: &[u8]) {
    let script = r#"rm -f "$0" && cat >"$0" && chmod 755 "$0""#;
    let mut child = Command::new("sh")
        .args(["-c", script])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("sh runs");
    child.stdin.take().expect("a pipe").write_all(bytes).expect("it is read");
    assert!(child.wait().expect("its end").success(), "{}", path.display());
}

#[cfg(test)]
mod tests {
    use trackway_testkit::TemporaryFolder;

    use super::*;

    fn input_of_text(text: &str) -> CompilationInput {
        let [compiler, file, text] = ["none", "a.c", text].map(str::to_owned);
        CompilationInput { compiler, file, text, is_linked: false, flags: Vec::new() }
    }

    #[test]
    fn the_same_is_compiled_once_and_another_by_itself() {
        let folder = TemporaryFolder::new();
        let run = |name: &str, text: &str| {
            let (path, mut is_compiled) = (folder.join(name), false);
            input_of_text(text).put(&path, || {
                is_compiled = true;
                write_program(&path, format!("#!/bin/sh\necho {text}").as_bytes());
            });
            let output = Command::new(&path).output().expect("it runs");
            (is_compiled, String::from_utf8(output.stdout).expect("a text"))
        };
        assert_eq!(run("one", "first"), (true, "first\n".into()));
        assert_eq!(run("two", "first"), (false, "first\n".into()));
        assert_eq!(run("three", "second"), (true, "second\n".into()));
    }
}
