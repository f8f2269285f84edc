//! Memory behind the pointer arguments of system calls, in recorded events.

use std::fs;

use trackway_tests::{Fixture, has_kernel_events, lossy_text};

use super::{compile_calls, printed_lines};
use crate::support::run_record;

/// Records `arguments.c`; returns its output and, in order, each event of `calls` with its fields.
/// Returns `None`, after printing the reason, if kernel events cannot be recorded.
fn record_arguments(
    name: &str,
    what: &str,
    calls: &str,
) -> Option<(String, Vec<(String, String)>)> {
    let fixture = Fixture::new(name);
    compile_calls(&fixture)?;
    let program = fixture.compile_file("kernel/arguments.c", false, &[]);
    let file = fixture.path("file").display().to_string();
    let command = [program.to_str().expect("a path"), what, &file];
    let output = run_record(&fixture, &["--kernel", calls], &command);
    assert!(output.status.success(), "{:?} {}", output.status, lossy_text(&output.stderr));
    assert!(
        lossy_text(&output.stderr).contains(" 0 lost, 0 overwritten"),
        "{}",
        lossy_text(&output.stderr)
    );
    let event = |line: &String| {
        let (rest, fields) = line.rsplit_once(" }, { ")?;
        let name = rest.split(": { cpu_id").next()?.rsplit(' ').next()?;
        Some((name.to_owned(), fields.strip_suffix(" }")?.to_owned()))
    };
    let events =
        printed_lines(&fixture).iter().map(|line| event(line).expect("an event")).collect();
    Some((lossy_text(&output.stdout), events))
}

/// Returns the fields of the first event with this name whose fields contain `has`, and the fields
/// of the next event.
fn find_call<'a>(events: &'a [(String, String)], name: &str, has: &str) -> (&'a str, &'a str) {
    let is_it = |(event, fields): &(String, String)| {
        event.strip_prefix("syscall_entry_") == Some(name) && fields.contains(has)
    };
    let at = events.iter().position(is_it);
    let at = at.unwrap_or_else(|| panic!("no {name} with {has}: {events:#?}"));
    let behind = events[at..].iter().find(|(event, _)| *event == format!("syscall_exit_{name}"));
    (&events[at].1, behind.map_or("", |(_, fields)| fields))
}

fn assert_fields(fields: &str, expected: &str) {
    assert!(fields.contains(expected), "{expected}\n{fields}");
}

