//! Messages about system errors: the failed operation, its object, and the reason in words, without
//! the number that the standard library adds ("os error 2").
//!
//! The commands show the messages. The machine code of the whole program shows that no other code
//! displays a [`std::io::Error`]: such code would contain the address of its `Display`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use trackway_tests::{Fixture, build_dir, has, report_skipped, source_dir};

/// Runs `trackway`, which must fail, and returns its standard error.
fn run_failing(fixture: &Fixture, words: &[&str]) -> String {
    let output = fixture.trackway(words).stdin(Stdio::null()).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{words:?}: {text}");
    text
}

/// Writes a trace of CTF 1.8 without streams.
fn write_trace(folder: &Path) {
    fs::create_dir_all(folder).expect("a folder");
    let metadata = "/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le; };";
    fs::write(folder.join("metadata"), metadata).expect("metadata");
}

#[test]
fn a_path_that_is_no_trace_gets_an_explanation() {
    let fixture = Fixture::new("messages-no-trace");
    write_trace(&fixture.path("trace"));
    fs::create_dir(fixture.path("empty")).expect("a folder");
    fs::write(fixture.path("file"), "text").expect("a file");
    let explanation = "hint: a trace is a folder with a file 'metadata' and stream files";
    let commands: [&[&str]; 8] = [
        &["print"],
        &["print", "--stats"],
        &["print", "--details"],
        &["print", "--follow"],
        &["trim", "-o", "out"],
        &["merge", "-o", "out", "trace"],
        &["filter", "explain", "x == 1", "--trace"],
        &["filter", "header", "app:request", "--trace"],
    ];
    for command in commands {
        let of = |path| run_failing(&fixture, &[command, &[path]].concat());
        let text = of("file");
        let said = "trackway: \"file\" is not a trace: it is not a folder\n";
        assert!(text.starts_with(said) && text.contains(explanation), "{command:?}: {text}");
        let text = of("trace/metadata");
        assert!(
            text.contains("hint: it is a part of a trace: give its folder, \"trace\"\n"),
            "{text}"
        );
        let text = of("nowhere");
        let said = "trackway: cannot open \"nowhere\": No such file or directory\nhint: ";
        assert!(text.starts_with(said), "{command:?}: {text}");
        // A trace that is followed may still be created.
        if !command.contains(&"--follow") {
            let text = of("empty");
            let said = "trackway: \"empty\" is not a trace: neither it nor a folder in it has a ";
            assert!(text.starts_with(said) && text.contains(explanation), "{command:?}: {text}");
        }
    }
    let text = run_failing(&fixture, &["print", "/etc/passwd"]);
    assert!(text.starts_with("trackway: \"/etc/passwd\" is not a trace: "), "{text}");
}

#[test]
fn errors_of_the_system_are_words() {
    let fixture = Fixture::new("messages-words");
    write_trace(&fixture.path("trace"));
    // The metadata, index and streams of this trace cannot be read.
    fs::create_dir_all(fixture.path("broken/metadata")).expect("a folder");
    std::os::unix::fs::symlink("loop", fixture.path("loop")).expect("a link");
    fs::write(fixture.path("file"), "text").expect("a file");
    let cases: [(&[&str], &str); 15] = [
        (&["print", "loop"], "Too many levels of symbolic links"),
        (&["print", "broken"], ""),
        (&["print", "-o", "/nowhere/file", "trace"], "No such file or directory"),
        (&["trim", "-o", "file", "--begin", "0", "trace"], ""),
        (&["record", "--", "./file"], "Permission denied"),
        (&["record", "-o", "file", "--", "true"], "Not a directory"),
        (&["record", "-o", "/proc/nowhere/x", "--", "true"], "No such file or directory"),
        (&["record", "--config", "nowhere", "--", "true"], ""),
        (&["session", "load", "nowhere"], "No such file or directory"),
        (&["session", "load", "trace"], "Is a directory"),
        (&["bench", "page", "trace"], "Is a directory"),
        (&["bench", "compare", "nowhere", "nowhere"], "No such file or directory"),
        (&["filter", "explain", "--object", "nowhere"], "No such file or directory"),
        (&["recover", "nowhere"], ""),
        (&["print", "--filter-object", "nowhere", "trace"], "No such file or directory"),
    ];
    for (words, part) in cases {
        let text = run_failing(&fixture, words);
        assert!(!text.contains("os error"), "{words:?}: {text}");
        assert!(text.contains(part), "{words:?}: {text}");
    }
    // The output file has no space.
    let full = fs::File::options().write(true).open("/dev/full").expect("it is there");
    let output = fixture.trackway(&["list"]).stdout(full).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("No space left on device"), "{text}");
    assert!(!text.contains("os error"), "{text}");
}

