//! What was measured of sessions, in the form in which it is kept.

use serde::{Deserialize, Serialize};

use crate::bars::at_most;
use crate::machine::Machine;
use crate::results::{Account, Bar, Note};
use crate::stats::Spread;

/// Version of the JSON form: raised when a member changes its meaning or goes.
pub(super) const FORMAT: u32 = 1;
/// Memory that may be left when many processes have come and gone: allocators grow now and then.
const LEFT_BYTES: f64 = (1 << 20) as f64;
/// Longest time until who follows a session sees an event, in ms.
const LIVE_MS: f64 = 100.0;

/// Everything that a run of the lab found about sessions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionsResults {
    /// Version of this form.
    pub format: u32,
    /// Where it was measured.
    pub machine: Machine,
    /// How many rounds there were.
    pub rounds: u32,
    /// What an event costs, by the number of sessions that record it.
    pub costs: Vec<SessionCost>,
    /// What a further session adds to that.
    pub slopes: Vec<Slope>,
    /// From `event on` to the first event.
    pub switches: Vec<SwitchOn>,
    /// What recorders take of the CPUs.
    pub loads: Vec<Load>,
    /// How long changes take.
    pub graces: Vec<Grace>,
    /// How soon who follows a session sees an event.
    pub live: Option<Live>,
    /// Short-lived processes.
    pub crowds: Vec<Crowd>,
    /// Memory of idle sessions.
    pub idle: Vec<IdleSession>,
    /// The bars, as they stand with these figures.
    pub bars: Vec<Bar>,
    /// What was skipped or failed, and why.
    pub notes: Vec<Note>,
}

/// Whose sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Who {
    /// Ours.
    Trackway,
    /// LTTng-UST's.
    Lttng,
}

impl Who {
    /// Both.
    pub(super) const ALL: [Self; 2] = [Self::Trackway, Self::Lttng];

    /// Its name.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Trackway => "Trackway",
            Self::Lttng => "LTTng-UST",
        }
    }
}

/// Kinds of sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A flight recorder; LTTng's snapshot session.
    Flight,
    /// Into a folder, as it comes; what finds no room is discarded.
    Disk,
}

impl Kind {
    /// Both.
    pub(super) const ALL: [Self; 2] = [Self::Flight, Self::Disk];

    /// In words.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Flight => "flight recorder",
            Self::Disk => "to a folder",
        }
    }
}

/// What an event costs that so many sessions record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionCost {
    /// Whose sessions.
    pub who: Who,
    /// Their kind.
    pub kind: Kind,
    /// How many; 0: the event is off.
    pub sessions: u32,
    /// ns per event: the median of each round's batches, over the rounds.
    pub event_ns: Spread,
    /// The same in terms of one session of that kind, in the same round.
    pub times: Spread,
    /// What became of the events, in all sessions together; `None` where nothing records.
    pub account: Option<Account>,
}

impl SessionCost {
    /// Whether every session's every event is accounted for.
    pub fn is_complete(&self) -> bool {
        self.account.is_none_or(|account| account.is_complete())
    }
}

/// What a further session adds to the cost of an event.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Slope {
    /// Whose sessions.
    pub who: Who,
    /// Their kind.
    pub kind: Kind,
    /// In ns, by the straight line through the medians that fits best.
    pub per_session_ns: f64,
}

/// How something is asked of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// By the command that users have.
    Command,
    /// By the recorder's socket, as the command does it.
    Socket,
}

/// How long it takes to switch an event on in a program that runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SwitchOn {
    /// Whose session.
    pub who: Who,
    /// How it was asked.
    pub by: By,
    /// From before the command's start, or the request, to the first event's time in the trace, in
    /// µs.
    pub event_us: Spread,
    /// From when the program could see that the event is on to that time, in µs.
    pub seen_us: Spread,
    /// From before the command's start to its end, or from the request to the answer, in µs.
    pub answered_us: Spread,
}

/// What a session's recorders take of the CPUs, besides the program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Whose session.
    pub who: Who,
    /// Its kind.
    pub kind: Kind,
    /// Percent of one CPU while a program is there that emits nothing.
    pub idle_percent: Spread,
    /// Percent of one CPU while it emits.
    pub percent: Spread,
    /// Events a second that it emitted; a million were asked for.
    pub events_per_second: f64,
    /// What became of the events.
    pub account: Account,
}

