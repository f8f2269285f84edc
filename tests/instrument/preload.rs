//! The preload helpers: every wrapped function leaves its events, and every program runs as without
//! the helpers.
//!
//! The programs in `tests/preload/` print the events that their calls must leave in the trace.
//!
//! Longer than 600 lines: the tests share the helpers and the programs that call them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use trackway_tests::{Fixture, Recording, build_dir, has, lossy_text, report_skipped, source_dir};

const PRELOAD_HELPERS: [&str; 5] = ["libc", "pthread", "dl", "fd", "fork"];

fn helper_path(helper: &str) -> PathBuf {
    build_dir().join(format!("libtrackway-{helper}.so"))
}

/// Returns the events of a trace as `PROVIDER:NAME FIELDS`, in the order of time.
fn printed_events(fixture: &Fixture, recording: &Recording) -> Vec<String> {
    let event = |line: &str| {
        let (_, rest) = line.split_once(") ").expect("a time");
        let (_, rest) = rest.split_once(' ').expect("a host");
        let (name, rest) = rest.split_once(": {").expect("a name");
        let (_, fields) = rest.split_once("}, {").expect("a context");
        format!("{name} {}", fields.strip_suffix('}').expect("an end").trim())
    };
    fixture.print(&recording.trace).lines().map(event).collect()
}

/// Records a program that prints its expected events, with a helper. Returns the expected and the
/// recorded events.
fn record_with_helper(
    fixture: &Fixture,
    helper: &str,
    program: &Path,
    arguments: &[&str],
) -> (Vec<String>, Vec<String>) {
    let mut command = vec![program.to_str().expect("a name")];
    command.extend(arguments);
    let options = ["--context", "none", "--preload", helper];
    let recording = fixture.record(&options, &command);
    assert!(recording.output.status.success(), "{}", recording.messages());
    assert_eq!(recording.summary.lost, 0, "{}", recording.messages());
    let expected = lossy_text(&recording.output.stdout).lines().map(str::to_owned).collect();
    (expected, printed_events(fixture, &recording))
}

/// Compares line by line, so that a failure shows the position.
fn assert_same_events(expected: &[String], found: &[String]) {
    assert!(!expected.is_empty(), "the program expects nothing");
    for (number, (expected, found)) in expected.iter().zip(found).enumerate() {
        assert_eq!(expected, found, "event {number}");
    }
    assert_eq!(expected.len(), found.len(), "{:?}", found.get(expected.len()));
}

/// Returns the number of occurrences of each name, as `NAME COUNT`.
fn count_by_name(events: &[String]) -> Vec<String> {
    let mut counts = BTreeMap::new();
    for event in events {
        *counts.entry(event.split(' ').next().expect("a name")).or_insert(0) += 1;
    }
    counts.into_iter().map(|(name, count)| format!("{name} {count}")).collect()
}

#[test]
fn every_pthread_function_leaves_its_events() {
    let fixture = Fixture::new("preload-pthread");
    let program = fixture.compile_file("preload/pthread.c", false, &[]);
    let (expected, found) = record_with_helper(&fixture, "pthread", &program, &["each"]);
    assert_same_events(&expected, &found);
    assert!(expected.len() >= 50, "{} events", expected.len());
}

#[test]
fn threads_that_are_cancelled_while_they_wait_hold_their_mutex_and_are_recorded_on() {
    let fixture = Fixture::new("preload-cancel");
    let program = fixture.compile_file("preload/pthread.c", false, &[]);
    let (expected, found) = record_with_helper(&fixture, "pthread", &program, &["cancel"]);
    assert_same_events(&expected, &found);
}

#[test]
fn signal_handlers_that_post_or_jump_out_of_a_wait_are_recorded() {
    let fixture = Fixture::new("preload-signals");
    let program = fixture.compile_file("preload/pthread.c", false, &[]);
    let (expected, found) = record_with_helper(&fixture, "pthread", &program, &["signals"]);
    assert_same_events(&expected, &found);
}

/// A handler that interrupts a lock function is not inside it, and a jump out of a lock function
/// leaves it.
#[test]
fn signal_handlers_that_post_or_jump_out_of_a_lock_are_recorded() {
    let fixture = Fixture::new("preload-jumps");
    let program = fixture.compile_file("preload/pthread.c", false, &[]);
    let (expected, found) = record_with_helper(&fixture, "pthread", &program, &["jumps"]);
    assert_same_events(&expected, &found);
    assert!(expected.len() >= 60, "{} events", expected.len());
}

