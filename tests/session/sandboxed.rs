//! Programs in sandboxes that kill for some system calls, with filters and contexts that would need
//! such a call.

use trackway_tests::report_skipped;
use trackway_tests::steps::wait_for;

use crate::session_test::{SessionTest, command_result};

/// RUN a program in a sandbox that kills for prctl(2), among others; with the thread's name in a
/// filter, and as a context. EXPECT it to survive, and the name to be the program's.
#[test]
fn a_sandboxed_program_is_not_killed_for_its_name() {
    for arguments in [&[][..], &["before"]] {
        let test = SessionTest::new("session-sandboxed");
        let program = test.fixture.compile_file("session/sandboxed.c", true, &[]);
        test.ok("session create web --event sandboxed:* -o trace");
        let mut program =
            test.fixture.command(&program).args(arguments).spawn().expect("it starts");
        let recorded = || test.status("web")["counts"]["recorded"].as_u64().unwrap_or_default();
        wait_for("its events in the sandbox", || {
            let has_ended = program.try_wait().expect("a status").is_some();
            has_ended || recorded() > 5
        });
        if program.try_wait().expect("a status").and_then(|status| status.code()) == Some(77) {
            return report_skipped("seccomp filters are not available");
        }
        let filter = "$ctx.procname == \"sandboxed\"";
        let words = ["event", "on", "web", "sandboxed:*", "--filter", filter];
        let (is_success, _, talk) =
            command_result(&test.fixture.trackway(&words).output().expect("it runs"));
        assert!(is_success, "{talk}");
        test.ok("channel set web channel0 --context procname");
        let before = recorded();
        wait_for("events with a name", || {
            program.try_wait().expect("a status").is_some() || recorded() > before + 20
        });
        // SAFETY: the program's own id; it was not waited for, or this does nothing.
        unsafe { libc::kill(program.id().cast_signed(), libc::SIGUSR1) };
        let status = program.wait().expect("it ends");
        assert!(status.success(), "{arguments:?}: {status}");
        test.ok("session destroy web");
        let text = test.fixture.print(&test.fixture.path("trace"));
        assert!(text.contains("procname = \"sandboxed\""), "{arguments:?}: {text}");
    }
}
