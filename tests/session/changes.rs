//! Changes while programs emit: rules, levels, contexts, sizes, channels.

use std::collections::BTreeMap;

use crate::session_test::{
    BurstProgram, CountingProgram, SessionTest, assert_all_present, assert_range_absent,
    assert_range_present,
};

/// RUN event off and on repeatedly, while a program counts; its one thread emits nothing during the
/// changes. EXPECT all numbers from the enabled times, and none from the disabled times.
#[test]
fn events_are_switched_off_and_on_between_two_numbers() {
    let test = SessionTest::new("session-rules");
    test.ok("session create web --event life:* -o trace");
    let mut bursts = BurstProgram::of(&test, 100);
    let mut on = vec![true];
    for command in [
        "event off web life:step",
        "event on web life:*",
        "event off web life",
        "event on web life:st* other:*",
        "event on web other:* --only",
        "event on web * --only",
        "event on web !life:* --only",
        "event on web life --level info --only",
        "event on web life --level warning --only",
        "event on web life --level-only info",
        "event off web *:s*",
        "event on web *:s*",
    ] {
        test.ok(command);
        bursts.next();
        on.push(!on[on.len() - 1]);
    }
    test.ok("event off web *:s*");
    let (_, talk) = test.ok("event on web life:step");
    assert!(talk.contains("what '!*:s*' excludes stays off"), "{talk}");
    test.ok("session destroy web");
    let numbers = test.numbers("trace");
    for (number, is_on) in (0..).zip(on) {
        let range = number * 100..(number + 1) * 100;
        match is_on {
            true => assert_range_present(&numbers, 0, range),
            false => assert_range_absent(&numbers, 0, range),
        }
    }
}

