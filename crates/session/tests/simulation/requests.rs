//! Generates requests of users, valid and invalid.

use core::time::Duration;

use trackway_session::protocol::{ChannelChange, Request};
use trackway_session::{ChannelSpec, FilterSource, FilterSpec, Mode, RuleSpec, SessionSpec};
use trackway_testkit::Random;

const CHANNELS: [&str; 4] = ["channel0", "a", "b", "../etc"];
const PATTERNS: [&str; 9] =
    ["*", "app", "db:*", "*:noise", "!*:noise", "!db", "net:send", "app:start", "!*"];
/// The last two filters are invalid: one as text, the other only when it is compiled.
const FILTERS: [&str; 6] =
    ["size > 5", "sample(1/10)", "name == \"a*\"", "", "size >", "$ctx.nothing > 5"];
const SIZES: [Option<u64>; 4] = [None, None, Some(1 << 20), Some(3)];
const COUNTS: [Option<u64>; 4] = [None, None, Some(0), Some(2)];

pub(crate) fn random_session(random: &mut Random) -> SessionSpec {
    let mut channels = vec![ChannelSpec::default()];
    while random.once_in(3) && channels.len() < 3 {
        let name = CHANNELS[channels.len()].into();
        channels.push(ChannelSpec { name, ..random_channel(random) });
    }
    let mut spec = SessionSpec {
        name: "simulated".into(),
        start: !random.once_in(4),
        snapshot_on_crash: random.once_in(2),
        channels,
        ..SessionSpec::default()
    };
    if random.once_in(3) {
        spec.channels[0].mode = Mode::Overwrite;
    }
    // The creator of a session checks the specification before.
    if spec.check().is_ok() { spec } else { SessionSpec::default() }
}

fn random_channel(random: &mut Random) -> ChannelSpec {
    let mode = if random.once_in(3) { Mode::Overwrite } else { Mode::Discard };
    ChannelSpec {
        name: (*random.pick(&CHANNELS)).into(),
        mode,
        blocking_timeout: random.once_in(8).then_some(Duration::from_millis(1)),
        buffer_size: *random.pick(&SIZES),
        tracefile_size: if random.once_in(4) { *random.pick(&SIZES) } else { None },
        tracefile_count: if random.once_in(8) { *random.pick(&COUNTS) } else { None },
        on: random.once_in(2).then(|| random_rules(random)),
        filters: random_filters(random),
        pids: random_pids(random),
        executables: random_executables(random),
        ..ChannelSpec::default()
    }
}

fn random_rules(random: &mut Random) -> Vec<RuleSpec> {
    (0..random.next_below(3)).map(|_| RuleSpec::new(*random.pick(&PATTERNS))).collect()
}

fn random_filters(random: &mut Random) -> Vec<FilterSpec> {
    if !random.once_in(4) {
        return Vec::new();
    }
    let pattern = random.once_in(2).then(|| *random.pick(&PATTERNS[..4]));
    let text: &str = random.pick::<&str>(&FILTERS);
    vec![FilterSpec::of(pattern, text)]
}

fn random_pids(random: &mut Random) -> Vec<u32> {
    match random.next_below(8) {
        0 => vec![1 + random.next_below(5) as u32],
        1 => vec![1, 2],
        _ => Vec::new(),
    }
}

fn random_executables(random: &mut Random) -> Vec<String> {
    if random.once_in(8) { vec!["w*".into()] } else { Vec::new() }
}

fn random_change(random: &mut Random) -> ChannelChange {
    let mut change = ChannelChange::default();
    match random.next_below(9) {
        0 => change.pids = Some(random_pids(random)),
        1 => {
            change.pids = Some(random_pids(random));
            change.blocking_timeout_ns = Some(random.next_below(3) * 1_000_000);
        }
        2 => change.blocking_timeout_ns = Some(random.next_below(3) * 1_000_000),
        3 => change.executables = Some(random_executables(random)),
        4 => change.mode = Some(*random.pick(&[Mode::Discard, Mode::Overwrite])),
        5 => change.buffer_size = *random.pick(&SIZES),
        6 => {
            change.tracefile_size = *random.pick(&[Some(0), Some(1 << 20), Some(3)]);
            change.tracefile_count = *random.pick(&COUNTS);
        }
        _ => {
            let lists = ["vtid", "vpid", "procname", "none", "color"];
            change.contexts = Some(vec![(*random.pick(&lists)).into()]);
        }
    }
    change
}

/// Returns a request that replaces the first channel by one with other contexts.
pub(crate) fn random_context_change(random: &mut Random) -> Request {
    let contexts = Some(vec![(*random.pick(&["vtid", "vpid", "procname"])).into()]);
    let change = ChannelChange { contexts, ..ChannelChange::default() };
    Request::SetChannel { channel: CHANNELS[0].into(), change }
}

/// Returns a random request, which rarely ends the session.
pub(crate) fn random_request(random: &mut Random) -> Request {
    let mut name = || (*random.pick(&CHANNELS)).to_owned();
    let (some, other) = (name(), name());
    let channel_name = random.once_in(2).then_some(some);
    match random.next_below(24) {
        0 => Request::Status,
        1 => Request::Spec,
        2 => Request::Follow,
        3..=5 => Request::Start,
        6 | 7 => Request::Stop,
        8 => Request::Clear,
        9 if random.once_in(3) => Request::Destroy,
        9..=11 => {
            let last_ns = random.once_in(2).then(|| random.next_below(200));
            Request::Snapshot { output: None, last_ns }
        }
        12 | 13 => Request::AddChannel { channel: random_channel(random) },
        14 => Request::RemoveChannel { channel: other },
        15..=19 => {
            let channel = if random.once_in(3) { other } else { CHANNELS[0].into() };
            Request::SetChannel { channel, change: random_change(random) }
        }
        20 | 21 => {
            let only = random.once_in(3);
            let text = random.once_in(3).then(|| (*random.pick(&FILTERS)).to_owned());
            let filter = text.map(FilterSource::Expression);
            Request::EventsOn { channel: channel_name, rules: random_rules(random), only, filter }
        }
        _ => {
            let count = 1 + random.next_below(2);
            let patterns = (0..count).map(|_| (*random.pick(&PATTERNS)).to_owned()).collect();
            Request::EventsOff { channel: channel_name, patterns }
        }
    }
}
