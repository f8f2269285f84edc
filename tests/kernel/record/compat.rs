//! 32-bit system calls: `trackway record --kernel syscalls:…`.

use trackway_tests::{Fixture, lossy_text, report_skipped};

use super::{compile_calls, printed_lines};
use crate::support::run_record;

/// Returns the part of a line after the event's name and its contexts, without the CPU and the
/// thread.
fn event_fields(line: &str) -> String {
    let (_, rest) = line.split_once("compat_syscall_").unwrap_or_else(|| panic!("{line}"));
    let (name, _) = rest.split_once(": ").unwrap_or_else(|| panic!("{line}"));
    let fields = rest.rsplit("}, { ").next().unwrap_or_default();
    format!("{name}: {fields}")
}

/// RUN 32-bit system calls with a string, numbers, addresses and structures that 32-bit programs
/// have, too, and a call that they lack; and a 64-bit call. EXPECT each under its own name, with
/// its arguments and results, for any upper halves of registers; and a message about the unknown
/// number, if all calls are recorded.
#[test]
fn calls_by_numbers_of_32_bits_are_recorded_by_their_names() {
    let fixture = Fixture::new("kernel-compat");
    if compile_calls(&fixture).is_none() {
        return;
    }
    let program = fixture.compile_file("kernel/compat.c", false, &[]);
    let calls = "syscalls:openat,syscalls:getpgid,syscalls:pipe2,syscalls:clock_gettime,\
                 syscalls:connect,syscalls:newfstat,syscalls:mmap,syscalls:mkdirat,syscalls:preadv,\
                 syscalls:execve,syscalls:writev,syscalls:sendmsg";
    let options = ["--kernel", calls, "--kernel-only"];
    let output = run_record(&fixture, &options, &[program.to_str().expect("a path")]);
    if output.status.code() == Some(77) {
        return report_skipped("this kernel has no system calls of 32 bits");
    }
    assert!(output.status.success(), "{:?} {}", output.status, lossy_text(&output.stderr));
    let numbers = lossy_text(&output.stdout);
    let numbers: Vec<&str> = numbers.split_whitespace().collect();
    let [read_end, write_end, seconds, nanoseconds] = numbers[..] else { panic!("{numbers:?}") };
    let lines = printed_lines(&fixture);
    let compat = lines.iter().filter(|line| line.contains(" compat_"));
    let ours: Vec<String> = compat.map(|line| event_fields(line)).collect();
    let all = ours.join("\n");
    let mut rest = ours.iter();
    let mut next = |parts: &[&str]| {
        let line = rest.next().unwrap_or_else(|| panic!("no {parts:?}:\n{all}"));
        assert!(parts.iter().all(|part| line.contains(part)), "{parts:?}:\n{line}\n{all}");
    };
    let open = "entry_openat: dfd = -100, filename = \"/nowhere/narrow\", flags = ";
    next(&[open, "0x80000", "incomplete = 0x0 }"]);
    next(&["exit_openat: ret = -2, ", "filename = [ ], "]);
    next(&["entry_getpgid: pid = 1000000000 }"]);
    next(&["exit_getpgid: ret = -3 }"]);
    next(&["entry_pipe2: fildes = 0x"]);
    let ends = format!("fildes = [ [0] = {read_end}, [1] = {write_end} ]");
    next(&["exit_pipe2: ret = 0, ", &ends]);
    next(&["entry_clock_gettime: ", "tp = 0x"]);
    let time = format!("tp_tv_sec = {seconds}, tp_tv_nsec = {nanoseconds}, incomplete = 0x0 }}");
    next(&["exit_clock_gettime: ret = 0, ", &time]);
    next(&["entry_connect: fd = -1, ", "dport = 77, ", " v4addr = [ [0] = 127, [1] = 0, "]);
    next(&["exit_connect: ret = -9 }"]);
    next(&["entry_newfstat: fd = ", "statbuf = 0x"]);
    next(&["exit_newfstat: ret = -9 }"]);
    next(&["entry_mmap_pgoff: addr = 0x0, len = 4096, ", "fd = 0, pgoff = 0x0 }"]);
    next(&["exit_mmap_pgoff: ret = "]);
    let arguments = "argv = [ [0] = \"one\", [1] = \"two\" ], ";
    next(&["entry_execve: filename = \"/nowhere/narrow\", ", arguments, "incomplete = 0x0 }"]);
    next(&["exit_execve: ret = -2, "]);
    next(&["entry_writev: fd = ", "vec = 0x", "vec_iov_len = [ [0] = 3, [1] = 4 ]", "vlen = 2"]);
    next(&["exit_writev: ret = -9 }"]);
    next(&["entry_sendmsg: fd = -1, ", "dport = 77, ", " v4addr = [ [0] = 127, [1] = 0, "]);
    next(&["exit_sendmsg: ret = -9 }"]);
    assert_eq!(rest.next(), None, "{all}");
    // 64-bit calls with the same numbers keep their names; disabled calls are not counted.
    let wide = |line: &&String| line.contains(" syscall_entry_openat: ") && line.contains("/wide");
    assert_eq!(lines.iter().filter(wide).count(), 1, "{lines:#?}");
    let foreign = ["preadv", "mkdirat"];
    assert!(!lines.iter().any(|line| foreign.iter().any(|name| line.contains(name))), "{lines:#?}");
    let talk = lossy_text(&output.stderr);
    assert!(!talk.contains("unknown numbers"), "{talk}");
    let print = ["print", "--symbolic", "trace"];
    let symbolic = lossy_text(&fixture.trackway(&print).output().expect("it runs").stdout);
    let shown = "openat(AT_FDCWD, \"/nowhere/narrow\", O_RDONLY|O_CLOEXEC, 0)";
    let line = symbolic.lines().find(|line| line.contains("compat_syscall_entry_openat"));
    assert!(line.is_some_and(|line| line.contains(shown)), "{symbolic}");
    std::fs::remove_dir_all(fixture.path("trace")).expect("a trace");
    let options = ["--kernel", "syscalls", "--kernel-only"];
    let output = run_record(&fixture, &options, &[program.to_str().expect("a path")]);
    let talk = lossy_text(&output.stderr);
    assert!(talk.contains("by unknown numbers of 32 bits are not recorded: 1 of"), "{talk}");
}

