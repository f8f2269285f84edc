//! The C++ header: containers and scopes, in every standard; recorded events, refused uses, and the
//! cost of a disabled call, as far as machine code shows it.
//!
//! The sources are in `tests/header/`. A fake agent stands in for `libtrackway.so`.

use std::fs;
use std::process::Command;

use trackway_tests::{Fixture, build_dir, has, lossy_text, report_skipped, source_dir};

use crate::support::{
    accepts_flags, build_program, check_misuse_refused, installed_compilers, instructions_of,
    run_in_parallel, run_program, supported_dialects,
};

/// Output of `cxx_containers.cc`, to the byte, in every standard.
const CONTAINERS_OUTPUT: &str = "\
evaluated 0
strings 20 6c69746572616c0001070000006c69746572616c
strings 16 61727261790002050000006172726179
strings 12 737464000303000000737464
strings 14 6e616d650004040000006e616d65
strings 18 286e756c6c29000506000000286e756c6c29
strings 18 286e756c6c29000506000000286e756c6c29
strings 15 286e756c6c29000503000000737464
terminated 7 286e756c6c2900
strings 20 746f7563686564000607000000746f7563686564
strings 6 000700000000
strings 14 737464000805000000736c696365
strings 13 696e2043000903000000737464
strings 17 6f6620612070616972000a020000007374
strings 18 63686172616374657273000b020000007676
terminated 4 73746400
terminated 8 6c69746572616c00
strings 14 70617468000c0400000070617468
strings 14 76696577000d0400000076696577
strings 11 656d707479000e00000000
strings 12 e280a6000f03000000e280a6
words 37 02000000010000000200000002000000040000000000000005000000000000000100000063
words 31 010000000300000001000000ffffffffffffffff07000000746f7563686564
words 21 000000000100000006000000000000000100000063
words 13 00000000000000000100000063
words 28 010000000100000001000000060000000000000004000000696e2043
words 25 010000000100000001000000ffffffffffffffff0100000063
bytes 6 020000006162
bytes 5 0100000007
bytes 6 020000000100
others 26 020000000100010000000000803f010000000000000000000000
bytes 5 0100000009
words 32 02000000010000000200000001000000ffffffffffffffff040000007370616e
arrays 4 01000200
arrays 4 03000400
arrays 4 03000400
arrays_and_text 12 030004000400000074657874
arrays_and_text 12 000000000400000074657874
arrays_and_text 12 050006000400000074657874
arrays 4 08000900
arrays_and_text 12 000000000400000074657874
none 0
labels 9 01fbffffffffffffff
labels 9 030400000000000000
pointer 9 000000000000000001
strings 27 74656d706c61746500010d0000006f6620612074656d706c617465
words 34 020000000800000009000000010000000700000000000000060000006c616d626461
cut 4000 cut
evaluated 3
";

/// Output of `cxx_scopes.cc`: each begin with its end, in reverse order.
const SCOPES_OUTPUT: &str = "\
evaluated 0
named_begin, depth 1, level 14, more 14
plain_begin, depth 2, level 6, more 0
plain_end, depth 1, level 6, more 0
named_end, depth 0, level 14, more 0
plain_begin, depth 1, level 6, more 0
plain_end, depth 0, level 6, more 0
plain_begin, depth 1, level 6, more 0
here
plain_end, depth 0, level 6, more 0
plain_begin, depth 1, level 6, more 0
plain_end, depth 0, level 6, more 0
named_begin, depth 1, level 14, more 14
named_end, depth 0, level 14, more 0
caught
named_begin, depth 1, level 14, more 19
named_end, depth 0, level 14, more 0
plain_begin, depth 1, level 6, more 0
on again
plain_end, depth 0, level 6, more 0
evaluated 2
";

/// Returns every C++ compiler with every standard that it supports.
fn supported_cxx_dialects(fixture: &Fixture) -> Vec<(&'static str, &'static str)> {
    let mut all = supported_dialects(fixture);
    all.retain(|(_, _, language)| *language == "c++");
    all.into_iter().map(|(compiler, standard, _)| (compiler, standard)).collect()
}

#[test]
fn containers_and_scopes_are_recorded_alike_in_every_standard() {
    let fixture = Fixture::new("cxx-forms");
    let mut jobs = Vec::new();
    for (compiler, standard) in supported_cxx_dialects(&fixture) {
        jobs.push((compiler, standard, &["-O0"][..]));
        jobs.push((compiler, standard, &["-O2"]));
        if standard == "-std=c++17" {
            jobs.push((compiler, standard, &["-O2", "-fno-exceptions", "-fno-rtti"]));
        }
    }
    assert!(jobs.len() >= 12, "few compilers: {jobs:?}");
    let plain = SCOPES_OUTPUT.replace(
        "named_begin, depth 1, level 14, more 14\nnamed_end, depth 0, level 14, more 0\ncaught\n",
        "",
    );
    run_in_parallel(&jobs, |index, (compiler, standard, more)| {
        let what = format!("{compiler} {standard} {}", more.join(" "));
        let flags = [&[*standard, "-x", "c++"], *more].concat();
        for (file, expected) in
            [("cxx_containers", CONTAINERS_OUTPUT), ("cxx_scopes", SCOPES_OUTPUT)]
        {
            let source = format!("{file}.cc");
            let name = format!("{file}{index}");
            let program =
                build_program(&fixture, compiler, &flags, &[&source, "fake_agent.c"], &name);
            let without_exceptions = more.contains(&"-fno-exceptions") && file == "cxx_scopes";
            let expected = match without_exceptions {
                true => plain.replace("evaluated 2", "evaluated 1"),
                false => expected.to_owned(),
            };
            assert_eq!(run_program(&fixture, &program, &[]), expected, "{what} {file}");
        }
    });
}

