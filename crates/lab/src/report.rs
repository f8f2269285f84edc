//! What was measured, for people.

use std::io::{self, Write};

use crate::bars::{REFERENCES, STARTS};
use crate::case::{Case, Context};
use crate::results::{Bar, Cell, Results, Verdict};
use crate::table::Table;
use crate::tracers::name::{CXX, CXX_OFF, LTTNG, TRACKWAY, TRACKWAY_CLAIM, TRACKWAY_OFF};

/// Writes everything that is known to `output`.
///
/// # Errors
///
/// If `output` cannot be written.
pub fn print(results: &Results, output: &mut dyn Write) -> io::Result<()> {
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
        bytes(results),
        printf(results),
        cxx(results),
        startup(results),
        flows(results),
        memory(results),
        bars_text(&results.bars),
    ];
    let sections: Vec<String> = sections.into_iter().flatten().collect();
    output.write_all(sections.join("\n").as_bytes())
}

/// Tracers with a cell in a column of the table, in the order of the first column.
fn rows(results: &Results) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for cell in results.cells.iter().filter(|cell| cell.case.payload.is_in_table()) {
        if !names.contains(&cell.tracer.as_str()) {
            names.push(&cell.tracer);
        }
    }
    names
}

fn columns(results: &Results) -> Vec<Case> {
    let columns = Case::columns(2).into_iter();
    columns.filter(|case| results.cells.iter().any(|cell| cell.case == *case)).collect()
}

fn head(cases: &[Case], corner: &str) -> [Vec<String>; 2] {
    let threads = |case: &Case| format!("{} thread{}", case.threads, plural(case.threads));
    let mut top = vec![String::new()];
    let mut below = vec![corner.to_owned()];
    for (index, case) in cases.iter().enumerate() {
        let is_first = index == 0 || cases[index - 1].threads != case.threads;
        top.push(if is_first { threads(case) } else { String::new() });
        below.push(match case.context {
            Context::None => case.payload.title().to_owned(),
            Context::Vtid => "+ vtid".to_owned(),
        });
    }
    [top, below]
}

const fn plural(count: u32) -> &'static str {
    if count == 1 { "" } else { "s" }
}

fn costs(results: &Results) -> Option<String> {
    let cases = columns(results);
    let mut table = Table::default();
    for row in head(&cases, "") {
        table.row(row);
    }
    for name in rows(results) {
        let cells = cases.iter().map(|case| results.cell(name, case).map_or("·".into(), cost));
        table.row([name.to_owned()].into_iter().chain(cells));
    }
    let rounds = match results.rounds {
        1 => "one round".to_owned(),
        rounds => format!(
            "median of {rounds} rounds, ± half of\nthe distance between the lowest and the highest \
             round"
        ),
    };
    let title = format!("What an event costs, in ns, with the loop around it: {rounds}\n\n");
    (!cases.is_empty()).then(|| title + &table.text())
}

/// A cell of the table; `!` where events are missing.
fn cost(cell: &Cell) -> String {
    let median = cell.rounds_ns.median;
    let digits = if median < 2.0 { 2 } else { 1 };
    let spread = cell.rounds_ns.half_range();
    let mark = if cell.is_complete() { "" } else { "!" };
    if cell.rounds_ns.count < 2 {
        return format!("{mark}{median:.digits$}");
    }
    format!("{mark}{median:.digits$} ±{spread:.digits$}")
}

fn ratios(results: &Results) -> Option<String> {
    let mut text = String::new();
    for reference in REFERENCES {
        let mut cases = columns(results);
        // The clock carries nothing, and is the same beneath every payload.
        let under = |case: &Case| {
            let same = results.median_ns(reference, case);
            same.or_else(|| {
                results.median_ns(reference, &Case::SIMPLEST.with_threads(case.threads))
            })
        };
        cases.retain(|case| under(case).is_some());
        if cases.is_empty() {
            continue;
        }
        let mut table = Table::default();
        for row in head(&cases, &format!("in terms of {reference}")) {
            table.row(row);
        }
        for name in rows(results).into_iter().filter(|name| *name != reference) {
            let cells = cases.iter().map(|case| {
                let ratio = results.median_ns(name, case).zip(under(case));
                ratio.map_or("·".into(), |(over, under)| format!("{:.2}", over / under))
            });
            table.row([name.to_owned()].into_iter().chain(cells));
        }
        text += &table.text();
        text.push('\n');
    }
    let title = "The same as ratios\n\n";
    (!text.is_empty()).then(|| title.to_owned() + text.trim_end() + "\n")
}

fn bytes(results: &Results) -> Option<String> {
    let cases = columns(results).into_iter().filter(|case| case.threads == 1);
    let cases: Vec<Case> = cases.collect();
    let mut table = Table::default();
    let [_, head] = head(&cases, "");
    table.row(head);
    let mut has_rows = false;
    for name in rows(results) {
        let figures = cases.iter().map(|case| results.cell(name, case)?.account?.bytes_per_event());
        let figures: Vec<Option<f64>> = figures.collect();
        if figures.iter().any(Option::is_some) {
            has_rows = true;
            let cells =
                figures.iter().map(|one| one.map_or("·".into(), |bytes| format!("{bytes:.2}")));
            table.row([name.to_owned()].into_iter().chain(cells));
        }
    }
    let title = "Bytes of an event in the trace, header and contexts included\n\n";
    has_rows.then(|| title.to_owned() + &table.text())
}