/// The release comes first in the trace, even if the wrapped function returns late.
#[test]
fn releases_are_recorded_before_the_next_acquisition() {
    let fixture = Fixture::new("preload-handover");
    let source = source_dir().join("tests/preload/handover.c");
    let library = fixture.path("slow.so");
    let mut cc = fixture.command("cc");
    cc.args(["-O2", "-shared", "-fPIC", "-DLIBRARY", "-o"]).arg(&library).arg(source);
    let output = cc.output().unwrap();
    assert!(output.status.success(), "{}", lossy_text(&output.stderr));
    let program = fixture.compile_file("preload/handover.c", false, &["-rdynamic"]);
    let trace = fixture.path("trace");
    let mut recorder = fixture.trackway(&["record", "--context", "none", "--preload", "pthread"]);
    recorder.arg("-o").arg(&trace).arg("--").arg(&program).env("LD_PRELOAD", &library);
    let recording = Recording::new(trace, recorder.output().expect("trackway runs"));
    assert!(recording.output.status.success(), "{}", recording.messages());
    let expected: Vec<String> =
        lossy_text(&recording.output.stdout).lines().map(str::to_owned).collect();
    assert_same_events(&expected, &printed_events(&fixture, &recording));
    assert!(expected.len() >= 20, "{} events", expected.len());
}

/// In the trace, a lock's release precedes its next acquisition.
#[test]
fn no_lock_has_two_holders_in_the_trace() {
    let fixture = Fixture::new("preload-order");
    let program = fixture.compile_file("preload/pthread.c", false, &[]);
    let (_, found) = record_with_helper(&fixture, "pthread", &program, &["contend", "10000"]);
    for (lock, unlock) in [
        ("lttng_ust_pthread:pthread_mutex_lock_acq ", "lttng_ust_pthread:pthread_mutex_unlock "),
        ("trackway_pthread:rwlock_wrlock_acq ", "trackway_pthread:rwlock_unlock "),
    ] {
        let (mut is_held, mut locked) = (false, 0);
        for (number, event) in found.iter().enumerate() {
            if event.starts_with(lock) {
                assert!(
                    !is_held,
                    "event {number}: {:#?}",
                    &found[number.saturating_sub(9)..=number]
                );
                is_held = true;
                locked += 1;
            } else if event.starts_with(unlock) {
                assert!(is_held, "event {number}: {event}");
                is_held = false;
            }
        }
        assert_eq!(locked, 40_000, "{lock}");
    }
}

#[test]
fn events_of_many_threads_add_up() {
    let fixture = Fixture::new("preload-threads");
    let program = fixture.compile_file("preload/pthread.c", false, &[]);
    let (expected, found) = record_with_helper(&fixture, "pthread", &program, &["threads", "300"]);
    assert_eq!(expected, count_by_name(&found));
}

#[test]
fn every_function_that_makes_descriptors_leaves_its_events() {
    let fixture = Fixture::new("preload-fd");
    let program = fixture.compile_file("preload/fd.c", false, &[]);
    let (expected, found) = record_with_helper(&fixture, "fd", &program, &[]);
    assert_same_events(&expected, &found);
}

#[test]
fn every_function_that_makes_processes_leaves_its_events() {
    let fixture = Fixture::new("preload-fork");
    let program = fixture.compile_file("preload/fork.c", false, &[]);
    let (mut expected, mut found) = record_with_helper(&fixture, "fork", &program, &[]);
    // With several processes, only the events of each process are ordered.
    expected.sort();
    found.sort();
    assert_same_events(&expected, &found);
}

#[test]
fn every_allocation_function_leaves_its_events() {
    let fixture = Fixture::new("preload-libc");
    let program = fixture.compile_file("preload/allocations.c", false, &[]);
    let (expected, found) = record_with_helper(&fixture, "libc", &program, &[]);
    let begin = found.iter().position(|event| event.contains("size = 424242,"));
    let found = &found[begin.expect("the program's first")..];
    assert_same_events(&expected, &found[..expected.len().min(found.len())]);
}

