//! Tests single requests; the simulation tests sequences of requests.

use super::*;
use crate::{Mode, RuleSpec};

/// Returns the machine of a session that has begun.
fn begin_machine(spec: SessionSpec) -> Machine {
    let mut machine = Machine::new(spec);
    assert!(matches!(machine.next_effect(), Some(Effect::Begin { .. })));
    machine.complete(Outcome::Done);
    let told = Effect::Answer(CREATOR, Answer::Done { warnings: Vec::new() });
    assert_eq!(machine.next_effect(), Some(told));
    assert_eq!(machine.next_effect(), None);
    machine
}

fn channel_named(name: &str) -> ChannelSpec {
    ChannelSpec { name: name.into(), ..ChannelSpec::default() }
}

/// Returns all effects of one request, if every effect succeeds.
fn run_request(machine: &mut Machine, request: Request) -> Vec<Effect> {
    machine.submit(1, request);
    let mut effects = Vec::new();
    while let Some(effect) = machine.next_effect() {
        if effect.has_outcome() {
            machine.complete(Outcome::Done);
        }
        effects.push(effect);
    }
    effects
}

fn expect_refusal(effects: &[Effect]) -> &str {
    match effects {
        [Effect::Answer(1, Answer::Refused(refusal))] => &refusal.why,
        other => panic!("not only refused: {other:?}"),
    }
}

#[test]
fn a_session_that_cannot_begin_is_over() {
    let mut machine = Machine::new(SessionSpec::default());
    machine.next_effect();
    machine.submit(1, Request::Status);
    machine.complete(Outcome::Failed(Refusal::new("no room")));
    let refused = Answer::Refused(Refusal::new("no room"));
    assert_eq!(machine.next_effect(), Some(Effect::Answer(CREATOR, refused)));
    assert!(matches!(machine.next_effect(), Some(Effect::Answer(1, Answer::Refused(_)))));
    assert_eq!((machine.next_effect(), machine.next_effect()), (Some(Effect::Exit), None));
}

#[test]
fn contexts_are_changed_by_a_channel_in_the_place_of_the_old_one() {
    let mut machine = begin_machine(SessionSpec::default());
    let contexts = Some(vec!["vpid".to_owned()]);
    let change = ChannelChange { contexts, ..ChannelChange::default() };
    let request = Request::SetChannel { channel: "channel0".into(), change };
    let effects = run_request(&mut machine, request);
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
    let mut machine = begin_machine(SessionSpec::default());
    let change = ChannelChange { pids: Some(vec![7]), ..ChannelChange::default() };
    let request = Request::SetChannel { channel: "channel0".into(), change };
    let first = run_request(&mut machine, request.clone());
    assert!(matches!(&first[..], [Effect::SetProcesses { class: 0, .. }, _]), "{first:?}");
    let again = run_request(&mut machine, request);
    assert!(matches!(&again[..], [Effect::Answer(1, Answer::Done { warnings })]
        if warnings == &["nothing has changed"]));
}

#[test]
fn the_kernels_events_are_changed_where_there_are_some() {
    let on = |pattern: &str| Request::KernelOn { patterns: vec![pattern.into()], filter: None };
    let off = |pattern: &str| Request::KernelOff { patterns: vec![pattern.into()] };
    let mut without = begin_machine(SessionSpec::default());
    assert!(
        expect_refusal(&run_request(&mut without, on("sched"))).contains("no events of the kernel")
    );
    let spec = KernelSpec { on: vec!["sched".into()], ..KernelSpec::default() };
    let mut machine = begin_machine(SessionSpec { kernel: Some(spec), ..SessionSpec::default() });
    let now = |machine: &Machine| machine.spec().kernel.clone().map(|kernel| kernel.on);
    let done = run_request(&mut machine, on("irq"));
    assert!(
        matches!(&done[..], [Effect::SetKernel(spec), Effect::Answer(1, _)] if spec.on.len() == 2)
    );
    run_request(&mut machine, off("sched"));
    let expected = Some(vec!["irq".to_owned(), "!sched".to_owned()]);
    assert_eq!(now(&machine), expected);
    // A request that the recorder cannot fulfil has changed nothing.
    machine.submit(1, on("no_such_event"));
    assert!(matches!(machine.next_effect(), Some(Effect::SetKernel(_))));
    machine.complete(Outcome::Failed(Refusal::new("there is none")));
    assert!(matches!(machine.next_effect(), Some(Effect::Answer(1, Answer::Refused(_)))));
    assert_eq!(now(&machine), expected);
    let again = run_request(&mut machine, on("irq"));
    assert!(
        matches!(&again[..], [Effect::Answer(1, Answer::Done { warnings })] if warnings.len() == 1)
    );
}