/// C++ programs can use all forms of the C header, if it is included after the C++ header.
#[test]
fn every_form_of_c_is_taken_behind_the_cxx_header() {
    let fixture = Fixture::new("cxx-of-c");
    let mut jobs = Vec::new();
    for (compiler, standard) in supported_cxx_dialects(&fixture) {
        for mode in ["-O1", "-DTRACKWAY_DISABLE"] {
            for file in ["all_forms.c", "cxx_forms.cc"] {
                jobs.push((compiler, standard, mode, file));
            }
        }
    }
    run_in_parallel(&jobs, |index, (compiler, standard, mode, file)| {
        let flags = [*standard, *mode, "-x", "c++", "-include", "trackway/trackway.hpp"];
        let program = build_program(&fixture, compiler, &flags, &[file], &format!("forms{index}"));
        run_program(&fixture, &program, &[]);
    });
}

#[test]
fn a_scope_may_end_on_another_thread() {
    let fixture = Fixture::new("cxx-coroutine");
    for compiler in installed_compilers(&["g++", "clang++"]) {
        let macros = ["-std=c++20", "-dM", "-E", "-x", "c++", "/dev/null"];
        let known = Command::new(compiler).args(macros).output().expect("the compiler runs");
        if !lossy_text(&known.stdout).contains("__cpp_impl_coroutine") {
            report_skipped(format!("{compiler} has no coroutines"));
            continue;
        }
        for level in ["-O0", "-O2"] {
            let flags = ["-std=c++20", level, "-pthread", "-x", "c++"];
            let sources = ["cxx_coroutine.cc", "fake_agent.c"];
            let program = build_program(&fixture, compiler, &flags, &sources, "coroutine");
            let expected = "scope_begin\nsuspended\nresumed\nscope_end, the same scope\n";
            assert_eq!(run_program(&fixture, &program, &[]), expected, "{compiler} {level}");
        }
    }
}

#[test]
fn compiled_out_nothing_happens() {
    let fixture = Fixture::new("cxx-disabled");
    let flags = ["-O1", "-x", "c++", "-DTRACKWAY_DISABLE"];
    for (compiler, standard) in supported_cxx_dialects(&fixture) {
        let flags = [&[standard], &flags[..]].concat();
        let program = build_program(
            &fixture,
            compiler,
            &flags,
            &["cxx_containers.cc", "fake_agent.c"],
            "off",
        );
        assert_eq!(
            run_program(&fixture, &program, &[]),
            "evaluated 0\nevaluated 0\n",
            "{compiler}"
        );
    }
}

/// Views are read only within their bounds, and not after the call.
#[test]
fn sanitizers_have_nothing_to_say() {
    let fixture = Fixture::new("cxx-sanitizers");
    for compiler in installed_compilers(&["g++", "clang++"]) {
        let sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
        if !accepts_flags(&fixture, compiler, &sanitizers) {
            continue;
        }
        let flags = [&["-std=c++17", "-O1", "-x", "c++"], &sanitizers[..]].concat();
        let sources = ["cxx_containers.cc", "fake_agent.c"];
        let program = build_program(&fixture, compiler, &flags, &sources, "sanitized");
        assert_eq!(run_program(&fixture, &program, &[]), CONTAINERS_OUTPUT, "{compiler}");
    }
}

#[test]
fn stricter_warnings_are_silent() {
    let fixture = Fixture::new("cxx-strict");
    let flags = [
        "-std=c++17",
        "-fsyntax-only",
        "-Wshadow",
        "-Wconversion",
        "-Wsign-conversion",
        "-Wcast-qual",
        "-Wundef",
        "-Wold-style-cast",
        "-Wnon-virtual-dtor",
        "-Wextra-semi",
    ];
    for compiler in installed_compilers(&["g++", "clang++"]) {
        for file in ["cxx_containers.cc", "cxx_scopes.cc", "../../examples/cxx/shop.cc"] {
            build_program(&fixture, compiler, &flags, &[file], "unused");
        }
    }
}

#[test]
fn misuse_of_cxx_is_refused_in_words_that_help() {
    let fixture = Fixture::new("cxx-misuse");
    check_misuse_refused(&fixture, "misuse_cxx", &[(&["g++", "clang++"], &["-std=c++17"])]);
}