/// The machine code of a program: its functions and their references to addresses.
struct MachineCode {
    /// Functions' first addresses by their mangled names.
    functions: BTreeMap<String, u64>,
    /// Instructions that call or load an address, each with the function that contains the
    /// instruction.
    references: BTreeMap<u64, Vec<(u64, u64)>>,
}

impl MachineCode {
    fn read(program: &Path) -> Self {
        let mut code = Self { functions: BTreeMap::new(), references: BTreeMap::new() };
        let mut function = 0;
        for line in run_for_stdout(Command::new("objdump").args(["-d", "-w"]).arg(program)).lines()
        {
            let hexadecimal = |text: &str| u64::from_str_radix(text, 16).ok();
            let words = || line.split_ascii_whitespace();
            if let Some((address, name)) = line.strip_suffix(">:").and_then(|l| l.split_once(" <"))
            {
                function = hexadecimal(address).unwrap_or_default();
                code.functions.insert(name.to_owned(), function);
                continue;
            }
            let Some(at) = words().next().and_then(|word| hexadecimal(word.strip_suffix(':')?))
            else {
                continue;
            };
            // `lea 0x10(%rip),%rax  # ADDRESS <name>`, `call ADDRESS <name>`
            let target = words().zip(words().skip(1)).find_map(|(word, next)| {
                matches!(word, "#" | "call" | "jmp").then(|| hexadecimal(next)).flatten()
            });
            if let Some(target) = target {
                code.references.entry(target).or_default().push((at, function));
            }
        }
        // References through a word of the global offset table (readelf: offset, information, type,
        // addend).
        for line in run_for_stdout(Command::new("readelf").args(["-rW"]).arg(program)).lines() {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let [offset, _, "R_X86_64_RELATIVE", target] = words[..] else { continue };
            let numbers = [offset, target].map(|word| u64::from_str_radix(word, 16));
            let [Ok(offset), Ok(target)] = numbers else { continue };
            if let Some(indirect) = code.references.get(&offset).cloned() {
                code.references.entry(target).or_default().extend(indirect);
            }
        }
        code
    }
}

