//! A report as a page: self-contained, for screens in light and dark, and for paper.
//!
//! ```text
//! plot   what figures are drawn with
//! bars   tracers in cases
//! lines  a figure for each x
//! tails  single events, how they are distributed
//! ```

mod bars;
mod lines;
mod plot;
mod tails;

use std::fmt::Write as _;

use crate::results::{Bar, Verdict};
use crate::rows::{Report, Row, RowStatus, SuiteRows};
use crate::stats::Ratio;
use crate::text::{self, figure, times};
use plot::escaped;

/// How it looks: no script, no font, nothing from elsewhere.
const STYLE: &str = include_str!("style.css");

/// The page.
pub fn page(report: &Report) -> String {
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>What tracing costs</title>\n<style>\n{STYLE}</style>\n<main>\n"
    );
    html += &head(report);
    html += &bars_table(&report.bars);
    for (name, suite) in report.ordered() {
        html += &section(name, suite);
    }
    html += &foot(report);
    html + "</main>\n</html>\n"
}

fn head(report: &Report) -> String {
    let machine = escaped(report.machine.words().trim_end()).replace('\n', "<br>");
    let mut html = format!("<h1>What tracing costs</h1>\n<p class=\"machine\">{machine}</p>\n");
    let partial = "It ended before everything was measured: what there is is below.";
    let quick = "One short round: to see that all works, not for figures.";
    for (is_so, words) in [(report.is_partial, partial), (report.settings.quick, quick)] {
        if is_so {
            let _ = writeln!(html, "<p class=\"warning\">{words}</p>");
        }
    }
    for note in &report.notes {
        let (about, text) = (escaped(&note.about), escaped(&note.text));
        let _ = writeln!(html, "<p class=\"warning\">{about}: {text}</p>");
    }
    html += "<nav>";
    for (name, suite) in report.ordered() {
        let _ = write!(html, "<a href=\"#{name}\">{}</a> ", escaped(&suite.title));
    }
    html + "</nav>\n"
}

fn bars_table(bars: &[Bar]) -> String {
    if bars.is_empty() {
        return String::new();
    }
    let mut html = "<h2>What Trackway set out to reach</h2>\n<table>\n".to_owned();
    for bar in bars {
        let (class, words) = match bar.verdict {
            Verdict::Holds => ("holds", "✓ holds"),
            Verdict::Misses => ("misses", "✗ misses"),
            Verdict::Unknown => ("unknown", ""),
        };
        let _ = writeln!(
            html,
            "<tr><td>{}<td>{}<td class=\"{class}\">{words}",
            escaped(&bar.what),
            escaped(&bar.measured)
        );
    }
    html + "</table>\n"
}

fn section(name: &str, suite: &SuiteRows) -> String {
    let (title, repeats) = (escaped(&suite.title), escaped(&suite.repeats));
    let mut html = format!(
        "<section id=\"{name}\">\n<h2>{title}</h2>\n<p>{} Repeats: {repeats}.</p>\n",
        sentence(&escaped(&text::method(suite)))
    );
    let tracers = suite.tracers();
    let has_x = suite.rows.iter().any(|row| row.x.is_some());
    let figures = match has_x {
        true => lines::draw(suite, &tracers, &suite.x_axis).into_iter().collect(),
        false => bars::draw(suite),
    };
    for figure in figures.into_iter().chain(tails::draw(suite)) {
        let command = escaped(&suite.command);
        let _ = write!(
            html,
            "<figure>\n{figure}<figcaption>Again: <code>{command}</code></figcaption></figure>\n"
        );
    }
    html += &table(suite);
    html + "</section>\n"
}

/// Words with a point behind them.
fn sentence(words: &str) -> String {
    let mut letters = words.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    first + letters.as_str() + "."
}

