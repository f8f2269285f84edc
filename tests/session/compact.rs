//! A window that is no longer used takes little memory.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::place::{Bursts, Counting, Place, assert_all_there};
use trackway_tests::steps::wait_for;

const KEPT_BYTES: u64 = 1 << 20;

/// Returns the memory of the window, in bytes.
fn memory_of_window(place: &Place) -> u64 {
    let entries = fs::read_dir(place.world.window_dir()).expect("the folder").flatten();
    entries.map(|entry| entry.metadata().expect("a file").blocks() * 512).sum()
}

/// RUN five sessions and a program at once, which end. EXPECT that the window takes little soon.
#[test]
fn after_the_last_session_and_program_the_window_takes_little() {
    let place = Place::new("session-compact");
    for number in 0..5 {
        place.ok(&format!("session create s{number} -o trace-{number}"));
    }
    let counting = Counting::threads(&place, 2);
    counting.steps.wait_more(50);
    assert!(memory_of_window(&place) > KEPT_BYTES, "{}", memory_of_window(&place));
    let steps = counting.finish();
    for number in 0..5 {
        place.ok(&format!("session destroy s{number}"));
    }
    wait_for("memory is given back", || memory_of_window(&place) <= KEPT_BYTES);
    // What it holds still serves.
    assert_all_there(&place.numbers("trace-4"), &steps);
    let listed = String::from_utf8_lossy(&place.run("list").stdout).into_owned();
    assert!(listed.contains("life:"), "its events are known: {listed}");
    wait_for("memory is given back", || memory_of_window(&place) <= KEPT_BYTES);
}

/// RUN a session; end it while its program runs on; record that program in another session, and
/// end both. EXPECT everything in the second trace, and little memory after the next command.
#[test]
fn a_window_that_a_program_has_stays_as_it_is() {
    let place = Place::new("session-compact-later");
    place.ok("session create first -o first");
    let mut bursts = Bursts::of(&place, 1000);
    bursts.next();
    place.ok("session destroy first");
    assert!(memory_of_window(&place) > KEPT_BYTES, "{}", memory_of_window(&place));
    place.ok("session create second -o second");
    bursts.next();
    place.ok("session destroy second");
    let output = bursts.finish();
    assert!(output.status.success(), "{output:?}");
    assert!(!place.numbers("second").is_empty());
    place.run("list");
    wait_for("memory is given back", || memory_of_window(&place) <= KEPT_BYTES);
}