fn printf(results: &Results) -> Option<String> {
    let calls = [
        (TRACKWAY, "trackway_printf"),
        (TRACKWAY_CLAIM, "trackway_printf, claim"),
        (LTTNG, "lttng_ust_tracef"),
    ];
    let mut table = Table::default();
    let mut has_rows = false;
    for (tracer, call) in calls {
        if let Some(cell) = results.cell(tracer, &Case::PRINTF) {
            has_rows = true;
            table.row([call.to_owned(), format!("{} ns", cost(cell))]);
        }
    }
    let title = "A formatted message, \"%s (%d)\"\n\n";
    has_rows.then(|| title.to_owned() + &table.text())
}

/// C++ beside C: what its header adds.
fn cxx(results: &Results) -> Option<String> {
    let mut table = Table::default();
    table.row(["", "C", "C++", "C, off", "C++, off"]);
    let mut has_rows = false;
    for (case, words) in [
        (Case::SIMPLEST, "u32"),
        (Case::VIEWS, "a string_view, a vector of four, a u64"),
        (Case::SCOPE, "a scope, each of its two events"),
    ] {
        has_rows |= results.cell(CXX, &case).is_some();
        let cells = [TRACKWAY, CXX, TRACKWAY_OFF, CXX_OFF];
        let cells = cells.map(|name| results.cell(name, &case).map_or("·".into(), cost));
        table.row([words.to_owned()].into_iter().chain(cells));
    }
    let title = "C++ beside C, in ns: the same events, in C as pointers and sizes, and as two \
                 calls with\nan identity\n\n";
    has_rows.then(|| title.to_owned() + &table.text())
}

fn startup(results: &Results) -> Option<String> {
    let mut table = Table::default();
    table.row(["", "median", "p5", "p95", "added", "threads"]);
    for (tracer, words) in STARTS {
        let Some(start) = results.startup.iter().find(|startup| startup.tracer == tracer) else {
            continue;
        };
        let [median, p5, p95] =
            [start.us.median, start.us.p5, start.us.p95].map(|us| format!("{us:.0} µs"));
        let added = start.added_us.map_or("·".into(), |added| {
            format!("{:+.0} ±{:.0} µs", added.median, (added.p95 - added.p5) / 2.0)
        });
        table.row([words.to_owned(), median, p5, p95, added, start.threads.to_string()]);
    }
    let title = "Start of a process that is linked with a tracer: spawn, run, wait; 'added' \
                 compares the fastest\nof each turn\n\n";
    (!results.startup.is_empty()).then(|| title.to_owned() + &table.text())
}

fn flows(results: &Results) -> Option<String> {
    let mut table = Table::default();
    table.row(["", "emitted", "arrived", "of them", "trace", "buffer per CPU"]);
    for flow in &results.flows {
        let rate = |events: u64| format!("{:.2} M/s", events as f64 / flow.seconds / 1e6);
        let part = flow.account.recorded as f64 / flow.account.emitted.max(1) as f64 * 100.0;
        let written = flow.account.record_bytes as f64 / flow.seconds / f64::from(1 << 20);
        table.row([
            flow.tracer.clone(),
            rate(flow.account.emitted),
            rate(flow.account.recorded),
            format!("{part:.1} %"),
            format!("{written:.0} MiB/s"),
            mebibytes(flow.buffer_bytes),
        ]);
    }
    let title = "Two threads as fast as they can, recorded to a file; what did not arrive is lost \
                 and counted\n\n";
    (!results.flows.is_empty()).then(|| title.to_owned() + &table.text())
}

fn memory(results: &Results) -> Option<String> {
    let mut table = Table::default();
    table.row(["", "in use", "buffer per CPU asked for"]);
    for one in &results.memory {
        table.row([one.tracer.clone(), mebibytes(one.bytes), mebibytes(one.buffer_bytes)]);
    }
    let title = "Shared memory of a session in which nothing was recorded\n\n";
    (!results.memory.is_empty()).then(|| title.to_owned() + &table.text())
}

/// Bytes, in MiB.
pub(crate) fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// The bars, line by line.
pub(crate) fn bars_text(bars: &[Bar]) -> Option<String> {
    let mut text = "What Trackway set out to reach\n\n".to_owned();
    for bar in bars {
        let verdict = match bar.verdict {
            Verdict::Holds => "holds",
            Verdict::Misses => "misses",
            Verdict::Unknown => "",
        };
        let line = format!("  {:<62}  {:<20}  {verdict}", bar.what, bar.measured);
        text += line.trim_end();
        text.push('\n');
    }
    (!bars.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests;
