//! What was measured of readers, for people.

use std::io::{self, Write};

use super::results::{ReadingResults, Size, TraceKind};
use super::tools::{Tool, Work};
use crate::report::{bars_text, mebibytes};
use crate::stats::Spread;
use crate::table::Table;

/// Writes everything that is known to `output`.
///
/// # Errors
///
/// If `output` cannot be written.
pub fn print(results: &ReadingResults, output: &mut dyn Write) -> io::Result<()> {
    write!(output, "{}", results.machine.words())?;
    let version = results.babeltrace2.as_deref().unwrap_or("not installed");
    writeln!(output, "babeltrace2 {version}\n")?;
    for note in &results.notes {
        writeln!(output, "{}: {}", note.about, note.text)?;
    }
    if !results.notes.is_empty() {
        writeln!(output)?;
    }
    let sections = [traces(results), speeds(results), sizes(results), bars_text(&results.bars)];
    let sections: Vec<String> = sections.into_iter().flatten().collect();
    output.write_all(sections.join("\n").as_bytes())
}

fn traces(results: &ReadingResults) -> Option<String> {
    let mut table = Table::default();
    table.row(["", "events", "streams' bytes", "both print"]);
    for trace in &results.traces {
        let same = |agreement: &&super::Agreement| {
            (agreement.trace, agreement.events) == (trace.kind, trace.events)
        };
        let agreement = results.agreements.iter().find(same);
        let agreement = agreement.filter(|agreement| agreement.compared > 1);
        table.row([
            trace.kind.words().to_owned(),
            millions(trace.events),
            mebibytes(trace.bytes),
            agreement.map_or("·".to_owned(), |agreement| match agreement.is_equal {
                true => format!("the same {}", mebibytes(agreement.bytes)),
                false => "different texts".to_owned(),
            }),
        ]);
    }
    let title = "The traces\n\n";
    (!results.traces.is_empty()).then(|| title.to_owned() + &table.text())
}

fn speeds(results: &ReadingResults) -> Option<String> {
    let counts = results.cpu_counts();
    let columns: Vec<(usize, Work)> =
        counts.iter().flat_map(|&cpus| [(cpus, Work::Text), (cpus, Work::Decode)]).collect();
    let mut table = Table::default();
    let head = columns.iter().map(|&(cpus, work)| {
        let plural = if cpus == 1 { "" } else { "s" };
        if work == Work::Text { format!("{cpus} CPU{plural}") } else { String::new() }
    });
    table.row([String::new()].into_iter().chain(head));
    let kinds = results.kinds();
    for &kind in &kinds {
        let head = columns.iter().map(|&(_, work)| work.words().to_owned());
        table.row([kind.words().to_owned()].into_iter().chain(head));
        for tool in [Tool::Trackway, Tool::Babeltrace2] {
            let cells = columns.iter().map(|&(cpus, work)| {
                let speed = results.speed(tool, work, kind, cpus);
                speed.map_or("·".to_owned(), |speed| rate(&speed.events_per_s))
            });
            table.row([format!("  {}", tool.name())].into_iter().chain(cells));
        }
        let ratios = columns.iter().map(|&(cpus, work)| {
            let times = results.times(work, kind, cpus);
            times.map_or("·".to_owned(), |times| format!("{times:.1} ×"))
        });
        table.row(["  ratio".to_owned()].into_iter().chain(ratios));
    }
    let rounds = match results.rounds {
        1 => "one round".to_owned(),
        rounds => format!("median of {rounds} rounds (lowest – highest)"),
    };
    let title = format!("Million events a second, the output to /dev/null: {rounds}\n\n");
    (!kinds.is_empty()).then(|| title + &table.text())
}

fn rate(spread: &Spread) -> String {
    let million = |rate: f64| format!("{:.2}", rate / 1e6);
    let median = million(spread.median);
    if spread.count < 2 {
        return median;
    }
    format!("{median} ({} – {})", million(spread.min), million(spread.max))
}

fn sizes(results: &ReadingResults) -> Option<String> {
    let mut table = Table::default();
    table.row(["", "events", "most memory", "first line"]);
    let mut last: Option<TraceKind> = None;
    for size in &results.sizes {
        if last.replace(size.trace) != Some(size.trace) {
            table.row([size.trace.words()]);
        }
        table.row(size_row(size));
    }
    let title = "What should not depend on the size of a trace: text with all CPUs; resident \
                 memory; time from\nthe start of the program to its first line in a pipe\n\n";
    (!results.sizes.is_empty()).then(|| title.to_owned() + &table.text())
}

fn size_row(size: &Size) -> [String; 4] {
    let first = &size.first_line_ms;
    let range = match first.count {
        1 => String::new(),
        _ => format!(" ({:.1} – {:.1})", first.min, first.max),
    };
    [
        format!("  {}", size.tool.name()),
        millions(size.events),
        mebibytes(size.peak_bytes.median as u64),
        format!("{:.1} ms{range}", first.median),
    ]
}

/// A count of events, in millions.
fn millions(events: u64) -> String {
    format!("{:.2} M", events as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::results::tests::example;

    #[test]
    fn the_report_reads_as_intended() {
        let mut results = example();
        results.bars = crate::reader::bars::all(&results);
        let mut output = Vec::new();
        print(&results, &mut output).expect("written");
        let text = String::from_utf8(output).expect("text");
        let (_, text) = text.split_once("babeltrace2 2.0.4\n\n").expect("the head");
        assert!(text == include_str!("expected.txt"), "instead of expected.txt:\n{text}");
    }

    #[test]
    fn texts_that_differ_are_told() {
        let mut results = example();
        results.agreements[0].is_equal = false;
        assert!(traces(&results).expect("a table").contains("different texts"));
        results.agreements[0].compared = 1;
        assert!(!traces(&results).expect("a table").contains("texts"));
    }
}