/// The pool serves allocations until the C library's allocator has been looked up.
#[test]
fn threads_share_the_libc_helpers_pool() {
    let fixture = Fixture::new("preload-pool");
    let program = fixture.compile_file("preload/pool.c", false, &[]);
    let output = fixture.command(program).arg("20000").output().unwrap();
    assert!(output.status.success(), "{:?}: {}", output.status, lossy_text(&output.stderr));
}

/// Makes libplugin.so, which needs libneeded.so, as `tests/preload/dl.c` describes. Returns the CRC
/// of its debug link.
fn build_plugin(fixture: &Fixture, folder: &Path) -> String {
    let run = |program: &str, arguments: &[&str]| {
        let output = fixture.command(program).current_dir(folder).args(arguments).output().unwrap();
        assert!(output.status.success(), "{program}: {}", lossy_text(&output.stderr));
        lossy_text(&output.stdout)
    };
    fs::create_dir(folder).unwrap();
    fs::write(folder.join("needed.c"), "int needed(void) { return 1; }\n").unwrap();
    let plugin = "int needed(void);\nint plugged(void) { return needed(); }\n";
    fs::write(folder.join("plugin.c"), plugin).unwrap();
    let shared = ["-shared", "-fPIC", "-g"];
    let needed = ["-Wl,--build-id=none", "needed.c", "-o", "libneeded.so"];
    run("cc", &[&shared[..], &needed].concat());
    let plugin = ["-Wl,--build-id=0xC0FFEE11", "plugin.c", "-o", "libplugin.so"];
    let needed = ["-L.", "-lneeded", "-Wl,-rpath,$ORIGIN"];
    run("cc", &[&shared[..], &plugin, &needed].concat());
    run("objcopy", &["--only-keep-debug", "libplugin.so", "plugin.debug"]);
    run("objcopy", &["--strip-debug", "--add-gnu-debuglink=plugin.debug", "libplugin.so"]);
    let links = run("readelf", &["--string-dump=.gnu_debuglink", "libplugin.so"]);
    assert!(links.contains("plugin.debug"), "{links}");
    let bytes = fs::read(folder.join("plugin.debug")).unwrap();
    crc32(&bytes).to_string()
}

/// Computes the CRC-32 of debug links, which is that of IEEE 802.3.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 }
        })
    })
}

#[test]
fn shared_objects_are_recorded_when_they_are_there_come_and_go() {
    if !has("objcopy") {
        return report_skipped("objcopy is not installed");
    }
    let fixture = Fixture::new("preload-dl");
    let folder = fixture.path("plugins");
    let crc = build_plugin(&fixture, &folder);
    let rpath = format!("-Wl,-rpath,{}", folder.display());
    let program = fixture.compile_file("preload/dl.c", false, &["-ldl", &rpath]);
    let (said, found) = record_with_helper(&fixture, "dl", &program, &[folder.to_str().unwrap()]);

    // The state dump lists the objects at the start, in the loader's order.
    let at = said.iter().position(|line| line.starts_with("lttng_ust_dl:dlopen")).unwrap();
    let objects: Vec<&str> =
        said[..at].iter().filter_map(|line| line.split_once(' ')).map(|it| it.1).collect();
    assert_eq!(found[0], "lttng_ust_statedump:start ");
    let end = found.iter().position(|event| event == "lttng_ust_statedump:end ").unwrap();
    let infos = found[..end].iter().filter(|it| it.starts_with("lttng_ust_statedump:bin_info "));
    let infos: Vec<&String> = infos.collect();
    assert_eq!(infos.len(), objects.len(), "{infos:#?}");
    for (info, object) in infos.iter().zip(&objects) {
        let words: Vec<&str> = object.split(' ').collect();
        let place = format!("bin_info baddr = {}, memsz = {}, path = \"", words[0], words[1]);
        let path = words.get(2).copied().unwrap_or_default();
        assert!(info.contains(&format!("{place}{path}")), "{info}\n{object}");
    }
    let libc = infos.iter().find(|info| info.contains("/libc.so.6\"")).expect("a canonical path");
    assert!(libc.contains("is_pic = 1, has_build_id = 1"), "{libc}");

    // Calls follow in order, until there is a child process, which repeats all events.
    let child = said.iter().position(|line| line == "child").unwrap();
    let memsz = |line: &str| -> String {
        let (_, rest) = line.split_once("memsz = ").unwrap();
        rest.split(',').next().unwrap().to_owned()
    };
    let memsz = memsz(&said[at]);
    let expected: Vec<String> = said[at..child]
        .iter()
        .map(|line| {
            line.replace("= CRC,", &format!("= {crc},")).replace("= MEMSZ,", &format!("= {memsz},"))
        })
        .collect();
    let found = &found[end + 1..];
    assert_same_events(&expected, &found[..expected.len()]);
    let rest = count_by_name(&found[expected.len()..]);
    for line in [
        "lttng_ust_dl:dlclose 200",
        "lttng_ust_dl:dlopen 200",
        "lttng_ust_lib:load 400",
        "lttng_ust_lib:unload 400",
        "lttng_ust_statedump:start 1",
        "lttng_ust_statedump:end 1",
    ] {
        assert!(rest.iter().any(|count| count == line), "{line}: {rest:#?}");
    }
}

