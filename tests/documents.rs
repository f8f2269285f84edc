//! What the documents say is what happens: the README's commands, the demo, the installation.

use std::fs;
use std::process::Command;

use trackway_tests::{World, build_dir, has, skipped, source_dir};

fn readme() -> String {
    fs::read_to_string(source_dir().join("README.md")).expect("README.md")
}

/// The first fenced block of the README that contains `text`.
fn block(text: &str) -> String {
    let readme = readme();
    let block = readme.split("```").skip(1).step_by(2).find(|block| block.contains(text));
    let block = block.unwrap_or_else(|| panic!("no block with {text:?} in README.md"));
    block.split_once('\n').expect("a first line").1.to_owned()
}

#[test]
fn the_readmes_program_compiles_and_its_commands_show_the_events() {
    let world = World::new("readme");
    fs::write(world.path("myapp.c"), block("TRACKWAY_EVENT")).unwrap();
    let include = source_dir().join("include");
    let trackway = build_dir().join("trackway");
    let commands = block("cc -O2")
        .replace("-I include", &format!("-I {}", include.display()))
        .replace("target/release/trackway", &trackway.display().to_string());
    let output = world.command("sh").args(["-e", "-c", &commands]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("path = \"/index.html\", status = 200, latency_us = 137"), "{text}");
    assert!(text.contains("msg = \"loaded modules in 42 ms\""), "{text}");
}

#[test]
fn the_commands_of_the_reading_guide_work() {
    let world = World::new("guide");
    let program = world.compile("myapp", &block("TRACKWAY_EVENT"), true, &[]);
    let recording = world.record(&[], &[program.to_str().unwrap()]);
    assert!(recording.output.status.success(), "{}", recording.messages());
    let guide = fs::read_to_string(source_dir().join("docs/guides/reading.md")).expect("a guide");
    let trackway = build_dir().join("trackway");
    let mut lines = 0;
    for block in guide.split("```sh\n").skip(1) {
        let commands = block.split("```").next().expect("an end");
        for command in commands.lines() {
            let command = command.replacen("trackway", &trackway.display().to_string(), 1);
            let output = world.command("sh").args(["-c", &command]).output().unwrap();
            let messages = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{command}: {messages}");
            lines += 1;
        }
    }
    assert!(lines > 10, "{lines} commands");
    let csv = fs::read_to_string(world.path("requests.csv")).expect("a table");
    assert!(csv.starts_with("time,name,hostname,procname,vpid,stream,cpu_id,vtid,path,"), "{csv}");
    let print = |trace: &str| world.print(&world.path(trace));
    assert_eq!(print("whole"), print("trace"));
    assert_eq!(print("myapp-only").lines().count(), 1);
}

/// Commands of a guide's shell blocks, for this checkout.
fn commands_of(guide: &str) -> String {
    let blocks = guide.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap());
    let include = source_dir().join("include");
    let trackway = build_dir().join("trackway");
    let commands = blocks.collect::<String>();
    commands
        .replace("-I include", &format!("-I {}", include.display()))
        .replace("\ntrackway ", &format!("\n{} ", trackway.display()))
}

fn guide(name: &str) -> String {
    fs::read_to_string(source_dir().join("docs/guides").join(name)).expect("a guide")
}

