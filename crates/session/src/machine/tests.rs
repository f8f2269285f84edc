//! What the machine does about single requests; histories are the simulation's.

use super::*;
use crate::{Mode, RuleSpec};

/// A session that has begun.
fn begun(spec: SessionSpec) -> Machine {
    let mut machine = Machine::new(spec);
    assert!(matches!(machine.next_effect(), Some(Effect::Begin { .. })));
    machine.done(Outcome::Done);
    let told = Effect::Answer(CREATOR, Answer::Done { warnings: Vec::new() });
    assert_eq!(machine.next_effect(), Some(told));
    assert_eq!(machine.next_effect(), None);
    machine
}

fn named(name: &str) -> ChannelSpec {
    ChannelSpec { name: name.into(), ..ChannelSpec::default() }
}

/// Everything that comes of one request, if all effects succeed.
fn effects(machine: &mut Machine, request: Request) -> Vec<Effect> {
    machine.ask(1, request);
    let mut effects = Vec::new();
    while let Some(effect) = machine.next_effect() {
        if effect.has_outcome() {
            machine.done(Outcome::Done);
        }
        effects.push(effect);
    }
    effects
}

fn refusal(effects: &[Effect]) -> &str {
    match effects {
        [Effect::Answer(1, Answer::Refused(refusal))] => &refusal.why,
        other => panic!("not only refused: {other:?}"),
    }
}

#[test]
fn a_session_that_cannot_begin_is_over() {
    let mut machine = Machine::new(SessionSpec::default());
    machine.next_effect();
    machine.ask(1, Request::Status);
    machine.done(Outcome::Failed(Refusal::new("no room")));
    let refused = Answer::Refused(Refusal::new("no room"));
    assert_eq!(machine.next_effect(), Some(Effect::Answer(CREATOR, refused)));
    assert!(matches!(machine.next_effect(), Some(Effect::Answer(1, Answer::Refused(_)))));
    assert_eq!((machine.next_effect(), machine.next_effect()), (Some(Effect::Exit), None));
}

#[test]
fn contexts_are_changed_by_a_channel_in_the_place_of_the_old_one() {
    let mut machine = begun(SessionSpec::default());
    let contexts = Some(vec!["vpid".to_owned()]);
    let change = ChannelChange { contexts, ..ChannelChange::default() };
    let request = Request::SetChannel { channel: "channel0".into(), change };
    let effects = effects(&mut machine, request);
    let [Effect::Replace { old: 0, channel, record: true }, Effect::End { class: 0 }, _] =
        &effects[..]
    else {
        panic!("{effects:?}")
    };
    assert_eq!((channel.class, &channel.spec.contexts[..]), (1, &["vpid".to_owned()][..]));
    assert_eq!(machine.channels().next().map(|(_, class)| class), Some(1));
}

#[test]
fn what_needs_no_buffers_is_changed_in_place() {
    let mut machine = begun(SessionSpec::default());
    let change = ChannelChange { pids: Some(vec![7]), ..ChannelChange::default() };
    let request = Request::SetChannel { channel: "channel0".into(), change };
    let first = effects(&mut machine, request.clone());
    assert!(matches!(&first[..], [Effect::SetProcesses { class: 0, .. }, _]), "{first:?}");
    let again = effects(&mut machine, request);
    assert!(matches!(&again[..], [Effect::Answer(1, Answer::Done { warnings })]
        if warnings == &["nothing has changed"]));
}

#[test]
fn what_is_refused_changes_nothing() {
    let mut machine = begun(SessionSpec::default());
    let before = machine.spec().clone();
    let requests = [
        Request::AddChannel { channel: named("channel0") },
        Request::AddChannel { channel: named("../etc") },
        Request::RemoveChannel { channel: "channel0".into() },
        Request::RemoveChannel { channel: "other".into() },
        Request::Snapshot { output: None, last_ns: None },
        // Whatever it would come to: it would take for ever.
        Request::EventsOff { channel: None, patterns: vec!["a:b".into(); RULES_BYTES_MAX] },
        Request::EventsOff { channel: None, patterns: vec!["*".repeat(RULES_BYTES_MAX + 1)] },
        Request::EventsOff { channel: None, patterns: vec!["app".into(), "!db".into()] },
    ];
    for request in requests {
        let effects = effects(&mut machine, request);
        assert!(!refusal(&effects).is_empty());
    }
    machine.ask(1, Request::AddChannel { channel: named("more") });
    machine.next_effect();
    machine.done(Outcome::Failed(Refusal::new("no slot")));
    assert_eq!(refusal(&[machine.next_effect().expect("an answer")]), "no slot");
    assert_eq!(machine.spec(), &before);
}

