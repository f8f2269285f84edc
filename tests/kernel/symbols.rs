//! `trackway print --symbolic`: labels of the numbers in kernel events, from the trace of the
//! machine that recorded them.

use std::process::Command;

use trackway_tests::{Fixture, has, has_kernel_events, matches_babeltrace_lines};

const CALLS_SOURCE: &str = r#"
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(void)
{
    /* On the stack: what has not been touched yet cannot be read for the record. */
    char created[] = "new", none[] = "none", nowhere[] = "nowhere/at/all";
    syscall(SYS_openat, AT_FDCWD, created, O_RDWR | O_CREAT | O_SYNC | O_CLOEXEC, 0640);
    syscall(SYS_openat, 12345, none, O_WRONLY | O_DSYNC | O_NOFOLLOW | 0x40000000, 0);
    syscall(SYS_open, nowhere, O_RDONLY | O_DIRECTORY, 0);
    syscall(SYS_socket, AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    syscall(SYS_ioctl, 12345, FIONREAD, 0);
    syscall(SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    syscall(SYS_mkdir, created, 0700);
    syscall(SYS_kill, 0, 0);
    syscall(SYS_kill, 0x7fffffff, 35);
    unsigned long mask = 1ul << 1 | 1ul << 34;
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, &mask, 0, sizeof mask);
    struct pollfd polled = { -1, POLLIN | POLLPRI, 0 };
    syscall(SYS_poll, &polled, 1, 0);
    int one = 1, udp = syscall(SYS_socket, AF_INET6, SOCK_DGRAM, 0);
    syscall(SYS_setsockopt, udp, SOL_IPV6, IPV6_V6ONLY, &one, sizeof one);
    syscall(SYS_setsockopt, udp, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in there = { AF_INET, htons(9), { htonl(INADDR_LOOPBACK) }, { 0 } };
    syscall(SYS_bind, udp, &there, sizeof there);
    struct sockaddr_in6 here = { .sin6_family = AF_INET6, .sin6_addr.s6_addr = { 0xff, 2 } };
    syscall(SYS_bind, udp, &here, 4);
    syscall(SYS_bind, udp, &here, sizeof here);
    return 0;
}
"#;

/// RUN calls with many flags, and errors. EXPECT names with the option; and, without it, numbers
/// equal to babeltrace2's.
// Longer than 70 lines: a table.
#[test]
fn calls_are_shown_as_they_were_written() {
    let fixture = Fixture::new("kernel-symbols");
    if !has_kernel_events(&fixture) {
        return;
    }
    let program = fixture.compile("calls", CALLS_SOURCE, false, &[]);
    let mut record = fixture.trackway(&["record", "-o", "trace", "--kernel"]);
    let calls = [
        ["open", "openat", "socket", "ioctl", "mmap", "mkdir"],
        ["kill", "rt_sigprocmask", "poll", "setsockopt", "bind", "newfstatat"],
    ];
    let calls = calls.concat();
    let patterns: String = calls.iter().map(|call| format!("syscalls:{call},")).collect();
    record.arg(patterns + "sched_switch").arg("--");
    let output = record.arg(&program).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let print = |options: &[&str]| {
        let arguments = [&["print", "trace"], options].concat();
        let printed = fixture.trackway(&arguments).output().expect("it runs");
        assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
        String::from_utf8(printed.stdout).expect("UTF-8")
    };
    let lines = print(&["--symbolic"]);
    let mut rest = lines.lines();
    for (event, expected) in [
        (
            "syscall_entry_openat",
            r#"openat(AT_FDCWD, "new", O_RDWR|O_CREAT|O_SYNC|O_CLOEXEC, 0640)"#,
        ),
        ("syscall_exit_openat", "openat = 3"),
        (
            "syscall_entry_openat",
            r#"openat(12345, "none", O_WRONLY|O_DSYNC|O_NOFOLLOW|0x40000000, 0)"#,
        ),
        ("syscall_exit_openat", "openat = -9 (EBADF)"),
        ("syscall_entry_open", r#"open("nowhere/at/all", O_RDONLY|O_DIRECTORY, 0)"#),
        ("syscall_exit_open", "open = -2 (ENOENT)"),
        ("syscall_entry_socket", "socket(AF_UNIX, SOCK_STREAM|SOCK_NONBLOCK|SOCK_CLOEXEC, "),
        ("syscall_exit_socket", "socket = 4"),
        ("syscall_entry_ioctl", "ioctl(12345, FIONREAD, 0x0)"),
        ("syscall_exit_ioctl", "ioctl = -9 (EBADF)"),
        ("syscall_entry_mmap", "PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0x0)"),
        ("syscall_exit_mmap", "mmap = 0x7"),
        ("syscall_entry_mkdir", r#"mkdir("new", 0700)"#),
        ("syscall_exit_mkdir", "mkdir = -17 (EEXIST)"),
        ("syscall_entry_kill", "kill(0, 0)"),
        ("syscall_exit_kill", "kill = 0"),
        ("syscall_entry_kill", "kill(2147483647, SIGRT_3)"),
        ("syscall_entry_rt_sigprocmask", "rt_sigprocmask(SIG_BLOCK, [INT RT_3], NULL, 8)"),
        ("syscall_entry_poll", "poll([{fd=-1, events=POLLIN|POLLPRI, revents=0}], 1, 0)"),
        ("syscall_entry_setsockopt", "setsockopt(5, SOL_IPV6, IPV6_V6ONLY, 0x7"),
        ("syscall_entry_setsockopt", "setsockopt(5, SOL_SOCKET, SO_REUSEADDR, 0x7"),
        ("syscall_entry_bind", "bind(5, {AF_INET, 127.0.0.1:9}, 16)"),
        ("syscall_exit_bind", "bind = -"),
        ("syscall_entry_bind", "bind(5, {AF_INET6}, 4)"),
        ("syscall_entry_bind", "bind(5, {AF_INET6, [ff02::]:0}, 28)"),
    ] {
        let is_it = |line: &&str| line.contains(&format!(" {event}: ")) && line.contains(expected);
        let found = rest.by_ref().find(is_it);
        assert!(found.is_some(), "{event}, {expected}\n{lines}");
    }
    // The exit of the library's own call contains the data behind the pointer.
    let status = lines.lines().find(|line| line.contains(" newfstatat = 0, "));
    assert!(status.is_some_and(|line| line.contains("statbuf_st_mode = S_IFREG|0")), "{lines}");
    let states = lines.lines().filter(|line| line.contains(" sched_switch: "));
    let mut letters = states.filter_map(|line| Some(line.split_once("prev_state = ")?.1));
    assert!(letters.all(|state| state.starts_with(|c: char| c.is_ascii_alphabetic())), "{lines}");
    let json = print(&["--symbolic", "--format", "json", "--event", "syscall_entry_socket"]);
    let expected = r#"{"value":526337,"labels":["SOCK_STREAM","SOCK_NONBLOCK","SOCK_CLOEXEC"]}"#;
    assert!(json.contains(expected), "{json}");
    let failed =
        print(&["--symbolic", "--filter", "*_mkdir: ret == \"EEXIST\"", "--event", "*exit*"]);
    assert!(failed.contains("mkdir = -17 (EEXIST)"), "{failed}");
    let failed = print(&["--filter", "*_openat: ret == \"EACCES\"", "--event", "*_exit_openat"]);
    assert_eq!(failed, "", "nothing was forbidden");
    let made = print(&["--filter", "*_openat: flags & \"O_CREAT\"", "--event", "*_entry_openat"]);
    assert_eq!(made.lines().count(), 1, "{made}");
    let of_files = "*_openat: dfd == \"AT_FDCWD\" && !(flags & \"O_CREAT\")";
    let others = print(&["--filter", of_files, "--event", "*_entry_openat"]);
    assert!(!others.is_empty() && !others.contains("O_CREAT"), "{others}");
    let internet = print(&["--filter", "*_bind: family == \"AF_INET\"", "--event", "*_entry_bind"]);
    assert!(internet.contains("family = 2, sport = 9, "), "{internet}");
    assert_eq!(internet.lines().count(), 1, "{internet}");
    let only = "*_setsockopt: optname == \"IPV6_V6ONLY\"";
    let only = print(&["--symbolic", "--filter", only, "--event", "*_entry_setsockopt"]);
    assert!(only.contains("IPV6_V6ONLY") && only.lines().count() == 1, "{only}");
    let mut unknown =
        fixture.trackway(&["print", "trace", "--filter", "*_openat: flags & \"O_CRAET\""]);
    let talk = String::from_utf8(unknown.output().expect("it runs").stderr).expect("UTF-8");
    assert!(talk.contains("unknown label \"O_CRAET\"") && talk.contains("O_CREAT"), "{talk}");
    let plain = print(&[]);
    assert!(plain.contains("flags = 0x181042, mode = 416, incomplete = 0x0 }"), "{plain}");
    if has("babeltrace2") {
        let mut babeltrace = Command::new("babeltrace2");
        let theirs = babeltrace.arg(fixture.path("trace")).output().expect("it runs");
        assert_eq!(String::from_utf8_lossy(&theirs.stderr), "");
        let theirs = String::from_utf8(theirs.stdout).expect("UTF-8");
        assert!(matches_babeltrace_lines(&plain, &theirs), "babeltrace2 prints something else");
    }
}
