//! The largest number of sessions.

use std::collections::BTreeMap;
use std::thread;

use crate::session_test::SessionTest;

/// RUN 32 sessions at a time, each with its own rules, on the same events; a 33rd. EXPECT each to
/// have its own events, and the 33rd to be refused until another has ended.
#[test]
fn thirty_two_sessions_record_at_a_time() {
    let test = SessionTest::new("session-many");
    let create = |number: usize| {
        let line =
            format!("session create s{number:o} --event many:e{number:02o} --event many:all");
        test.ok(&format!("{line} -o trace-{number}"))
    };
    // Several sessions are created at once, as service managers do.
    thread::scope(|scope| {
        for some in [0..11, 11..22, 22..32] {
            scope.spawn(move || some.map(create).for_each(drop));
        }
    });
    assert_eq!(test.list().len(), 32);
    let talk = test.refused("session create more -o more");
    assert!(talk.contains("the window has no place for another session"), "{talk}");
    assert!(talk.contains("hint: end some"), "{talk}");
    assert!(!test.fixture.path("more").exists(), "nothing is left of what was refused");
    let talk = test.refused("channel add s0 more");
    assert!(talk.contains("the window has no place for another"), "{talk}");
    test.emit("many", 7);
    test.ok("session destroy s37");
    test.ok("session create more --event many:* -o more");
    test.emit("many", 1);
    test.ok("session destroy --all");
    for number in 0..32 {
        let rounds = if number == 31 { 1 } else { 2 };
        let all = if number == 31 { 7 } else { 8 };
        let expected: BTreeMap<String, usize> =
            [(format!("many:e{number:02o}"), rounds * (number + 1)), ("many:all".to_owned(), all)]
                .into();
        assert_eq!(test.names(&format!("trace-{number}")), expected);
    }
    assert_eq!(test.names("more").values().sum::<usize>(), (1..=32).sum::<usize>() + 1);
}
