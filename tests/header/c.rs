//! The C header, compiled as C and as C++: accepted and refused uses, recorded events, and the cost
//! of a disabled call, as far as the machine code shows it.
//!
//! The sources are in `tests/header/`. A fake agent stands in for `libtrackway.so`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use trackway_tests::{Fixture, has, lossy_text, report_skipped, source_dir};

use crate::support::{
    accepts_flags, build_program, check_misuse_refused, installed_compilers, instructions_of,
    run_in_parallel, run_program, supported_dialects,
};

#[test]
fn every_standard_accepts_every_form_on_and_off() {
    let fixture = Fixture::new("header-forms");
    let mut jobs = Vec::new();
    for (compiler, standard, language) in supported_dialects(&fixture) {
        for mode in [&["-O0"][..], &["-O2"], &["-O1", "-DTRACKWAY_DISABLE"]] {
            let mut flags = vec![standard, "-x", language];
            flags.extend_from_slice(mode);
            jobs.push((compiler, flags.clone(), "all_forms.c"));
            if language == "c++" {
                jobs.push((compiler, flags, "cxx_forms.cc"));
            }
        }
    }
    run_in_parallel(&jobs, |index, (compiler, flags, file)| {
        let program = build_program(&fixture, compiler, flags, &[file], &format!("forms{index}"));
        run_program(&fixture, &program, &[]);
    });
}

/// Stricter warnings do not report anything, either.
#[test]
fn stricter_warnings_are_silent() {
    let fixture = Fixture::new("header-strict");
    let common = ["-Wshadow", "-Wconversion", "-Wsign-conversion", "-Wcast-qual", "-Wundef"];
    for (compiler, standard, more) in [
        ("gcc", "-std=c11", "-Wmissing-prototypes"),
        ("clang", "-std=c11", "-Wmissing-variable-declarations"),
        ("g++", "-std=c++17", "-Wold-style-cast"),
        ("clang++", "-std=c++17", "-Wold-style-cast"),
    ] {
        if !has(compiler) {
            report_skipped(format!("{compiler} is not installed"));
            continue;
        }
        let mut flags = vec![standard, more, "-fsyntax-only"];
        flags.extend_from_slice(&common);
        if !compiler.ends_with("++") {
            build_program(&fixture, compiler, &flags, &["second_file.c"], "unused");
            build_program(&fixture, compiler, &flags, &["site.c"], "unused");
        } else {
            build_program(&fixture, compiler, &flags, &["cxx_forms.cc"], "unused");
        }
    }
}

#[test]
fn misuse_is_refused_in_words_that_help() {
    let fixture = Fixture::new("header-misuse");
    let cxx = ["-std=c++17", "-x", "c++"];
    let languages: [(&[&str], &[&str]); 2] =
        [(&["gcc", "clang"], &["-std=c11"]), (&["g++", "clang++"], &cxx)];
    check_misuse_refused(&fixture, "misuse", &languages);
}

/// Output of `values.c`, to the byte: the payload layout is a contract.
const VALUES_OUTPUT: &str = "\
registrations 1, enabled 0, evaluated 0
levels 0 14, label has 1 field: a shape 5 scalar 2 red=0..0 green=1..5; \
a shape 3 scalar 6 length 2; b shape 4 scalar 3 length 0; last shape 0 scalar 5 length 0
values:none
values:integers fffefffdfffffffcffffffffffffff12341278563412f0debc9a78563412
values:hexadecimal 12341278563412f0debc9a785634128877665544332211
values:others 0000803f00000000000000c00100
values:strings 61626300ff020000006465ee
values:strings 00ff00000000ee
values:strings 286e756c6c2900ff06000000286e756c6c29ee
values:many 0201040302000000ffffffff05000000ee
values:many 0000000000000000ee
values:label 0300
values:thirty_two 010203043500060708090a0b0c3133000e0f1011121314323100161718191a1b1c3239001e1f20
values:strings 6e616d6500070000000001
enabled 1, evaluated 1
lttng_ust_tracef:event 050000006d73672035
lttng_ust_tracelog:TRACE_DEBUG_SYSTEM 01000000662e63006d61696e000100000035
errno 77
enabled 0, evaluated 1
";

