//! What was measured of the ways to reserve, for people: after the tables of the 2012 paper and of
//! the survey.

use std::io::{self, Write};

use super::results::{ClockKind, Path, ProductCost, ReserveResults, StepsOnPath, ThreadsCost, Way};
use crate::report::bars_text;
use crate::stats::Spread;
use crate::table::Table;

/// For what was not measured.
const NOTHING: &str = "·";

/// Writes everything that is known to `output`.
///
/// # Errors
///
/// If `output` cannot be written.
pub fn print(results: &ReserveResults, output: &mut dyn Write) -> io::Result<()> {
    writeln!(output, "{}", results.machine.words())?;
    for note in &results.notes {
        writeln!(output, "{}: {}", note.about, note.text)?;
    }
    if !results.notes.is_empty() {
        writeln!(output)?;
    }
    let rounds = match results.rounds {
        1 => "one round".to_owned(),
        rounds => format!("median of {rounds} rounds ± half of what nine in ten span"),
    };
    write!(output, "{}", events(results, &rounds))?;
    let sections = [speedups, threads, sizes, paths, steps, product];
    for section in sections.iter().filter_map(|section| section(results)) {
        write!(output, "\n{section}")?;
    }
    if let Some(bars) = bars_text(&results.bars) {
        write!(output, "\n{bars}")?;
    }
    Ok(())
}

fn range(spread: &Spread) -> String {
    match spread.count {
        1 => format!("{:.1}", spread.median),
        _ => format!("{:.1} ±{:.1}", spread.median, (spread.p95 - spread.p5) / 2.0),
    }
}

fn or_nothing(text: Option<String>) -> String {
    text.unwrap_or_else(|| NOTHING.to_owned())
}

/// As the paper's table 1: what an event takes, in ticks and ns.
fn events(results: &ReserveResults, rounds: &str) -> String {
    let mut table = Table::default();
    table.row([
        "",
        "u32: ns",
        "of floor",
        "ticks",
        "32 bytes: ns",
        "of floor",
        "still: u32",
        "32 bytes",
    ]);
    for way in Way::ALL {
        let event = |bytes, clock| results.event(way, bytes, clock);
        let (short, long) = (event(4, ClockKind::Counter), event(32, ClockKind::Counter));
        let ticks = short.zip(results.ticks_per_ns);
        let ns = |bytes, clock| or_nothing(event(bytes, clock).map(|event| range(&event.ns)));
        if short.is_some() || long.is_some() {
            table.row([
                way.name().to_owned(),
                ns(4, ClockKind::Counter),
                or_nothing(short.map(|event| format!("{:.2} ×", event.times.median))),
                or_nothing(ticks.map(|(event, ticks)| format!("{:.0}", event.ns.median * ticks))),
                ns(32, ClockKind::Counter),
                or_nothing(long.map(|event| format!("{:.2} ×", event.times.median))),
                ns(4, ClockKind::Still),
                ns(32, ClockKind::Still),
            ]);
        }
    }
    let rate = results.ticks_per_ns.map_or(String::new(), |rate| format!(" of {rate:.2} GHz"));
    format!(
        "One thread: reserve, write and commit a record, in a loop (the paper's table 1): ns,\n\
         {rounds}. Ticks are the counter's{rate}.\n\
         Buffers are flight recorders of 1 MiB in sub-buffers of 64 KiB: one for each CPU (claim: \
         two), or,\nwithout protection and with signals blocked, one for each thread.\n\
         \"Still\": by a clock that costs nothing\n\n{}",
        table.text()
    )
}

/// As the paper's table 6: against interrupts disabled, which here are signals blocked.
fn speedups(results: &ReserveResults) -> Option<String> {
    let mut table = Table::default();
    table.row(["", "signals blocked", "lockless", "faster by", "rseq", "than lockless by"]);
    let mut rows = 0;
    for (bytes, clock, name) in [
        (4, ClockKind::Counter, "u32"),
        (32, ClockKind::Counter, "32 bytes"),
        (4, ClockKind::Still, "u32, still clock"),
        (32, ClockKind::Still, "32 bytes, still clock"),
    ] {
        let ns = |way| results.event_ns(way, bytes, clock);
        let (signals, lockless, rseq) = (ns(Way::Signals), ns(Way::Lockless), ns(Way::Rseq));
        let (Some(signals), Some(lockless)) = (signals, lockless) else { continue };
        rows += 1;
        // As the paper has it: how much less time.
        let percent = |from: f64, to: f64| format!("{:.0} %", (1.0 - to / from) * 100.0);
        table.row([
            name.to_owned(),
            format!("{signals:.1}"),
            format!("{lockless:.1}"),
            percent(signals, lockless),
            or_nothing(rseq.map(|rseq| format!("{rseq:.1}"))),
            or_nothing(rseq.map(|rseq| percent(lockless, rseq))),
        ]);
    }
    let text = "Instead of what is disabled meanwhile (the paper's table 6): ns, and how much less \
                that is";
    (rows > 0).then(|| format!("{text}\n\n{}", table.text()))
}