/// RUN calls with socket addresses. EXPECT family, port and address, or the complete path; and a
/// note for unreadable memory.
// Longer than 70 lines: a table.
#[test]
fn addresses_of_sockets_are_taken_apart() {
    let calls = "syscalls:connect,syscalls:bind,syscalls:accept,syscalls:sendmsg";
    let Some((_, events)) = record_arguments("kernel-sockets", "sockets", calls) else { return };
    let none = "_v6addr_length = 0, v6addr = [ ], _sa_data_length = 0, sa_data = [ ], \
                _path_length = 0, path = [ ]";
    let internet = "_v4addr_length = 4, v4addr = [ [0] = 127, [1] = 1, [2] = 2, [3] = 3 ]";
    let (fields, _) = find_call(&events, "connect", "dport = 4660");
    assert_fields(fields, &format!("family = 2, dport = 4660, {internet}, {none}, addrlen = 16"));
    let (fields, _) = find_call(&events, "connect", "family = 10");
    let groups = [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34];
    let bytes: Vec<String> =
        groups.iter().enumerate().map(|(at, byte)| format!("[{at}] = 0x{byte:X}")).collect();
    let expected = format!(
        "dport = 258, _v4addr_length = 0, v4addr = [ ], _v6addr_length = 16, \
                            v6addr = [ {} ]",
        bytes.join(", ")
    );
    assert_fields(fields, &expected);
    // Both sides have an abstract address, which is no file; a connecting client has no address.
    for name in ["bind", "connect"] {
        let (fields, _) = find_call(&events, name, "@trackway-test-");
        assert_fields(fields, "family = 1, ");
        assert_fields(fields, "_path_length = 1, path = [ [0] = \"@trackway-test-");
        assert_fields(fields, "incomplete = 0x0");
    }
    let (entry, exit) = find_call(&events, "accept", "upeer_addrlen_value = 110");
    assert_fields(entry, "incomplete = 0x0");
    assert_fields(exit, "family = 1, sport = 0, _v4addr_length = 0, v4addr = [ ], ");
    assert_fields(exit, "path = [ ], upeer_addrlen = 2, incomplete = 0x0");
    let (fields, _) = find_call(&events, "connect", "pppp");
    assert_fields(fields, &format!("path = [ [0] = \"{}\" ], addrlen = 110", "p".repeat(108)));
    // Families without special fields: the bytes after the family are recorded.
    for (name, family, data) in [
        ("bind", 16, "0 0 4D 0 0 0 11 0 0 0"),
        ("connect", 40, "0 0 0 4 0 0 3 0 0 0 0 0 0 0"),
        ("bind", 17, "88 B5 2 0 0 0 0 0 0 6 2 0 5E 10 0 FF 0 0"),
    ] {
        let bytes: Vec<String> =
            data.split(' ').enumerate().map(|(at, byte)| format!("[{at}] = 0x{byte}")).collect();
        let (fields, _) = find_call(&events, name, &format!("family = {family}, "));
        assert_fields(
            fields,
            &format!("sa_data = [ {} ], _path_length = 0, path = [ ]", bytes.join(", ")),
        );
        assert_fields(fields, "incomplete = 0x0");
    }
    let (fields, _) = find_call(&events, "bind", "addrlen = 4, ");
    assert_fields(fields, "family = 16, ");
    assert_fields(fields, "_sa_data_length = 2, sa_data = [ [0] = 0x0, [1] = 0x0 ], ");
    // An unreadable address; no address; an address that is too short.
    for (has, incomplete) in [
        ("uservaddr = 0x10, family = 0, ", "addrlen = 16, incomplete = 0x2"),
        ("uservaddr = 0x0, family = 0, ", "addrlen = 16, incomplete = 0x0"),
        ("addrlen = 1, ", "addrlen = 1, incomplete = 0x0"),
    ] {
        let (fields, _) = find_call(&events, "connect", has);
        assert_fields(fields, "family = 0, dport = 0, _v4addr_length = 0, ");
        assert_fields(fields, incomplete);
    }
    // Truncated data is reported: paths and names, and the bytes of other families.
    let (fields, _) = find_call(&events, "connect", "qqqq");
    assert_fields(
        fields,
        &format!("[0] = \"{}\" ], addrlen = 128, incomplete = 0x2", "q".repeat(108)),
    );
    let (fields, _) = find_call(&events, "connect", "@within");
    assert_fields(fields, "[0] = \"@within\" ], addrlen = 15, incomplete = 0x2");
    let (fields, _) = find_call(&events, "connect", "@behind");
    assert_fields(fields, "[0] = \"@behind\" ], addrlen = 9, incomplete = 0x0");
    let (fields, _) = find_call(&events, "connect", "addrlen = 32");
    assert_fields(fields, "family = 17, ");
    assert_fields(fields, "_sa_data_length = 18, ");
    assert_fields(fields, "incomplete = 0x2");
    // There is no address, although a length was left in the structure.
    let mut of_messages = events.iter().filter(|(name, _)| name == "syscall_entry_sendmsg");
    let (_, fields) = of_messages.next_back().expect("the second one");
    assert_fields(fields, "family = 0, dport = 0, ");
    assert_fields(fields, "incomplete = 0x0");
    let (fields, _) = find_call(&events, "sendmsg", "");
    assert_fields(fields, &format!("family = 2, dport = 4661, {internet}, {none}, flags"));
}

