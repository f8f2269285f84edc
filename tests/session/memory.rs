//! Memory of sessions: allocated when CPUs are used, released when it is no longer needed.

use std::time::{Duration, Instant};

use crate::session_test::{BurstProgram, SessionTest, assert_range_present};

/// Number of CPUs that the machine seems to have; and time after which memory is released.
const MANY_CPUS: (&str, &str) = ("TRACKWAY_TEST_CPUS", "256");
const SHORT_IDLE_TIME: (&str, &str) = ("TRACKWAY_TEST_IDLE_MS", "20");
const MEBIBYTE: u64 = 1 << 20;

fn create_session(test: &SessionTest, line: &str) {
    let output =
        test.command(line).envs([MANY_CPUS, SHORT_IDLE_TIME]).output().expect("trackway runs");
    assert!(output.status.success(), "{output:?}");
}

fn session_memory_bytes(test: &SessionTest, session: &str) -> u64 {
    test.status(session)["memory-bytes"].as_u64().expect("a number")
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// RUN a session on a machine that seems to have 256 CPUs; a program that counts in bursts, with
/// pauses. EXPECT less than 4 MiB while it is idle, more in a burst, and soon afterwards as little
/// as before.
#[test]
fn an_idle_session_on_256_cpus_takes_little_and_a_burst_s_memory_goes_back() {
    let test = SessionTest::new("session-memory");
    create_session(&test, "session create web --event life:* -o trace");
    let idle = session_memory_bytes(&test, "web");
    assert!(idle < 4 * MEBIBYTE, "{idle}");
    let mut bursts = BurstProgram::of(&test, 100_000);
    for _ in 0..3 {
        bursts.next();
        wait_until("it is given back", || session_memory_bytes(&test, "web") <= idle);
    }
    let recorded = |count: &str| test.status("web")["counts"][count].as_u64().expect("a number");
    wait_until("all are counted", || recorded("recorded") + recorded("lost") == 400_000);
    drop(bursts);
    test.ok("session destroy web");
}

/// RUN a program that counts in bursts, with pauses of which some are long enough, in a session
/// that releases all memory of CPUs at once. EXPECT every event, once and in order.
#[test]
fn nothing_is_lost_while_memory_comes_and_goes() {
    let test = SessionTest::new("session-lean");
    // The sub-buffers are so large that CPUs begin without one.
    create_session(
        &test,
        "session create web --event life:* --context vtid --sub-buffers 2 -o trace",
    );
    let idle = session_memory_bytes(&test, "web");
    let mut bursts = BurstProgram::of(&test, 2000);
    let mut most = 0;
    for round in 0_usize..100 {
        bursts.next();
        most = most.max(session_memory_bytes(&test, "web"));
        std::thread::sleep(Duration::from_millis([0, 3, 30, 130][round / 7 % 4]));
        if round % 25 == 24 {
            wait_until("it is given back", || session_memory_bytes(&test, "web") <= idle);
        }
    }
    assert!(most > idle, "CPUs were given memory");
    bursts.next();
    test.ok("session destroy web");
    let numbers = test.numbers("trace");
    assert_range_present(&numbers, 0, 0..102 * 2000);
    assert_eq!(numbers[&0].len(), 102 * 2000);
}
