//! A program that is linked with a plain `-ltrackway` needs the library for all defaults of the
//! linker, and so takes part in sessions.
//!
//! The header's references are weak: under `--as-needed`, a linker drops a library without other
//! references to it. The development library is a linker script that adds a strong reference.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use trackway_tests::{Fixture, build_dir, has, report_skipped, source_dir};

const SOURCE: &str = "#include <trackway/trackway.h>\n\
    TRACKWAY_EVENT(linked, event, TRACKWAY_INFO);\n\
    int main(void) { trackway(linked, event); return 0; }\n";
const LINKERS: [&str; 4] = ["bfd", "gold", "lld", "mold"];

/// Returns the folder that `-L` names in a checkout.
fn link_dir() -> PathBuf {
    build_dir().canonicalize().expect("what was built").join("link")
}

/// Compiles the program with these flags, followed by the flags of the library.
fn compile_program(fixture: &Fixture, compiler: &str, flags: &[&str], library: &[&str]) -> PathBuf {
    fs::write(fixture.path("app.c"), SOURCE).expect("a file");
    let program = fixture.path("app");
    let mut cc = fixture.command(compiler);
    cc.arg("-O2").arg("-I").arg(source_dir().join("include")).args(["app.c", "-o", "app"]);
    let output = cc.args(flags).args(library).output().expect("a compiler runs");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{compiler} {flags:?}: {messages}");
    program
}

/// Returns the names of the libraries that a program needs.
fn needed_libraries(program: &Path) -> Vec<String> {
    let output = Command::new("readelf").arg("-d").arg(program).output().expect("readelf runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let lines = text.lines().filter(|line| line.contains("(NEEDED)"));
    lines.filter_map(|line| Some(line.split_once('[')?.1.trim_end_matches(']').into())).collect()
}

#[test]
fn every_linker_keeps_the_library_of_a_bare_l_under_as_needed() {
    let fixture = Fixture::new("linkers");
    let search = format!("-L{}", link_dir().display());
    for compiler in ["gcc", "clang"] {
        if !has(compiler) {
            report_skipped(format!("{compiler} is not installed"));
            continue;
        }
        for linker in LINKERS {
            if !has(&format!("ld.{linker}")) {
                report_skipped(format!("ld.{linker} is not installed"));
                continue;
            }
            let linker = format!("-fuse-ld={linker}");
            for kind in [&[][..], &["-Wl,--gc-sections"], &["-no-pie"], &["-shared", "-fPIC"]] {
                let flags: Vec<&str> =
                    ["-Wl,--as-needed", &linker].iter().chain(kind).copied().collect();
                let program = compile_program(&fixture, compiler, &flags, &[&search, "-ltrackway"]);
                let needed = needed_libraries(&program);
                let is_needed = needed.iter().any(|name| name == "libtrackway.so.1");
                assert!(is_needed, "{compiler} {flags:?}: {needed:?}");
            }
        }
    }
}

#[test]
fn the_object_of_the_script_keeps_control_flow_protection() {
    if !cfg!(target_arch = "x86_64") {
        return report_skipped("the marks of other processors have other names");
    }
    let object = link_dir().join("trackway-link.o");
    let output = Command::new("readelf").arg("-n").arg(object).output().expect("readelf runs");
    let notes = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(notes.contains("IBT") && notes.contains("SHSTK"), "{notes}");
}

#[test]
fn a_program_that_is_linked_so_takes_part_in_a_session() {
    let fixture = Fixture::new("linked");
    let link = format!("-L{}", link_dir().display());
    let run_path = format!("-Wl,-rpath,{}", link_dir().display());
    let library = [link.as_str(), "-ltrackway", run_path.as_str()];
    let program = compile_program(&fixture, "cc", &["-Wl,--as-needed"], &library);
    let trackway = |words: &[&str]| {
        let output = fixture.trackway(words).output().expect("trackway runs");
        let messages = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words:?}: {messages}");
        messages
    };
    trackway(&["session", "create", "linked", "-o", "trace", "--event", "linked:*"]);
    let status = fixture.command(&program).status();
    let messages = trackway(&["session", "destroy", "linked"]);
    assert!(status.expect("the program runs").success());
    assert!(messages.contains("1 event recorded, 0 lost"), "{messages}");
}
