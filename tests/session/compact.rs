//! A window that is no longer used takes little memory.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::session_test::{BurstProgram, CountingProgram, SessionTest, assert_all_present};
use trackway_tests::steps::wait_for;

const IDLE_MEMORY_BYTES_MAX: u64 = 1 << 20;

/// Returns the memory of the window, in bytes.
fn window_memory_bytes(test: &SessionTest) -> u64 {
    let entries = fs::read_dir(test.fixture.window_dir()).expect("the folder").flatten();
    entries.map(|entry| entry.metadata().expect("a file").blocks() * 512).sum()
}

/// RUN five sessions and a program at once, which end. EXPECT the window soon to take little
/// memory.
#[test]
fn after_the_last_session_and_program_the_window_takes_little() {
    let test = SessionTest::new("session-compact");
    for number in 0..5 {
        test.ok(&format!("session create s{number} -o trace-{number}"));
    }
    let counting = CountingProgram::threads(&test, 2);
    counting.steps.wait_more(50);
    assert!(window_memory_bytes(&test) > IDLE_MEMORY_BYTES_MAX, "{}", window_memory_bytes(&test));
    let steps = counting.finish();
    for number in 0..5 {
        test.ok(&format!("session destroy s{number}"));
    }
    wait_for("memory is given back", || window_memory_bytes(&test) <= IDLE_MEMORY_BYTES_MAX);
    // The remaining contents of the window are still usable.
    assert_all_present(&test.numbers("trace-4"), &steps);
    let listed = String::from_utf8_lossy(&test.run("list").stdout).into_owned();
    assert!(listed.contains("life:"), "its events are known: {listed}");
    wait_for("memory is given back", || window_memory_bytes(&test) <= IDLE_MEMORY_BYTES_MAX);
}

/// RUN a session; end it while its program runs on; record that program in another session, and end
/// both. EXPECT all events in the second trace, and little memory after the next command.
#[test]
fn a_window_that_a_program_has_stays_as_it_is() {
    let test = SessionTest::new("session-compact-later");
    test.ok("session create first -o first");
    let mut bursts = BurstProgram::of(&test, 1000);
    bursts.next();
    test.ok("session destroy first");
    assert!(window_memory_bytes(&test) > IDLE_MEMORY_BYTES_MAX, "{}", window_memory_bytes(&test));
    test.ok("session create second -o second");
    bursts.next();
    test.ok("session destroy second");
    let output = bursts.finish();
    assert!(output.status.success(), "{output:?}");
    assert!(!test.numbers("second").is_empty());
    test.run("list");
    wait_for("memory is given back", || window_memory_bytes(&test) <= IDLE_MEMORY_BYTES_MAX);
}
