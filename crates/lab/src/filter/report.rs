//! What was measured of filters, for people.

use std::io::{self, Write};

use super::results::{
    Chain, FilterCost, FilterResults, FilterTracer, Operands, PREDICATES, Preparation, Runner,
    TRACED_PREDICATES,
};
use crate::report::bars_text;
use crate::stats::Spread;
use crate::table::Table;

/// Writes everything that is known to `output`.
///
/// # Errors
///
/// If `output` cannot be written.
pub fn print(results: &FilterResults, output: &mut dyn Write) -> io::Result<()> {
    writeln!(output, "{}", results.machine.words())?;
    for note in &results.notes {
        writeln!(output, "{}: {}", note.about, note.text)?;
    }
    if let Some(compiler) = &results.compiler {
        writeln!(output, "C: {compiler}, -O2")?;
    }
    for operands in Operands::ALL {
        write!(output, "\n{}", costs(results, operands))?;
    }
    for operands in Operands::ALL {
        write!(output, "\n{}", ratios(results, operands))?;
    }
    if !results.preparations.is_empty() {
        write!(output, "\n{}", preparations(&results.preparations))?;
    }
    for operands in Operands::ALL {
        if let Some(traced) = traced(results, operands) {
            write!(output, "\n{traced}")?;
        }
    }
    if let Some(bars) = bars_text(&results.bars) {
        write!(output, "\n{bars}")?;
    }
    Ok(())
}

/// A table with a column for each number of predicates.
fn table(
    results: &FilterResults,
    operands: Operands,
    head: &[String],
    words: impl Fn(&FilterCost) -> Option<String>,
) -> String {
    let mut table = Table::default();
    table.row([String::new()].into_iter().chain(PREDICATES.map(|count| count.to_string())));
    if !head.is_empty() {
        table.row(head.iter().cloned());
    }
    for chain in Chain::ALL {
        let rows: Vec<[Option<String>; PREDICATES.len()]> = Runner::ALL
            .map(|runner| {
                PREDICATES
                    .map(|count| results.cost(runner, operands, chain, count).and_then(&words))
            })
            .into();
        if rows.iter().all(|row| row.iter().all(Option::is_none)) {
            continue;
        }
        table.row([chain.name()]);
        for (runner, row) in Runner::ALL.into_iter().zip(rows) {
            if row.iter().any(Option::is_some) {
                let cells = row.map(|cell| cell.unwrap_or_else(|| "·".to_owned()));
                table.row([format!("  {}", runner.name())].into_iter().chain(cells));
            }
        }
    }
    table.text()
}

fn costs(results: &FilterResults, operands: Operands) -> String {
    let rounds = match results.rounds {
        1 => "one round".to_owned(),
        rounds => format!("median of {rounds} rounds ± half of what nine in ten span"),
    };
    let empty = results.empty_ns.as_ref().map(ns);
    let head: Vec<String> =
        empty.map_or_else(Vec::new, |empty| vec!["a call of nothing".to_owned(), empty]);
    let table = table(results, operands, &head, |cost| Some(ns(&cost.ns)));
    format!(
        "Filters on {}: ns for an answer, with loop and call, by number of predicates:\n\
         {rounds}\n\n{table}",
        operands.name()
    )
}

fn ratios(results: &FilterResults, operands: Operands) -> String {
    let words = |cost: &FilterCost| {
        let times = cost.of_c.filter(|_| cost.runner != Runner::C)?.median;
        Some(if times < 10.0 { format!("{times:.2}") } else { format!("{times:.0}") })
    };
    let table = table(results, operands, &[], words);
    format!("Filters on {}: times as long as C in the same round\n\n{table}", operands.name())
}

fn ns(spread: &Spread) -> String {
    match spread.count {
        1 => format!("{:.1}", spread.median),
        _ => format!("{:.1} ±{:.1}", spread.median, (spread.p95 - spread.p5) / 2.0),
    }
}

fn preparations(all: &[Preparation]) -> String {
    let mut table = Table::default();
    table.row(["", "to bytecode", "to the first answer", "together"]);
    for one in all {
        table.row([
            format!("{} {}", one.predicates, one.operands.name()),
            ns(&one.to_bytes_us),
            ns(&one.to_answer_us),
            ns(&one.us),
        ]);
    }
    format!("From a filter's text to its first answer: µs\n\n{}", table.text())
}

/// Filters in traced programs: an event, and the filter's share.
fn traced(results: &FilterResults, operands: Operands) -> Option<String> {
    let mut table = Table::default();
    let mut is_empty = true;
    let head = TRACED_PREDICATES.map(|count| count.to_string());
    table.row(["".to_owned(), "no filter".to_owned()].into_iter().chain(head));
    for tracer in FilterTracer::ALL {
        let mut of_tracer = results.traced.iter().filter(|cost| cost.tracer == tracer);
        if !of_tracer.any(|cost| cost.operands == operands) {
            continue;
        }
        is_empty = false;
        table.row([tracer.name()]);
        let off = results
            .traced
            .iter()
            .find(|cost| (cost.tracer, cost.operands, cost.is_on) == (tracer, operands, false));
        table.row(["  no session wants it".to_owned(), words(off.map(|off| off.ns))]);
        for (chain, name, beyond) in [
            (Chain::AndTrue, "  recorded", "    beyond no filter"),
            (Chain::AndFalseFirst, "  dropped by the first", "    beyond unwanted"),
            (Chain::AndFalseLast, "  dropped by the last", "    beyond unwanted"),
        ] {
            let cost = |count| results.traced(tracer, operands, Some(chain), count);
            let without = results.traced(tracer, operands, None, 0);
            let without = without.filter(|_| chain == Chain::AndTrue).map(|cost| cost.ns);
            let cells = TRACED_PREDICATES.map(cost);
            if cells.iter().all(Option::is_none) && without.is_none() {
                continue;
            }
            let row = |name: &str, first: Option<Spread>, cells: [Option<Spread>; 4]| {
                [name.to_owned(), words(first)].into_iter().chain(cells.map(words))
            };
            table.row(row(name, without, cells.map(|cost| Some(cost?.ns))));
            if cells.iter().any(Option::is_some) {
                table.row(row(beyond, None, cells.map(|cost| cost?.filter_ns)));
            }
        }
    }
    let text = format!(
        "An event of nine {} in a traced program, in ns, by number of predicates (&&):\n\n{}",
        operands.name(),
        table.text()
    );
    (!is_empty).then_some(text)
}

fn words(spread: Option<Spread>) -> String {
    spread.as_ref().map_or_else(|| "·".to_owned(), ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::results::tests::example;

    #[test]
    fn the_report_reads_as_intended() {
        let mut results = example();
        results.bars = results.all_bars();
        let mut output = Vec::new();
        print(&results, &mut output).expect("written");
        let text = String::from_utf8(output).expect("text");
        let (_, text) = text.split_once("rbpf on strings: skipped").expect("a note");
        assert!(text == include_str!("expected.txt"), "instead of expected.txt:\n{text}");
    }
}
