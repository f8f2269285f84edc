//! Statements of the documents, run as tests: the README's commands, the demo, the installation.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use trackway_filter::compile::compile;
use trackway_filter::layout::{Layout, Member, Type};
use trackway_schema::{FieldKind, Label, Scalar};
use trackway_tests::{Fixture, build_dir, has, report_skipped, source_dir};

fn read_readme() -> String {
    fs::read_to_string(source_dir().join("README.md")).expect("README.md")
}

/// Returns the first fenced block of the README that contains `text`.
fn readme_block(text: &str) -> String {
    let readme = read_readme();
    let block = readme.split("```").skip(1).step_by(2).find(|block| block.contains(text));
    let block = block.unwrap_or_else(|| panic!("no block with {text:?} in README.md"));
    block.split_once('\n').expect("a first line").1.to_owned()
}

#[test]
fn the_readmes_program_compiles_and_its_commands_show_the_events() {
    let fixture = Fixture::new("readme");
    fs::write(fixture.path("myapp.c"), readme_block("TRACKWAY_EVENT")).unwrap();
    let include = source_dir().join("include");
    let trackway = build_dir().join("trackway");
    let commands = readme_block("cc -O2")
        .replace("-I include", &format!("-I {}", include.display()))
        .replace("target/release/trackway", &trackway.display().to_string());
    let output = fixture.command("sh").args(["-e", "-c", &commands]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("path = \"/index.html\", status = 200, latency_us = 137"), "{text}");
    assert!(text.contains("msg = \"loaded modules in 42 ms\""), "{text}");
}

/// Runs the shell commands of a guide, line by line; returns the number of commands.
fn run_guide_commands(fixture: &Fixture, guide: &str) -> usize {
    let guide = fs::read_to_string(source_dir().join(guide)).expect("a guide");
    let trackway = build_dir().join("trackway");
    let blocks = guide.split("```sh\n").skip(1);
    let lines = blocks.flat_map(|block| block.split("```").next().expect("an end").lines());
    lines
        .map(|line| {
            let command = line.replacen("trackway", &trackway.display().to_string(), 1);
            let output = fixture.command("sh").args(["-c", &command]).output().unwrap();
            let messages = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{command}: {messages}");
        })
        .count()
}

#[test]
fn the_commands_of_the_processes_guide_work() {
    let fixture = Fixture::new("processes-guide");
    fixture.compile("myapp", &readme_block("TRACKWAY_EVENT"), true, &[]);
    assert_eq!(run_guide_commands(&fixture, "docs/guides/processes.md"), 3);
    let once = fixture.print(&fixture.path("limited")).lines().count();
    assert!(once > 0);
    assert_eq!(fixture.print(&fixture.path("without-rseq")).lines().count(), once);
    assert_eq!(fixture.print(&fixture.path("children")).lines().count(), 2 * once);
}

#[test]
fn the_commands_of_the_reading_guide_work() {
    let fixture = Fixture::new("guide");
    let program = fixture.compile("myapp", &readme_block("TRACKWAY_EVENT"), true, &[]);
    let recording = fixture.record(&[], &[program.to_str().unwrap()]);
    assert!(recording.output.status.success(), "{}", recording.messages());
    let lines = run_guide_commands(&fixture, "docs/guides/reading.md");
    assert!(lines > 10, "{lines} commands");
    let csv = fs::read_to_string(fixture.path("requests.csv")).expect("a table");
    assert!(csv.starts_with("time,name,hostname,procname,vpid,stream,cpu_id,vtid,path,"), "{csv}");
    let print = |trace: &str| fixture.print(&fixture.path(trace));
    assert_eq!(print("whole"), print("trace"));
    assert_eq!(print("myapp-only").lines().count(), 1);
}

/// Returns the commands of a guide's shell blocks, adapted to this checkout.
fn guide_commands(guide: &str) -> String {
    let blocks = guide.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap());
    let include = source_dir().join("include");
    let trackway = build_dir().join("trackway");
    let commands = blocks.collect::<String>();
    commands
        .replace("-I include", &format!("-I {}", include.display()))
        .replace("\ntrackway ", &format!("\n{} ", trackway.display()))
}