/// As the paper's figure 7.
fn threads(results: &ReserveResults) -> Option<String> {
    let mut counts: Vec<usize> = results.threads.iter().map(|one| one.threads).collect();
    counts.sort_unstable();
    counts.dedup();
    if counts.is_empty() {
        return None;
    }
    let heads = counts.iter().map(|&count| match count {
        1 => "1 thread".to_owned(),
        _ => count.to_string(),
    });
    let mut table = Table::default();
    table.row([String::new()].into_iter().chain(heads));
    let head = || [String::new()].into_iter().chain(counts.iter().map(usize::to_string));
    let (mut rates, mut others) = (Table::default(), Table::default());
    rates.row(head());
    others.row(head());
    for way in Way::in_use() {
        let found: Vec<_> = counts.iter().map(|&count| results.at_once(way, count)).collect();
        if found.iter().all(Option::is_none) {
            continue;
        }
        let words = found.iter().map(|found| {
            or_nothing(found.map(|one| match one.tally.lost() {
                0 => range(&one.ns),
                lost => {
                    let percent = lost as f64 / one.tally.emitted as f64 * 100.0;
                    format!("{}, {percent:.1} % lost", range(&one.ns))
                }
            }))
        });
        table.row([way.name().to_owned()].into_iter().chain(words));
        let millions = |one: &ThreadsCost| range(&one.millions_per_second);
        let words = found.iter().map(|found| or_nothing(found.map(millions)));
        rates.row([way.name().to_owned()].into_iter().chain(words));
        if matches!(way, Way::Rseq | Way::Claim) {
            let restarts = found.iter().map(|found| {
                let rate =
                    |one: &ThreadsCost| one.tally.restarts as f64 / one.tally.emitted as f64 * 1e6;
                or_nothing(found.map(|one| format!("{:.2}", rate(one))))
            });
            others.row([way.name().to_owned()].into_iter().chain(restarts));
        }
    }
    Some(format!(
        "Threads at once, u32 (the paper's figure 7): ns of a CPU for each event recorded. \
         As\nmany as there are CPUs ({}) have one each; more take turns as the scheduler wants \
         it, and move\n\n{}\n\
         Millions of events recorded in a second, all threads together\n\n{}\n\
         Sequences aborted, and claim regions found in use, in a million events\n\n{}",
        results.machine.cpus,
        table.text(),
        rates.text(),
        others.text()
    ))
}

/// A size in words.
fn size_words(bytes: u64) -> String {
    if bytes >= 1 << 20 { format!("{} MiB", bytes >> 20) } else { format!("{} KiB", bytes >> 10) }
}

fn sizes(results: &ReserveResults) -> Option<String> {
    let mut sizes: Vec<(u64, u64)> =
        results.sizes.iter().map(|one| (one.sub_bytes, one.sub_count)).collect();
    sizes.sort_unstable();
    sizes.dedup();
    if sizes.is_empty() {
        return None;
    }
    let ways: Vec<Way> =
        Way::in_use().filter(|way| results.sizes.iter().any(|one| one.way == *way)).collect();
    let mut table = Table::default();
    let heads = ways.iter().map(|way| way.name().to_owned());
    table.row([String::new(), "ring".to_owned()].into_iter().chain(heads));
    for (bytes, count) in sizes {
        let find = |way| results.sizes.iter().find(|one| (one.way, one.sub_bytes) == (way, bytes));
        let cells = ways.iter().map(|&way| or_nothing(find(way).map(|one| range(&one.ns))));
        let ring = format!("{count} of them");
        table.row([size_words(bytes), ring].into_iter().chain(cells));
    }
    Some(format!(
        "Size of sub-buffers, 256 bytes, one thread: ns for each event. Long records make \
         switches frequent:\none event in fifteen with 4 KiB\n\n{}",
        table.text()
    ))
}