#[test]
fn payloads_are_what_the_contract_says() {
    let fixture = Fixture::new("header-values");
    for compiler in installed_compilers(&["gcc", "clang"]) {
        for level in ["-O0", "-O2", "-O3"] {
            let sources = ["values.c", "fake_agent.c"];
            let program =
                build_program(&fixture, compiler, &["-std=c11", level], &sources, "values");
            assert_eq!(run_program(&fixture, &program, &[]), VALUES_OUTPUT, "{compiler} {level}");
        }
    }
}

#[test]
fn long_values_are_cut() {
    let fixture = Fixture::new("header-limits");
    for compiler in installed_compilers(&["gcc", "clang"]) {
        let mut flags = vec!["-std=c11", "-O1"];
        let sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
        if accepts_flags(&fixture, compiler, &sanitizers) {
            flags.extend_from_slice(&sanitizers);
        }
        let program =
            build_program(&fixture, compiler, &flags, &["limits.c", "fake_agent.c"], "limits");
        assert_eq!(run_program(&fixture, &program, &[]), "", "{compiler}");
    }
}

#[test]
fn a_string_that_changes_meanwhile_leaves_a_whole_record() {
    let fixture = Fixture::new("header-racing");
    for compiler in installed_compilers(&["gcc", "clang"]) {
        let sources = ["racing_string.c", "fake_agent.c"];
        let program =
            build_program(&fixture, compiler, &["-std=c11", "-O2", "-pthread"], &sources, "racing");
        let said = run_program(&fixture, &program, &[]);
        assert!(said.starts_with("wrong 0,"), "{compiler}: {said}");
    }
}

/// Output of `program` with two plugins, sorted: each module's note, and each event once for each
/// module.
const PLUGINS_OUTPUT: &str = "  program:only level 5 fields 0
  shared:unused level 14 fields 1
  shared:unused level 14 fields 1
  shared:unused level 14 fields 1
  shared:visit level 6 fields 2
  shared:visit level 6 fields 2
  shared:visit level 6 fields 2
plugin1.so: version 1, 12 bytes
plugin2.so: version 1, 12 bytes
program: version 1, 12 bytes
program:only
registrations 3
shared:visit 00666972737400
shared:visit 007365636f6e6400
shared:visit 01706c7567696e00
shared:visit 02636f6e7374727563746f7200
shared:visit 02636f6e7374727563746f7200
shared:visit 02706c7567696e00";

#[test]
fn modules_are_found_and_announced_however_they_are_linked() {
    let fixture = Fixture::new("header-modules");
    let mut jobs = Vec::new();
    let ways: [&[&str]; 9] = [
        &["-O0"],
        &["-O2"],
        &["-O2", "-no-pie"],
        &["-O2", "-fPIE", "-pie"],
        &["-O2", "-Wl,--gc-sections", "-ffunction-sections", "-fdata-sections"],
        &["-O2", "-flto"],
        &["-O3", "-flto", "-Wl,--gc-sections"],
        &["-O2", "-fuse-ld=gold", "-Wl,--gc-sections"],
        &["-O2", "-fuse-ld=lld", "-Wl,--gc-sections"],
    ];
    for compiler in installed_compilers(&["gcc", "clang"]) {
        jobs.extend(ways.iter().map(|flags| (compiler, *flags)));
    }
    jobs.retain(|(compiler, flags)| accepts_flags(&fixture, compiler, flags));
    run_in_parallel(&jobs, |index, (compiler, flags)| {
        let mut plugin_flags = vec!["-std=gnu11"];
        plugin_flags.extend(flags.iter().filter(|flag| !flag.ends_with("pie")));
        plugin_flags.extend(["-fPIC", "-shared"]);
        fs::create_dir(fixture.path(&index.to_string())).expect("a folder");
        let name = |file: &str| format!("{index}/{file}");
        let first =
            build_program(&fixture, compiler, &plugin_flags, &["plugin.c"], &name("plugin1.so"));
        let second = fixture.path(&name("plugin2.so"));
        fs::copy(&first, &second).expect("a copy");

        let mut flags = flags.to_vec();
        flags.extend(["-std=gnu11", "-rdynamic"]);
        let sources = ["program.c", "second_file.c", "fake_agent.c"];
        let program = build_program(&fixture, compiler, &flags, &sources, &name("program"));
        let said = run_program(&fixture, &program, &[&first, &second]);
        let mut lines: Vec<&str> = said.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines.join("\n"), PLUGINS_OUTPUT, "{compiler} {}", flags.join(" "));
    });
}

