//! What was measured of tracing the kernel, for people.

use std::io::{self, Write};

use super::results::{CallCost, Drain, KernelResults, LoadCost, Status};
use super::rounds::NAME_BYTES;
use super::tracer::{KernelEvents, KernelTracer};
use crate::report::bars_text;
use crate::stats::{Ratio, Spread};
use crate::table::Table;

/// For what was not measured.
const NOTHING: &str = "·";

/// Writes everything that is known to `output`.
///
/// # Errors
///
/// Those of `output`.
pub fn print(results: &KernelResults, output: &mut dyn Write) -> io::Result<()> {
    writeln!(output, "{}", results.machine.words())?;
    for note in &results.notes {
        writeln!(output, "{}: {}", note.about, note.text)?;
    }
    if !results.notes.is_empty() {
        writeln!(output)?;
    }
    let sections = [
        getppid(results),
        openat(results),
        loads(results),
        drains(results),
        bars_text(&results.bars),
    ];
    let sections: Vec<String> = sections.into_iter().flatten().collect();
    output.write_all(sections.join("\n").as_bytes())
}

fn or_nothing(text: Option<String>) -> String {
    text.unwrap_or_else(|| NOTHING.to_owned())
}

/// `a ±b`.
fn spread(spread: &Spread) -> String {
    let digits = if spread.median.abs() < 100.0 { 1 } else { 0 };
    match spread.count {
        1 => format!("{:.digits$}", spread.median),
        _ => format!("{:.digits$} ±{:.digits$}", spread.median, (spread.p95 - spread.p5) / 2.0),
    }
}

fn ratio(ratio: Ratio) -> String {
    match ratio.interval {
        Some((low, high)) => format!("{:.2} ({low:.2} to {high:.2})", ratio.median),
        None => format!("{:.2}", ratio.median),
    }
}

fn rounds(results: &KernelResults) -> String {
    match results.rounds {
        1 => "one round".to_owned(),
        rounds => format!("median of {rounds} rounds ± half of what nine in ten span"),
    }
}

/// Why a tracer has no figures.
fn absence(results: &KernelResults, tracer: KernelTracer) -> Option<String> {
    let one = results.tracers.iter().find(|one| one.tracer == tracer)?;
    match one.status {
        Status::Measured => None,
        Status::Absent => Some("absent".to_owned()),
        Status::Failed => Some("failed".to_owned()),
    }
}

fn getppid(results: &KernelResults) -> Option<String> {
    let mut table = Table::default();
    table.row(["", "a call", "added", "of ftrace's", "bytes an event", "in LTTng's", "lost"]);
    for tracer in KernelTracer::ALL {
        let Some(cost) = results.call(tracer, "getppid", None) else {
            if let Some(why) = absence(results, tracer) {
                table.row([tracer.name().to_owned(), why]);
            }
            continue;
        };
        let traced = results.account(tracer, "getppid");
        let bytes = |bytes: Option<f64>| or_nothing(bytes.map(|bytes| format!("{bytes:.1}")));
        let lost = traced.map(|traced| {
            format!("{:.1} %", traced.lost as f64 / traced.emitted.max(1) as f64 * 100.0)
        });
        table.row([
            tracer.name().to_owned(),
            spread(&cost.ns),
            or_nothing(cost.added_ns.as_ref().map(spread)),
            or_nothing(cost.of_ftrace.map(ratio)),
            bytes(traced.and_then(|traced| traced.bytes_per_event)),
            bytes(traced.and_then(|traced| traced.lttng_bytes_per_event)),
            or_nothing(lost),
        ]);
    }
    let title = format!(
        "getppid(2), entry and exit traced, all system calls being traced, in ns: {}.\n\
         'of ftrace's': what is added, in terms of what raw_syscalls add, in the same round (with\n\
         95 % confidence). Bytes: as written; 'in LTTng's': what its layout takes for the same\n\n",
        rounds(results)
    );
    let has_rows = results.calls.iter().any(|cost| cost.call == "getppid");
    has_rows.then(|| title + &table.text())
}