/// A change for which writers of before must be gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// A session stopped, by the command.
    StopByCommand,
    /// The same, by the recorder's socket.
    StopBySocket,
    /// Other buffers for a channel, by the command.
    ReplaceByCommand,
    /// The same, by the recorder's socket.
    ReplaceBySocket,
    /// Nothing but the visit to every CPU that these need.
    Visit,
}

impl Change {
    /// In words.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::StopByCommand => "session stopped, by the command",
            Self::StopBySocket => "the same, by the socket",
            Self::ReplaceByCommand => "channel given other buffers, by the command",
            Self::ReplaceBySocket => "the same, by the socket",
            Self::Visit => "visit to every CPU, alone",
        }
    }
}

/// How long a change takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Grace {
    /// Whose session.
    pub who: Who,
    /// What changed.
    pub change: Change,
    /// How long it took, in µs.
    pub us: Spread,
}

/// A session that is followed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Live {
    /// From an event to its line, in µs.
    pub us: Spread,
    /// Lines whose event happened before that of the line above.
    pub out_of_order: u64,
    /// What became of the events.
    pub account: Account,
}

/// How short-lived processes begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Starts {
    /// As programs that are started.
    Programs,
    /// As children of one program.
    Children,
}

impl Starts {
    pub(super) const ALL: [Self; 2] = [Self::Programs, Self::Children];

    /// What the processes are.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Programs => "programs started",
            Self::Children => "children forked",
        }
    }
}

/// Short-lived processes, recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Crowd {
    /// How they began.
    pub starts: Starts,
    /// For how long they were started, in seconds.
    pub seconds: f64,
    /// How many there were, with those that were started before anything was compared.
    pub processes: u64,
    /// How many were started in a second.
    pub rate: f64,
    /// How many the session says took part.
    pub counted: u64,
    /// What became of their events.
    pub account: Account,
    /// Events that the trace does not have as often as they were emitted.
    pub missing: u64,
    /// What there was before.
    pub before: Left,
    /// What there was afterwards.
    pub after: Left,
}

/// What could be left behind by processes that have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// Bytes of the window.
    pub window_bytes: u64,
    /// Resident bytes of the recorder.
    pub resident_bytes: u64,
    /// Those of them that are its own.
    pub own_bytes: u64,
    /// Descriptors that it has open.
    pub descriptors: u64,
    /// Places in the table of processes, after it was swept.
    pub places: u64,
}

/// Memory of a session in which nothing was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleSession {
    /// Whose.
    pub who: Who,
    /// Its kind.
    pub kind: Kind,
    /// CPUs that the machine was made to claim it could have; `None`: as it is.
    pub possible_cpus: Option<u32>,
    /// Bytes of shared memory, beyond what there was before.
    pub shared_bytes: u64,
    /// Resident bytes of its recorders, with what they share of that.
    pub resident_bytes: u64,
    /// Those of them that are their own.
    pub own_bytes: u64,
}

impl SessionsResults {
    /// What an event costs in so many sessions.
    pub(super) fn cost(&self, who: Who, kind: Kind, sessions: u32) -> Option<&SessionCost> {
        let is_it =
            |one: &&SessionCost| one.who == who && one.kind == kind && one.sessions == sessions;
        self.costs.iter().find(is_it)
    }

    /// Its median, if every event is accounted for.
    pub(super) fn median_ns(&self, who: Who, kind: Kind, sessions: u32) -> Option<f64> {
        let cost = self.cost(who, kind, sessions).filter(|cost| cost.is_complete())?;
        Some(cost.event_ns.median)
    }