/// RUN event off for existing rules, and for exclusions. EXPECT them to be removed, and the other
/// rules to stay in effect.
#[test]
fn rules_are_taken_back() {
    let test = SessionTest::new("session-take-back");
    test.ok("session create web --event life:* --exclude life:step -o trace");
    let rules = || {
        let saved = test.ok("session save web").0;
        let rules = saved.lines().find_map(|line| line.strip_prefix("on = "));
        rules.expect("rules").to_owned()
    };
    let mut bursts = BurstProgram::of(&test, 10); // 0: off
    test.ok("event off web !life:step");
    assert_eq!(rules(), r#"["life:*"]"#);
    bursts.next(); // 1: on
    test.ok("event on web many:step other:*");
    test.ok("event off web other:*");
    assert_eq!(rules(), r#"["life:*", "many:step"]"#);
    test.ok("event off web life:*");
    bursts.next(); // 2: off
    assert_eq!(rules(), r#"["many:step"]"#);
    let talk = test.refused("event off web !life:step");
    assert!(talk.contains("there is no rule '!life:step'\nhint: trackway event off web"), "{talk}");
    test.ok("session destroy web");
    let numbers = test.numbers("trace");
    assert_range_absent(&numbers, 0, 0..10);
    assert_range_present(&numbers, 0, 10..20);
    assert_range_absent(&numbers, 0, 20..30);
}

/// RUN create, event on, channel add and load with rules that no event matches. EXPECT a notice
/// with similar names, and no error; no notice for rules that match, or that exclude.
#[test]
fn rules_that_match_nothing_yet_are_said() {
    let test = SessionTest::new("session-unmatched");
    let none = |pattern: &str| format!("trackway: '{pattern}' matches no known event\n");
    let near = |pattern: &str, near: &str| {
        format!("trackway: '{pattern}' matches no known event; did you mean '{near}'?\n")
    };
    let (_, talk) =
        test.ok("session create web --event live:* --event * --exclude nothing:* -o trace");
    assert!(
        talk.ends_with(&none("live:*")) && talk.matches("no known event").count() == 1,
        "{talk}"
    );
    // The program registers its events, and is not recorded.
    test.ok("event off web *");
    let mut bursts = BurstProgram::of(&test, 10);
    let said = |line: &str| test.ok(line).1;
    assert_eq!(said("event on web lif:*"), near("lif:*", "life:*"));
    assert_eq!(said("event on web life:stop"), near("life:stop", "life:step"));
    assert_eq!(said("event on web unknown"), none("unknown:*"));
    assert_eq!(said("event on web life:st*"), "");
    let said_of_channel = said("channel add web more --event Life:step");
    assert_eq!(said_of_channel, near("Life:step", "life:step"));
    test.ok("session save web -o web.toml");
    bursts.next();
    let (_, talk) = test.ok("session load web.toml other");
    assert!(talk.contains(&near("lif:*", "life:*")), "{talk}");
    assert!(talk.contains(&none("unknown:*")) && !talk.contains("'life:st*'"), "{talk}");
    test.ok("session destroy --all");
    assert_range_present(&test.numbers("trace"), 0, 10..20);
}

/// RUN event off and on while four threads count continuously. EXPECT all numbers that were
/// certainly counted while the event was enabled.
#[test]
fn events_are_switched_under_threads_that_emit() {
    let test = SessionTest::new("session-rules-threads");
    test.ok("session create web --event life:* -o trace");
    let counting = CountingProgram::threads(&test, 4);
    let (mut on, mut off) = (Vec::new(), Vec::new());
    let mut begin = counting.steps.counts();
    for _ in 0..10 {
        counting.steps.wait_more(20);
        let before = counting.steps.counts();
        on.push((begin, before));
        test.ok("event off web life:step");
        let begin_off = counting.steps.counts();
        counting.steps.wait_more(20);
        off.push((begin_off, counting.steps.counts()));
        test.ok("event on web life:step");
        begin = counting.steps.counts();
    }
    let steps = counting.finish();
    on.push((begin, steps.counts()));
    test.ok("session destroy web");
    let numbers = test.numbers("trace");
    let of = |counts: &BTreeMap<u32, u64>, stream: u32| counts.get(&stream).copied().unwrap_or(0);
    for stream in 0..4 {
        for (begin, end) in &on {
            // The first event may have loaded its enable word before the switch.
            assert_range_present(
                &numbers,
                stream,
                of(&begin.started, stream) + 1..of(&end.returned, stream),
            );
        }
        for (begin, end) in &off {
            assert_range_absent(
                &numbers,
                stream,
                of(&begin.started, stream) + 1..of(&end.returned, stream),
            );
        }
        // The numbers are in order, none occurs twice, and all were emitted.
        let all = &numbers[&stream];
        assert!(all.windows(2).all(|pair| pair[0] < pair[1]), "stream {stream}");
        assert!(all.last().is_none_or(|last| *last < steps.counts().started[&stream]));
    }
}

/// RUN channel set 60 times, with other contexts, sizes and modes, while 4 threads count. EXPECT
/// every number once, with the right contexts, in a trace that babeltrace2 reads, too.
#[test]
fn nothing_is_lost_or_doubled_while_contexts_and_sizes_change() {
    let test = SessionTest::new("session-contexts");
    test.ok("session create web --event life:* --buffer-size 4M -o trace");
    let counting = CountingProgram::threads(&test, 4);
    // The buffers are large enough for a recorder that is scheduled late.
    let changes = [
        "--context vpid,vtid",
        "--context none",
        "--buffer-size 8M",
        "--context procname,vtid --sub-buffers 16",
        "--buffer-size 2M",
        "--context vpid --sub-buffers 8",
    ];
    for change in changes.iter().cycle().take(60) {
        test.ok(&format!("channel set web channel0 {change}"));
    }
    counting.steps.wait_more(100);
    let steps = counting.finish();
    let (_, talk) = test.ok("session destroy web");
    assert!(talk.contains(" 0 lost, "), "{talk}");
    assert_all_present(&test.numbers("trace"), &steps);
}

/// RUN channel add and remove while threads count. EXPECT each channel to have the events of its
/// lifetime, and the first channel to have all.
#[test]
fn channels_come_and_go_while_programs_emit() {
    let test = SessionTest::new("session-channels");
    test.ok("session create web --event life:* --context vtid -o trace");
    let mut bursts = BurstProgram::of(&test, 50);
    // Events that the second channel also records occur twice in the trace.
    for round in 0..4 {
        test.ok(&format!("channel add web more{round} --event life:* --context vpid"));
        bursts.next();
        let channels = test.status("web")["channels"].clone();
        assert_eq!(channels[1]["spec"]["name"], format!("more{round}"), "{channels}");
        test.ok(&format!("channel remove web more{round}"));
        bursts.next();
    }
    let talk = test.refused("event off web life:*  --channel more0");
    assert!(talk.contains("'more0'"), "{talk}");
    test.ok("channel add web second --event many:*");
    let talk = test.refused("event off web life:*");
    assert!(talk.contains("--channel"), "{talk}");
    let (_, talk) = test.ok("session destroy web");
    assert!(talk.contains("trackway: 650 events recorded, 0 lost"), "{talk}");
    let mut numbers = test.numbers("trace").remove(&0).expect("the stream");
    numbers.sort_unstable();
    let expected = (0..450_u64).flat_map(|number| {
        let is_twice = number / 50 % 2 == 1;
        std::iter::repeat_n(number, if is_twice { 2 } else { 1 })
    });
    assert_eq!(numbers, expected.collect::<Vec<u64>>());
}

/// RUN --level, --level-only, event on --level. EXPECT the events of these levels.
#[test]
fn events_are_chosen_by_level() {
    let test = SessionTest::new("session-levels");
    test.ok("session create grave --level error -o grave");
    test.ok("session create exact --event *:* --level-only info -o exact");
    test.ok("session create mixed --event ALERT -o mixed");
    test.ok("event on mixed *:* --level-only debug");
    test.ok("event on mixed D* --level debug-system");
    test.ok("event off mixed ALERT");
    test.emit("levels", 0);
    test.ok("session destroy --all");
    let names = |trace: &str| test.names(trace).into_keys().collect::<Vec<_>>();
    assert_eq!(names("grave"), ["ALERT:ALERT", "CRIT:CRIT", "EMERG:EMERG", "ERR:ERR"]);
    assert_eq!(names("exact"), ["INFO:INFO"]);
    assert_eq!(names("mixed"), ["DEBUG:DEBUG", "DEBUG_SYSTEM:DEBUG_SYSTEM"]);
}