fn read_guide(name: &str) -> String {
    fs::read_to_string(source_dir().join("docs/guides").join(name)).expect("a guide")
}

#[test]
fn the_cxx_guides_program_compiles_and_its_commands_show_the_events() {
    let fixture = Fixture::new("cxx-guide");
    let guide = read_guide("cxx.md");
    let program = guide.split("```cpp\n").nth(1).and_then(|rest| rest.split("```").next());
    fs::write(fixture.path("myapp.cc"), program.expect("a program")).unwrap();
    let output =
        fixture.command("sh").args(["-e", "-c", &guide_commands(&guide)]).output().unwrap();
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
    let fixture = Fixture::new("c-api-guide");
    let guide = read_guide("c-api.md");
    let program = guide.split("```c\n").nth(1).and_then(|rest| rest.split("```").next());
    fs::write(fixture.path("myapp.c"), program.expect("a program")).unwrap();
    let output =
        fixture.command("sh").args(["-e", "-c", &guide_commands(&guide)]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let shown = "{ _path_length = 11, path = \"/index.html\", status = 200 }";
    assert!(text.contains(shown), "{text}");
}

/// Every example in the table of the filters guide is a valid expression for an event.
#[test]
fn the_filters_guides_examples_are_expressions() {
    let labels = |names: &[(&str, i64)]| -> Type {
        let label = |&(name, value): &(&str, i64)| Label {
            name: name.to_owned(),
            first: value,
            last: value,
        };
        (&FieldKind::Enumeration(Scalar::U8, names.iter().map(label).collect())).into()
    };
    let member = |(name, of): (&str, Type)| Member { name: name.to_owned(), of };
    let strings = ["path", "name", "s", "t"].map(|name| (name, Type::String));
    let others = [
        ("status", Scalar::U32.into()),
        ("ids", (&FieldKind::Sequence(Scalar::U32)).into()),
        ("state", labels(&[("idle", 0), ("busy", 1)])),
        ("flags", labels(&[("sync", 1), ("direct", 2)])),
    ];
    let fields = strings.into_iter().chain(others).map(member).collect();
    let layout = Layout { fields, ..Layout::default() };
    let guide = read_guide("filters.md");
    let table = guide.split("## Expression language").nth(1).expect("the language");
    let table = table.split("\n## ").next().expect("an end");
    let rows = table.lines().filter(|line| line.starts_with("| "));
    let spans = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    let marks = ["(", "==", " & "];
    let examples: Vec<&str> = spans
        .filter(|span| marks.iter().any(|mark| span.contains(mark)) && span.len() > 2)
        .collect();
    assert!(examples.len() > 18, "{examples:?}");
    for example in examples {
        if let Err(error) = compile(example, &layout) {
            panic!("{}", error.render(example));
        }
    }
}

#[test]
fn the_filters_of_the_c_guide_take_what_they_say() {
    if !has("clang") {
        return report_skipped("clang is not installed");
    }
    let fixture = Fixture::new("filters-in-c-guide");
    let program = fixture.compile("myapp", &readme_block("TRACKWAY_EVENT"), true, &[]);
    let recording = fixture.record(&[], &[program.to_str().unwrap()]);
    assert!(recording.output.status.success(), "{}", recording.messages());
    let guide = read_guide("filters-in-c.md");
    let filters: Vec<&str> =
        guide.split("```c\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    fs::write(fixture.path("slow.c"), filters[0]).expect("a file");
    // The first block is skipped: its command is a Trackway command.
    let commands = guide_commands(&guide.replacen("```sh\n", "```sh\n\n", 1));
    let output = fixture.command("sh").args(["-e", "-c", &commands]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("Filter myapp_request\n") && text.contains("Verified: "), "{text}");
    let shown = "path = \"/index.html\", status = 200, latency_us = 137";
    assert_eq!(text.matches(shown).count(), 1, "{text}");
    assert!(fs::read(fixture.path("slow.twf")).expect("an object").starts_with(b"twf"));
    assert!(text.contains("\n  if        myapp:request: slow.twf ("), "{text}");
    let recorded = fixture.print(&fixture.path("slow"));
    assert_eq!(recorded.matches(shown).count(), 1, "{recorded}");
    // The guide's hand-written program on the frame, and its refused filters with their messages.
    fs::write(fixture.path("hand.c"), filters[1]).expect("a file");
    let looping = filters[0].replace(
        "    return request->latency_us > allowed(request);",
        "    trackway_unsigned n = 0;\n    \
         for (unsigned i = 0; i < request->status; i++)\n        \
         n += trackway_random(request) & 1;\n    return n;",
    );
    fs::write(fixture.path("loop.c"), looping).expect("a file");
    let compiled = |name: &str| {
        let mut clang = fixture.command("clang");
        clang.args(["-O2", "-g", "-target", "bpf", "-fno-jump-tables", "-Wall", "-Werror"]);
        clang.arg("-I").arg(source_dir().join("include"));
        assert!(clang.args(["-c", &format!("{name}.c")]).status().expect("clang runs").success());
        let mut print = fixture.trackway(&["print", "--count", "--filter-object"]);
        print.args([&format!("{name}.o"), "trace"]).output().expect("trackway runs")
    };
    let none = compiled("hand");
    assert_eq!(String::from_utf8_lossy(&none.stdout), "0\n", "{none:?}");
    let refused = String::from_utf8_lossy(&compiled("loop").stderr).into_owned();
    for part in [
        "loop.o: the jump does not go forward\n  at instruction ",
        " of section trackway/myapp_request, in trackway_filter_myapp_request: ",
        "\n  of loop.c:",
        ": for (unsigned i = 0; i < request->status; i++)\nhint: #pragma clang loop unroll(full)",
    ] {
        assert!(refused.contains(part), "{part:?} is not in {refused}");
    }
}

#[test]
fn the_commands_of_the_preload_guide_work_and_so_does_its_helper() {
    if !has("xz") {
        return report_skipped("xz is not installed");
    }
    let fixture = Fixture::new("preload-guide");
    fs::write(fixture.path("input"), vec![b'x'; 1 << 20]).unwrap();
    assert_eq!(run_guide_commands(&fixture, "docs/guides/preload.md"), 7);
    for (trace, event) in [
        ("allocations", "lttng_ust_libc:malloc: "),
        ("waits", "trackway_pthread:cond_"),
        ("files", "trackway_fd:pipe: "),
        ("all", "lttng_ust_statedump:bin_info: "),
        ("locks", "lttng_ust_pthread:pthread_mutex_lock_acq: "),
        ("ids", "trackway_fork:exec: "),
    ] {
        assert!(fixture.print(&fixture.path(trace)).contains(event), "{trace}: no {event}");
    }
    let guide = fs::read_to_string(source_dir().join("docs/guides/preload.md")).unwrap();
    let (_, helper) = guide.split_once("```c\n").expect("a helper");
    let helper = helper.split("```").next().unwrap();
    fs::write(fixture.path("time.c"), helper).unwrap();
    let strict = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fPIC"];
    let mut cc = fixture.command("cc");
    cc.args(strict).args(["-shared", "-fvisibility=hidden", "time.c", "-o", "libtime.so"]);
    for folder in ["include", "preload"] {
        cc.arg("-I").arg(source_dir().join(folder));
    }
    let output = cc.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let source = "#include <time.h>\nint main(void) { struct timespec t = {0, 1};\n\
                  struct timespec *volatile bad = (struct timespec *)8;\n\
                  return nanosleep(&t, 0) || !nanosleep(bad, 0); }\n";
    let program = fixture.compile("sleeper", source, false, &[]);
    let mut record = fixture.trackway(&["record", "-o", "sleep", "--"]);
    let output =
        record.arg(program).env("LD_PRELOAD", fixture.path("libtime.so")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = fixture.print(&fixture.path("sleep"));
    assert!(text.contains("trackway_time:nanosleep: "), "{text}");
    assert!(text.contains("{ seconds = 0, error = 0 }"), "{text}");
    assert!(text.contains("{ seconds = 0, error = 14 }"), "{text}"); // EFAULT
}

#[test]
fn the_commands_of_the_rust_guide_work() {
    if !has("cargo") {
        return report_skipped("cargo is not installed");
    }
    let fixture = Fixture::new("rust-guide");
    let guide = fs::read_to_string(source_dir().join("docs/guides/rust.md")).expect("a guide");
    let target = build_dir().parent().expect("target/release has a parent").to_owned();
    let trackway = build_dir().join("trackway").display().to_string();
    let manifest = source_dir().join("crates/rust/Cargo.toml").display().to_string();
    let build = format!("cargo build --offline --quiet --manifest-path {manifest}");
    let mut outputs = Vec::new();
    for block in guide.split("```sh\n").skip(1) {
        for command in block.split("```").next().expect("an end").lines() {
            let command = match command.strip_prefix("trackway ") {
                Some(rest) => format!("{trackway} {rest}"),
                None => command.replacen("cargo build", &build, 1),
            };
            let command = command.replace("target/debug", &format!("{}/debug", target.display()));
            let mut shell = fixture.command("sh");
            let output =
                shell.args(["-c", &command]).env("CARGO_TARGET_DIR", &target).output().unwrap();
            let messages = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{command}: {messages}");
            outputs.push(String::from_utf8_lossy(&output.stdout).into_owned());
        }
    }
    let printed = |what: &str| outputs.iter().filter(|text| text.contains(what)).count();
    assert_eq!(printed("myapp:request: "), 1, "{outputs:?}");
    assert_eq!(printed("tracing:handle_end: "), 3, "{outputs:?}");
    assert_eq!(printed("tracing:load_enter: "), 1, "{outputs:?}");
    assert_eq!(printed("message = \"using defaults\""), 1, "{outputs:?}");
}

/// Both methods of linking a program with the library, by the guide's own commands. The program is
/// recorded without a preloaded library.
#[test]
fn the_rust_guide_links_programs_with_the_library() {
    if !has("cargo") {
        return report_skipped("cargo is not installed");
    }
    let fixture = Fixture::new("rust-guide-linked");
    let guide = fs::read_to_string(source_dir().join("docs/guides/rust.md")).expect("a guide");
    let rust = |what: &str| {
        let blocks = guide.split("```rust\n").skip(1);
        let mut blocks = blocks.map(|block| block.split("```").next().expect("an end"));
        blocks.find(|block| block.contains(what)).expect("it is in the guide")
    };
    let mut lines = guide.lines().map(str::trim_start);
    let line = lines.find(|line| line.starts_with("RUSTFLAGS=")).expect("it is in the guide");
    assert!(line.ends_with(" cargo build --release"), "{line}");
    let manifest = format!(
        "[package]\nname = \"myapp\"\nedition = \"2024\"\n[workspace]\n\
         [dependencies]\ntrackway = {{ path = \"{}/crates/rust\" }}\n",
        source_dir().display()
    );
    fs::create_dir(fixture.path("src")).expect("a folder");
    fs::write(fixture.path("Cargo.toml"), manifest).expect("a file");
    fs::write(fixture.path("src/main.rs"), rust("trackway::event!(myapp")).expect("a file");
    fs::copy(source_dir().join("Cargo.lock"), fixture.path("Cargo.lock")).expect("a file");
    let program = fixture.path("target/release/myapp");
    let libraries = build_dir();
    let libraries = libraries.to_str().expect("a path that is text");
    for script in [None, Some(rust("rustc-link-arg"))] {
        let command = if let Some(script) = script {
            fs::write(fixture.path("build.rs"), script).expect("a file");
            "cargo build --release"
        } else {
            line
        };
        // The environment is that of an installed library.
        let mut shell = fixture.command("sh");
        shell.args(["-c", command]).env("CARGO_NET_OFFLINE", "true");
        shell.env("CARGO_TARGET_DIR", fixture.path("target"));
        shell.env("LIBRARY_PATH", build_dir().join("link")).env("LD_LIBRARY_PATH", libraries);
        let output = shell.output().expect("it runs");
        let messages = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command}: {messages}");
        let path = format!("LD_LIBRARY_PATH={libraries}");
        let program = program.to_str().expect("a path that is text");
        let recording = fixture.record(&[], &["env", "-u", "LD_PRELOAD", &path, program]);
        assert_eq!(recording.summary.recorded, 2, "{command}: {}", recording.messages());
        fs::remove_dir_all(fixture.path("trace")).expect("a trace");
        fs::remove_file(program).expect("the program");
    }
}

/// Returns the subcommands in the first columns of docs/commands.md: `session create`, `print`.
fn documented_commands() -> Vec<Vec<String>> {
    let text = fs::read_to_string(source_dir().join("docs/commands.md")).expect("the commands");
    let mut commands = Vec::new();
    for row in text.lines().filter(|line| line.starts_with("| `")) {
        let first_column = row.split(" | ").next().expect("a column");
        let mut group = Vec::new();
        for span in first_column.split('`').skip(1).step_by(2) {
            let subcommand = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase());
            let span = span.trim_start_matches("sudo ");
            let words: Vec<String> = match span.strip_prefix("trackway ") {
                Some(rest) => rest.split(' ').take_while(subcommand).map(str::to_owned).collect(),
                // `trackway session list`, `status`: `status` belongs to the same group.
                None => [group.clone(), vec![span.to_owned()]].concat(),
            };
            group = words[..words.len() - 1].to_vec();
            commands.push(words);
        }
    }
    commands
}

#[test]
fn every_command_of_the_table_exists_and_helps() {
    let fixture = Fixture::new("help");
    let help = fixture.trackway(&["--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    for command in ["record", "print", "trim", "merge", "list", "recover", "bench"] {
        assert!(help.contains(command), "{help}");
        let output = fixture.trackway(&[command, "--help"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success());
        assert!(text.to_lowercase().contains("examples"), "{command}: {text}");
    }
    let commands = documented_commands();
    assert!(commands.len() > 35, "{commands:?}");
    for mut command in commands {
        // Suites are no subcommands.
        command.retain(|word| !["spans", "preload", "sessions"].contains(&word.as_str()));
        command.push("--help".into());
        let arguments: Vec<&str> = command.iter().map(String::as_str).collect();
        let output = fixture.trackway(&arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let usage = format!("Usage: trackway {}", arguments[..arguments.len() - 1].join(" "));
        assert!(output.status.success() && text.contains(&usage), "{arguments:?}: {text}");
    }
}

#[test]
fn the_demo_runs_and_shows_what_the_readme_shows() {
    if !has("xz") {
        return report_skipped("xz is not installed");
    }
    let fixture = Fixture::new("demo");
    // The demo writes its trace into its own checkout: run a copy of it in a writable folder.
    for name in ["scripts", "target"] {
        fs::create_dir(fixture.path(name)).unwrap();
    }
    fs::copy(source_dir().join("scripts/demo"), fixture.path("scripts/demo")).unwrap();
    std::os::unix::fs::symlink(build_dir(), fixture.path("target/release")).unwrap();
    let output = fixture.command("sh").arg("scripts/demo").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    assert_eq!(text.matches("cpu_id = ").count(), 10, "{text}");
    assert!(messages.contains("events recorded, 0 lost"), "{messages}");
    let shown = readme_block("$ trackway record");
    for line in shown.lines().filter(|line| line.starts_with('$')) {
        assert!(text.contains(line), "the demo does not run {line:?}:\n{text}");
    }
}

/// Makes the page trackway(3) from these headers, like `make install`; or lists its names.
fn generate_manual_page(headers: &[PathBuf], list: bool) -> String {
    let mut awk = Command::new("awk");
    awk.args(["-v", "version=1.2.3"]).args(if list { &["-v", "list=1"][..] } else { &[] });
    awk.arg("-f").arg(source_dir().join("packaging/man3.awk")).args(headers);
    let output = awk.output().expect("awk runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Returns the words of a page or comment, without markup.
fn words_without_markup(text: &str) -> Vec<String> {
    let markup = |line: &&str| !line.starts_with('.') && !line.starts_with("'");
    let lines = text.lines().filter(markup).map(|line| line.trim_start_matches("\\&"));
    let text = lines.collect::<Vec<_>>().join(" ");
    let plain = [("\\-", "-"), ("\\(aq", "'"), ("\\(ga", "`"), ("\\e", "\\")];
    let text = plain.iter().fold(text, |text, (from, to)| text.replace(from, to));
    text.split_whitespace().filter(|word| *word != "*").map(str::to_owned).collect()
}

#[test]
fn the_manual_page_of_the_c_api_says_what_the_headers_say() {
    if !has("awk") {
        return report_skipped("awk is not installed");
    }
    let folder = source_dir().join("include/trackway");
    let headers = ["trackway.h", "dynamic.h"].map(|name| folder.join(name));
    let page = generate_manual_page(&headers, false);
    let said = words_without_markup(&page).join(" ");
    let names = generate_manual_page(&headers, true);
    for header in &headers {
        let text = fs::read_to_string(header).expect("a header");
        let public = text.split("\n * The rest is not for use").next().expect("a first part");
        // Every complete comment that begins a line, except the licence, and the line above `rest`.
        for comment in public.split("\n/*").skip(1).filter_map(|rest| rest.split("*/").next()) {
            let comment = words_without_markup(comment).join(" ");
            assert!(comment.starts_with("---") || said.contains(&comment), "{comment}\n\n{said}");
        }
        // Every macro and function that is not internal.
        let defined = public.lines().filter_map(|line| line.strip_prefix("#define "));
        let weak = text.split("\nint ").skip(1);
        let of = |rest: &str| {
            rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("").to_owned()
        };
        let internal = |name: &String| name.starts_with("TRACKWAY_I_") || name.ends_with("_H");
        for name in defined.chain(weak).map(of).filter(|name| !internal(name)) {
            assert!(names.lines().any(|line| line == name), "{name} is not in {names}");
            assert!(page.contains(&format!("\n.SS {name}\n")), "{name} has no section");
        }
    }
    // Names that are not in the headers must not be in the page.
    let fixture = Fixture::new("manual");
    let other = fixture.path("trackway.h");
    let text = fs::read_to_string(&headers[0]).expect("a header");
    fs::write(&other, text.replace("7 KiB of stack when", "8 KiB of stack when")).expect("a file");
    let changed = generate_manual_page(&[other, headers[1].clone()], false);
    assert_eq!(changed, page.replace("7 KiB of stack when", "8 KiB of stack when"));
    assert_ne!(changed, page);
    if !has("groff") {
        return report_skipped("groff is not installed");
    }
    fs::write(fixture.path("trackway.3"), &page).expect("a file");
    let mut groff = fixture.command("groff");
    let output = groff.args(["-man", "-ww", "-Kutf8", "-Tutf8", "trackway.3"]).output().unwrap();
    let warnings = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && warnings.is_empty(), "{warnings}");
}

#[test]
fn an_installation_works_and_can_be_uninstalled() {
    if !has("cargo") {
        return report_skipped("cargo is not installed");
    }
    let fixture = Fixture::new("install");
    let make = |target: &str| {
        let mut make = Command::new("make");
        make.args(["--no-print-directory", target, "PREFIX=/usr"]).current_dir(source_dir());
        make.arg(format!("DESTDIR={}", fixture.path("root").display()));
        let output = make.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    make("install");
    let root = fixture.path("root/usr");
    for file in [
        "bin/trackway",
        "bin/trackway-bench",
        "lib/libtrackway.so",
        "lib/libtrackway.so.1",
        "lib/trackway-link.o",
        "lib/libtrackway-libc.so",
        "lib/libtrackway-pthread.so",
        "lib/libtrackway-dl.so",
        "lib/libtrackway-fd.so",
        "lib/libtrackway-fork.so",
        "lib/pkgconfig/trackway.pc",
        "lib/systemd/system/trackway-session@.service",
        "lib/systemd/user/trackway-session@.service",
        "include/trackway/trackway.h",
        "include/trackway/trackway.hpp",
        "include/trackway/dynamic.h",
        "include/trackway/filter.h",
        "include/trackway/abi/abi.h",
        "share/man/man1/trackway.1",
        "share/man/man1/trackway-record.1",
        "share/man/man1/trackway-bench.1",
        "share/man/man1/trackway-bench-compare.1",
        "share/bash-completion/completions/trackway",
        "share/bash-completion/completions/trackway-bench",
        "share/man/man3/trackway.3",
        "share/man/man3/TRACKWAY_EVENT.3",
        "share/man/man3/trackway_dynamic_record.3",
    ] {
        assert!(root.join(file).exists(), "{file} is not installed");
    }
    let pc = fs::read_to_string(root.join("lib/pkgconfig/trackway.pc")).unwrap();
    assert!(pc.contains("libdir=/usr/lib") && !pc.contains('@'), "{pc}");

    let source = "#include <trackway/trackway.h>\nTRACKWAY_EVENT(a, b, TRACKWAY_INFO);\n\
                  int main(void) { trackway(a, b); return 0; }\n";
    fs::write(fixture.path("a.c"), source).unwrap();
    let mut cc = fixture.command("cc");
    cc.arg("a.c").args(["-o", "a", "-I"]).arg(root.join("include"));
    assert!(cc.status().unwrap().success());
    let mut record = fixture.command(root.join("bin/trackway"));
    let output = record.args(["record", "-o", "trace", "--", "./a"]).output().unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(messages.contains("1 event recorded, 0 lost"), "{messages}");

    assert_pkg_config_links(&fixture, &root);

    make("uninstall");
    let mut left = Vec::new();
    collect_files(&root, &mut left);
    assert!(left.is_empty(), "left behind: {left:?}");
}

/// Checks that pkg-config's flags link the installed library under --as-needed, and that programs
/// load the library by its own name, not by the linker script's.
fn assert_pkg_config_links(fixture: &Fixture, root: &std::path::Path) {
    let script = fs::read(root.join("lib/libtrackway.so")).unwrap();
    let library = fs::read(root.join("lib/libtrackway.so.1")).unwrap();
    assert!(!script.starts_with(b"\x7fELF") && library.starts_with(b"\x7fELF"));
    if !has("pkg-config") {
        return report_skipped("pkg-config is not installed");
    }
    let mut pkg_config = fixture.command("pkg-config");
    pkg_config.args(["--cflags", "--libs", "trackway"]);
    pkg_config.env("PKG_CONFIG_SYSROOT_DIR", fixture.path("root"));
    pkg_config.env("PKG_CONFIG_ALLOW_SYSTEM_LIBS", "1");
    pkg_config.env("PKG_CONFIG_PATH", root.join("lib/pkgconfig"));
    let flags = String::from_utf8(pkg_config.output().unwrap().stdout).unwrap();
    let mut cc = fixture.command("cc");
    cc.args(["-Wl,--as-needed", "a.c", "-o", "linked", "-I"]).arg(root.join("include"));
    assert!(cc.args(flags.split_whitespace()).status().unwrap().success(), "{flags}");
    let output = fixture.command("readelf").args(["-d", "linked"]).output().unwrap();
    let dynamic = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(dynamic.contains("[libtrackway.so.1]"), "{flags}: {dynamic}");
}

fn collect_files(dir: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.path() {
            path if path.is_dir() && !path.is_symlink() => collect_files(&path, found),
            path => found.push(path),
        }
    }
}