#[test]
fn the_cxx_guides_program_compiles_and_its_commands_show_the_events() {
    let world = World::new("cxx-guide");
    let guide = guide("cxx.md");
    let program = guide.split("```cpp\n").nth(1).and_then(|rest| rest.split("```").next());
    fs::write(world.path("myapp.cc"), program.expect("a program")).unwrap();
    let output = world.command("sh").args(["-e", "-c", &commands_of(&guide)]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for shown in [
        "path = \"/index.html\", status = 200, _ids_length = 3, ids = [ [0] = 7, [1] = 8,",
        "path = \"/nothing\", status = 404, _ids_length = 0, ids = [ ], phase = ( \"idle\"",
        "myapp:parse_begin: ",
        "myapp:parse_end: ",
    ] {
        assert!(text.contains(shown), "{shown}: {text}");
    }
}

#[test]
fn the_c_api_guides_program_compiles_and_its_commands_show_the_events() {
    let world = World::new("c-api-guide");
    let guide = guide("c-api.md");
    let program = guide.split("```c\n").nth(1).and_then(|rest| rest.split("```").next());
    fs::write(world.path("myapp.c"), program.expect("a program")).unwrap();
    let output = world.command("sh").args(["-e", "-c", &commands_of(&guide)]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let shown = "{ _path_length = 11, path = \"/index.html\", status = 200 }";
    assert!(text.contains(shown), "{text}");
}

#[test]
fn every_command_of_the_readme_exists_and_helps() {
    let world = World::new("help");
    let help = world.trackway(&["--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    for command in ["record", "print", "trim", "merge", "list", "recover", "bench"] {
        assert!(help.contains(command), "{help}");
        let output = world.trackway(&[command, "--help"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success());
        assert!(text.to_lowercase().contains("examples"), "{command}: {text}");
    }
}

#[test]
fn the_demo_runs_and_shows_what_the_readme_shows() {
    if !has("xz") {
        return skipped("xz is not installed");
    }
    let world = World::new("demo");
    // The demo puts its trace beside the sources: run a copy of it where we may write.
    for name in ["scripts", "target"] {
        fs::create_dir(world.path(name)).unwrap();
    }
    fs::copy(source_dir().join("scripts/demo"), world.path("scripts/demo")).unwrap();
    std::os::unix::fs::symlink(build_dir(), world.path("target/release")).unwrap();
    let output = world.command("sh").arg("scripts/demo").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    assert_eq!(text.matches("cpu_id = ").count(), 10, "{text}");
    assert!(messages.contains("events recorded, 0 lost"), "{messages}");
    let shown = block("$ trackway record");
    for line in shown.lines().filter(|line| line.starts_with('$')) {
        assert!(text.contains(line), "the demo does not run {line:?}:\n{text}");
    }
}

#[test]
fn what_is_installed_works_and_can_be_uninstalled() {
    if !has("cargo") {
        return skipped("cargo is not installed");
    }
    let world = World::new("install");
    let make = |target: &str| {
        let mut make = Command::new("make");
        make.args(["--no-print-directory", target, "PREFIX=/usr"]).current_dir(source_dir());
        make.arg(format!("DESTDIR={}", world.path("root").display()));
        let output = make.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    make("install");
    let root = world.path("root/usr");
    for file in [
        "bin/trackway",
        "lib/libtrackway.so",
        "lib/libtrackway.so.1",
        "lib/libtrackway-libc.so",
        "lib/libtrackway-pthread.so",
        "lib/pkgconfig/trackway.pc",
        "include/trackway/trackway.h",
        "include/trackway/trackway.hpp",
        "include/trackway/dynamic.h",
        "include/trackway/abi/abi.h",
        "share/man/man1/trackway.1",
        "share/man/man1/trackway-record.1",
    ] {
        assert!(root.join(file).exists(), "{file} is not installed");
    }
    let pc = fs::read_to_string(root.join("lib/pkgconfig/trackway.pc")).unwrap();
    assert!(pc.contains("libdir=/usr/lib") && !pc.contains('@'), "{pc}");

    let source = "#include <trackway/trackway.h>\nTRACKWAY_EVENT(a, b, TRACKWAY_INFO);\n\
                  int main(void) { trackway(a, b); return 0; }\n";
    fs::write(world.path("a.c"), source).unwrap();
    let mut cc = world.command("cc");
    cc.arg("a.c").args(["-o", "a", "-I"]).arg(root.join("include"));
    assert!(cc.status().unwrap().success());
    let mut record = world.command(root.join("bin/trackway"));
    let output = record.args(["record", "-o", "trace", "--", "./a"]).output().unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(messages.contains("1 events recorded, 0 lost"), "{messages}");

    make("uninstall");
    let mut left = Vec::new();
    collect_files(&root, &mut left);
    assert!(left.is_empty(), "left behind: {left:?}");
}

fn collect_files(dir: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.path() {
            path if path.is_dir() && !path.is_symlink() => collect_files(&path, found),
            path => found.push(path),
        }
    }
}