    /// The bars. Reported, never asserted.
    pub(super) fn all_bars(&self) -> Vec<Bar> {
        let mut bars = Vec::new();
        for sessions in [1, 2, 4] {
            let ns = |who| self.median_ns(who, Kind::Flight, sessions);
            let plural = if sessions == 1 { "" } else { "s" };
            bars.push(at_most(
                &format!("{sessions} session{plural}: an event costs less than LTTng's"),
                ns(Who::Trackway).zip(ns(Who::Lttng)).map(|(ours, theirs)| ours / theirs),
                1.0,
                |ratio| format!("{ratio:.2} of it"),
            ));
        }
        let event_us = |who| {
            let by_command = |one: &&SwitchOn| one.who == who && one.by == By::Command;
            self.switches.iter().find(by_command).map(|one| one.event_us.median)
        };
        bars.push(at_most(
            "event on: the first event is there sooner than LTTng's",
            event_us(Who::Trackway).zip(event_us(Who::Lttng)).map(|(ours, theirs)| ours / theirs),
            1.0,
            |ratio| format!("{ratio:.2} of it"),
        ));
        bars.push(at_most(
            "followed: every event is shown, in order, within 100 ms",
            self.live.as_ref().map(|live| match live.out_of_order {
                0 => live.us.max / 1e3,
                _ => f64::INFINITY,
            }),
            LIVE_MS,
            |ms| format!("{ms:.1} ms at worst"),
        ));
        bars.extend(self.crowd_bars());
        bars
    }

    /// What short-lived processes must not do, however they begin.
    fn crowd_bars(&self) -> [Bar; 3] {
        let sum = |of: fn(&Crowd) -> u64| self.crowds.iter().map(of).sum::<u64>();
        let is_there = !self.crowds.is_empty();
        let worst = |of: fn(&Crowd) -> f64| is_there.then(|| self.crowds.iter().map(of).sum());
        let missing = worst(|crowd| crowd.missing.max(crowd.account.lost) as f64);
        let wrong =
            worst(|crowd| (crowd.processes.abs_diff(crowd.counted) + crowd.after.places) as f64);
        // However little memory is left: a descriptor is too much.
        let left = worst(|crowd| match crowd.descriptors_left() {
            0 => crowd.bytes_left() as f64,
            _ => f64::INFINITY,
        });
        [
            at_most("short-lived processes: no event is missing", missing, 0.0, |events| {
                format!("{events:.0} of {}", sum(|crowd| crowd.account.emitted))
            }),
            at_most(
                "short-lived processes: each is counted, none keeps its place",
                wrong,
                0.0,
                |wrong| format!("{wrong:.0} of {}", sum(|crowd| crowd.processes)),
            ),
            at_most(
                "short-lived processes: no descriptor, less than 1 MiB is left",
                left,
                LEFT_BYTES,
                |_| {
                    let (files, bytes) = (sum(Crowd::descriptors_left), sum(Crowd::bytes_left));
                    format!("{files}, {} KiB", bytes >> 10)
                },
            ),
        ]
    }

    /// Whether anything that should have worked did not.
    pub fn has_failures(&self) -> bool {
        self.notes.iter().any(|note| note.is_failure)
    }

    /// As JSON, for programs.
    ///
    /// # Errors
    ///
    /// Never for figures that were measured: they are finite.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }
}

impl Crowd {
    /// Descriptors that there are more afterwards.
    fn descriptors_left(&self) -> u64 {
        self.after.descriptors.saturating_sub(self.before.descriptors)
    }

