//! What was measured of the helper, for people.

use std::io::{self, Write};

use super::results::{PreloadCost, PreloadResults, Program, RealCost, Way};
use crate::report::bars_text;
use crate::table::Table;

/// Writes everything that is known to `output`.
///
/// # Errors
///
/// If `output` cannot be written.
pub fn print(results: &PreloadResults, output: &mut dyn Write) -> io::Result<()> {
    writeln!(output, "{}", results.machine.words())?;
    for note in &results.notes {
        writeln!(output, "{}: {}", note.about, note.text)?;
    }
    if !results.notes.is_empty() {
        writeln!(output)?;
    }
    write!(output, "{}", costs(results))?;
    if !results.real.is_empty() {
        write!(output, "\n{}", real(&results.real))?;
    }
    if let Some(bars) = bars_text(&results.bars) {
        write!(output, "\n{bars}")?;
    }
    Ok(())
}

fn costs(results: &PreloadResults) -> String {
    let mut table = Table::default();
    let head = Program::ALL.map(|program| program.name().to_owned());
    table.row([String::new()].into_iter().chain(head));
    for way in Way::ALL {
        let cells = Program::ALL.map(|program| results.cost(way, program));
        if cells.iter().any(Option::is_some) {
            let cells = cells.map(|cell| cell.map_or("·".to_owned(), words));
            table.row([way.name().to_owned()].into_iter().chain(cells));
        }
    }
    let rounds = match results.rounds {
        1 => "one round".to_owned(),
        rounds => format!("median of {rounds} rounds ± half of what nine in ten span"),
    };
    format!(
        "Programs that allocate: ns of the program for each call of malloc and free, and times as \
         much\nas alone: {rounds}\n\n{}",
        table.text()
    )
}

fn words(cost: &PreloadCost) -> String {
    let range = match cost.call_ns.count {
        1 => String::new(),
        _ => format!(" ±{:.1}", (cost.call_ns.p95 - cost.call_ns.p5) / 2.0),
    };
    format!("{:.1}{range} ({:.3} ×)", cost.call_ns.median, cost.times.median)
}

/// Programs as they are installed, those that allocate most first.
fn real(costs: &[RealCost]) -> String {
    let mut costs: Vec<&RealCost> = costs.iter().collect();
    costs.sort_by(|a, b| b.calls_per_ms().total_cmp(&a.calls_per_ms()));
    let mut table = Table::default();
    table.row(["", "alone", "calls a ms", "a function between", "idle helper", "95 % sure"]);
    for cost in &costs {
        let percent = |times: f64| format!("{:+.2} %", (times - 1.0) * 100.0);
        table.row([
            cost.name.clone(),
            format!("{:.0} ms", cost.cpu_ms.median),
            format!("{:.0}", cost.calls_per_ms()),
            percent(cost.between_times.median),
            percent(cost.times.median),
            cost.interval.map_or("·".to_owned(), |(low, high)| {
                format!("{} … {}", percent(low), percent(high))
            }),
        ]);
    }
    let rounds = match costs.iter().map(|cost| cost.times.count).max() {
        Some(1) => "one round".to_owned(),
        rounds => format!("median of {} rounds", rounds.unwrap_or_default()),
    };
    format!(
        "Installed programs: time on CPUs of a whole run alone, how often it calls the allocator,\n\
         and what Trackway's libc adds while nobody records: {rounds}\n\n{}",
        table.text()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preload::results::tests::example;

    #[test]
    fn the_report_reads_as_intended() {
        let mut results = example();
        results.bars = results.all_bars();
        let mut output = Vec::new();
        print(&results, &mut output).expect("written");
        let text = String::from_utf8(output).expect("text");
        let (_, text) = text.split_once("LTTng: skipped").expect("a note");
        assert!(text == include_str!("expected.txt"), "instead of expected.txt:\n{text}");
    }
}