/// Counts the instructions of a disabled call before its branch: loads, and other instructions.
fn count_before_branch(code: &[String]) -> (usize, usize) {
    let before = code.iter().take_while(|one| !one.starts_with('j'));
    let (loads, others): (Vec<&String>, Vec<&String>) = before.partition(|one| one.contains('('));
    (loads.len(), others.len())
}

#[test]
fn containers_and_scopes_that_are_off_cost_what_c_costs() {
    let fixture = Fixture::new("cxx-site");
    if !cfg!(target_arch = "x86_64") || !has("objdump") {
        return report_skipped("the check reads x86-64 machine code, with objdump");
    }
    for compiler in installed_compilers(&["g++", "clang++"]) {
        for pic in ["-fPIC", "-fPIE"] {
            let flags = ["-std=c++17", "-O2", "-c", pic];
            let object = build_program(&fixture, compiler, &flags, &["cxx_site.cc"], "site.o");
            let mut objdump = Command::new("objdump");
            objdump.args(["-d", "--no-show-raw-insn"]).arg(&object);
            let listing = lossy_text(&objdump.output().expect("objdump runs").stdout);
            let containers = instructions_of(&listing, "site_containers");
            let pointers = instructions_of(&listing, "site_pointers");
            let what = format!("{compiler} {pic}: {containers:#?} {pointers:#?}");
            let (loads, others) = count_before_branch(&containers);
            assert_eq!(loads, count_before_branch(&pointers).0, "{what}");
            // The compiler may first move an argument from one register to another.
            assert!(loads <= 3 && others <= 2, "{what}");
            assert_eq!(containers[loads + others + 1], "ret", "{what}");

            // A disabled scope consists of a disabled call, a byte stored, and a test of that byte.
            let scope = instructions_of(&listing, "site_scope");
            let called = |one: &String| one.starts_with("call");
            let call = scope.iter().position(called).expect("a call");
            let end = scope.iter().position(|one| one == "ret").expect("an end");
            let memory = scope[..end].iter().filter(|one| one.contains('(')).count();
            let branches = scope[..end].iter().filter(|one| one.starts_with('j')).count();
            let what = format!("{compiler} {pic}: {scope:#?}");
            assert!(!scope[call + 1..end].iter().any(called), "{what}");
            assert!(memory <= 5 && branches <= 2 && end <= 18, "{what}");
        }
    }
}

/// The recorded example: scopes nest, and the trace contains the values that a view referred to.
#[test]
fn the_example_is_recorded_with_typed_fields() {
    let fixture = Fixture::new("cxx-example");
    for compiler in installed_compilers(&["g++", "clang++"]) {
        let program = build_program(
            &fixture,
            compiler,
            &["-std=c++17", "-O2", "-pthread"],
            &["../../examples/cxx/shop.cc"],
            &format!("shop-{compiler}"),
        );
        let trace = fixture.path(&format!("trace-{compiler}"));
        let mut record = fixture.command(build_dir().join("trackway"));
        record.args(["record", "-o"]).arg(&trace).arg("--").arg(&program);
        let output = record.output().expect("trackway runs");
        assert!(output.status.success(), "{}", lossy_text(&output.stderr));
        let printed = fixture.print(&trace);
        let count = |name: &str| printed.matches(&format!(" shop:{name}: ")).count();
        assert_eq!((count("order_begin"), count("order_end")), (200, 200), "{compiler}");
        assert_eq!(count("sold"), 200 - count("refused"));
        assert!(count("refused") > 0);
        assert!(
            printed.contains("customer = \"Ada\", _items_length = 2, items = [ [0] = 1, [1] = 2 ]"),
            "{printed}"
        );
        assert!(printed.contains("why = ( \"sold_out\" : container = 1 )"), "{printed}");
    }
}

/// The first program in the comment of the header.
#[test]
fn the_header_s_own_example_compiles_on_and_off() {
    let fixture = Fixture::new("cxx-comment");
    let header = source_dir().join("include/trackway/trackway.hpp");
    let header = fs::read_to_string(header).expect("the header");
    let lines = header.lines().skip_while(|line| !line.contains("@code")).skip(1);
    let lines = lines.map(|line| line.trim_start_matches(" *"));
    let lines: Vec<&str> = lines.take_while(|line| !line.starts_with("     c++ ")).collect();
    let headers = "#include <string_view>\n#include <vector>\n";
    fs::write(fixture.path("example.cc"), headers.to_owned() + &lines.join("\n"))
        .expect("a source");
    let example = fixture.path("example.cc").display().to_string();
    for compiler in installed_compilers(&["g++", "clang++"]) {
        for mode in ["-DTRACING_ON", "-DTRACKWAY_DISABLE"] {
            let flags = ["-std=c++17", "-O2", mode];
            let program = build_program(&fixture, compiler, &flags, &[&example], "example");
            assert_eq!(run_program(&fixture, &program, &[]), "");
        }
    }
}