#[test]
fn a_change_that_is_refused_halfway_is_undone() {
    let mut machine = begun(SessionSpec::default());
    let before = machine.spec().clone();
    let change = ChannelChange {
        pids: Some(vec![7]),
        blocking_timeout_ns: Some(5_000_000),
        ..ChannelChange::default()
    };
    machine.ask(1, Request::SetChannel { channel: "channel0".into(), change });
    let time = Some(Duration::from_millis(5));
    assert_eq!(machine.next_effect(), Some(Effect::SetBlocking { class: 0, time }));
    machine.done(Outcome::Done);
    assert!(matches!(machine.next_effect(), Some(Effect::SetProcesses { .. })));
    machine.done(Outcome::Failed(Refusal::new("no process 7")));
    assert_eq!(machine.next_effect(), Some(Effect::SetBlocking { class: 0, time: None }));
    machine.done(Outcome::Done);
    assert_eq!(refusal(&[machine.next_effect().expect("an answer")]), "no process 7");
    assert_eq!(machine.spec(), &before);
}

#[test]
fn which_channel_is_asked_where_there_are_several() {
    let channels = vec![named("a"), named("b")];
    let mut machine = begun(SessionSpec { channels, ..SessionSpec::default() });
    let on = |channel: Option<&str>| Request::EventsOff {
        channel: channel.map(str::to_owned),
        patterns: vec!["app:noise".into()],
    };
    assert_eq!(refusal(&effects(&mut machine, on(None))), "which channel?");
    let effects = effects(&mut machine, on(Some("b")));
    let rules = "*\n!app:noise".to_owned();
    assert_eq!(effects[0], Effect::SetRules { class: 1, rules });
    let excluded = Some(vec![RuleSpec::new("!app:noise")]);
    assert_eq!(machine.spec().channel("b").map(|channel| channel.on.clone()), Some(excluded));
}

#[test]
fn an_exclusion_switches_nothing_on_unless_only_it_is_meant() {
    let mut channel = ChannelSpec::default();
    channel.switch_off(&["*".into()]);
    let mut machine = begun(SessionSpec { channels: vec![channel], ..SessionSpec::default() });
    let mut on = |pattern: &str, only: bool| {
        let rules = vec![RuleSpec::new(pattern)];
        effects(&mut machine, Request::EventsOn { channel: None, rules, only })
    };
    let said = on("!app:noise", false);
    assert!(
        matches!(&said[..], [Effect::Answer(1, Answer::Done { warnings })]
        if warnings == &["nothing has changed"]),
        "{said:?}"
    );
    let rules = "*\n!app:noise".to_owned();
    assert_eq!(on("!app:noise", true)[0], Effect::SetRules { class: 0, rules });
    assert_eq!(on("app", true)[0], Effect::SetRules { class: 0, rules: "app:*".into() });
}

/// A flight recorder's session, which has begun.
fn flight() -> Machine {
    let channels = vec![ChannelSpec { mode: Mode::Overwrite, ..ChannelSpec::default() }];
    begun(SessionSpec { channels, snapshot_on_crash: true, ..SessionSpec::default() })
}

/// Reasons of the snapshots that the machine wants now; all are written, or none.
fn snapshots(machine: &mut Machine, is_written: bool) -> Vec<Reason> {
    let mut reasons = Vec::new();
    while let Some(effect) = machine.next_effect() {
        let Effect::Snapshot(snapshot) = effect else { panic!("{effect:?}") };
        reasons.push(snapshot.reason);
        machine.done(match is_written {
            true => Outcome::Snapshot(SnapshotFacts::default()),
            false => Outcome::Failed(Refusal::new("no room")),
        });
    }
    reasons
}

