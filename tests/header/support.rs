//! Helpers of the tests of headers: compilers with the flags of users, and the programs that they
//! build.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fs, thread};

use trackway_tests::{Fixture, has, lossy_text, report_skipped, source_dir};

const STRICT_FLAGS: [&str; 4] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];

pub(crate) fn source_path(name: &str) -> PathBuf {
    source_dir().join("tests/header").join(name)
}

/// Returns the installed compilers; prints the missing ones.
pub(crate) fn installed_compilers(compilers: &'static [&'static str]) -> Vec<&'static str> {
    let (here, missing): (Vec<&str>, Vec<&str>) =
        compilers.iter().copied().partition(|name| has(name));
    for name in missing {
        report_skipped(format!("{name} is not installed"));
    }
    here
}

/// Returns true if a compiler accepts these flags, by compiling an empty program.
pub(crate) fn accepts_flags(fixture: &Fixture, compiler: &str, flags: &[&str]) -> bool {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let name = format!("empty{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    let file = fixture.path(&format!("{name}.c"));
    fs::write(&file, "int main(void) { return 0; }\n").expect("a source");
    let language = if compiler.ends_with("++") { "c++" } else { "c" };
    let mut command = Command::new(compiler);
    command.args(flags).args(["-x", language]).arg(&file).arg("-o").arg(fixture.path(&name));
    let taken = command.output().expect("the compiler runs").status.success();
    if !taken {
        report_skipped(format!("{compiler} does not take {}", flags.join(" ")));
    }
    taken
}

/// Runs a compiler with the header's folder; `flags` may contain sources' names.
pub(crate) fn run_compiler(
    compiler: &str,
    flags: &[&str],
    sources: &[&str],
    result: &Path,
) -> Output {
    let mut command = Command::new(compiler);
    command.args(STRICT_FLAGS).arg("-I").arg(source_dir().join("include"));
    command.arg("-I").arg(source_dir().join("tests/header")).args(flags);
    command.args(sources.iter().map(|name| source_path(name))).arg("-o").arg(result);
    command.output().expect("the compiler runs")
}

/// Compiles a program, or fails the test with the compiler's messages.
pub(crate) fn build_program(
    fixture: &Fixture,
    compiler: &str,
    flags: &[&str],
    sources: &[&str],
    name: &str,
) -> PathBuf {
    let result = fixture.path(name);
    let output = run_compiler(compiler, flags, sources, &result);
    let what = format!("{compiler} {} {}", flags.join(" "), sources.join(" "));
    assert!(output.status.success(), "{what}\n{}", lossy_text(&output.stderr));
    result
}

/// Runs a program, which must succeed; returns its standard output.
pub(crate) fn run_program(fixture: &Fixture, program: &Path, arguments: &[&Path]) -> String {
    let output = fixture.command(program).args(arguments).output().expect("the program runs");
    let result = lossy_text(&output.stdout);
    assert!(
        output.status.success(),
        "{}: {result}{}",
        program.display(),
        lossy_text(&output.stderr)
    );
    result
}

/// Runs all jobs, a few at a time.
pub(crate) fn run_in_parallel<Job: Sync>(jobs: &[Job], work: impl Fn(usize, &Job) + Sync) {
    let next = AtomicUsize::new(0);
    let workers = thread::available_parallelism().map_or(2, usize::from).min(4);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some((index, job)) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    jobs.get(index).map(|job| (index, job))
                } {
                    work(index, job);
                }
            });
        }
    });
}

/// Returns the instructions of a function, without addresses.
pub(crate) fn instructions_of(listing: &str, function: &str) -> Vec<String> {
    let head = format!("<{function}>:");
    let body = listing.lines().skip_while(|line| !line.contains(&head)).skip(1);
    let body = body.take_while(|line| !line.trim().is_empty());
    body.filter_map(|line| line.split_once('\t').map(|(_, code)| code.trim().to_owned())).collect()
}

/// Returns every compiler with every standard that it supports: (compiler, "-std=…", language).
pub(crate) fn supported_dialects(
    fixture: &Fixture,
) -> Vec<(&'static str, &'static str, &'static str)> {
    let mut all = Vec::new();
    for compiler in installed_compilers(&["gcc", "clang"]) {
        for standard in ["-std=c11", "-std=c17", "-std=c2x"] {
            all.push((compiler, standard, "c"));
        }
    }
    for compiler in installed_compilers(&["g++", "clang++"]) {
        for standard in ["-std=c++11", "-std=c++14", "-std=c++17", "-std=c++20"] {
            all.push((compiler, standard, "c++"));
        }
    }
    all.retain(|(compiler, standard, _)| accepts_flags(fixture, compiler, &[standard]));
    all
}

/// Compiles each example in the folder `examples` in each language, (compilers, flags), with and
/// without tracing. The compiler must refuse all examples, with the words that the example expects.
pub(crate) fn check_misuse_refused(
    fixture: &Fixture,
    examples: &str,
    languages: &[(&'static [&'static str], &[&'static str])],
) {
    let mut jobs = Vec::new();
    let mut files: Vec<_> =
        fs::read_dir(source_path(examples)).expect("a folder").flatten().collect();
    files.sort_by_key(|entry| entry.file_name());
    assert!(files.len() > 10, "the misuse examples were not found");
    for entry in files {
        let name = format!("{examples}/{}", entry.file_name().to_string_lossy());
        let example = fs::read_to_string(entry.path()).expect("a source");
        // With tracing compiled out, arguments are still checked.
        let off = !example.contains("// ONLY WITH TRACING ON");
        for mode in [&[][..], &["-DTRACKWAY_DISABLE"]].into_iter().take(1 + usize::from(off)) {
            for (compilers, flags) in languages {
                for compiler in installed_compilers(compilers) {
                    let flags = [flags, &["-fsyntax-only"][..], mode].concat();
                    jobs.push((name.clone(), compiler, flags));
                }
            }
        }
    }
    run_in_parallel(&jobs, |_, (name, compiler, flags)| {
        let example = fs::read_to_string(source_path(name)).expect("a source");
        let output = run_compiler(compiler, flags, &[name], &fixture.path("unused"));
        let said = lossy_text(&output.stderr);
        assert!(!output.status.success(), "{compiler} accepts {name}");
        let expectations = example.lines().filter_map(|line| line.strip_prefix("// EXPECT: "));
        for expected in expectations {
            let found = expected.split('|').any(|words| said.contains(words));
            assert!(found, "{compiler} {name}: nothing like `{expected}` in\n{said}");
        }
    });
}