/// As the survey tells code paths apart.
fn paths(results: &ReserveResults) -> Option<String> {
    if results.paths.is_empty() {
        return None;
    }
    let mut table = Table::default();
    table.row(["", "by itself: fast", "switch", "in a loop: fast", "a switch adds"]);
    for path in &results.paths {
        table.row([
            path.way.name().to_owned(),
            or_nothing(path.fast_ns.as_ref().map(range)),
            or_nothing(path.switch_ns.as_ref().map(range)),
            range(&path.line_fast_ns),
            range(&path.line_switch_ns),
        ]);
    }
    Some(format!(
        "Code paths (the survey's fast and slow one), 256 bytes: ns. \"By itself\": between \
         fences, so that\nnothing overlaps; \"in a loop\": by the line through the sizes whose \
         rings have 1 MiB\n\n{}",
        table.text()
    ))
}

fn steps(results: &ReserveResults) -> Option<String> {
    if results.steps.is_empty() {
        return None;
    }
    let mut table = Table::default();
    table.row([
        "",
        "fast",
        "atomic",
        "fences",
        "system calls",
        "switch",
        "atomic",
        "fences",
        "most",
    ]);
    let number = |found: Option<&StepsOnPath>, of: fn(&StepsOnPath) -> u64| {
        or_nothing(found.map(|found| of(found).to_string()))
    };
    for way in Way::ALL {
        let fast = results.steps(way, Path::Fast);
        let switch = results.steps(way, Path::Switch);
        if fast.is_none() && switch.is_none() {
            continue;
        }
        table.row([
            way.name().to_owned(),
            number(fast, |found| found.steps.instructions),
            number(fast, |found| found.steps.locked),
            number(fast, |found| found.steps.fences),
            number(fast, |found| found.steps.system_calls),
            number(switch, |found| found.steps.instructions),
            number(switch, |found| found.steps.locked),
            number(switch, |found| found.steps.fences),
            number(switch, |found| found.most),
        ]);
    }
    Some(format!(
        "Instructions of an event, u32, by single-stepping, from the call to its return; the \
         kernel's\nare not counted\n\n{}",
        table.text()
    ))
}

fn product(results: &ReserveResults) -> Option<String> {
    let mut cases: Vec<(usize, usize)> = Vec::new();
    let key = |one: &ProductCost| (one.threads, one.payload as usize);
    for one in &results.product {
        if !cases.contains(&key(one)) {
            cases.push(key(one));
        }
    }
    if cases.is_empty() {
        return None;
    }
    cases.sort_unstable();
    let heads = cases.iter().map(|case| {
        let one = results.product.iter().find(|one| key(one) == *case);
        let title = one.map_or("", |one| one.payload.title());
        match case.0 {
            1 => title.to_owned(),
            threads => format!("{title}, {threads} threads"),
        }
    });
    let mut table = Table::default();
    table.row([String::new()].into_iter().chain(heads));
    for way in Way::in_use() {
        let cells: Vec<_> = cases
            .iter()
            .map(|case| results.product.iter().find(|one| one.way == way && key(one) == *case))
            .collect();
        if cells.iter().all(Option::is_none) {
            continue;
        }
        let words = cells.iter().map(|cell| {
            or_nothing(cell.map(|one| match one.account.lost {
                0 => range(&one.ns),
                lost => {
                    let percent = lost as f64 / one.account.emitted as f64 * 100.0;
                    format!("{}, {percent:.1} % lost", range(&one.ns))
                }
            }))
        });
        table.row([way.name().to_owned()].into_iter().chain(words));
    }
    Some(format!(
        "The product: trackway record --reserve, flight recorder of 1 MiB, the tracepoint in C: ns \
         of a\nCPU for each event recorded. rseq has the library's fast path, claim and lockless \
         its slow one\n\n{}",
        table.text()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reserve::results::tests::example;

    #[test]
    fn the_report_reads_as_intended() {
        let mut results = example();
        results.bars = results.all_bars();
        let mut output = Vec::new();
        print(&results, &mut output).expect("written");
        let text = String::from_utf8(output).expect("text");
        let (_, text) = text.split_once("mutex: skipped").expect("a note");
        assert!(text == include_str!("expected.txt"), "instead of expected.txt:\n{text}");
    }
}
