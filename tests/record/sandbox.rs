//! Restricted processes, and processes that are created in unusual ways: the library makes no
//! system call for which a sandbox could kill them, and shares no rseq area by mistake.

use trackway_tests::{Fixture, babeltrace_discarded_events};

fn read_source(name: &str) -> String {
    let path = trackway_tests::source_dir().join("tests/lives").join(name);
    std::fs::read_to_string(path).expect("a source file")
}

#[test]
fn a_sandbox_that_kills_for_system_calls_does_not_kill_for_events() {
    let fixture = Fixture::new("sandbox");
    let program = fixture.compile("sandbox", &read_source("sandbox.c"), true, &[]);
    let program = program.to_str().unwrap();
    for (command, events) in [
        (vec![program], 3000),
        (vec![program, "before"], 4000),
        (vec![program, "before", "without memory"], 3000),
    ] {
        // A filter is linked and evaluated without a system call, too: in the sandbox, where no
        // event was emitted before.
        let filter = ["--filter", "number < 1000 && who < 4"];
        let filtered = [&["--context", "vtid"], &filter[..]].concat();
        for options in [&["--context", "none"][..], &["--context", "vpid,vtid"], &filtered] {
            let _ = std::fs::remove_dir_all(fixture.path("trace"));
            let recording = fixture.record(options, &command);
            if recording.output.status.code() == Some(77) {
                return trackway_tests::report_skipped("seccomp filters are not available");
            }
            assert_eq!(recording.output.status.code(), Some(0), "{}", recording.messages());
            let summary = recording.summary;
            assert_eq!(summary.recorded + summary.lost, events, "{}", recording.messages());
            assert_eq!(summary.lost, 0, "{}", recording.messages());
        }
    }
}

#[test]
fn clone_children_that_share_thread_local_storage_harm_nobody() {
    let fixture = Fixture::new("clones");
    let program = fixture.compile("clones", &read_source("clones.c"), true, &[]);
    let options = ["--buffer-size", "32M"];
    let recording = fixture.record(&options, &[program.to_str().unwrap()]);
    assert_eq!(recording.output.status.code(), Some(0), "{}", recording.messages());
    let summary = recording.summary;
    assert_eq!(summary.recorded + summary.lost, 3 * 20 * 5000, "{}", recording.messages());
    let text = fixture.print(&recording.trace);
    assert_eq!(text.lines().count() as u64, summary.recorded);
    let whole = "text = \"twenty-four characters ..\" }";
    assert!(text.lines().all(|line| line.ends_with(whole)), "every record is whole");
    if let Some(theirs) = fixture.babeltrace(&recording.trace) {
        assert_eq!(text, String::from_utf8_lossy(&theirs.stdout));
        let messages = String::from_utf8_lossy(&theirs.stderr);
        assert_eq!(babeltrace_discarded_events(&messages), summary.lost);
    }
}

#[test]
fn strict_mode_costs_what_comes_after_and_nothing_else() {
    let fixture = Fixture::new("strict");
    let text = "#define _GNU_SOURCE\n\
                #include <linux/seccomp.h>\n#include <sys/prctl.h>\n#include <sys/syscall.h>\n\
                #include <trackway/trackway.h>\n#include <unistd.h>\n\
                TRACKWAY_EVENT(strict, step, TRACKWAY_INFO, (u32, number));\n\
                TRACKWAY_EVENT(other, step, TRACKWAY_INFO, (u32, number));\n\
                int main(void) {\n\
                for (unsigned i = 0; i < 1000; i++) trackway(strict, step, i);\n\
                if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) return 77;\n\
                /* Events that are off are nothing but a look at memory. */\n\
                for (unsigned i = 0; i < 1000; i++) trackway(other, step, i);\n\
                syscall(SYS_exit, 7);\n}\n";
    let program = fixture.compile("strict", text, true, &[]);
    let recording = fixture.record(&["--event", "strict:*"], &[program.to_str().unwrap()]);
    if recording.output.status.code() == Some(77) {
        return trackway_tests::report_skipped("seccomp is not available");
    }
    assert_eq!(recording.output.status.code(), Some(7), "{}", recording.messages());
    assert_eq!((recording.summary.recorded, recording.summary.lost), (1000, 0));
}