/// RUN calls with vectors, times, pairs and structures. EXPECT their contents as far as they fit,
/// and a report of omitted data.
#[test]
fn structures_are_taken_apart() {
    let calls = "syscalls:writev,syscalls:readv,syscalls:nanosleep,syscalls:newfstatat,\
                 syscalls:pipe*,syscalls:poll,syscalls:newuname,syscalls:utimensat";
    let Some((said, events)) = record_arguments("kernel-structures", "structures", calls) else {
        return;
    };
    let said = |word: &str| -> Vec<String> {
        let line = said.lines().find(|line| line.starts_with(word)).expect("it is said");
        line.split(' ').skip(1).map(str::to_owned).collect()
    };
    let bases: Vec<String> =
        said("vectors").iter().map(|base| base.replace("0x", "").to_uppercase()).collect();
    let vectors = format!(
        "_vec_iov_base_length = 2, vec_iov_base = [ [0] = 0x{}, [1] = 0x{} ], \
         _vec_iov_len_length = 2, vec_iov_len = [ [0] = 3, [1] = 4 ], vlen = 2, incomplete = 0x0",
        bases[0], bases[1]
    );
    assert_fields(find_call(&events, "writev", "vlen = 2").0, &vectors);
    assert_fields(find_call(&events, "readv", "vlen = 2").0, &vectors);
    let (fields, _) = find_call(&events, "writev", "vlen = 20");
    assert_fields(fields, "_vec_iov_len_length = 16, vec_iov_len = [ [0] = 3, [1] = 4, [2] = 0, ");
    assert_fields(fields, "[15] = 0 ], vlen = 20, incomplete = 0x2");
    let (fields, _) = find_call(&events, "writev", "vec = 0x10");
    assert_fields(fields, "vec_iov_base = [ ], _vec_iov_len_length = 0, ");
    assert_fields(fields, "incomplete = 0x2");
    let (entry, exit) = find_call(&events, "nanosleep", "rqtp_tv_nsec = 1234567");
    assert_fields(entry, "rqtp_tv_sec = 0, rqtp_tv_nsec = 1234567, rmtp = 0x");
    assert_fields(exit, "ret = 0, rmtp_tv_sec = 0, rmtp_tv_nsec = 0, incomplete = 0x0");
    let (entry, _) = find_call(&events, "nanosleep", "rqtp = 0x10");
    assert_fields(entry, "rqtp_tv_sec = 0, rqtp_tv_nsec = 0, rmtp = 0x0, incomplete = 0x1");
    let (_, exit) = find_call(&events, "nanosleep", "rqtp_tv_nsec = 4000000000");
    assert_fields(exit, "ret = -22, rmtp_tv_sec = 0, rmtp_tv_nsec = 0, incomplete = 0x0");
    // The remaining time of a thousand seconds.
    let (_, exit) = find_call(&events, "nanosleep", "rqtp_tv_sec = 1000");
    let left = exit.split("rmtp_tv_sec = ").nth(1).and_then(|left| left.split(',').next());
    let left: u64 = left.and_then(|left| left.parse().ok()).expect("a number");
    assert!((900..1000).contains(&left), "{exit}");
    let [inode, _, size, _, mode] = &said("inode")[..] else { panic!("five words") };
    let (_, exit) = find_call(&events, "newfstatat", "flag = 0x1000");
    let exits = events.iter().filter(|(name, _)| name == "syscall_exit_newfstatat");
    let of_file = format!("statbuf_st_ino = {inode}, ");
    let exit = exits.map(|(_, fields)| &**fields).find(|of| of.contains(&of_file)).unwrap_or(exit);
    assert_fields(exit, &of_file);
    assert_fields(exit, &format!("statbuf_st_mode = {mode}, statbuf_st_uid = 0, "));
    assert_fields(exit, &format!("statbuf_st_size = {size}, "));
    let ends = said("pipe");
    let exit = events.iter().find(|(name, fields)| {
        name.starts_with("syscall_exit_pipe") && fields.contains(&format!("[0] = {}", ends[0]))
    });
    let (_, exit) = exit.expect("a pipe");
    assert_fields(exit, &format!("fildes = [ [0] = {}, [1] = {} ], ", ends[0], ends[1]));
    let (entry, exit) = find_call(&events, "poll", "nfds = 2");
    let polled = format!(
        "ufds_fd = [ [0] = {}, [1] = {} ], _ufds_events_length = 2, \
         ufds_events = [ [0] = 1, [1] = 4 ], _ufds_revents_length = 2, ",
        ends[0], ends[1]
    );
    assert_fields(entry, &format!("{polled}ufds_revents = [ [0] = 0, [1] = 0 ], nfds = 2"));
    assert_fields(exit, &format!("{polled}ufds_revents = [ [0] = 0, [1] = 4 ], incomplete = 0x0"));
    let names = said("uname");
    let (_, exit) = find_call(&events, "newuname", "");
    assert_fields(exit, &format!("name_sysname = \"{}\", name_nodename = ", names[0]));
    assert_fields(exit, &format!("name_release = \"{}\", ", names[1]));
    let (fields, _) = find_call(&events, "utimensat", "");
    assert_fields(
        fields,
        "utimes_tv_sec = [ [0] = 1000, [1] = 2000 ], _utimes_tv_nsec_length = 2, ",
    );
    assert_fields(fields, "utimes_tv_nsec = [ [0] = 1, [1] = 2 ], flags = 0x0, incomplete = 0x0");
}

