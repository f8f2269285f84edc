//! The summary that comes before all figures: the cost of an event compared with other tracers,
//! Trackway's goals, and the rows that could not be measured, with the reason.

use std::fmt::Write as _;

use super::plot::escape_html;
use super::words;
use crate::figures::{format_figure, format_ratio_with_interval};
use crate::null_control;
use crate::results::{Bar, EMPTY_LOOP, Report, Row, RowStatus, SuiteRows, TRACKWAY, Verdict};

/// Most tracers that a line compares with Trackway.
const OTHERS_MAX: usize = 12;

/// Suffix of the names of tracers that are loaded but record nothing.
const OFF_SUFFIX: &str = "-off";

/// Draws the whole summary.
pub(super) fn draw_summary(report: &Report) -> String {
    let mut html = "<section id=\"brief\">\n<h2>In short</h2>\n".to_owned();
    html += &format_headlines(report);
    html += &format_controls(report);
    html += &format_bars(&report.bars);
    html += &format_missing_figures(report);
    html + "</section>\n"
}

/// Formats a line for each suite, which compares Trackway with the other tracers in one case.
fn format_headlines(report: &Report) -> String {
    let lines: String =
        report.ordered().filter_map(|(name, suite)| format_headline(name, suite)).collect();
    if lines.is_empty() {
        return String::new();
    }
    format!(
        "<div class=\"wide\"><table class=\"brief\">\n<thead><tr><th>One case of each<th>Trackway\
         <th>Others, the best first; ×: times ours, or of whom it is said (95 % sure)\n\
         <tbody>\n{lines}</table></div>\n"
    )
}

fn format_headline(suite_name: &str, suite: &SuiteRows) -> Option<String> {
    let rows = rows_of_main_case(suite)?;
    let (ours, mut others): (Vec<&Row>, Vec<&Row>) =
        rows.into_iter().partition(|row| row.tracer.starts_with("trackway"));
    // The row of Trackway in its default use comes first, then a row with a baseline.
    let is_on = |row: &&&Row| !row.tracer.ends_with(OFF_SUFFIX);
    let chosen = ours
        .iter()
        .find(|row| row.tracer == TRACKWAY)
        .or_else(|| ours.iter().filter(is_on).find(|row| row.baseline.is_some()))
        .or_else(|| ours.iter().find(is_on))
        .or_else(|| ours.first())
        .copied()?;
    if others.is_empty() {
        others = ours.into_iter().filter(|row| !std::ptr::eq(*row, chosen)).collect();
    }
    let ours = chosen;
    let unit = ours.unit;
    let good = |row: &Row| {
        row.median().map_or(f64::MAX, |it| if unit.more_is_better() { -it } else { it })
    };
    // The figures already include the cost of a disabled tracer and of the loop alone.
    if !ours.tracer.ends_with(OFF_SUFFIX) {
        others.retain(|row| !row.tracer.ends_with(OFF_SUFFIX) && row.tracer != EMPTY_LOOP);
    }
    others.sort_by(|one, other| good(one).total_cmp(&good(other)));
    let more = others.len().saturating_sub(OTHERS_MAX);
    let mut others: Vec<String> =
        others.iter().take(OTHERS_MAX).map(|row| format_tracer_figure(suite, row)).collect();
    others.extend((more > 0).then(|| format!("and {more} more")));
    let case = escape_html(&words::case_heading(&ours.case));
    let (unit, better) = (unit.words(), unit.which_is_better());
    let title = escape_html(&suite.title);
    let figure = format_tracer_figure(suite, ours);
    Some(format!(
        "<tr><td><a href=\"#{}\">{title}</a><br><span class=\"about\">{case}; {unit}, {better}\
         </span><td>{figure}<td>{}\n",
        escape_html(suite_name),
        others.join(" · ")
    ))
}

/// Returns the rows of the case that most tracers run. Of several such cases, returns the first; of
/// cases that differ in a number, returns the case with the greatest number.
fn rows_of_main_case(suite: &SuiteRows) -> Option<Vec<&Row>> {
    let measured = |row: &&Row| row.spread.is_some() && !row.is_control;
    let count =
        |row: &Row| suite.rows.iter().filter(measured).filter(|it| is_same_case(it, row)).count();
    // The suite's own unit comes first.
    let unit = suite.rows.iter().find(measured)?.unit;
    let candidates: Vec<&Row> =
        suite.rows.iter().filter(measured).filter(|row| row.unit == unit).collect();
    let most = candidates.iter().map(|row| count(row)).max()?;
    let first = *candidates.iter().find(|row| count(row) == most)?;
    let family = |row: &Row| row.x.map(|x| words::case_family(&row.case, x));
    let kin = candidates.iter().filter(|row| count(row) == most && family(row) == family(first));
    let x = |row: &Row| row.x.unwrap_or_default();
    let chosen = match first.x {
        Some(_) => *kin.max_by(|one, other| x(one).total_cmp(&x(other)))?,
        None => first,
    };
    Some(candidates.into_iter().filter(|row| is_same_case(row, chosen)).collect())
}