fn crash(pid: u32) -> Reason {
    Reason::Crash { pid, signal: 11 }
}

#[test]
fn snapshots_that_nobody_asked_for_do_not_come_by_the_dozen() {
    let mut machine = flight();
    let mut made = Vec::new();
    // Programs ask and die every tenth of a second, and then no more.
    for tenth in 0..60 {
        let now = 5 + tenth * UNASKED_PERIOD_NS / 10;
        if tenth < 25 {
            machine.program_asks_for_snapshot(now);
            machine.process_crashed(tenth as u32, 11, now);
        }
        machine.tick(now);
        made.extend(snapshots(&mut machine, true).into_iter().map(|reason| (tenth, reason)));
    }
    // Who has asked before is in it, too.
    let expected = [(0, Reason::Program), (0, crash(0)), (10, crash(1)), (20, crash(10))];
    assert_eq!(made[..4], expected);
    assert_eq!(made[4..], [(30, crash(20))]);
}

#[test]
fn snapshots_that_come_too_soon_are_made_later() {
    let mut machine = flight();
    machine.program_asks_for_snapshot(5);
    assert_eq!(snapshots(&mut machine, true), [Reason::Program]);
    machine.program_asks_for_snapshot(6);
    machine.tick(UNASKED_PERIOD_NS + 4);
    assert_eq!(snapshots(&mut machine, true), []);
    machine.tick(UNASKED_PERIOD_NS + 5);
    assert_eq!(snapshots(&mut machine, true), [Reason::Program]);
    machine.tick(UNASKED_PERIOD_NS * 9);
    assert_eq!(snapshots(&mut machine, true), [], "once");
}

#[test]
fn a_crash_does_not_wait_for_programs_and_is_the_reason() {
    let mut machine = flight();
    machine.program_asks_for_snapshot(5);
    // What follows is not kept back by one that was not written.
    assert_eq!(snapshots(&mut machine, false), [Reason::Program]);
    machine.process_crashed(7, 11, 6);
    assert_eq!(snapshots(&mut machine, false), [crash(7)]);
    machine.program_asks_for_snapshot(7);
    machine.process_crashed(8, 11, 8);
    machine.process_crashed(9, 11, 9);
    machine.program_asks_for_snapshot(UNASKED_PERIOD_NS);
    assert_eq!(snapshots(&mut machine, true), []);
    machine.tick(UNASKED_PERIOD_NS + 6);
    assert_eq!(snapshots(&mut machine, true), [crash(8)], "one for all, for the first that died");
    machine.tick(UNASKED_PERIOD_NS * 9);
    assert_eq!(snapshots(&mut machine, true), []);
}

#[test]
fn what_is_remembered_is_made_before_the_end() {
    let mut machine = flight();
    machine.process_crashed(7, 11, 5);
    assert_eq!(snapshots(&mut machine, true), [crash(7)]);
    machine.process_crashed(8, 11, 6);
    machine.ask(1, Request::Destroy);
    let Some(Effect::Snapshot(snapshot)) = machine.next_effect() else { panic!("one") };
    assert_eq!(snapshot.reason, crash(8));
    machine.done(Outcome::Snapshot(SnapshotFacts::default()));
    assert_eq!(machine.next_effect(), Some(Effect::Finish));
}

#[test]
fn only_snapshots_in_the_sessions_folder_have_numbers() {
    let channels = vec![ChannelSpec { mode: Mode::Overwrite, ..ChannelSpec::default() }];
    let mut machine = begun(SessionSpec { channels, ..SessionSpec::default() });
    let elsewhere = PathBuf::from("elsewhere");
    let mut outputs = Vec::new();
    for (output, is_written) in
        [(None, true), (Some(elsewhere.clone()), true), (None, false), (None, true)]
    {
        machine.ask(1, Request::Snapshot { output, last_ns: None });
        let Some(Effect::Snapshot(snapshot)) = machine.next_effect() else { panic!("one") };
        outputs.push(snapshot.output);
        machine.done(match is_written {
            true => Outcome::Snapshot(SnapshotFacts::default()),
            false => Outcome::Failed(Refusal::new("no room")),
        });
        while machine.next_effect().is_some() {}
    }
    let [one, two] = [1, 2].map(Output::Numbered);
    assert_eq!(outputs, [one, Output::Folder(elsewhere), two.clone(), two]);
    assert_eq!(machine.snapshots(), 3);
}