/// RUN calls with a string whose page is not in memory yet, with a string that never is, and with
/// long strings. EXPECT the first string when its call returns, complete strings up to 1023 bytes,
/// and a report of the others.
#[test]
fn a_text_that_was_not_in_memory_is_read_when_the_call_returns() {
    let Some((_, events)) = record_arguments("kernel-texts", "texts", "syscalls:access") else {
        return;
    };
    let text = "/nowhere/that/is/in/memory";
    let (entry, exit) = find_call(&events, "access", "mode = 0x1,");
    assert_eq!(entry, format!("filename = \"{text}\", mode = 0x1, incomplete = 0x0"));
    let found = format!("_filename_length = 1, filename = [ [0] = \"{text}\" ], incomplete = 0x0");
    assert_eq!(exit, format!("ret = -2, {found}"));
    let (entry, exit) = find_call(&events, "access", "mode = 0x2,");
    assert_eq!(entry, format!("filename = \"{text}\", mode = 0x2, incomplete = 0x0"));
    assert_eq!(exit, "ret = -2, _filename_length = 0, filename = [ ], incomplete = 0x0");
    for (mode, is_missing) in [(3, true), (5, false), (6, true)] {
        let (entry, exit) = find_call(&events, "access", &format!("mode = 0x{mode},"));
        let incomplete = u8::from(is_missing);
        assert_eq!(entry, format!("filename = \"\", mode = 0x{mode}, incomplete = 0x{incomplete}"));
        assert_fields(exit, &format!("ret = -14, _filename_length = {incomplete}, "));
        assert_fields(exit, &format!("incomplete = 0x{incomplete}"));
    }
    for (number, length) in [0, 1, 255, 256, 1023, 1024, 4095].into_iter().enumerate() {
        let mode = 100 + number;
        let (entry, _) = find_call(&events, "access", &format!("mode = 0x{mode:X},"));
        let (kept, incomplete) = if length > 1023 { (1023, 1) } else { (length, 0) };
        let text = "n".repeat(kept);
        let tail = format!("mode = 0x{mode:X}, incomplete = 0x{incomplete}");
        assert_eq!(entry, format!("filename = \"{text}\", {tail}"));
    }
}

