//! What was measured of sessions, for people.

use std::io::{self, Write};

use super::results::{
    By, Change, Crowd, Grace, IdleSession, Kind, Live, Load, SessionCost, SessionsResults,
    SwitchOn, Who,
};
use crate::report::{bars_text, mebibytes};
use crate::results::Account;
use crate::stats::Spread;
use crate::table::Table;

/// For what was not measured.
const NOTHING: &str = "·";
/// Columns of the first table.
const COUNTS: [u32; 5] = [0, 1, 2, 4, 32];

/// Writes everything that is known to `output`.
///
/// # Errors
///
/// If `output` cannot be written.
pub fn print(results: &SessionsResults, output: &mut dyn Write) -> io::Result<()> {
    writeln!(output, "{}", results.machine.words())?;
    for note in &results.notes {
        writeln!(output, "{}: {}", note.about, note.text)?;
    }
    if !results.notes.is_empty() {
        writeln!(output)?;
    }
    let sections = [
        costs(results),
        ratios(results),
        switches(&results.switches),
        loads(&results.loads),
        graces(&results.graces),
        results.live.as_ref().map(live),
        crowds(&results.crowds),
        idle(&results.idle),
        bars_text(&results.bars),
    ];
    let sections: Vec<String> = sections.into_iter().flatten().collect();
    output.write_all(sections.join("\n").as_bytes())
}

fn or_nothing(text: Option<String>) -> String {
    text.unwrap_or_else(|| NOTHING.to_owned())
}

/// A row's head.
fn row_name(who: Who, kind: Kind) -> String {
    format!("{}, {}", who.name(), kind.name())
}

/// Rows of which there is a figure.
fn rows(results: &SessionsResults) -> Vec<(Who, Kind)> {
    let all = Kind::ALL.into_iter().flat_map(|kind| Who::ALL.map(|who| (who, kind)));
    let is_there =
        |&(who, kind): &(Who, Kind)| COUNTS.iter().any(|&n| results.cost(who, kind, n).is_some());
    all.filter(is_there).collect()
}

fn costs(results: &SessionsResults) -> Option<String> {
    let mut table = Table::default();
    let heads = ["", "off", "1 session", "2", "4", "32", "each further one"];
    table.row(heads);
    for (who, kind) in rows(results) {
        let cells = COUNTS.map(|sessions| or_nothing(results.cost(who, kind, sessions).map(cost)));
        let slope = results.slopes.iter().find(|slope| slope.who == who && slope.kind == kind);
        let slope = or_nothing(slope.map(|slope| format!("{:+.1}", slope.per_session_ns)));
        let name = row_name(who, kind);
        table.row([name].into_iter().chain(cells).chain([slope]));
    }
    let rounds = match results.rounds {
        1 => "one round".to_owned(),
        rounds => format!("median of {rounds} rounds ± half of\nwhat nine in ten span"),
    };
    let title = format!(
        "An event with a u32 that several sessions record, in ns: {rounds}.\n\
         Rings of 1 MiB. To a folder, events come in bursts, so that recorders keep up\n\n"
    );
    (!results.costs.is_empty()).then(|| title + &table.text())
}

/// A cell of the table; `!` where events are missing.
fn cost(cost: &SessionCost) -> String {
    let Spread { median, count, p5, p95, .. } = cost.event_ns;
    let digits = if median < 2.0 { 2 } else { 1 };
    let mark = if cost.is_complete() { "" } else { "!" };
    let range = match count {
        1 => String::new(),
        _ => format!(" ±{:.digits$}", (p95 - p5) / 2.0),
    };
    let lost = cost.account.map_or(String::new(), |account| lost(&account));
    format!("{mark}{median:.digits$}{range}{lost}")
}

/// What part of the events was lost, if any was.
fn lost(account: &Account) -> String {
    match account.lost {
        0 => String::new(),
        lost => format!(", {:.1} % lost", lost as f64 / account.emitted.max(1) as f64 * 100.0),
    }
}

fn ratios(results: &SessionsResults) -> Option<String> {
    let mut table = Table::default();
    table.row(["", "2 sessions", "4", "32"]);
    for (who, kind) in rows(results) {
        let cells = [2, 4, 32].map(|sessions| {
            let cost = results.cost(who, kind, sessions).filter(|cost| cost.is_complete());
            or_nothing(cost.map(|cost| format!("{:.2} ×", cost.times.median)))
        });
        table.row([row_name(who, kind)].into_iter().chain(cells));
    }
    let mut beside = Table::default();
    beside.row(["", "1 session", "2", "4"]);
    for kind in Kind::ALL {
        let cells = [1, 2, 4].map(|sessions| {
            let ns = |who| results.median_ns(who, kind, sessions);
            let ratio = ns(Who::Lttng).zip(ns(Who::Trackway));
            or_nothing(ratio.map(|(theirs, ours)| format!("{:.2} ×", theirs / ours)))
        });
        beside.row([kind.name().to_owned()].into_iter().chain(cells));
    }
    let text = format!(
        "In terms of one session, in the same round\n\n{}\nLTTng-UST's in terms of Trackway's with \
         as many sessions\n\n{}",
        table.text(),
        beside.text()
    );
    (!results.costs.is_empty()).then_some(text)
}

/// The median and the greatest, in ms or µs.
fn times(us: &Spread) -> [String; 2] {
    [us.median, us.max].map(time)
}

fn time(us: f64) -> String {
    match us {
        0.0..1000.0 => format!("{us:.1} µs"),
        _ => format!("{:.1} ms", us / 1e3),
    }
}