#[test]
fn static_programs_run_with_everything_off_and_carry_the_note() {
    let fixture = Fixture::new("header-static");
    for compiler in installed_compilers(&["gcc", "clang"]) {
        for flags in [&["-static"][..], &["-static", "-O2", "-flto", "-Wl,--gc-sections"]] {
            if !accepts_flags(&fixture, compiler, flags) {
                continue;
            }
            let mut all = flags.to_vec();
            all.extend(["-std=gnu11", "-DSTATIC"]);
            let program = build_program(&fixture, compiler, &all, &["all_forms.c"], "alone");
            run_program(&fixture, &program, &[]);
            let sources = ["program.c", "second_file.c", "fake_agent.c"];
            let program = build_program(&fixture, compiler, &all, &sources, "program");
            let said = run_program(&fixture, &program, &[]);
            assert!(said.contains("registrations 1\nprogram: version 1, 12 bytes\n"), "{said}");
        }
    }
}

/// A library that needs only the C library can be loaded anywhere.
#[test]
fn nothing_needs_the_library() {
    let fixture = Fixture::new("header-undefined");
    if !has("nm") {
        return report_skipped("nm is not installed");
    }
    for compiler in installed_compilers(&["gcc", "clang"]) {
        let flags = ["-std=c11", "-O2", "-fPIC", "-shared", "-Wl,-z,defs"];
        let library = build_program(&fixture, compiler, &flags, &["site.c"], "site.so");
        let output = Command::new("nm").args(["-D", "-u"]).arg(&library).output().expect("nm runs");
        let symbols = lossy_text(&output.stdout);
        let ours: Vec<&str> = symbols.lines().filter(|line| line.contains("trackway")).collect();
        let [only] = ours[..] else { panic!("{compiler}: {symbols}") };
        assert_eq!(only.trim(), "w trackway_abi_register", "{compiler}");
    }
}

#[test]
fn a_call_that_is_off_is_at_most_three_loads_and_a_branch() {
    let fixture = Fixture::new("header-site");
    if !cfg!(target_arch = "x86_64") || !has("objdump") {
        return report_skipped("the check reads x86-64 machine code, with objdump");
    }
    for compiler in installed_compilers(&["gcc", "clang"]) {
        for pic in ["-fPIC", "-fPIE"] {
            let flags = ["-std=c11", "-O2", "-c", pic];
            let object = build_program(&fixture, compiler, &flags, &["site.c"], "site.o");
            let mut objdump = Command::new("objdump");
            objdump.args(["-d", "--no-show-raw-insn"]).arg(&object);
            let listing = lossy_text(&objdump.output().expect("objdump runs").stdout);
            for (function, loads_max) in [("site_none", 3), ("site_three", 3), ("site_printf", 2)] {
                let code = instructions_of(&listing, function);
                let branch = code.iter().position(|one| one.starts_with('j')).expect("a branch");
                let before = &code[..branch];
                let loads = before.iter().filter(|one| one.contains('(')).count();
                let what = format!("{compiler} {pic} {function}: {code:#?}");
                assert!((1..=loads_max).contains(&loads), "{what}");
                assert!(before.len() <= loads_max + 2, "{what}");
                assert!(!before.iter().any(|one| one.starts_with("call")), "{what}");
                assert!(code[branch].starts_with("jne") && code[branch + 1] == "ret", "{what}");
            }
        }
    }
}