fn openat(results: &KernelResults) -> Option<String> {
    let mut table = Table::default();
    let heads = NAME_BYTES.iter().map(|bytes| format!("{bytes} bytes"));
    let last = ["bytes an event", "in LTTng's"].map(str::to_owned);
    table.row([String::new()].into_iter().chain(heads).chain(last));
    for tracer in KernelTracer::ALL {
        let of = |bytes: &u64| results.call(tracer, "openat", Some(*bytes));
        if NAME_BYTES.iter().all(|bytes| of(bytes).is_none()) {
            continue;
        }
        let cell = |cost: &CallCost| spread(cost.added_ns.as_ref().unwrap_or(&cost.ns));
        let cells = NAME_BYTES.iter().map(|bytes| or_nothing(of(bytes).map(cell)));
        let traced = results.account(tracer, "openat");
        let bytes = |bytes: Option<f64>| or_nothing(bytes.map(|bytes| format!("{bytes:.1}")));
        let last = [
            bytes(traced.and_then(|traced| traced.bytes_per_event)),
            bytes(traced.and_then(|traced| traced.lttng_bytes_per_event)),
        ];
        table.row([tracer.name().to_owned()].into_iter().chain(cells).chain(last));
    }
    let title = "openat(2) of names that are not there, by their length: the untraced call in ns, \
                 below it what\ntracing adds (the survey's Figure 9)\n\n";
    let has_rows = results.calls.iter().any(|cost| cost.call == "openat");
    has_rows.then(|| title.to_owned() + &table.text())
}

fn loads(results: &KernelResults) -> Option<String> {
    let mut table = Table::default();
    table.row(["", "traced", "ms", "slower by", "recorder, of a CPU", "events", "lost"]);
    let mut command = "";
    for load in &results.loads {
        if load.command != command {
            command = &load.command;
            table.row([command]);
        }
        table.row(load_row(load));
    }
    let names = super::tracer::SUBSYSTEMS.join(", ");
    let title = format!(
        "Whole programs, from start to end, of everything that runs ('{}':\n{names}, and system \
         calls).\n'Slower by' is beside the untraced run of the same round\n\n",
        KernelEvents::Everything.name()
    );
    (!results.loads.is_empty()).then(|| title + &table.text())
}

fn load_row(load: &LoadCost) -> [String; 7] {
    let percent = |times: f64| (times - 1.0) * 100.0;
    let slower = load.times.map(|times| match times.interval {
        Some((low, high)) => {
            format!("{:.1} % ({:.1} to {:.1})", percent(times.median), percent(low), percent(high))
        }
        None => format!("{:.1} %", percent(times.median)),
    });
    let share = |lost: u64| lost as f64 / (load.recorded + lost).max(1) as f64 * 100.0;
    let is_traced = !load.tracer.is_untraced();
    [
        format!("  {}", load.tracer.name()),
        if is_traced { load.events.name() } else { NOTHING }.to_owned(),
        spread(&load.ms),
        or_nothing(slower),
        or_nothing(load.recorder_percent.map(|percent| format!("{} %", spread(&percent)))),
        or_nothing(is_traced.then(|| load.recorded.to_string())),
        or_nothing(is_traced.then(|| format!("{:.1} %", share(load.lost)))),
    ]
}

fn drains(results: &KernelResults) -> Option<String> {
    let mut table = Table::default();
    table.row(["", "asked for", "emitted", "arrived", "lost", "recorder, of a CPU"]);
    let rate = |rate: f64| format!("{:.2} M/s", rate / 1e6);
    for drain in &results.drains {
        let Drain { emitted, lost, .. } = *drain;
        table.row([
            drain.tracer.name().to_owned(),
            drain.asked.map_or("as it goes".to_owned(), rate),
            rate(drain.emitted_per_second),
            rate(drain.recorded_per_second),
            format!("{:.2} %", lost as f64 / emitted.max(1) as f64 * 100.0),
            format!("{:.0} %", drain.recorder_percent),
        ]);
    }
    let title = "getppid(2) alone traced, to disk, with 8 MiB of buffers a CPU: a million events a \
                 second from\none thread, and as many as can be, from a thread on each CPU\n\n";
    (!results.drains.is_empty()).then(|| title.to_owned() + &table.text())
}