fn is_same_case(one: &Row, other: &Row) -> bool {
    one.case == other.case && one.unit == other.unit
}

/// Formats a tracer with its figure, and its ratio to the baseline.
fn format_tracer_figure(suite: &SuiteRows, row: &Row) -> String {
    let Some(median) = row.median() else { return String::new() };
    let mut text = format!(
        "{} <strong>{}</strong>",
        escape_html(&row.tracer),
        format_figure(row.unit, median)
    );
    let other = row.baseline.and_then(|other| suite.rows.get(other));
    if let (Some(ratio), Some(other)) = (row.times, other.filter(|other| other.case == row.case)) {
        let of = match other.tracer.as_str() {
            TRACKWAY => String::new(),
            other => format!(" of {}", escape_html(other)),
        };
        let _ = write!(
            text,
            " <span class=\"about\"><span class=\"times\">{}</span>{of}</span>",
            format_ratio_with_interval(&ratio)
        );
    }
    text
}

/// Formats Trackway's goals: missed ones come first.
fn format_bars(bars: &[Bar]) -> String {
    if bars.is_empty() {
        return String::new();
    }
    let count = |verdict: Verdict| bars.iter().filter(|bar| bar.verdict == verdict).count();
    let mut html = format!(
        "<h3>What Trackway set out to reach: {} hold, {} are missed, {} are not decided</h3>\n\
         <ul class=\"bars\">\n",
        count(Verdict::Holds),
        count(Verdict::Misses),
        count(Verdict::Undecided)
    );
    for (verdict, class, sign) in [
        (Verdict::Misses, "misses", "✗"),
        (Verdict::Undecided, "unknown", "?"),
        (Verdict::Holds, "holds", "✓"),
        (Verdict::Unknown, "unknown", "·"),
    ] {
        for bar in bars.iter().filter(|bar| bar.verdict == verdict) {
            let [suite, what, measured] =
                [&bar.suite, &bar.what, &bar.measured].map(|words| escape_html(words));
            let standing = bar.standing();
            let _ = writeln!(
                html,
                "<li><span class=\"{class}\">{sign} {standing}</span> {what}: \
                 <strong>{measured}</strong> <span class=\"about\">{suite}</span>"
            );
        }
    }
    html + "</ul>\n"
}

/// Formats the controls that differ too much.
fn format_controls(report: &Report) -> String {
    let line = |line: String| format!("<li class=\"warning\">{}\n", escape_html(&line));
    let lines: String =
        null_control::format_differing_controls(report).into_iter().map(line).collect();
    if lines.is_empty() {
        return lines;
    }
    format!("<h3>Controls that differ: nothing beside them is decided</h3>\n<ul>\n{lines}</ul>\n")
}

/// A row with a reason for missing figures, the suites with that reason, and the number of such
/// rows.
struct MissingFigures<'a> {
    row: &'a Row,
    suites: Vec<&'a str>,
    rows: usize,
}

/// Formats the reasons for missing figures, once for each tracer and reason.
fn format_missing_figures(report: &Report) -> String {
    let mut missing_figures: Vec<MissingFigures<'_>> = Vec::new();
    for (suite, rows) in report.ordered() {
        for (row, count) in rows.reasons() {
            let is_same = |missing: &&mut MissingFigures<'_>| {
                let is_absent = row.status == RowStatus::Absent && missing.row.status == row.status;
                is_absent && missing.row.tracer == row.tracer && missing.row.reason == row.reason
            };
            match missing_figures.iter_mut().find(is_same) {
                Some(missing) => {
                    missing.suites.push(suite);
                    missing.rows += count;
                }
                None => {
                    missing_figures.push(MissingFigures { row, suites: vec![suite], rows: count })
                }
            }
        }
    }
    if missing_figures.is_empty() {
        return String::new();
    }
    // Failures come first.
    missing_figures.sort_by_key(|missing| match missing.row.status {
        RowStatus::Failed => 0,
        RowStatus::Measured => 1,
        RowStatus::Absent => 2,
    });
    let lines: String = missing_figures.iter().map(format_missing_line).collect();
    format!("<h3>What could not be measured</h3>\n<ul class=\"none\">\n{lines}</ul>\n")
}

