//! Programs that allow blocking wait for room; others do not.

use trackway_tests::steps::{send_signal, wait_for};

use crate::session_test::{SessionTest, assert_all_present};

const CREATE_TINY_SESSION: &str = "session create web --event life:* --buffer-size 16K \
                    --sub-buffers 4 --blocking-timeout 20s -o trace";

/// RUN a program with TRACKWAY_ALLOW_BLOCKING=1 that emits much more than fits, into buffers of 16
/// KiB. EXPECT no lost event.
#[test]
fn a_program_that_allows_it_waits_and_loses_nothing() {
    let test = SessionTest::new("session-blocking");
    test.ok(CREATE_TINY_SESSION);
    let steps = test.steps_of_one();
    let mut program = test.program(&steps, "steps", 20_000);
    assert!(program.env("TRACKWAY_ALLOW_BLOCKING", "1").status().expect("it runs").success());
    let (_, talk) = test.ok("session destroy");
    assert!(talk.contains("trackway: 20,000 events recorded, 0 lost, "), "{talk}");
    assert_all_present(&test.numbers("trace"), &steps);
}

/// RUN a program without TRACKWAY_ALLOW_BLOCKING, while the recorder is suspended. EXPECT the
/// program to end meanwhile, and events without room to be counted.
#[test]
fn a_program_that_does_not_allow_it_never_waits() {
    let test = SessionTest::new("session-not-blocking");
    test.ok(CREATE_TINY_SESSION);
    let recorder = test.recorder_of("web").cast_signed();
    send_signal(recorder, libc::SIGSTOP);
    // Waits for the program's end: no recorder drains the buffers.
    test.emit("steps", 5000);
    send_signal(recorder, libc::SIGCONT);
    let lost = || test.status("web")["counts"]["lost"].as_u64().expect("a number");
    wait_for("the losses", || lost() > 0);
    let (recorded, lost) = (test.status("web")["counts"]["recorded"].clone(), lost());
    assert_eq!(recorded.as_u64().expect("a number") + lost, 5000);
    let (_, talk) = test.ok("session destroy");
    let plain = talk.replace(',', "");
    assert!(plain.contains(&format!("{recorded} events recorded {lost} lost")), "{talk}");
    assert!(talk.contains("life:step"), "which events were lost: {talk}");
}