    /// Bytes of the window and of the recorder that there are more afterwards.
    fn bytes_left(&self) -> u64 {
        let (before, after) = (&self.before, &self.after);
        after.window_bytes.saturating_sub(before.window_bytes)
            + after.own_bytes.saturating_sub(before.own_bytes)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::results::Verdict;

    fn spread(median: f64) -> Spread {
        Spread::of(&[median - 0.5, median, median + 0.5]).expect("figures")
    }

    pub(in crate::sessions) fn example() -> SessionsResults {
        let account =
            Account { emitted: 1000, recorded: 400, lost: 0, overwritten: 600, record_bytes: 3200 };
        let cost = |who, sessions, ns: f64, times: f64| SessionCost {
            who,
            kind: Kind::Flight,
            sessions,
            event_ns: spread(ns),
            times: Spread::of(&[times]).expect("figures"),
            account: (sessions > 0).then_some(account),
        };
        let switch = |who, by, us: f64| SwitchOn {
            who,
            by,
            event_us: spread(us),
            seen_us: spread(1.0),
            answered_us: spread(us * 2.0),
        };
        let left = Left {
            window_bytes: 3 << 20,
            resident_bytes: 5 << 20,
            own_bytes: 1 << 20,
            descriptors: 12,
            places: 0,
        };
        SessionsResults {
            format: FORMAT,
            machine: Machine::default(),
            rounds: 3,
            costs: vec![
                cost(Who::Trackway, 0, 1.25, 0.05),
                cost(Who::Trackway, 1, 25.0, 1.0),
                cost(Who::Trackway, 2, 45.0, 1.8),
                cost(Who::Trackway, 32, 645.0, 25.8),
                cost(Who::Lttng, 0, 1.0, 0.01),
                cost(Who::Lttng, 1, 125.0, 1.0),
                SessionCost {
                    account: Some(Account { recorded: 399, ..account }),
                    ..cost(Who::Lttng, 2, 250.0, 2.0)
                },
            ],
            slopes: vec![Slope { who: Who::Trackway, kind: Kind::Flight, per_session_ns: 20.0 }],
            switches: vec![
                switch(Who::Trackway, By::Command, 5000.0),
                switch(Who::Trackway, By::Socket, 200.0),
                switch(Who::Lttng, By::Command, 40_000.0),
            ],
            loads: vec![Load {
                who: Who::Trackway,
                kind: Kind::Disk,
                idle_percent: spread(0.75),
                percent: spread(2.5),
                events_per_second: 1e6,
                account: Account { recorded: 1000, overwritten: 0, ..account },
            }],
            graces: vec![
                Grace { who: Who::Trackway, change: Change::StopByCommand, us: spread(3000.0) },
                Grace { who: Who::Lttng, change: Change::StopByCommand, us: spread(30_000.0) },
                Grace { who: Who::Trackway, change: Change::Visit, us: spread(40.0) },
            ],
            live: Some(Live {
                us: spread(20_000.0),
                out_of_order: 0,
                account: Account { recorded: 1000, overwritten: 0, ..account },
            }),
            crowds: vec![Crowd {
                starts: Starts::Programs,
                seconds: 60.0,
                processes: 61_000,
                rate: 1000.0,
                counted: 61_000,
                account: Account {
                    emitted: 305_000,
                    recorded: 305_000,
                    lost: 0,
                    overwritten: 0,
                    record_bytes: 2_440_000,
                },
                missing: 0,
                before: left,
                after: Left { resident_bytes: (5 << 20) + 4096, ..left },
            }],
            idle: vec![IdleSession {
                who: Who::Trackway,
                kind: Kind::Disk,
                possible_cpus: Some(256),
                shared_bytes: 1 << 20,
                resident_bytes: 5 << 20,
                own_bytes: 1 << 19,
            }],
            bars: Vec::new(),
            notes: vec![Note::skipped("a part", "it is not here")],
        }
    }

    #[test]
    fn bars_follow_the_figures() {
        let told = |results: &SessionsResults| -> Vec<(String, Verdict)> {
            results.all_bars().into_iter().map(|bar| (bar.measured, bar.verdict)).collect()
        };
        let mut results = example();
        let expected = [
            ("0.20 of it", Verdict::Holds),
            // Of LTTng's two sessions an event is missing.
            ("not measured", Verdict::Unknown),
            ("not measured", Verdict::Unknown),
            ("0.12 of it", Verdict::Holds),
            ("20.0 ms at worst", Verdict::Holds),
            ("0 of 305000", Verdict::Holds),
            ("0 of 61000", Verdict::Holds),
            ("0, 0 KiB", Verdict::Holds),
        ];
        assert_eq!(told(&results), expected.map(|(text, verdict)| (text.to_owned(), verdict)));
        let crowd = &mut results.crowds[0];
        (crowd.missing, crowd.counted) = (2, crowd.counted - 1);
        (crowd.after.descriptors, crowd.after.places) = (13, 2);
        results.live.as_mut().expect("a session that is followed").out_of_order = 1;
        assert_eq!(told(&results)[4].1, Verdict::Misses);
        let expected = [
            ("2 of 305000", Verdict::Misses),
            ("3 of 61000", Verdict::Misses),
            ("1, 0 KiB", Verdict::Misses),
        ];
        let told = told(&results);
        assert_eq!(told[5..], expected.map(|(text, verdict)| (text.to_owned(), verdict)));
    }

    #[test]
    fn json_goes_round() {
        let results = example();
        let text = results.to_json().expect("text");
        assert_eq!(serde_json::from_str::<SessionsResults>(&text).expect("results"), results);
    }
}
