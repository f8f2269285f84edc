//! The rules of ARCHITECTURE.md and STYLE.md that a program can check.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use trackway_tests::{has, report_skipped, source_dir};

#[path = "tidy/links.rs"]
mod links;
#[path = "tidy/rings.rs"]
mod rings;
#[path = "tidy/size.rs"]
mod size;
#[path = "tidy/words.rs"]
mod words;

/// Crates (and the file of the command line) that may contain `unsafe`.
const UNSAFE_ALLOWED: [&str; 20] = [
    "crates/sys/",
    "crates/ring/",
    "crates/window/",
    "crates/agent/",
    "crates/capi/",
    "crates/rust/",
    "crates/jit/",
    "crates/kernel/src/bpf_sys/bpf.rs",
    "crates/kernel/src/bpf_sys/mapped.rs",
    "crates/kernel/src/bpf_program/attach.rs",
    "crates/kernel/examples/",
    "crates/kernel/tests/bpf_program/",
    "crates/filter/tests/filter/machine.rs",
    "crates/recorder/",
    "crates/cli/src/local_time.rs",
    "crates/testkit/",
    "bench/engine/",
    "bench/suites/",
    "fuzz/targets/src/filter.rs",
    "tests/",
];

fn cargo_metadata() -> Option<serde_json::Value> {
    if !has("cargo") {
        report_skipped("cargo is not installed");
        return None;
    }
    let output = Command::new("cargo")
        // Without external crates, which the local registry may lack.
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline", "--locked"])
        .current_dir(source_dir())
        .output()
        .expect("cargo runs");
    if !output.status.success() {
        report_skipped("cargo metadata needs the registry");
        return None;
    }
    Some(serde_json::from_slice(&output.stdout).expect("JSON"))
}

fn short_crate_name(name: &str) -> String {
    match name {
        "trackway" => "rust".into(),
        _ => name.strip_prefix("trackway-").unwrap_or(name).into(),
    }
}

/// Returns the normal dependencies of every crate, by crate name. Optional ones are off by default.
fn crate_dependencies(metadata: &serde_json::Value) -> BTreeMap<String, BTreeSet<String>> {
    let mut all = BTreeMap::new();
    for package in metadata["packages"].as_array().expect("packages") {
        let of = package["dependencies"].as_array().expect("dependencies");
        let names = of
            .iter()
            .filter(|dependency| dependency["kind"].is_null() && dependency["optional"] != true)
            .map(|dependency| dependency["name"].as_str().expect("a name").to_owned())
            .collect();
        all.insert(package["name"].as_str().expect("a name").to_owned(), names);
    }
    all
}

#[test]
fn crates_import_what_the_architecture_says() {
    let Some(metadata) = cargo_metadata() else { return };
    let text = fs::read_to_string(source_dir().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let table = text
        .split("<!-- imports: begin -->")
        .nth(1)
        .and_then(|rest| rest.split("<!-- imports: end -->").next())
        .expect("the import table");
    let mut documented: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in table.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let imports = cells.get(1).copied().unwrap_or("");
        let imports = imports.split(',').map(|name| name.trim().to_owned());
        documented.insert(cells[0].to_owned(), imports.filter(|name| !name.is_empty()).collect());
    }
    let mut actual: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, dependencies) in crate_dependencies(&metadata) {
        if name == "trackway" || name.starts_with("trackway-") {
            let ours = |dependency: &String| dependency.starts_with("trackway-");
            let imports =
                dependencies.iter().filter(|name| ours(name)).map(|name| short_crate_name(name));
            actual.insert(short_crate_name(&name), imports.collect());
        }
    }
    assert_eq!(actual, documented, "left: cargo metadata; right: ARCHITECTURE.md");
}

/// Kinds of test programs; `scripts/suite` defines each.
const TEST_KINDS: [&str; 3] = ["computing", "recording", "alone"];

