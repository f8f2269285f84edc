//! Recommended buffer sizes: a loss for lack of buffer space reports a sufficient size, and other
//! losses do not.

use std::fs;
use std::os::unix::process::CommandExt;

use trackway_tests::steps::{send_signal, wait_for};
use trackway_tests::{Fixture, skip_if_lockless};

use crate::session_test::{SessionTest, assert_all_present};

/// Number of events that the program emits while no recorder drains.
const EVENT_COUNT: u64 = 50_000;

/// RUN a program on one CPU, to its end, while the recorder of a session with buffers of this size
/// is suspended. EXPECT all events counted. Returns the messages at the session's end.
fn record_burst(test: &SessionTest, name: &str, size: &str) -> String {
    test.ok(&format!("session create {name} --event life:* --buffer-size {size} -o {name}"));
    let recorder = test.recorder_of(name).cast_signed();
    send_signal(recorder, libc::SIGSTOP);
    let steps = test.steps_of_one();
    let mut program = test.program(&steps, "steps", EVENT_COUNT);
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
    send_signal(recorder, libc::SIGCONT);
    let counts = || test.status(name)["counts"].clone();
    let of = |what: &str| counts()[what].as_u64().expect("a number");
    wait_for("all of them", || of("recorded") + of("lost") == EVENT_COUNT);
    let is_whole = of("lost") == 0;
    let (_, talk) = test.ok("session destroy");
    if is_whole {
        assert_all_present(&test.numbers(name), &steps);
    }
    talk
}

#[test]
fn the_size_that_would_have_kept_what_was_lost_keeps_it() {
    let test = SessionTest::new("session-shortage");
    let talk = record_burst(&test, "small", "64K");
    let size = talk.split_once("hint: a --buffer-size of about ").map(|(_, rest)| rest);
    let size = size.and_then(|rest| rest.split_once(" would have kept them"));
    let (size, _) = size.unwrap_or_else(|| panic!("{talk}"));
    let talk = record_burst(&test, "enough", size);
    assert!(talk.contains("trackway: 50,000 events recorded, 0 lost, "), "{size}: {talk}");
    assert!(!talk.contains("hint: "), "{talk}");
    // The events take some 2 MB: the size is not far above that.
    assert!(["1M", "2M", "4M", "8M"].contains(&size), "{size}");
}

/// Program that emits as many events as its first argument, with texts of as many bytes as its
/// second argument.
const TEXTS_SOURCE: &str = "#include <stdlib.h>\n#include <string.h>\n\
    #include <trackway/trackway.h>\n\
    TRACKWAY_EVENT(texts, text, TRACKWAY_INFO, (str, text));\n\
    int main(int count, char **arguments) {\n\
    static char text[65000]; (void)count; memset(text, 'x', (size_t)atoi(arguments[2]));\n\
    for (int left = atoi(arguments[1]); left > 0; left--) trackway(texts, text, text);\n\
    return 0; }\n";

#[test]
fn events_that_are_too_large_for_a_sub_buffer_come_with_the_size_that_holds_them() {
    let fixture = Fixture::new("shortage-oversized");
    let program = fixture.compile("texts-oversized", TEXTS_SOURCE, true, &[]);
    let command = [program.to_str().expect("text"), "3", "4000"];
    let small = fixture.record(&["--buffer-size", "64K"], &command);
    let talk = small.messages();
    assert!(talk.contains("0 events recorded, 3 lost") && !talk.contains("would have"), "{talk}");
    let hint = "bytes are too large for a sub-buffer; a --buffer-size of ";
    let (_, size) = talk.split_once(hint).unwrap_or_else(|| panic!("{talk}"));
    let (size, _) = size.split_once(" has sub-buffers").expect("a size");
    let enough = fixture.record(&["--buffer-size", size], &command);
    let talk = enough.messages();
    assert!(talk.contains("3 events recorded, 0 lost") && !talk.contains("hint: "), "{talk}");
}

#[test]
fn events_for_which_a_process_has_no_address_space_come_with_no_larger_size() {
    if skip_if_lockless("no part is of use where not all is mapped") {
        return;
    }
    let fixture = Fixture::new("shortage-unmapped");
    let program = fixture.compile("texts-unmapped", TEXTS_SOURCE, true, &[]);
    let limited = format!("ulimit -v 150000; exec {} 60000 1000", program.display());
    let recording = fixture.record(&["--buffer-size", "256M"], &["sh", "-c", &limited]);
    let talk = recording.messages();
    assert!(!talk.contains(" 0 lost") && !talk.contains("would have kept"), "{talk}");
    assert!(talk.contains("on its address space (ulimit -v); a smaller --buffer-size"), "{talk}");
}

#[test]
fn with_a_file_the_channels_buffer_size_is_named_as_there() {
    let fixture = Fixture::new("shortage-config");
    let program = fixture.compile("texts-config", TEXTS_SOURCE, true, &[]);
    fs::write(fixture.path("s.toml"), "[[channel]]\nname = \"web\"\nbuffer-size = \"64K\"\n")
        .expect("a file");
    let command = [program.to_str().expect("text"), "3", "4000"];
    let recording = fixture.record(&["--config", "s.toml"], &command);
    let talk = recording.messages();
    let hint = "a buffer-size of 512K of channel 'web' in the file of --config has sub-buffers";
    assert!(talk.contains(hint) && !talk.contains("--buffer-size"), "{talk}");
}