fn run_for_stdout(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().expect("it runs");
    assert!(output.status.success(), "{command:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the source lines of these places in functions, as text for people.
fn source_lines_of(program: &Path, places: &BTreeMap<u64, String>) -> Vec<String> {
    let addresses = places.keys().map(|address| format!("{address:x}"));
    let mut command = Command::new("addr2line");
    run_for_stdout(command.arg("-e").arg(program).args(addresses))
        .lines()
        .map(str::to_owned)
        .collect()
}

/// Returns true for functions of the standard library that display their generic arguments:
/// `ToString`, the expansion of `format!`, and references. Their names do not contain the type.
fn forwards_display(name: &str) -> bool {
    ["_ZN4core3fmt", "_ZN5alloc6string"].iter().any(|module| name.starts_with(module))
        || ["$RF$T$u20$as$u20$core..fmt..", "$LT$T$u20$as$u20$alloc..string.."]
            .iter()
            .any(|implementation| name.contains(implementation))
}

/// Returns the places where this workspace's code calls `display`, directly or through functions
/// that pass it on, with the names of the calling functions.
fn find_display_calls(code: &MachineCode, display: u64, own: &str) -> BTreeMap<u64, String> {
    let names: HashMap<u64, &String> =
        code.functions.iter().map(|(name, address)| (*address, name)).collect();
    let (mut pending, mut known) = (vec![display], BTreeSet::from([display]));
    let mut found = BTreeMap::new();
    while let Some(target) = pending.pop() {
        for (at, function) in code.references.get(&target).into_iter().flatten() {
            let Some(name) = names.get(function) else { continue };
            if name.contains(own) {
                found.insert(*at, (*name).clone());
            } else if forwards_display(name) && known.insert(*function) {
                pending.push(*function);
            }
        }
    }
    found
}

/// RUN both commands' machine code through a disassembler. EXPECT that only the crate `console`,
/// which removes the number, displays a system error: the search finds its code, and no other.
#[test]
fn nothing_but_the_console_displays_an_error_of_the_system() {
    if !cfg!(target_arch = "x86_64") {
        return report_skipped("machine code of this processor is not read");
    }
    if let Some(tool) = ["cargo", "objdump", "readelf", "addr2line"].iter().find(|tool| !has(tool))
    {
        return report_skipped(format!("{tool} is not installed"));
    }
    let target = build_dir().parent().expect("a parent").to_owned();
    // Without optimisation, no function is inlined elsewhere.
    let mut cargo = Command::new("cargo");
    // Uses the artefacts that `make test` has compiled for tests: they unwind, and have all
    // features. When cargo builds a test, too, it enables the features of tests.
    cargo.args(["build", "--workspace", "--all-features", "--bin", "trackway"]);
    cargo.args(["--bin", "trackway-bench", "--test", "tidy"]);
    cargo.args(["--offline", "--locked", "--quiet"]).env("CARGO_PROFILE_DEV_PANIC", "unwind");
    cargo.arg("--target-dir").arg(&target).current_dir(source_dir());
    let output = cargo.output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for program in ["debug/trackway", "debug/trackway-bench"].map(|name| target.join(name)) {
        let found = find_system_error_displays(&program, "trackway_");
        let (console, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
            found.into_iter().partition(|(_, name)| name.contains("trackway_console8io_error"));
        assert!(!console.is_empty(), "the code that displays such errors is not found");
        if !others.is_empty() {
            let lines = source_lines_of(&program, &others);
            panic!(
                "display an error of the system by trackway_console::IoError: {others:#?} \
                 {lines:#?}"
            );
        }
    }
    // A seeded fault: this program displays a system error, as text and within a text.
    let error = std::io::Error::from_raw_os_error(libc::ENOENT);
    assert!(shown_as_text(&error).contains("os error"));
    assert!(shown_in_a_text(&error).contains("os error"));
    let this = std::env::current_exe().expect("this program");
    let seeded = find_system_error_displays(&this, "8messages");
    for name in ["shown_as_text", "shown_in_a_text"] {
        assert!(seeded.values().any(|found| found.contains(name)), "{name} not in {seeded:#?}");
    }
}

#[inline(never)]
fn shown_as_text(error: &std::io::Error) -> String {
    error.to_string()
}

#[inline(never)]
fn shown_in_a_text(error: &std::io::Error) -> String {
    format!("it cannot be read: {}", &error)
}

/// Returns the places where functions of a program that have `own` in their names display a
/// [`std::io::Error`].
fn find_system_error_displays(program: &Path, own: &str) -> BTreeMap<u64, String> {
    let code = MachineCode::read(program);
    let is_display = |name: &&String| {
        // std::io::Error in both name mangling schemes of rustc.
        let is_of_std = name.contains("3std2io5error") && name.contains("5Error");
        let is_legacy = name.contains("std..io..error..Error$u20$as$u20$core..fmt..Display");
        is_of_std && name.ends_with("7Display3fmt") && !name.contains("9ErrorKind") || is_legacy
    };
    let names: Vec<&String> = code.functions.keys().filter(is_display).collect();
    let [name] = names[..] else { panic!("Display of std::io::Error: {names:?}") };
    find_display_calls(&code, code.functions[name], own)
}