/// exit() does not wait for threads in the loader; the helper must not wait, either.
#[test]
fn programs_end_with_the_dl_helper_whoever_is_in_the_loader() {
    let fixture = Fixture::new("preload-exit");
    let program = fixture.compile_file("preload/exit.c", false, &["-ldl"]);
    let program = program.to_str().unwrap();
    for (case, status) in [("child", 0), ("threads", 5)] {
        for command in [&[program, case][..], &[program, case, "jumped"]] {
            let alone = fixture.command(command[0]).args(&command[1..]).output().unwrap();
            assert_eq!(alone.status.code(), Some(status), "{command:?}: {:?}", alone.status);
            let recording = fixture.record(&["--preload", "dl"], command);
            assert_same_outcome(&alone, &recording.output, &command.join(" "));
        }
    }
}

/// The loader searches the DT_RPATHs of all objects that needed the caller of `dlopen`.
#[test]
fn objects_that_are_found_by_inherited_rpaths_are_found_with_the_dl_helper() {
    let fixture = Fixture::new("preload-rpath");
    let source = source_dir().join("tests/preload/rpath.c");
    let source = source.to_str().unwrap();
    let folder = fixture.path("inherited");
    fs::create_dir(&folder).unwrap();
    let rpath = format!("-Wl,--disable-new-dtags,-rpath,{}", folder.display());
    let shared = ["-shared", "-fPIC"];
    for arguments in [
        &[&shared[..], &["-DANSWER", "-o", "inherited/libanswer.so"]].concat()[..],
        &[&shared[..], &["-DOPENER", "-o", "inherited/libopener.so"]].concat(),
        &[&shared[..], &["-DHOLDER", "-o", "holder.so", "-Linherited", "-lopener", &rpath]]
            .concat(),
        &["-o", "rpath", "./holder.so", "-Wl,-rpath-link,inherited"],
    ] {
        let output = fixture.command("cc").arg(source).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", lossy_text(&output.stderr));
    }
    let alone = fixture.command("./rpath").arg("libanswer.so").output().unwrap();
    assert!(alone.status.success(), "{}", lossy_text(&alone.stderr));
    let options = ["--context", "none", "--preload", "dl"];
    let recording = fixture.record(&options, &["./rpath", "libanswer.so"]);
    assert!(recording.output.status.success(), "{}", recording.messages());
    let found = printed_events(&fixture, &recording);
    let mut loads = found.iter().filter(|event| event.starts_with("lttng_ust_lib:load "));
    let path = format!("path = \"{}\"", folder.join("libanswer.so").display());
    assert!(loads.any(|event| event.contains(&path)), "{found:#?}");
}