#[test]
fn debuggers_find_the_probe() {
    let fixture = Fixture::new("header-sdt");
    if !cfg!(target_arch = "x86_64") || !has("readelf") || !has("objdump") {
        return report_skipped("the probes are for x86-64, and readelf and objdump read them");
    }
    for compiler in installed_compilers(&["gcc", "clang"]) {
        let flags = ["-std=c11", "-O2", "-fPIC", "-shared"];
        let library = build_program(&fixture, compiler, &flags, &["site.c"], "site.so");
        let output = Command::new("readelf").arg("-n").arg(&library).output().expect("it runs");
        let notes = lossy_text(&output.stdout);
        let probe = notes.split("stapsdt ").find(|note| note.contains("Name: three"));
        let probe = probe.unwrap_or_else(|| panic!("{compiler}: {notes}"));
        assert!(probe.contains("Provider: site"), "{probe}");
        // Clang stores the arguments in memory first; GCC leaves them in their registers.
        let arguments = probe.split("Arguments: ").nth(1).and_then(|rest| rest.lines().next());
        let sizes = arguments.expect("arguments").split(' ').map(|one| one.split_once('@'));
        let sizes: Vec<&str> = sizes.map(|one| one.expect("size@operand").0).collect();
        assert_eq!(sizes, ["8", "4", "8"], "{compiler}: {probe}");
        assert!(!probe.contains("Semaphore: 0x0000000000000000"), "{probe}");
        let location = probe.split("Location: ").nth(1).and_then(|rest| rest.split(',').next());
        let location = location.expect("a location");
        let mut objdump = Command::new("objdump");
        objdump.args(["-d", &format!("--start-address={location}")]).arg(&library);
        let listing = lossy_text(&objdump.output().expect("objdump runs").stdout);
        let bytes: Vec<&str> = listing
            .lines()
            .filter_map(|line| line.split('\t').nth(1))
            .flat_map(str::split_whitespace)
            .take(11)
            .collect();
        assert_eq!(bytes.join(" "), "90 66 2e 0f 1f 84 00 00 00 00 00", "{compiler}");
    }
}

#[test]
fn a_raised_semaphore_makes_the_call_but_records_nothing() {
    let fixture = Fixture::new("header-semaphore");
    if !cfg!(target_arch = "x86_64") {
        return report_skipped("the probes are for x86-64");
    }
    for compiler in installed_compilers(&["gcc", "clang"]) {
        let sources = ["semaphore.c", "fake_agent.c"];
        let program =
            build_program(&fixture, compiler, &["-std=c11", "-O2"], &sources, "semaphore");
        let expected = "evaluated 1, enabled 1\nsemaphore:raised 02000000\n";
        assert_eq!(run_program(&fixture, &program, &[]), expected, "{compiler}");
    }
}

/// The header still compiles for machines that the library does not support, without probes.
#[test]
fn other_machines_compile_the_header() {
    let fixture = Fixture::new("header-machines");
    if !has("clang") {
        return report_skipped("clang is not installed");
    }
    // The C library's headers for these machines are not installed; the header needs only this part
    // of them.
    let folder = fixture.path("freestanding");
    fs::create_dir(&folder).expect("a folder");
    fs::write(folder.join("errno.h"), "extern int errno;\n").expect("a file");
    for machine in ["aarch64-linux-gnu", "riscv64-linux-gnu", "armv7-linux-gnueabihf", "i386-linux"]
    {
        let target = format!("--target={machine}");
        if !accepts_flags(&fixture, "clang", &[&target, "-ffreestanding", "-c"]) {
            continue;
        }
        let include = format!("-isystem{}", folder.display());
        let flags = ["-std=c11", "-O2", "-c", "-fPIC", "-ffreestanding", &target, &include];
        build_program(&fixture, "clang", &flags, &["site.c"], "site.o");
        build_program(&fixture, "clang", &flags, &["second_file.c"], "second.o");
    }
}