#[test]
fn what_is_refused_changes_nothing() {
    let mut machine = begin_machine(SessionSpec::default());
    let before = machine.spec().clone();
    let requests = [
        Request::AddChannel { channel: channel_named("channel0") },
        Request::AddChannel { channel: channel_named("../etc") },
        Request::RemoveChannel { channel: "channel0".into() },
        Request::RemoveChannel { channel: "other".into() },
        Request::Snapshot { output: None, last_ns: None },
        // The machine rejects such a request without processing it, which would take too long.
        Request::EventsOff { channel: None, patterns: vec!["a:b".into(); RULES_BYTES_MAX] },
        Request::EventsOff { channel: None, patterns: vec!["*".repeat(RULES_BYTES_MAX + 1)] },
        Request::EventsOff { channel: None, patterns: vec!["app".into(), "!db".into()] },
    ];
    for request in requests {
        let effects = run_request(&mut machine, request);
        assert!(!expect_refusal(&effects).is_empty());
    }
    machine.submit(1, Request::AddChannel { channel: channel_named("more") });
    machine.next_effect();
    machine.complete(Outcome::Failed(Refusal::new("no slot")));
    assert_eq!(expect_refusal(&[machine.next_effect().expect("an answer")]), "no slot");
    assert_eq!(machine.spec(), &before);
}

#[test]
fn a_change_that_is_refused_halfway_is_undone() {
    let mut machine = begin_machine(SessionSpec::default());
    let before = machine.spec().clone();
    let change = ChannelChange {
        pids: Some(vec![7]),
        blocking_timeout_ns: Some(5_000_000),
        ..ChannelChange::default()
    };
    machine.submit(1, Request::SetChannel { channel: "channel0".into(), change });
    let time = Some(Duration::from_millis(5));
    assert_eq!(machine.next_effect(), Some(Effect::SetBlocking { class: 0, time }));
    machine.complete(Outcome::Done);
    assert!(matches!(machine.next_effect(), Some(Effect::SetProcesses { .. })));
    machine.complete(Outcome::Failed(Refusal::new("no process 7")));
    assert_eq!(machine.next_effect(), Some(Effect::SetBlocking { class: 0, time: None }));
    machine.complete(Outcome::Done);
    assert_eq!(expect_refusal(&[machine.next_effect().expect("an answer")]), "no process 7");
    assert_eq!(machine.spec(), &before);
}

#[test]
fn which_channel_is_asked_where_there_are_several() {
    let channels = vec![channel_named("a"), channel_named("b")];
    let mut machine = begin_machine(SessionSpec { channels, ..SessionSpec::default() });
    let on = |channel: Option<&str>| Request::EventsOff {
        channel: channel.map(str::to_owned),
        patterns: vec!["app:noise".into()],
    };
    assert_eq!(expect_refusal(&run_request(&mut machine, on(None))), "which channel?");
    let effects = run_request(&mut machine, on(Some("b")));
    let rules = "*\n!app:noise".to_owned();
    assert_eq!(effects[0], Effect::SetRules { class: 1, rules });
    let excluded = Some(vec![RuleSpec::new("!app:noise")]);
    assert_eq!(machine.spec().channel("b").map(|channel| channel.on.clone()), Some(excluded));
}