/// An object that is not in the system's folders is not found with the helper, either.
#[test]
fn objects_without_default_folders_keep_to_that_with_the_dl_helper() {
    let fixture = Fixture::new("preload-nodefaultlib");
    let source = source_dir().join("tests/preload/rpath.c");
    let source = source.to_str().unwrap();
    for arguments in [
        &["-shared", "-fPIC", "-DOPENER", "-Wl,-z,nodefaultlib", "-o", "opener.so"][..],
        &["-shared", "-fPIC", "-DHOLDER", "-o", "holder.so", "./opener.so"],
        &["-o", "rpath", "./holder.so", "./opener.so"],
    ] {
        let output = fixture.command("cc").arg(source).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", lossy_text(&output.stderr));
    }
    let refused = "libresolv.so.2: cannot open shared object file";
    let alone = fixture.command("./rpath").arg("libresolv.so.2").output().unwrap();
    assert!(lossy_text(&alone.stderr).contains(refused), "{}", lossy_text(&alone.stderr));
    let recording = fixture.record(&["--preload", "dl"], &["./rpath", "libresolv.so.2"]);
    assert_eq!(recording.output.status.code(), Some(1), "{}", recording.messages());
    assert!(recording.messages().contains(refused), "{}", recording.messages());
}

#[test]
fn babeltrace_takes_in_what_the_dl_helper_says() {
    if !has("babeltrace2") {
        return report_skipped("babeltrace2 is not installed");
    }
    let fixture = Fixture::new("preload-debug-info");
    let source = "#include <trackway/trackway.h>\nTRACKWAY_EVENT(a, b, TRACKWAY_INFO);\n\
                  int main(void) { trackway(a, b); return 0; }\n";
    let program = fixture.compile("app", source, false, &["-g"]);
    let options = ["--context", "vpid", "--preload", "dl"];
    let recording = fixture.record(&options, &[program.to_str().unwrap()]);
    assert!(recording.output.status.success(), "{}", recording.messages());
    // Without an `ip` context, the analysis has nothing to look up; it must read the other fields.
    let mut babeltrace = fixture.command("babeltrace2");
    let output = babeltrace.arg("--debug-info").arg(&recording.trace).output().unwrap();
    assert!(output.status.success(), "{}", lossy_text(&output.stderr));
    assert!(lossy_text(&output.stdout).contains("lttng_ust_statedump:bin_info"));
}