#[test]
fn the_end_is_the_end_whatever_comes_of_it() {
    for outcome in
        [Outcome::Ended(Box::default()), Outcome::Failed(Refusal::new("the disk is full"))]
    {
        let mut machine = begun(SessionSpec::default());
        machine.ask(1, Request::Destroy);
        machine.ask(2, Request::Start);
        assert_eq!(machine.next_effect(), Some(Effect::Finish));
        machine.done(outcome);
        assert!(matches!(machine.next_effect(), Some(Effect::Answer(1, _))));
        assert!(matches!(machine.next_effect(), Some(Effect::Answer(2, Answer::Refused(_)))));
        assert_eq!((machine.next_effect(), machine.next_effect()), (Some(Effect::Exit), None));
    }
}

#[test]
fn a_stop_that_could_not_write_is_refused_and_tried_again() {
    let mut machine = begun(SessionSpec::default());
    machine.ask(1, Request::Stop);
    assert_eq!(machine.next_effect(), Some(Effect::Stop));
    machine.done(Outcome::Failed(Refusal::new("the disk is full")));
    let effect = machine.next_effect().expect("an answer");
    let Effect::Answer(1, Answer::Refused(refusal)) = effect else { panic!("{effect:?}") };
    assert_eq!(refusal.why, "the disk is full");
    assert!(refusal.hint.is_some_and(|hint| hint.contains("it is stopped")));
    assert!(!machine.is_recording());
    let done = |warnings: &[&str]| {
        let warnings = warnings.iter().map(|&warning| warning.into()).collect();
        Effect::Answer(1, Answer::Done { warnings })
    };
    assert_eq!(effects(&mut machine, Request::Stop), [Effect::Stop, done(&[])]);
    assert_eq!(effects(&mut machine, Request::Stop), [done(&["it is stopped already"])]);
    assert_eq!(effects(&mut machine, Request::Start), [Effect::Start, done(&[])]);
    assert_eq!(effects(&mut machine, Request::Start), [done(&["it records already"])]);
}

#[test]
fn nothing_comes_after_the_end() {
    let channels = vec![ChannelSpec { mode: Mode::Overwrite, ..ChannelSpec::default() }];
    let mut machine = begun(SessionSpec { channels, ..SessionSpec::default() });
    machine.ask(1, Request::Destroy);
    machine.program_asks_for_snapshot(5);
    assert_eq!(machine.next_effect(), Some(Effect::Finish));
    machine.done(Outcome::Ended(Box::default()));
    assert!(matches!(machine.next_effect(), Some(Effect::Answer(1, Answer::Ended(_)))));
    assert_eq!(machine.next_effect(), Some(Effect::Exit));
    machine.program_asks_for_snapshot(UNASKED_PERIOD_NS * 2);
    machine.ask(1, Request::Status);
    machine.lose(&Refusal::new("gone"));
    assert_eq!(machine.next_effect(), None);
}

#[test]
fn who_was_answered_is_not_answered_again_when_the_session_is_lost() {
    let mut machine = begun(SessionSpec::default());
    machine.ask(1, Request::Status);
    machine.ask(2, Request::Stop);
    assert_eq!(machine.next_effect(), Some(Effect::ReportStatus(1)));
    machine.lose(&Refusal::new("gone"));
    assert!(matches!(machine.next_effect(), Some(Effect::Answer(2, Answer::Refused(_)))));
    assert_eq!((machine.next_effect(), machine.next_effect()), (Some(Effect::Exit), None));
}

#[test]
fn what_was_done_before_the_session_was_lost_is_told() {
    let mut machine = begun(SessionSpec { start: false, ..SessionSpec::default() });
    machine.ask(1, Request::Start);
    assert_eq!(machine.next_effect(), Some(Effect::Start));
    machine.done(Outcome::Done);
    machine.lose(&Refusal::new("gone"));
    let done = Answer::Done { warnings: Vec::new() };
    assert_eq!(machine.next_effect(), Some(Effect::Answer(1, done)));
    assert!(!machine.is_recording());
}
