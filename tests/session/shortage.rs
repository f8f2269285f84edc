//! What is lost comes with the size of buffers that would have kept it.

use std::os::unix::process::CommandExt;

use trackway_tests::steps::{send, wait_for};

use crate::place::{Place, assert_all_there};

/// Events that the program emits while nobody makes room.
const EVENTS: u64 = 50_000;

/// RUN a program on one CPU, to its end, while the recorder of a session with buffers of this size
/// stands still. EXPECT all events counted. What is said at the session's end.
fn record_a_burst(place: &Place, name: &str, size: &str) -> String {
    place.ok(&format!("session create {name} --on life:* --buffer-size {size} -o {name}"));
    let recorder = place.recorder_of(name).cast_signed();
    send(recorder, libc::SIGSTOP);
    let steps = place.steps_of_one();
    let mut program = place.program(&steps, "steps", EVENTS);
    // SAFETY: one system call, between fork and exec.
    unsafe {
        program.pre_exec(|| {
            let mut one: libc::cpu_set_t = std::mem::zeroed();
            let cpu = usize::try_from(libc::sched_getcpu()).unwrap_or(0);
            libc::CPU_SET(cpu, &mut one);
            libc::sched_setaffinity(0, size_of_val(&one), &raw const one);
            Ok(())
        });
    }
    assert!(program.status().expect("it runs").success());
    send(recorder, libc::SIGCONT);
    let counts = || place.status(name)["counts"].clone();
    let of = |what: &str| counts()[what].as_u64().expect("a number");
    wait_for("all of them", || of("recorded") + of("lost") == EVENTS);
    let is_whole = of("lost") == 0;
    let (_, talk) = place.ok("session destroy");
    if is_whole {
        assert_all_there(&place.numbers(name), &steps);
    }
    talk
}

#[test]
fn the_size_that_would_have_kept_what_was_lost_keeps_it() {
    let place = Place::new("session-shortage");
    let talk = record_a_burst(&place, "small", "64K");
    let size = talk.split_once("hint: --buffer-size ").map(|(_, rest)| rest);
    let size = size.and_then(|rest| rest.split_once(" would have kept them"));
    let (size, _) = size.unwrap_or_else(|| panic!("{talk}"));
    let talk = record_a_burst(&place, "enough", size);
    assert!(talk.contains("trackway: 50,000 events recorded, 0 lost, "), "{size}: {talk}");
    assert!(!talk.contains("hint: "), "{talk}");
    // Some 2 MB: not far more than that.
    assert!(["1M", "2M", "4M", "8M"].contains(&size), "{size}");
}