/// Returns the symbols that a library exports.
fn exported_symbols(path: &Path) -> BTreeSet<String> {
    let mut readelf = Command::new("readelf");
    let output = readelf.args(["-W", "--dyn-syms"]).arg(path).output().expect("readelf runs");
    let output = lossy_text(&output.stdout);
    output
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|words| words.len() >= 8 && words[4] != "LOCAL" && words[5] == "DEFAULT")
        .filter(|words| words[6] != "UND")
        .map(|words| words[7].split('@').next().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn helpers_export_what_they_wrap_and_nothing_else() {
    if !has("readelf") {
        return report_skipped("readelf is not installed");
    }
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let libc = maps.split_whitespace().find(|word| word.ends_with("/libc.so.6")).unwrap();
    let libc = exported_symbols(Path::new(libc));
    let mut seen = BTreeSet::new();
    for helper in PRELOAD_HELPERS {
        let exports = exported_symbols(&helper_path(helper));
        assert!(exports.len() >= 3, "{helper}: {exports:?}");
        for name in exports {
            assert!(libc.contains(&name), "{helper} exports {name}, which is no libc function");
            assert!(seen.insert(name.clone()), "two helpers wrap {name}");
        }
    }
    assert!(seen.len() > 100, "{} functions", seen.len());
}

/// The guide lists the functions that the helpers leave out.
#[test]
fn the_guide_lists_functions_that_are_not_wrapped() {
    if !has("readelf") {
        return report_skipped("readelf is not installed");
    }
    let guide = fs::read_to_string(source_dir().join("docs/guides/preload.md")).unwrap();
    let (_, list) = guide.split_once("### Functions that are not wrapped").expect("a section");
    let (list, _) = list.split_once("\n## ").expect("its end");
    let names: BTreeSet<&str> = list.split('`').skip(1).step_by(2).collect();
    for name in ["getpt", "setmntent", "pclose", "pidfd_spawn", "pidfd_spawnp", "openpty"] {
        assert!(names.contains(name), "{name} is not in {names:?}");
    }
    let wrapped: BTreeSet<String> =
        PRELOAD_HELPERS.iter().flat_map(|it| exported_symbols(&helper_path(it))).collect();
    for name in names.into_iter().filter(|name| !PRELOAD_HELPERS.contains(name)) {
        assert!(!wrapped.contains(name), "{name} is wrapped");
    }
}

#[test]
fn helpers_need_the_c_library_alone_and_no_thread_storage_that_allocates() {
    if !has("readelf") {
        return report_skipped("readelf is not installed");
    }
    for helper in PRELOAD_HELPERS {
        let mut readelf = Command::new("readelf");
        let output = readelf.args(["-W", "-d", "-r"]).arg(helper_path(helper)).output().unwrap();
        let output = lossy_text(&output.stdout);
        let needed: Vec<&str> = output.lines().filter(|line| line.contains("(NEEDED)")).collect();
        assert_eq!(needed.len(), 1, "{helper}: {needed:?}");
        assert!(needed[0].contains("libc.so"), "{helper}: {needed:?}");
        assert!(!output.contains("DTPMOD64"), "{helper} has lazily allocated thread storage");
    }
}

/// `vfork` is the only function in assembly: branches to it may be tracked, and it can be unwound.
#[test]
fn vfork_begins_with_a_landing_pad_and_has_unwind_information() {
    if !has("objdump") {
        return report_skipped("objdump is not installed");
    }
    let run = |program: &str, arguments: &[&str]| {
        let output =
            Command::new(program).args(arguments).arg(helper_path("fork")).output().unwrap();
        assert!(output.status.success(), "{program}: {}", lossy_text(&output.stderr));
        lossy_text(&output.stdout)
    };
    let code = run("objdump", &["-d", "--no-show-raw-insn", "--disassemble=vfork"]);
    let (before, code) = code.split_once(" <vfork>:\n").expect("a function");
    let address = before.rsplit('\n').next().unwrap();
    assert!(code.lines().next().unwrap().ends_with("endbr64"), "{code}");
    let frames = run("readelf", &["--debug-dump=frames-interp"]);
    let (_, frame) = frames.split_once(&format!(" pc={address}..")).expect("unwind information");
    let offsets: Vec<&str> = frame.split("\n\n").next().unwrap().lines().skip(2).collect();
    let offsets: Vec<_> = offsets.iter().map(|it| it.split_whitespace().nth(1)).collect();
    assert_eq!(offsets, [Some("rsp+8"), Some("rsp+16"), Some("rsp+8")], "{frame}");
}

#[test]
fn every_helper_compiles_without_a_warning() {
    let fixture = Fixture::new("preload-compile");
    let strict = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wshadow", "-fPIC"];
    for compiler in ["gcc", "clang"] {
        if !has(compiler) {
            report_skipped(format!("{compiler} is not installed"));
            continue;
        }
        for helper in PRELOAD_HELPERS {
            let mut command = fixture.command(compiler);
            command.args(strict).args(["-O2", "-fsyntax-only", "-I"]);
            command.arg(source_dir().join("include"));
            command.arg(source_dir().join(format!("preload/{helper}.c")));
            let output = command.output().unwrap();
            assert!(output.status.success(), "{compiler} {helper}: {}", lossy_text(&output.stderr));
        }
    }
}

/// The resolver of an indirect function runs before the helpers are relocated: at that time there
/// are no events, no C library functions and no errno.
#[test]
fn calls_before_relocation_work() {
    let fixture = Fixture::new("preload-early");
    let source = source_dir().join("tests/preload/early.c");
    let source = source.to_str().unwrap();
    for arguments in [
        &["-shared", "-fPIC", "-DLIBRARY", "-o", "libearly.so"][..],
        &["-shared", "-fPIC", "-DUSER", "-o", "libuser.so", "-L.", "-learly"],
        &["-o", "early", "-L.", "-luser", "-Wl,-rpath-link,."],
    ] {
        let mut cc = fixture.command("cc");
        cc.args(["-O2", "-Wl,-z,now", "-Wl,--no-as-needed", source]).args(arguments);
        let output = cc.output().unwrap();
        assert!(output.status.success(), "{}", lossy_text(&output.stderr));
    }
    let run = |preload: &str, program: &[&str]| {
        let mut command = fixture.command(program[0]);
        command.args(&program[1..]).env("LD_LIBRARY_PATH", ".").env("LD_PRELOAD", preload);
        command.output().unwrap()
    };
    assert!(run("", &["./early"]).status.success(), "without a helper");
    for helper in PRELOAD_HELPERS {
        let output = run(helper_path(helper).to_str().unwrap(), &["./early"]);
        assert!(output.status.success(), "{helper}: {:?}", output.status);
    }
    let recording = fixture.record(&["--preload", "all"], &["env", "LD_LIBRARY_PATH=.", "./early"]);
    assert!(recording.output.status.success(), "{}", recording.messages());
}

// --- Chains of preloaded libraries ---------------------------------------------------------------

/// Calls of `tests/preload/mixed.c` with events that no other code in the process emits.
const MIXED_CALLS: [&str; 3] = [
    "trackway_pthread:cond_broadcast 2000",
    "trackway_pthread:sem_post 2000",
    "trackway_fork:fork 5",
];

/// Checks the recording, which with `allocations` must also contain the calls of realloc(3).
fn check_mixed_calls(fixture: &Fixture, recording: &Recording, allocations: bool, what: &str) {
    let messages = recording.messages();
    assert!(recording.output.status.success(), "{what}: {messages}");
    assert!(lossy_text(&recording.output.stdout).contains("done"), "{what}: {messages}");
    assert_eq!(recording.summary.lost, 0, "{what}: {messages}");
    let found = printed_events(fixture, recording);
    let numbers = count_by_name(&found);
    for expected in MIXED_CALLS {
        assert!(numbers.iter().any(|count| count == expected), "{what}: {expected}: {numbers:#?}");
    }
    // Some allocators lock, too.
    let unlocked = found.iter().filter(|it| it.starts_with("lttng_ust_pthread:pthread_mutex_unl"));
    assert!(unlocked.count() >= 2000, "{what}: {numbers:#?}");
    let opened = found.iter().filter(|event| event.contains("path = \"/dev/null\"")).count();
    assert_eq!(opened, 2000, "{what}");
    if allocations {
        let grown = found.iter().filter(|it| it.starts_with("lttng_ust_libc:realloc "));
        let grown = grown.filter(|event| event.contains("size = 700,")).count();
        assert_eq!(grown, 2000, "{what}");
    }
}

fn record_mixed_calls(fixture: &Fixture, command: &[&str], preload: Option<&Path>) -> Recording {
    let trace = fixture.path("trace");
    let mut recorder = fixture.trackway(&["record", "--context", "none", "--preload", "all"]);
    recorder.args(["--buffer-size", "16M", "-o"]).arg(&trace).arg("--").args(command);
    if let Some(library) = preload {
        recorder.env("LD_PRELOAD", library);
    }
    Recording::new(trace, recorder.output().expect("trackway runs"))
}

#[test]
fn helpers_work_with_other_allocators() {
    let fixture = Fixture::new("preload-allocators");
    let program = fixture.compile_file("preload/mixed.c", false, &[]);
    let program = program.to_str().unwrap();
    check_mixed_calls(
        &fixture,
        &record_mixed_calls(&fixture, &[program], None),
        true,
        "the C library",
    );
    for name in ["libjemalloc.so.2", "libtcmalloc_minimal.so.4"] {
        let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"];
        let found = folders.iter().map(|folder| Path::new(folder).join(name));
        let Some(path) = found.into_iter().find(|path| path.is_file()) else {
            report_skipped(format!("{name} is not installed"));
            continue;
        };
        check_mixed_calls(
            &fixture,
            &record_mixed_calls(&fixture, &[program], Some(&path)),
            true,
            name,
        );
    }
}

#[test]
fn helpers_work_in_sanitized_programs() {
    let fixture = Fixture::new("preload-sanitizers");
    for kind in ["address", "thread", "undefined"] {
        let flag = format!("-fsanitize={kind}");
        let probe = fixture.path("probe.c");
        fs::write(&probe, "int main(void) { return 0; }\n").unwrap();
        let mut cc = fixture.command("cc");
        let output = cc.args([&flag, "probe.c", "-o", "probe"]).output().unwrap();
        if !output.status.success() || !fixture.command("./probe").status().unwrap().success() {
            report_skipped(format!("cc has no {flag} that works here"));
            continue;
        }
        let program = fixture.compile_file("preload/mixed.c", false, &[&flag, "-g"]);
        let alone = fixture.command(&program).output().unwrap();
        assert!(alone.status.success(), "{flag}: {}", lossy_text(&alone.stderr));
        // Sanitizers have their own allocators, which precede the helper's.
        let allocations = kind == "undefined";
        let recording = record_mixed_calls(&fixture, &[program.to_str().unwrap()], None);
        check_mixed_calls(&fixture, &recording, allocations, &flag);
        assert!(!recording.messages().contains("Sanitizer"), "{}", recording.messages());
    }
}

#[test]
fn helpers_work_under_valgrind() {
    if !has("valgrind") {
        return report_skipped("valgrind is not installed");
    }
    let fixture = Fixture::new("preload-valgrind");
    let program = fixture.compile_file("preload/mixed.c", false, &[]);
    let program = program.to_str().unwrap();
    let command = ["valgrind", "-q", "--error-exitcode=77", program];
    // valgrind replaces the allocator in the program's memory: the helper is not called.
    check_mixed_calls(&fixture, &record_mixed_calls(&fixture, &command, None), false, "valgrind");
}

#[test]
fn helpers_work_without_restartable_sequences() {
    let fixture = Fixture::new("preload-rseq");
    let program = fixture.compile_file("preload/mixed.c", false, &[]);
    let command = ["env", "GLIBC_TUNABLES=glibc.pthread.rseq=0", program.to_str().unwrap()];
    check_mixed_calls(&fixture, &record_mixed_calls(&fixture, &command, None), true, "rseq=0");
}

// --- Programs as they are ------------------------------------------------------------------------

fn assert_same_outcome(alone: &Output, recorded: &Output, what: &str) {
    assert_eq!(alone.status, recorded.status, "{what}: {}", lossy_text(&recorded.stderr));
    assert_eq!(lossy_text(&alone.stdout), lossy_text(&recorded.stdout), "{what}");
}

#[test]
fn real_programs_run_under_all_helpers_as_without() {
    let fixture = Fixture::new("preload-programs");
    fs::write(fixture.path("input"), vec![b'x'; 3 << 20]).unwrap();
    let threads = "import threading, subprocess, ctypes, sqlite3\n\
                   ts = [threading.Thread(target=lambda: sum(range(1000))) for _ in range(20)]\n\
                   [t.start() for t in ts]; [t.join() for t in ts]\n\
                   print(subprocess.run(['echo', 'hello'], capture_output=True).stdout)\n\
                   print(sqlite3.connect(':memory:').execute('select 1').fetchall())";
    let git = "git init -q repo && cd repo && echo a > a && git add a && \
               git -c user.name=n -c user.email=e commit -qm m && git log --format=%s && git gc -q";
    let bash = "for i in 1 2 3; do (echo $i | cat; exit $i) || echo $?; done; \
                wc -c < <(printf abc); sleep 0 & wait; exec printf end";
    for command in [
        &["python3", "-c", threads][..],
        &["xz", "-T2", "--block-size=1MiB", "-0", "-k", "-c", "input"],
        &["sh", "-c", &format!("rm -rf repo; {git}")],
        &["bash", "-c", bash],
        &["bash", "-c", "exit 7"],
    ] {
        let what = command.join(" ");
        let program = if what.contains("git init") { "git" } else { command[0] };
        if !has(program) {
            report_skipped(format!("{program} is not installed"));
            continue;
        }
        let alone = fixture.command(command[0]).args(&command[1..]).output().unwrap();
        let options = ["--preload", "all", "--buffer-size", "32M"];
        let recording = fixture.record(&options, command);
        assert_same_outcome(&alone, &recording.output, &what);
        assert!(recording.summary.recorded > 100, "{what}: {}", recording.messages());
        assert_eq!(recording.summary.lost, 0, "{what}: {}", recording.messages());
        // The helpers are loaded, without a recording.
        let libraries: Vec<PathBuf> =
            PRELOAD_HELPERS.iter().map(|helper| helper_path(helper)).collect();
        let names: Vec<&str> = libraries.iter().filter_map(|path| path.to_str()).collect();
        let agent = build_dir().join("libtrackway.so");
        let preload = format!("{}:{}", names.join(":"), agent.display());
        for preload in [names.join(":"), preload] {
            let mut command_idle = fixture.command(command[0]);
            command_idle.args(&command[1..]).env("LD_PRELOAD", preload);
            assert_same_outcome(&alone, &command_idle.output().unwrap(), &what);
        }
    }
}
