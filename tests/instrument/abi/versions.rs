//! Library, header and recorder of different versions: tracing is refused with a message, while the
//! program runs on. Commands report the older part and a remedy.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use trackway_tests::{Fixture, build_dir, has, report_skipped, source_dir};

/// Program that records an event, prints a line, and waits for the end of its input or half a
/// second, which is long enough for a recorder that checks its descendants every twentieth of a
/// second.
const PROGRAM: &str = r#"
#include <poll.h>
#include <stdio.h>
#include <trackway/trackway.h>
TRACKWAY_EVENT(versions, hello, TRACKWAY_INFO, (u32, number));
int main(int argc, char **argv)
{
    struct pollfd input = {0, POLLIN, 0};
    (void)argv;
    trackway(versions, hello, 42);
    puts("done");
    fflush(stdout);
    if (argc > 1)
        poll(argc > 2 ? &input : NULL, argc > 2, argc > 2 ? -1 : 500);
    return 0;
}
"#;

/// Builds libtrackway.so of another version, in a folder of this fixture.
fn build_library(fixture: &Fixture, age: &str) -> Option<PathBuf> {
    if !has("cargo") {
        report_skipped("cargo is not installed");
        return None;
    }
    let target = fixture.path(&format!("target-{age}"));
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--quiet", "--locked", "--offline", "-p", "trackway-capi"]);
    cargo.arg("--target-dir").arg(&target).current_dir(source_dir());
    cargo.env("RUSTFLAGS", format!("--cfg=trackway_abi=\"{age}\""));
    cargo.env_remove("CARGO_ENCODED_RUSTFLAGS");
    let output = cargo.output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(target.join("debug/libtrackway.so"))
}

#[test]
fn a_recorder_names_the_processes_whose_library_is_of_another_version() {
    let fixture = Fixture::new("versions");
    let program = fixture.compile("program", PROGRAM, false, &[]);
    for (age, advice) in [
        ("newer", "update trackway, or use the one that came with that library"),
        ("older", "start them again with the library that came with trackway"),
    ] {
        let Some(library) = build_library(&fixture, age) else { return };
        let preload = format!("LD_PRELOAD={}", library.display());
        let mut record = fixture.trackway(&["record", "-o"]);
        record.arg(fixture.path(age)).args(["--", "env", &preload, "TRACKWAY_DEBUG=1"]);
        let output = record.arg(&program).arg("wait").output().expect("trackway runs");
        let messages = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{messages}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n");
        // The first message is from the library, the second from the recorder.
        assert!(messages.contains("are of different versions: not traced by it"), "{messages}");
        let named = format!("1 process could not be traced: program ({age} library)");
        assert!(messages.contains(&named), "{messages}");
        let told = format!("a libtrackway.so {age} than this trackway: {advice}");
        assert!(messages.contains(&told), "{messages}");
        assert!(messages.contains(" 0 events recorded, 0 lost"), "{messages}");
        check_listed_process(&fixture, &program, &library, age, advice);
    }
}

/// Runs `trackway list` while a program runs with that library.
fn check_listed_process(
    fixture: &Fixture,
    program: &Path,
    library: &Path,
    age: &str,
    advice: &str,
) {
    let mut child = fixture
        .command(program)
        .args(["wait", "for input"])
        .env("LD_PRELOAD", library)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
    let list = |format: &[&str]| {
        let output = fixture.trackway(&[&["list"], format].concat()).output().expect("it runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let pid = child.id();
    let (text, json) = (list(&[]), list(&["--format", "json"]));
    drop(child.stdin.take());
    assert!(child.wait().expect("its end").success());
    let head = format!("with a libtrackway.so {age} than this trackway: ");
    let named =
        text.lines().find(|line| line.starts_with(&head)).unwrap_or_else(|| panic!("{text}"));
    let mut pids = named[head.len()..].split(", ");
    assert!(pids.any(|named| named == pid.to_string()), "{text}");
    assert!(text.contains(advice), "{text}");
    let version = if age == "newer" { 3 } else { 1 };
    assert!(json.contains(&format!("{{\"version\":{version},\"processes\":[")), "{json}");
}

/// Compiles the program against a copy of the header in which `to` replaces `from`.
fn compile_with_header(fixture: &Fixture, name: &str, file: &str, from: &str, to: &str) -> PathBuf {
    let include = fixture.path(&format!("include-{name}"));
    fs::create_dir_all(include.join("trackway/abi")).expect("a folder");
    for header in ["trackway/trackway.h", "trackway/abi/abi.h"] {
        let text = fs::read_to_string(source_dir().join("include").join(header)).expect("it");
        let changed = if header == file { text.replacen(from, to, 1) } else { text.clone() };
        assert_eq!(changed != text, header == file, "{from} is not in {header}");
        fs::write(include.join(header), changed).expect("a copy");
    }
    let (source, program) = (fixture.path("program.c"), fixture.path(name));
    fs::write(&source, PROGRAM).expect("a source");
    let mut cc = Command::new("cc");
    cc.arg("-O2").arg("-I").arg(&include).arg(&source).arg("-o").arg(&program);
    assert!(cc.status().expect("cc runs").success());
    program
}

#[test]
fn structures_that_grew_are_taken_and_other_versions_stay_off() {
    const ABI: &str = "trackway/abi/abi.h";
    const VERSION: &str = "#define TRACKWAY_ABI_VERSION 1";
    let fixture = Fixture::new("versions-header");
    let cases = [
        // A header that is newer than the library: structures only grow at their end.
        (
            "grown",
            ABI,
            "    uint32_t reserved_2;\n",
            "    uint32_t reserved_2;\n    uint64_t added[4];\n",
            1,
            None,
        ),
        ("newer", ABI, VERSION, "#define TRACKWAY_ABI_VERSION 2", 0, Some("a newer header")),
        ("older", ABI, VERSION, "#define TRACKWAY_ABI_VERSION 0", 0, Some("an older header")),
        // A header of this version without the members that were added at the end: its events
        // cannot be queried at run time, but are recorded.
        (
            "first",
            "trackway/trackway.h",
            "sizeof(struct trackway_abi_event), (level)",
            "56, (level)",
            1,
            None,
        ),
        // A structure that is smaller than in any version.
        (
            "short",
            "trackway/trackway.h",
            "sizeof(struct trackway_abi_event), (level)",
            "48, (level)",
            0,
            Some("an older header"),
        ),
    ];
    for (name, file, from, to, recorded, reason) in cases {
        let program = compile_with_header(&fixture, name, file, from, to);
        let trace = fixture.path(&format!("trace-{name}"));
        let mut record = fixture.trackway(&["record", "-o"]);
        record.arg(&trace).arg("--").arg(&program).env("TRACKWAY_DEBUG", "1");
        let output = record.output().expect("trackway runs");
        let messages = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {messages}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n");
        let plural = if recorded == 1 { "" } else { "s" };
        let summary = format!(" {recorded} event{plural} recorded, 0 lost");
        assert!(messages.contains(&summary), "{name}: {messages}");
        let said = messages.matches("header than this library's: they stay off").count();
        assert_eq!(said, usize::from(reason.is_some()), "{name}: {messages}");
        assert!(messages.contains(reason.unwrap_or("")), "{name}: {messages}");
        if recorded > 0 {
            assert!(fixture.print(&trace).contains("versions:hello: "), "{name}");
        }
    }
    // This library was compared with the others.
    assert!(build_dir().join("libtrackway.so").exists());
}
