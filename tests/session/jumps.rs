//! Signal handlers that jump out of the interrupted code (siglongjmp(3)), in the middle of the
//! library's work for an event: no lock may stay held.

use std::path::PathBuf;
use std::process::{Child, Stdio};

use trackway_tests::Fixture;
use trackway_tests::steps::wait_for;

use crate::session_test::{SessionTest, command_result};

/// Number of events that the program emits after the last jump (`EVENTS_AFTER_JUMPS` of `jumps.c`).
const EVENTS_AFTER_JUMPS: u64 = 1000;
/// Number of changes of the filters while the program jumps.
const FILTER_CHANGES: u32 = 12;

fn compile_jumps(fixture: &Fixture) -> PathBuf {
    fixture.compile_file("session/jumps.c", true, &[])
}

/// Returns the number of events of phase 2 in a trace.
fn count_events_after_jumps(fixture: &Fixture, trace: &str) -> u64 {
    let words = ["print", "--count", "--event", "jumps:number", "--filter", "phase == 2", trace];
    let (is_success, count, talk) =
        command_result(&fixture.trackway(&words).output().expect("it runs"));
    assert!(is_success, "{talk}");
    count.trim().parse().expect("a number")
}

/// The running program, which waits for a signal.
struct JumpingProgram(Child);

impl JumpingProgram {
    fn start(test: &SessionTest, mode: &str) -> Self {
        let mut command = test.fixture.command(compile_jumps(&test.fixture));
        Self(command.arg(mode).stdout(Stdio::piped()).spawn().expect("it starts"))
    }

    /// Ends the program; returns the number of jumps out of interrupted code.
    fn end(self) -> u64 {
        let pid = self.0.id().cast_signed();
        // SAFETY: the program's own id; it is not waited for yet.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGUSR1) }, 0);
        let (is_success, said, talk) = command_result(&self.0.wait_with_output().expect("it ends"));
        assert!(is_success, "{said}{talk}");
        said.split(' ').next().and_then(|count| count.parse().ok()).expect("a number")
    }
}

/// RUN a program with jumps out of events all the time, while its filters change, so that some
/// jumps hit the linking of a filter; also with handlers that emit and interrupt each other. After
/// the last jump, EXPECT all events that the last filter passes.
#[test]
fn a_jump_out_of_filter_linking_blocks_no_other_thread() {
    for mode in ["until", "nested"] {
        let test = SessionTest::new(&format!("session-jumps-{mode}"));
        let event_on = |filter: &str| {
            let words = ["event", "on", "web", "jumps:*", "--filter", filter];
            let (is_success, _, talk) =
                command_result(&test.fixture.trackway(&words).output().expect("it"));
            assert!(is_success, "{filter}: {talk}");
        };
        test.ok("session create web --event jumps:* -o trace");
        let program = JumpingProgram::start(&test, mode);
        let recorded = || test.status("web")["counts"]["recorded"].as_u64();
        wait_for("its events", || recorded() > Some(0));
        for change in 0..FILTER_CHANGES {
            event_on(&format!(
                "phase < 2 && number % 7 == {} && number in (1..99999999)",
                change % 7
            ));
        }
        event_on("phase == 2");
        assert!(program.end() > 0, "{mode}");
        test.ok("session destroy web");
        assert_eq!(count_events_after_jumps(&test.fixture, "trace"), EVENTS_AFTER_JUMPS, "{mode}");
    }
}

/// RUN the program with neither filters nor restartable sequences, by claim only. EXPECT all events
/// that the program emits after the last jump.
#[test]
fn a_jump_out_of_an_event_releases_its_claim() {
    let fixture = Fixture::new("session-jumps-claims");
    let program = compile_jumps(&fixture);
    let program = program.to_str().expect("a path");
    let without = ["env", "GLIBC_TUNABLES=glibc.pthread.rseq=0", program, "1500"];
    let words = [&["record", "--buffer-size", "8M", "-o", "trace", "--"], &without[..]].concat();
    let (is_success, said, talk) =
        command_result(&fixture.trackway(&words).output().expect("it runs"));
    assert!(is_success && said.ends_with("jumps\n"), "{said}{talk}");
    assert_eq!(count_events_after_jumps(&fixture, "trace"), EVENTS_AFTER_JUMPS, "{talk}");
}