/// RUN a call with a string that is not in memory yet, whose exit is not recorded, and another call
/// with a string in memory. EXPECT the second call's exit not to contain its string again.
#[test]
fn missing_arguments_of_a_call_do_not_mark_the_next_one() {
    let calls = "syscalls:sys_enter_chdir,syscalls:access";
    let Some((_, events)) = record_arguments("kernel-again", "again", calls) else { return };
    let missing = ("syscall_entry_chdir".into(), "filename = \"\", incomplete = 0x1".into());
    assert!(events.contains(&missing), "{events:?}");
    let (_, exit) = find_call(&events, "access", "mode = 0x1,");
    assert_eq!(exit, "ret = -2, _filename_length = 0, filename = [ ], incomplete = 0x0");
}

/// RUN a call whose fields are not all recorded. EXPECT a message at the beginning, and a note in
/// the trace.
#[test]
fn fields_that_are_left_out_are_said() {
    let fixture = Fixture::new("kernel-left-out");
    if !has_kernel_events(&fixture) {
        return;
    }
    let said = |calls: &str| {
        let output = run_record(&fixture, &["--kernel", calls], &["true"]);
        assert!(output.status.success(), "{}", lossy_text(&output.stderr));
        let metadata =
            fs::read_to_string(fixture.path("trace/kernel/metadata")).expect("it is there");
        (lossy_text(&output.stderr), metadata)
    };
    let (talk, metadata) = said("syscalls:waitid");
    assert!(
        talk.contains(
            "1 field of the kernel's events is not recorded: infop of syscall_exit_waitid"
        ),
        "{talk}"
    );
    let left_out = "trackway_left_out_fields = \"syscall_exit_waitid:infop\";";
    assert!(metadata.contains(left_out), "{metadata}");
    let (talk, metadata) = said("syscalls:read,syscalls:getpgid");
    assert!(!talk.contains("not recorded"), "{talk}");
    assert!(metadata.contains("trackway_left_out_fields = \"\";"), "{metadata}");
}

/// RUN programs with few arguments, with many, with none, and with invalid ones. EXPECT the
/// arguments as far as they fit, and nothing of the environment.
#[test]
fn arguments_of_a_program_are_texts() {
    let Some((_, events)) = record_arguments("kernel-run", "run", "syscalls:execve") else {
        return;
    };
    let (entry, exit) = find_call(&events, "execve", "filename = \"/bin/true\"");
    let longest = "a".repeat(255);
    let expected = format!(
        "_argv_length = 4, argv = [ [0] = \"true\", [1] = \"\", [2] = \"with space\", \
         [3] = \"{longest}\" ], envp = 0x"
    );
    assert_fields(entry, &expected);
    // The last argument was truncated.
    assert_fields(entry, "incomplete = 0x2");
    assert_fields(exit, "ret = 0, ");
    let (entry, _) = find_call(&events, "execve", "/nowhere/many");
    assert_fields(entry, "_argv_length = 64, argv = [ [0] = \"many\", ");
    assert_fields(entry, "[63] = \"many\" ], envp = 0x");
    assert_fields(entry, "incomplete = 0x2");
    let (entry, _) = find_call(&events, "execve", "/nowhere/fits");
    assert_fields(entry, &format!("_argv_length = 1, argv = [ [0] = \"{}\" ], ", "w".repeat(255)));
    assert_fields(entry, "incomplete = 0x0");
    let (entry, _) = find_call(&events, "execve", "/nowhere/none");
    assert_fields(entry, "_argv_length = 0, argv = [ ], envp = 0x0, incomplete = 0x0");
    let (entry, _) = find_call(&events, "execve", "/nowhere/bad");
    assert_fields(entry, "_argv_length = 0, argv = [ ], envp = 0x0, incomplete = 0x2");
    let all = format!("{events:?}");
    assert!(!all.contains("SECRET"), "the environment is recorded");
}