/// `scripts/suite` reads the kind of a test program from `[package.metadata.tests]` of its crate. A
/// crate may have a default; this one has none. No kind may be declared for a program that no
/// longer exists.
#[test]
fn every_test_program_has_a_kind() {
    let Some(metadata) = cargo_metadata() else { return };
    let mut bad = Vec::new();
    for package in metadata["packages"].as_array().expect("packages") {
        let name = package["name"].as_str().expect("a name");
        if name != "trackway" && !name.starts_with("trackway-") {
            continue;
        }
        let targets = package["targets"].as_array().expect("targets").iter();
        let programs: BTreeSet<&str> = targets
            .filter(|target| target["test"] == true)
            .map(|target| target["name"].as_str().expect("a name"))
            .collect();
        let declared = package["metadata"]["tests"].as_object().cloned().unwrap_or_default();
        let is_kind =
            |of: &str| declared.get(of).is_some_and(|kind| TEST_KINDS.iter().any(|it| kind == it));
        for program in programs.iter().filter(|of| !is_kind(of) && !is_kind("default")) {
            bad.push(format!("{name}: {program} has no kind"));
        }
        for gone in declared.keys().filter(|of| *of != "default" && !programs.contains(of.as_str()))
        {
            bad.push(format!("{name}: there is no test program {gone}"));
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn the_agent_depends_on_nothing_but_libc() {
    let Some(metadata) = cargo_metadata() else { return };
    let dependencies = crate_dependencies(&metadata);
    let mut seen = BTreeSet::new();
    let mut open = vec!["trackway-capi".to_owned()];
    while let Some(name) = open.pop() {
        if seen.insert(name.clone()) {
            // loom is a dependency under cfg(loom) only.
            let of = dependencies.get(&name).into_iter().flatten();
            open.extend(of.filter(|name| *name != "loom").cloned());
        }
    }
    let foreign: Vec<_> = seen.iter().filter(|name| !name.starts_with("trackway-")).collect();
    assert_eq!(foreign, ["libc"]);
}

/// Returns files with these endings that git tracks, or would track.
fn find_sources(endings: &[&str]) -> Vec<PathBuf> {
    fn collect_files(dir: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).expect("a readable folder").flatten() {
            let path = entry.path();
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if path.is_dir() {
                if name != "target" && !name.starts_with('.') && !name.starts_with("trackway-") {
                    collect_files(&path, endings, found);
                }
            } else if endings.iter().any(|ending| name.ends_with(ending)) {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    collect_files(&source_dir(), endings, &mut found);
    assert!(found.len() > 5, "the sources were not found");
    found
}

fn relative_path(path: &Path) -> String {
    path.strip_prefix(source_dir()).unwrap_or(path).display().to_string()
}

#[test]
fn lines_and_files_have_a_readable_size() {
    const LINE_MAX: usize = 100;
    const FILE_MAX: usize = 900;
    let mut bad = Vec::new();
    for path in find_sources(&[".rs", ".c", ".h", ".cc", ".hpp"]) {
        let text = fs::read_to_string(&path).expect("a source file");
        if text.lines().count() > FILE_MAX && !path.ends_with("trackway.h") {
            bad.push(format!("{}: longer than {FILE_MAX} lines", relative_path(&path)));
        }
        for (number, line) in text.lines().enumerate() {
            if line.chars().count() > LINE_MAX && !line.contains("http") {
                bad.push(format!(
                    "{}:{}: longer than {LINE_MAX}",
                    relative_path(&path),
                    number + 1
                ));
            }
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn unsafe_code_is_where_it_may_be_and_argued() {
    let mut bad = Vec::new();
    for path in find_sources(&[".rs"]) {
        let name = relative_path(&path);
        let text = fs::read_to_string(&path).expect("a source file");
        let lines: Vec<&str> = text.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            let code = line.split("//").next().unwrap_or("");
            let is_unsafe = code.contains("unsafe {") || code.contains("unsafe impl");
            if !is_unsafe || code.contains('"') {
                continue;
            }
            if !UNSAFE_ALLOWED.iter().any(|allowed| name.starts_with(allowed)) {
                bad.push(format!("{name}:{}: unsafe has no place here", number + 1));
            }
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn strong_orderings_are_argued() {
    // Crates whose correctness rests on orderings. Their tests may use any ordering.
    const ORDERED_CRATES: [&str; 5] = [
        "crates/ring/src/",
        "crates/window/src/",
        "crates/agent/src/",
        "crates/jit/src/",
        "crates/rust/src/",
    ];
    /// Lines above an ordering in which its argument may stand.
    const ARGUMENT_LINES_MAX: usize = 12;
    let mut bad = Vec::new();
    for path in find_sources(&[".rs"]) {
        let name = relative_path(&path);
        if !ORDERED_CRATES.iter().any(|watched| name.starts_with(watched)) || name.contains("tests")
        {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a source file");
        let lines: Vec<&str> = text.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            let strong = ["Acquire", "Release", "AcqRel", "SeqCst"];
            let code = line.split("//").next().unwrap_or("");
            if !strong.iter().any(|word| code.contains(&format!("Ordering::{word}"))) {
                continue;
            }
            let above = &lines[number.saturating_sub(ARGUMENT_LINES_MAX)..=number];
            if !above.iter().any(|line| line.contains("ORDERING:")) {
                bad.push(format!("{name}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert!(bad.is_empty(), "without an ORDERING line:\n{}", bad.join("\n"));
}

/// Sources that write text for people without the crate `console`, each with the reason.
const DIRECT_WRITERS: [&str; 6] = [
    // All other code writes through this crate.
    "crates/console/src/",
    // Messages of tests.
    "crates/testkit/src/",
    // Libraries within traced programs.
    "crates/agent/src/",
    "crates/capi/src/",
    "crates/rust/src/",
    // Programs whose output trackway-bench reads.
    "bench/suites/src/workloads/",
];

/// Returns the part of a source file before its tests.
fn strip_tests(text: &str) -> &str {
    text.split("\n#[cfg(test)]\nmod ").next().unwrap_or(text)
}

/// Returns the files of the crates that run as a command or within one, without their tests.
fn command_sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for path in find_sources(&[".rs"]) {
        let name = relative_path(&path);
        let is_test = name.ends_with("/tests.rs") || name.contains("/tests/");
        let is_command = name.starts_with("crates/") || name.starts_with("bench/");
        if !is_command || !name.contains("/src/") || is_test {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a source file");
        found.push((name, strip_tests(&text).to_owned()));
    }
    assert!(found.len() > 100, "the sources were not found");
    found
}

#[test]
fn text_for_people_passes_the_console() {
    let forbidden =
        ["println!(", "eprint!(", " print!(", "io::stdout", "io::stderr", "IsTerminal", "\\x1b["];
    let mut bad = Vec::new();
    for (name, text) in command_sources() {
        if DIRECT_WRITERS.iter().any(|allowed| name.starts_with(allowed)) {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or("");
            if forbidden.iter().any(|word| code.contains(word)) {
                bad.push(format!("{name}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    let why = "write through trackway_console, which escapes what would control a terminal";
    assert!(bad.is_empty(), "{why}:\n{}", bad.join("\n"));
}

/// Returns true if a line of code declares that a type holds an [`std::io::Error`]: as a member of
/// a variant or a structure, not as a parameter, a result or a value.
fn declares_io_error(code: &str) -> bool {
    let code = code.trim().replace("std::io::Error", "io::Error");
    let is_declaration =
        !["fn ", "|", "=", ";", "Result<", "->", "&"].iter().any(|word| code.contains(word));
    let Some((before, after)) = code.split_once("io::Error") else { return false };
    let begins = before.ends_with(['(', '<', ' ']) && !before.starts_with("impl");
    is_declaration && begins && after.starts_with([')', ',', '>', ' ']) && code.ends_with(',')
}

#[test]
fn errors_of_the_system_are_held_without_their_numbers() {
    for (code, holds) in [
        ("    Io(PathBuf, io::Error),", true),
        ("    Read(std::io::Error),", true),
        ("    source: io::Error,", true),
        ("    pub error: Option<io::Error>,", true),
        ("    Io { path: PathBuf, error: io::Error },", true),
        ("    Io(PathBuf, IoError),", false),
        ("    fn of(error: io::Error,", false),
        ("    let fail = |error: io::Error, path| (),", false),
        ("    Err(error) if error.kind() == io::ErrorKind::NotFound => (),", false),
        ("    result: io::Result<()>,", false),
    ] {
        assert_eq!(declares_io_error(code), holds, "{code}");
    }
    let mut bad = Vec::new();
    for (name, text) in command_sources() {
        if DIRECT_WRITERS.iter().any(|allowed| name.starts_with(allowed)) {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or("");
            // anyhow's text of an error and its causes contains the error numbers.
            if declares_io_error(code) || code.contains(":#}") {
                bad.push(format!("{name}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    let why = "messages name no \"os error 2\": hold trackway_console::IoError, and write an error \
               with its causes by IoError::chain";
    assert!(bad.is_empty(), "{why}:\n{}", bad.join("\n"));
}

#[test]
fn nothing_is_left_over() {
    let words = ["todo!(", "unimplemented!(", concat!("FIX", "ME"), concat!("XX", "X"), "dbg!("];
    let mut bad = Vec::new();
    for path in find_sources(&[".rs", ".c", ".h"]) {
        if path.ends_with("tests/tidy.rs") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a source file");
        for (number, line) in text.lines().enumerate() {
            // The template of mkstemp(3) contains six such letters.
            let line = line.replace(concat!("XXX", "XXX"), "");
            if words.iter().any(|word| line.contains(word)) {
                bad.push(format!("{}:{}: {}", relative_path(&path), number + 1, line.trim()));
            }
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn every_rust_file_says_what_it_is() {
    let mut bad = Vec::new();
    for path in find_sources(&[".rs"]) {
        let text = fs::read_to_string(&path).expect("a source file");
        if !text.starts_with("//!") {
            bad.push(relative_path(&path));
        }
    }
    assert!(bad.is_empty(), "without a head: {}", bad.join(", "));
}