/// RUN 32-bit calls with a filter on their strings, by the call's name, and with these events
/// excluded. EXPECT only the selected calls.
#[test]
fn calls_by_numbers_of_32_bits_are_filtered_and_left_out_like_others() {
    let fixture = Fixture::new("kernel-compat-filter");
    if compile_calls(&fixture).is_none() {
        return;
    }
    let program = fixture.compile_file("kernel/compat.c", false, &[]);
    let command = [program.to_str().expect("a path")];
    let filter = "syscalls:openat: filename == \"/nowhere/*\" && $ctx.tid > 0";
    let options = ["--kernel", "syscalls:openat", "--filter", filter, "--kernel-only"];
    let output = run_record(&fixture, &options, &command);
    if output.status.code() == Some(77) {
        return report_skipped("this kernel has no system calls of 32 bits");
    }
    let lines_of = printed_lines(&fixture);
    let names = ["compat_syscall_entry_openat: ", " syscall_entry_openat: "];
    assert_eq!(lines_of.len(), 2, "{lines_of:#?} {}", lossy_text(&output.stderr));
    assert!(lines_of.iter().zip(names).all(|(line, name)| line.contains(name)), "{lines_of:#?}");
    std::fs::remove_dir_all(fixture.path("trace")).expect("a trace");
    let options = ["--kernel", "syscalls:openat,!compat_*", "--kernel-only"];
    run_record(&fixture, &options, &command);
    let lines = printed_lines(&fixture);
    assert!(!lines.is_empty() && !lines.iter().any(|line| line.contains("compat_")), "{lines:#?}");
}

/// RUN calls with numbers that no call has: -1, an x32 number, one in a gap, and one beyond the
/// table. EXPECT a message with their count, and no message if all numbers are known.
#[test]
fn calls_by_unknown_numbers_are_counted() {
    const CALLS: &str = r#"
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <unistd.h>
int main(int count, char **arguments)
{
    for (int number = 0; number < 7 && count > 1; number++) {
        syscall(-1);
        syscall(0x40000000L | SYS_getpid);
        syscall(400);
        syscall(1000);
    }
    return syscall(SYS_getppid) < 0;
}
"#;
    let fixture = Fixture::new("kernel-unknown");
    if compile_calls(&fixture).is_none() {
        return;
    }
    let calls = fixture.compile("unknown", CALLS, false, &[]);
    let calls = calls.to_str().expect("a path");
    let options = ["--kernel", "syscalls", "--kernel-only"];
    let talk = |command: &[&str]| {
        let output = run_record(&fixture, &options, command);
        assert!(output.status.success(), "{:?} {}", output.status, lossy_text(&output.stderr));
        assert_eq!(
            printed_lines(&fixture).iter().filter(|line| line.contains("entry_getppid")).count(),
            1
        );
        lossy_text(&output.stderr)
    };
    let some = talk(&[calls, "some"]);
    let said = some.split_once("by unknown numbers are not recorded: ").map(|(_, rest)| rest);
    // (The message may include calls that Trackway's table lacks: "up to" that many.)
    let said = said.map(|rest| rest.trim_start_matches("up to "));
    assert!(said.is_some_and(|rest| rest.starts_with("28 of them")), "{some}");
    let none = talk(&[calls]);
    assert!(!none.contains("unknown numbers"), "{none}");
}