fn format_missing_line(missing: &MissingFigures<'_>) -> String {
    let suites: Vec<String> = missing.suites.iter().map(|suite| escape_html(suite)).collect();
    let suites = suites.join(", ");
    let [tracer, case] = [&missing.row.tracer, &missing.row.case].map(|words| escape_html(words));
    let reason = escape_html(missing.row.reason.as_deref().unwrap_or_default());
    match (missing.row.status, missing.rows) {
        (RowStatus::Absent, 1) => {
            format!("<li>{tracer}, {case}: absent: {reason} ({suites})\n")
        }
        (RowStatus::Absent, rows) => {
            format!("<li>{tracer}: absent: {reason} ({suites}: {rows} rows)\n")
        }
        (status, _) => {
            let class = if status == RowStatus::Failed { "misses" } else { "warning" };
            let fate = missing.row.fate();
            format!("<li class=\"{class}\">{tracer}, {case}: {fate}: {reason} ({suites})\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::fixtures::{measured_row, report_of_suite};
    use crate::stats::Ratio;

    fn absent_row(tracer: &str, reason: &str) -> Row {
        let reason = Some(reason.to_owned());
        Row { status: RowStatus::Absent, reason, spread: None, ..measured_row(tracer, "u32", 1.0) }
    }

    #[test]
    fn ours_stands_beside_others_in_the_case_that_most_do() {
        let with_x = |tracer: &str, x: f64, figure| Row {
            x: Some(x),
            ..measured_row(tracer, &format!("{x} threads"), figure)
        };
        let times = Some(Ratio { median: 3.2, interval: Some((3.125, 3.25)) });
        let rows = [
            measured_row("trackway", "alone", 1.0),
            measured_row("trackway-off", "alone", 0.5),
            with_x("trackway", 1.0, 20.0),
            with_x("rdtsc", 1.0, 9.0),
            with_x("lttng-ust-off", 1.0, 0.3),
            with_x("rdtsc", 8.0, 10.0),
            with_x("trackway", 8.0, 25.0),
            Row { baseline: Some(6), times, ..with_x("lttng-ust", 8.0, 80.0) },
        ];
        let html = draw_summary(&report_of_suite("scaling", rows));
        for part in [
            "8 threads; ns/event, less is better",
            "<td>trackway <strong>25.0</strong>",
            "<td>rdtsc <strong>10.0</strong> · lttng-ust <strong>80.0</strong> \
             <span class=\"about\"><span class=\"times\">×3.20 (3.12–3.25)</span></span>",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
    }

    #[test]
    fn controls_that_differ_are_named() {
        let times = |low| Some(Ratio { median: 1.2, interval: Some((low, 1.3)) });
        let again = Row {
            is_control: true,
            times: times(1.1),
            ..measured_row("trackway again", "u32", 1.0)
        };
        let html = |row: &Row| draw_summary(&report_of_suite("drain", [row.clone()]));
        let expected = "<li class=\"warning\">drain: the same twice (trackway again): ×1.200";
        assert!(html(&again).contains(expected), "{}", html(&again));
        assert!(!html(&Row { times: times(0.9), ..again }).contains("Controls"));
    }

    #[test]
    fn rounds_that_failed_are_told_between_what_failed_and_what_is_absent() {
        let reason = |words: &str| Some(words.to_owned());
        let now_and_then = Row {
            reason: reason("too late"),
            failed_rounds: 2,
            ..measured_row("bpftrace", "u32", 9.0)
        };
        let failed = Row { status: RowStatus::Failed, ..absent_row("strace", "it shows no event") };
        let html = draw_summary(&report_of_suite(
            "size",
            [absent_row("perf", "it is not here"), now_and_then, failed],
        ));
        let place = |words: &str| html.find(words).expect(words);
        let told = place("bpftrace, u32: measured, but for 2 rounds that failed: too late (size)");
        assert!(place("strace, u32: FAILED") < told && told < place("perf, u32: absent"), "{html}");
    }

    #[test]
    fn what_is_missed_comes_first_and_reasons_are_said_once() {
        let bar = |what: &str, verdict| Bar {
            measured: "1.00".to_owned(),
            verdict,
            ..Bar::not_measured(what)
        };
        let rows =
            [absent_row("perf", "it is not installed"), measured_row("trackway", "u32", 20.0)];
        let mut report = report_of_suite("tracepoint", rows.clone());
        report.suites.insert("size".to_owned(), crate::results::fixtures::suite_of_rows(rows));
        report.bars = vec![bar("fast", Verdict::Holds), bar("small", Verdict::Misses)];
        let html = draw_summary(&report);
        assert!(html.contains("1 hold, 1 are missed, 0 are not decided"), "{html}");
        let place = |words: &str| html.find(words).expect(words);
        assert!(place("small: <strong>1.00") < place("fast: <strong>1.00"));
        assert!(place("fast: <strong>1.00") < place("perf: absent: it is not installed"));
        assert!(html.contains("(tracepoint, size: 2 rows)"), "{html}");
    }
}