/// Builds the preload helpers with the Makefile's commands, in a folder of this test.
fn build_preload_helpers(fixture: &Fixture) -> [PathBuf; 2] {
    ["libc", "pthread"].map(|name| {
        let file = format!("libtrackway-{name}.so");
        let soname = format!("-Wl,-soname,{file}");
        let code = format!("../../preload/{name}.c");
        let flags = ["-std=c11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-Wl,-z,now"];
        build_program(fixture, "cc", &[&flags[..], &[&soname]].concat(), &[&code], &file)
    })
}

fn join_paths(libraries: &[PathBuf]) -> String {
    let names: Vec<String> = libraries.iter().map(|path| path.display().to_string()).collect();
    names.join(" ")
}

#[test]
fn preload_helpers_record_what_a_program_does() {
    let fixture = Fixture::new("header-preload");
    let flags = ["-std=c11", "-O1", "-rdynamic", "-pthread"];
    let program =
        build_program(&fixture, "cc", &flags, &["preload_check.c", "fake_agent.c"], "check");
    let mut command = fixture.command(&program);
    let output = command
        .env("LD_PRELOAD", join_paths(&build_preload_helpers(&fixture)))
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{:?}: {}", output.status, lossy_text(&output.stderr));
}

#[test]
fn preload_helpers_leave_any_program_alone() {
    let fixture = Fixture::new("header-programs");
    let helpers = build_preload_helpers(&fixture);
    let flags = ["-std=c11", "-O2", "-fPIC", "-shared"];
    let agent =
        build_program(&fixture, "cc", &flags, &["noisy_agent.c", "fake_agent.c"], "agent.so");
    let with_agent = [agent, helpers[0].clone(), helpers[1].clone()];
    let counts = fixture.path("counts");
    for words in [
        "ls /",
        "bash -c true|cat</dev/null",
        "python3 -c import&threading",
        "xz -T2 -0 -c /bin/sh",
    ] {
        let words: Vec<String> = words.split(' ').map(|word| word.replace('&', " ")).collect();
        if !has(&words[0]) {
            report_skipped(format!("{} is not installed", words[0]));
            continue;
        }
        let alone = fixture.command(&words[0]).args(&words[1..]).output().expect("it runs");
        for libraries in [&helpers[..], &with_agent] {
            let mut command = fixture.command(&words[0]);
            command.args(&words[1..]).env("LD_PRELOAD", join_paths(libraries));
            let output = command.env("NOISY_AGENT_FILE", &counts).output().expect("it runs");
            assert_eq!(output, alone, "{words:?}");
        }
        assert!(fs::read_to_string(&counts).expect("the counts").starts_with("recorded "));
    }
}

/// Returns the first program in the header's own comment.
fn read_header_example() -> String {
    let header = source_dir().join("include/trackway/trackway.h");
    let header = fs::read_to_string(header).expect("the header");
    let lines = header.lines().map(|line| line.trim_start_matches(" *"));
    let lines = lines.skip_while(|line| !line.starts_with("     #include"));
    let lines: Vec<&str> = lines.take_while(|line| !line.starts_with("     cc ")).collect();
    lines.join("\n")
}

#[test]
fn the_examples_compile_on_and_off() {
    let fixture = Fixture::new("header-example");
    let example = fixture.path("example.c");
    fs::write(&example, read_header_example()).expect("a source");
    let example = example.to_string_lossy();
    for compiler in installed_compilers(&["gcc", "clang"]) {
        for mode in ["-DTRACING_ON", "-DTRACKWAY_DISABLE"] {
            let flags = ["-std=c11", "-O2", "-pthread", mode];
            let program =
                build_program(&fixture, compiler, &flags, &["../../examples/c/hello.c"], "hello");
            assert_eq!(run_program(&fixture, &program, &[]), "answered 4000 requests\n");
            let program = build_program(&fixture, compiler, &flags, &[&example], "example");
            assert_eq!(run_program(&fixture, &program, &[]), "");
        }
    }
}