fn table(suite: &SuiteRows) -> String {
    let mut html = "<details open><summary>All rows</summary>\n<table>\n<tr><th>tracer<th>case\
                    <th>median<th>5 %<th>95 %<th>in terms of<th>times (95 % sure)<th>recorded\
                    <th>lost\n"
        .to_owned();
    for row in &suite.rows {
        let (tracer, case) = (escaped(&row.tracer), escaped(&row.case));
        let _ = match row.spread {
            Some(_) => writeln!(html, "<tr><td>{tracer}<td>{case}{}", figures(suite, row)),
            None => writeln!(
                html,
                "<tr class=\"none\"><td>{tracer}<td>{case}<td colspan=\"7\">{}: {}",
                if row.status == RowStatus::Failed { "FAILED" } else { "absent" },
                escaped(row.reason.as_deref().unwrap_or_default())
            ),
        };
    }
    html + "</table></details>\n"
}

/// The cells of a row that was measured.
fn figures(suite: &SuiteRows, row: &Row) -> String {
    let Some(spread) = row.spread else { return String::new() };
    let in_unit = |number| figure(row.unit, number);
    let other = row.beside.and_then(|other| suite.rows.get(other));
    let count = |count: Option<u64>| count.map_or_else(String::new, |count| count.to_string());
    let cells = [
        format!("{} {}", in_unit(spread.median), row.unit.words()),
        in_unit(spread.p5),
        in_unit(spread.p95),
        other.map_or_else(String::new, |other| escaped(&other.tracer)),
        row.times.map_or_else(String::new, |times| ratio(&times)),
        count(row.recorded),
        count(row.lost),
    ];
    cells.map(|cell| format!("<td class=\"figure\">{cell}")).concat()
}

fn ratio(ratio: &Ratio) -> String {
    match ratio.interval {
        Some((low, high)) => {
            format!("{} ({}–{})", times(ratio.median), times(low), times(high))
        }
        None => times(ratio.median),
    }
}

fn foot(report: &Report) -> String {
    let mut html = "<h2>How it was measured</h2>\n".to_owned();
    let command = escaped(&report.command.join(" "));
    let minutes = report.seconds / 60.0;
    let _ = writeln!(html, "<p><code>{command}</code>, {minutes:.1} minutes.</p>\n<ul>");
    for (program, version) in &report.versions {
        let _ = writeln!(html, "<li>{}: {}", escaped(program), escaped(version));
    }
    html + "</ul>\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::tests::{report, row};

    fn ended(row: Row, status: RowStatus, reason: &str) -> Row {
        Row { status, reason: Some(reason.to_owned()), spread: None, ..row }
    }

    #[test]
    fn pages_hold_figures_reasons_and_commands() {
        let rows = [
            row("trackway", "u32", 21.0),
            row("lttng-ust", "u32", 126.0),
            ended(row("perf", "u32", 1.0), RowStatus::Absent, "<perf> is not installed"),
            ended(row("strace", "u32", 1.0), RowStatus::Failed, "shows no event"),
        ];
        let page = page(&report("tracepoint", rows));
        for part in [
            "<section id=\"tracepoint\">",
            ">trackway<",
            ">126.0<",
            "absent: &lt;perf&gt; is not installed",
            "FAILED: shows no event",
            "<code>trackway bench tracepoint</code>",
            "prefers-color-scheme: dark",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        for elsewhere in ["http:", "https:", "<script", "@import"] {
            assert!(!page.contains(elsewhere), "{elsewhere}");
        }
    }

    #[test]
    fn rows_with_x_become_lines() {
        let at = |tracer: &str, x: f64, figure| Row {
            x: Some(x),
            ..row(tracer, &format!("{x}"), figure)
        };
        let rows =
            [at("a", 1.0, 20.0), at("a", 2.0, 21.0), at("b", 1.0, 300.0), at("b", 2.0, 400.0)];
        let page = page(&report("scaling", rows));
        assert_eq!(page.matches("<polyline").count(), 2);
        assert!(page.contains(">400.0  b<"), "{page}");
    }
}