#[test]
fn an_exclusion_switches_nothing_on_unless_only_it_is_meant() {
    let mut channel = ChannelSpec::default();
    channel.switch_off(&["*".into()]);
    let mut machine =
        begin_machine(SessionSpec { channels: vec![channel], ..SessionSpec::default() });
    let mut on = |pattern: &str, only: bool| {
        let rules = vec![RuleSpec::new(pattern)];
        run_request(&mut machine, Request::EventsOn { channel: None, rules, only, filter: None })
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

/// Returns the machine of a flight recorder's session that has begun.
fn begin_flight_recorder() -> Machine {
    let channels = vec![ChannelSpec { mode: Mode::Overwrite, ..ChannelSpec::default() }];
    begin_machine(SessionSpec { channels, snapshot_on_crash: true, ..SessionSpec::default() })
}

/// Completes all snapshots that the machine requests now, written or failed; returns their reasons.
fn complete_snapshots(machine: &mut Machine, is_written: bool) -> Vec<Reason> {
    let mut reasons = Vec::new();
    while let Some(effect) = machine.next_effect() {
        let Effect::Snapshot(snapshot) = effect else { panic!("{effect:?}") };
        reasons.push(snapshot.reason);
        machine.complete(match is_written {
            true => Outcome::Snapshot(SnapshotFacts::default()),
            false => Outcome::Failed(Refusal::new("no room")),
        });
    }
    reasons
}

fn crash_reason(pid: u32) -> Reason {
    Reason::Crash { pid, signal: 11 }
}

#[test]
fn snapshots_that_nobody_asked_for_do_not_come_by_the_dozen() {
    let mut machine = begin_flight_recorder();
    let mut made = Vec::new();
    // For six seconds, programs request snapshots and crash every tenth of a second.
    for tenth in 0..60 {
        let now = 5 + tenth * AUTOMATIC_PERIOD_NS / 10;
        if tenth < 25 {
            machine.note_snapshot_request(now);
            machine.note_crash(tenth as u32, 11, now);
        }
        machine.tick(now);
        made.extend(
            complete_snapshots(&mut machine, true).into_iter().map(|reason| (tenth, reason)),
        );
    }
    // The snapshot also serves programs that requested it before.
    let expected =
        [(0, Reason::Program), (0, crash_reason(0)), (10, crash_reason(1)), (20, crash_reason(10))];
    assert_eq!(made[..4], expected);
    assert_eq!(made[4..], [(30, crash_reason(20))]);
}

#[test]
fn snapshots_that_come_too_soon_are_made_later() {
    let mut machine = begin_flight_recorder();
    machine.note_snapshot_request(5);
    assert_eq!(complete_snapshots(&mut machine, true), [Reason::Program]);
    machine.note_snapshot_request(6);
    machine.tick(AUTOMATIC_PERIOD_NS + 4);
    assert_eq!(complete_snapshots(&mut machine, true), []);
    machine.tick(AUTOMATIC_PERIOD_NS + 5);
    assert_eq!(complete_snapshots(&mut machine, true), [Reason::Program]);
    machine.tick(AUTOMATIC_PERIOD_NS * 9);
    assert_eq!(complete_snapshots(&mut machine, true), [], "once");
}

#[test]
fn a_crash_does_not_wait_for_programs_and_is_the_reason() {
    let mut machine = begin_flight_recorder();
    machine.note_snapshot_request(5);
    // A failed snapshot does not delay the next one.
    assert_eq!(complete_snapshots(&mut machine, false), [Reason::Program]);
    machine.note_crash(7, 11, 6);
    assert_eq!(complete_snapshots(&mut machine, false), [crash_reason(7)]);
    machine.note_snapshot_request(7);
    machine.note_crash(8, 11, 8);
    machine.note_crash(9, 11, 9);
    machine.note_snapshot_request(AUTOMATIC_PERIOD_NS);
    assert_eq!(complete_snapshots(&mut machine, true), []);
    machine.tick(AUTOMATIC_PERIOD_NS + 6);
    assert_eq!(
        complete_snapshots(&mut machine, true),
        [crash_reason(8)],
        "one for all, for the first that died"
    );
    machine.tick(AUTOMATIC_PERIOD_NS * 9);
    assert_eq!(complete_snapshots(&mut machine, true), []);
}

#[test]
fn what_is_remembered_is_made_before_the_end() {
    let mut machine = begin_flight_recorder();
    machine.note_crash(7, 11, 5);
    assert_eq!(complete_snapshots(&mut machine, true), [crash_reason(7)]);
    machine.note_crash(8, 11, 6);
    machine.submit(1, Request::Destroy);
    let Some(Effect::Snapshot(snapshot)) = machine.next_effect() else { panic!("one") };
    assert_eq!(snapshot.reason, crash_reason(8));
    machine.complete(Outcome::Snapshot(SnapshotFacts::default()));
    assert_eq!(machine.next_effect(), Some(Effect::Finish));
}

#[test]
fn only_snapshots_in_the_sessions_folder_have_numbers() {
    let channels = vec![ChannelSpec { mode: Mode::Overwrite, ..ChannelSpec::default() }];
    let mut machine = begin_machine(SessionSpec { channels, ..SessionSpec::default() });
    let elsewhere = PathBuf::from("elsewhere");
    let mut outputs = Vec::new();
    for (output, is_written) in
        [(None, true), (Some(elsewhere.clone()), true), (None, false), (None, true)]
    {
        machine.submit(1, Request::Snapshot { output, last_ns: None });
        let Some(Effect::Snapshot(snapshot)) = machine.next_effect() else { panic!("one") };
        outputs.push(snapshot.output);
        machine.complete(match is_written {
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
        let mut machine = begin_machine(SessionSpec::default());
        machine.submit(1, Request::Destroy);
        machine.submit(2, Request::Start);
        assert_eq!(machine.next_effect(), Some(Effect::Finish));
        machine.complete(outcome);
        assert!(matches!(machine.next_effect(), Some(Effect::Answer(1, _))));
        assert!(matches!(machine.next_effect(), Some(Effect::Answer(2, Answer::Refused(_)))));
        assert_eq!((machine.next_effect(), machine.next_effect()), (Some(Effect::Exit), None));
    }
}

#[test]
fn a_stop_that_could_not_write_is_refused_and_tried_again() {
    let mut machine = begin_machine(SessionSpec::default());
    machine.submit(1, Request::Stop);
    assert_eq!(machine.next_effect(), Some(Effect::Stop));
    machine.complete(Outcome::Failed(Refusal::new("the disk is full")));
    let effect = machine.next_effect().expect("an answer");
    let Effect::Answer(1, Answer::Refused(refusal)) = effect else { panic!("{effect:?}") };
    assert_eq!(refusal.why, "the disk is full");
    assert!(refusal.hint.is_some_and(|hint| hint.contains("it is stopped")));
    assert!(!machine.is_recording());
    let done = |warnings: &[&str]| {
        let warnings = warnings.iter().map(|&warning| warning.into()).collect();
        Effect::Answer(1, Answer::Done { warnings })
    };
    assert_eq!(run_request(&mut machine, Request::Stop), [Effect::Stop, done(&[])]);
    assert_eq!(run_request(&mut machine, Request::Stop), [done(&["it is stopped already"])]);
    assert_eq!(run_request(&mut machine, Request::Start), [Effect::Start, done(&[])]);
    assert_eq!(run_request(&mut machine, Request::Start), [done(&["it records already"])]);
}

#[test]
fn nothing_comes_after_the_end() {
    let channels = vec![ChannelSpec { mode: Mode::Overwrite, ..ChannelSpec::default() }];
    let mut machine = begin_machine(SessionSpec { channels, ..SessionSpec::default() });
    machine.submit(1, Request::Destroy);
    machine.note_snapshot_request(5);
    assert_eq!(machine.next_effect(), Some(Effect::Finish));
    machine.complete(Outcome::Ended(Box::default()));
    assert!(matches!(machine.next_effect(), Some(Effect::Answer(1, Answer::Ended(_)))));
    assert_eq!(machine.next_effect(), Some(Effect::Exit));
    machine.note_snapshot_request(AUTOMATIC_PERIOD_NS * 2);
    machine.submit(1, Request::Status);
    machine.abort(&Refusal::new("gone"));
    assert_eq!(machine.next_effect(), None);
}

#[test]
fn who_was_answered_is_not_answered_again_when_the_session_is_lost() {
    let mut machine = begin_machine(SessionSpec::default());
    machine.submit(1, Request::Status);
    machine.submit(2, Request::Stop);
    assert_eq!(machine.next_effect(), Some(Effect::ReportStatus(1)));
    machine.abort(&Refusal::new("gone"));
    assert!(matches!(machine.next_effect(), Some(Effect::Answer(2, Answer::Refused(_)))));
    assert_eq!((machine.next_effect(), machine.next_effect()), (Some(Effect::Exit), None));
}

#[test]
fn what_was_done_before_the_session_was_lost_is_told() {
    let mut machine = begin_machine(SessionSpec { start: false, ..SessionSpec::default() });
    machine.submit(1, Request::Start);
    assert_eq!(machine.next_effect(), Some(Effect::Start));
    machine.complete(Outcome::Done);
    machine.abort(&Refusal::new("gone"));
    let done = Answer::Done { warnings: Vec::new() };
    assert_eq!(machine.next_effect(), Some(Effect::Answer(1, done)));
    assert!(!machine.is_recording());
}

/// Returns, for each event, the filters that it must pass; `None` if no rule selects it.
fn filters_of_selected_events(rules: &str, filters: &[FilterSpec]) -> Vec<Option<Vec<FilterSpec>>> {
    let selects = |rules: &str, (provider, name): (&str, &str)| {
        trackway_schema::Rules::new(rules.as_bytes())
            .may_select(provider.as_bytes(), name.as_bytes())
    };
    let about = |event| {
        let all = filters.iter().filter(|filter| selects(&filter.rules(), event));
        all.cloned().collect()
    };
    let events = [("app", "read"), ("app", "write"), ("db", "query")];
    events.map(|event| selects(rules, event).then(|| about(event))).into()
}

#[test]
fn nothing_passes_on_the_way_that_passes_neither_before_nor_then() {
    let patterns = ["*", "app", "db:*", "!app:write", "app:read", "!db"];
    let expressions = [None, Some("size > 5"), Some("size > 6"), Some("")];
    let mut random = trackway_testkit::Random::new(7);
    let mut machine = begin_machine(SessionSpec::default());
    let (mut rules, mut filters) = ("*".to_owned(), Vec::new());
    let (mut steps_seen, mut refused) = (0, 0);
    for _ in 0..3000 {
        let pattern = (*random.pick(&patterns)).to_owned();
        let request = match random.next_below(3) {
            0 => Request::EventsOff { channel: None, patterns: vec![pattern] },
            _ => Request::EventsOn {
                channel: None,
                rules: vec![RuleSpec::new(pattern)],
                only: random.once_in(4),
                filter: random.pick(&expressions).map(|text| FilterSource::Expression(text.into())),
            },
        };
        let before = (rules.clone(), filters.clone());
        machine.submit(1, request);
        // Sometimes the last step fails: then the state must be as before.
        let fails_at = random.once_in(3).then(|| random.next_below(3));
        let (mut on_the_way, mut number, mut has_failed) = (Vec::new(), 0, false);
        while let Some(effect) = machine.next_effect() {
            if !effect.has_outcome() {
                continue;
            }
            if Some(number) == fails_at && !has_failed {
                has_failed = true;
                machine.complete(Outcome::Failed(Refusal::new("no room")));
                continue;
            }
            number += 1;
            match effect {
                Effect::SetRules { rules: now, .. } => rules = now,
                Effect::SetFilters { filters: now, .. } => filters = now,
                other => panic!("{other:?}"),
            }
            on_the_way.push(filters_of_selected_events(&rules, &filters));
            machine.complete(Outcome::Done);
        }
        let spec = &machine.spec().channels[0];
        assert_eq!((Ok(&rules), &filters), (spec.rules_text().as_ref(), &spec.filters));
        if has_failed {
            assert_eq!((&rules, &filters), (&before.0, &before.1));
            refused += 1;
        }
        let ends = [
            filters_of_selected_events(&before.0, &before.1),
            filters_of_selected_events(&rules, &filters),
        ];
        for now in on_the_way {
            steps_seen += 1;
            for (event, now) in now.iter().enumerate() {
                let Some(now) = now else { continue };
                let is_of = |end: &Vec<Option<Vec<FilterSpec>>>| {
                    end[event].as_ref().is_some_and(|end| end.iter().all(|it| now.contains(it)))
                };
                assert!(has_failed || ends.iter().any(is_of), "{event} passes: {before:?}");
            }
        }
    }
    assert!(steps_seen > 2000 && refused > 200, "{steps_seen} {refused}");
}

#[test]
fn a_filter_changes_with_its_rule_and_goes_with_it() {
    let mut machine = begin_machine(SessionSpec::default());
    let on = |filter: Option<&str>, only| Request::EventsOn {
        channel: None,
        rules: vec![RuleSpec::new("app")],
        only,
        filter: filter.map(|text| FilterSource::Expression(text.into())),
    };
    let texts = |machine: &Machine| {
        let filters = machine.spec().channels[0].filters.iter();
        filters.map(FilterSpec::to_string).collect::<Vec<_>>()
    };
    let first = run_request(&mut machine, on(Some("size > 5"), false));
    let filters = vec![FilterSpec::new("app: size > 5")];
    assert_eq!(first[0], Effect::SetFilters { class: 0, filters });
    run_request(&mut machine, on(None, false));
    assert_eq!(texts(&machine), ["app: size > 5"], "what is not said stays");
    run_request(&mut machine, on(Some("size > 6"), false));
    assert_eq!(texts(&machine), ["app: size > 6"]);
    let refused = run_request(&mut machine, on(Some("size >"), false));
    assert!(expect_refusal(&refused).starts_with("filter:\nsize >\n"));
    assert_eq!(texts(&machine), ["app: size > 6"]);
    run_request(&mut machine, on(Some(""), false));
    assert_eq!(texts(&machine), [""; 0]);
    run_request(&mut machine, on(Some("size > 7"), true));
    let off = |pattern: &str| Request::EventsOff { channel: None, patterns: vec![pattern.into()] };
    run_request(&mut machine, off("app:read"));
    assert_eq!(texts(&machine), ["app: size > 7"], "there are others that it is about");
    let last = run_request(&mut machine, off("app:*"));
    assert!(matches!(last[0], Effect::SetRules { .. }), "first nothing passes any more");
    assert!(matches!(last[1], Effect::SetFilters { .. }));
    assert_eq!(texts(&machine), [""; 0]);
    let long = "x".repeat(FILTERS_BYTES_MAX + 1);
    assert!(
        expect_refusal(&run_request(&mut machine, on(Some(&long), false))).contains("64 filters")
    );
}