fn switches(switches: &[SwitchOn]) -> Option<String> {
    let mut table = Table::default();
    table.row(["", "first event", "worst", "from seeing it", "worst", "answer", "worst"]);
    for one in switches {
        let name = match (one.who, one.by) {
            (Who::Trackway, By::Command) => "trackway event on",
            (Who::Trackway, By::Socket) => "the same request, by the socket",
            (Who::Lttng, _) => "lttng enable-event",
        };
        let cells = [&one.event_us, &one.seen_us, &one.answered_us].map(times);
        table.row([name.to_owned()].into_iter().chain(cells.into_iter().flatten()));
    }
    let count = switches.first().map_or(0, |one| one.event_us.count);
    let title = format!(
        "An event switched on in a program that runs, median and worst of {count}: from before the \
         command's\nstart, or the request, to the first event's time in the trace; from when the \
         program could see\nthat it is on; and to the command's end, or the answer\n\n"
    );
    (!switches.is_empty()).then(|| title + &table.text())
}

fn loads(loads: &[Load]) -> Option<String> {
    let mut table = Table::default();
    table.row(["", "idle", "with events", "events a second", "lost"]);
    for load in loads {
        let percent = |spread: &Spread| match spread.count {
            1 => format!("{:.2} %", spread.median),
            _ => format!("{:.2} ±{:.2} %", spread.median, (spread.p95 - spread.p5) / 2.0),
        };
        let mark = if load.account.is_complete() { "" } else { "!" };
        let lost = load.account.lost as f64 / load.account.emitted.max(1) as f64;
        table.row([
            row_name(load.who, load.kind),
            percent(&load.idle_percent),
            format!("{mark}{}", percent(&load.percent)),
            format!("{:.2} M", load.events_per_second / 1e6),
            format!("{:.1} %", lost * 100.0),
        ]);
    }
    let title = "What recording takes besides the program: percent of one CPU (the session's \
                 recorder; LTTng's\ndaemons), while a program emits nothing, and while it emits a \
                 million events a second\n\n";
    (!loads.is_empty()).then(|| title.to_owned() + &table.text())
}

fn graces(graces: &[Grace]) -> Option<String> {
    let mut table = Table::default();
    table.row(["", "median", "worst"]);
    for grace in graces {
        let name = match (grace.who, grace.change) {
            (Who::Lttng, Change::StopByCommand) => "lttng stop",
            (_, change) => change.name(),
        };
        table.row([name.to_owned()].into_iter().chain(times(&grace.us)));
    }
    let count = graces.first().map_or(0, |one| one.us.count);
    let title = format!(
        "Changes that wait until writers of before are gone, while a program emits a million\n\
         events a second: {count} of each\n\n"
    );
    (!graces.is_empty()).then(|| title + &table.text())
}

fn live(live: &Live) -> String {
    let mut table = Table::default();
    table.row(["", "median", "worst"]);
    table.row(["event to line".to_owned()].into_iter().chain(times(&live.us)));
    format!(
        "A session that is followed (trackway print --follow), while programs of three events \
         each\ncome and go: {} events, {} out of order\n\n{}",
        live.us.count,
        live.out_of_order,
        table.text()
    )
}

fn crowds(crowds: &[Crowd]) -> Option<String> {
    let all: Vec<String> = crowds.iter().map(crowd).collect();
    (!all.is_empty()).then(|| all.join("\n"))
}

fn crowd(crowd: &Crowd) -> String {
    let mut table = Table::default();
    table.row(["", "before", "afterwards"]);
    let (before, after) = (&crowd.before, &crowd.after);
    let mut row = |name: &str, before: String, after: String| {
        table.row([name.to_owned(), before, after]);
    };
    let bytes = |bytes: u64| format!("{} KiB", bytes >> 10);
    row("window", bytes(before.window_bytes), bytes(after.window_bytes));
    row("recorder, resident", bytes(before.resident_bytes), bytes(after.resident_bytes));
    row("of that, its own", bytes(before.own_bytes), bytes(after.own_bytes));
    row("its descriptors", before.descriptors.to_string(), after.descriptors.to_string());
    row("places of processes", before.places.to_string(), after.places.to_string());
    format!(
        "Short-lived processes with five events each, {}: {:.0} a second for\n{:.0} s (a \
         thousand were asked for). {} in all, of which the session counted\n{}; {} events \
         emitted, {} recorded, {} lost, {} missing in the trace\n\n{}",
        crowd.starts.name(),
        crowd.rate,
        crowd.seconds,
        crowd.processes,
        crowd.counted,
        crowd.account.emitted,
        crowd.account.recorded,
        crowd.account.lost,
        crowd.missing,
        table.text()
    )
}

fn idle(sessions: &[IdleSession]) -> Option<String> {
    let mut table = Table::default();
    table.row(["", "shared memory", "recorders, resident", "of that, their own"]);
    for one in sessions {
        let bytes = [one.shared_bytes, one.resident_bytes, one.own_bytes].map(mebibytes);
        let cpus = one.possible_cpus.map(|cpus| format!(", as if with {cpus} CPUs"));
        let name = row_name(one.who, one.kind) + &cpus.unwrap_or_default();
        table.row([name].into_iter().chain(bytes));
    }
    let title = "Memory of a session with buffers as they are by default, in which a program takes \
                 part that\nemits nothing\n\n";
    (!sessions.is_empty()).then(|| title.to_owned() + &table.text())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::results::tests::example;

    #[test]
    fn the_report_reads_as_intended() {
        let mut results = example();
        results.bars = results.all_bars();
        let mut output = Vec::new();
        print(&results, &mut output).expect("written");
        let text = String::from_utf8(output).expect("text");
        let (_, text) = text.split_once("it is not here\n\n").expect("the notes come first");
        assert!(text == include_str!("expected.txt"), "instead of expected.txt:\n{text}");
    }
}
