//! A report as a page: self-contained, for screens in light and dark, and for paper.
//!
//! ```text
//! brief     the summary: the cost of an event, goals, absent rows and reasons
//! plot      common elements; scale: positions on an axis; strokes: lines of tracers
//! words     cases as headings
//! panels    a case each, with a row for each tracer, two side by side
//! bars      bars of tracers in cases, with the span of their rounds
//! lines     line plots of figures by x
//! stacks    stacked parts of an event (survey, Figure 10)
//! boxes     box plots with outliers (thesis, Figure 3.1)
//! polygons  frequencies of figures (thesis, Figure 3.2)
//! table     all rows with all of their figures
//! ```

mod bars;
mod boxes;
mod brief;
mod lines;
mod panels;
mod plot;
mod polygons;
mod scale;
mod stacks;
mod strokes;
mod table;
mod words;

use std::fmt::Write as _;

use crate::null_control;
use crate::report::text;
use crate::results::{Report, Row, RowStatus, SuiteRows};
use plot::{Figure, escape_html};
use strokes::Strokes;

/// The style sheet: no script, no font, nothing loaded from elsewhere.
const STYLE: &str = include_str!("style.css");

/// Renders the report as an HTML page.
pub fn render_page(report: &Report) -> String {
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>What tracing costs</title>\n<style>\n{STYLE}</style>\n<main>\n"
    );
    html += &format_head(report);
    html += &brief::draw_summary(report);
    html += &format_contents(report);
    for (name, suite) in report.ordered() {
        html += &format_section(name, suite);
    }
    html += &format_foot(report);
    html + "</main>\n</html>\n"
}

fn format_head(report: &Report) -> String {
    let machine = escape_html(report.machine.words().trim_end()).replace('\n', "<br>");
    let mut html = format!("<h1>What tracing costs</h1>\n<p class=\"machine\">{machine}</p>\n");
    let partial = "It ended before everything was measured: what there is is below.";
    let quick = "One short round: to see that all works, not for figures.";
    for (is_so, words) in [(report.is_partial, partial), (report.settings.quick, quick)] {
        if is_so {
            let _ = writeln!(html, "<p class=\"warning\">{words}</p>");
        }
    }
    for note in &report.notes {
        let (about, text) = (escape_html(&note.about), escape_html(&note.text));
        let _ = writeln!(html, "<p class=\"warning\">{about}: {text}</p>");
    }
    html
}

/// Formats the table of contents, with the number of rows by outcome.
fn format_contents(report: &Report) -> String {
    let mut html = "<nav>\n<h2>What was measured</h2>\n<ol>\n".to_owned();
    for (name, suite) in report.ordered() {
        let count = |status| suite.rows.iter().filter(|row: &&Row| row.status == status).count();
        let mut words = format!("{} measured", count(RowStatus::Measured));
        if let absent @ 1.. = count(RowStatus::Absent) {
            let _ = write!(words, ", {absent} absent");
        }
        if let failed @ 1.. = count(RowStatus::Failed) {
            let _ = write!(words, ", <span class=\"misses\">{failed} failed</span>");
        }
        let name = escape_html(name);
        let _ = writeln!(
            html,
            "<li><a href=\"#{name}\">{}</a> <code>{name}</code> <span class=\"machine\">{words}\
             </span>",
            escape_html(&suite.title)
        );
    }
    html + "</ol>\n<p><a href=\"#how\">How it was measured, and how to read it</a></p>\n</nav>\n"
}

fn format_section(name: &str, suite: &SuiteRows) -> String {
    let (title, repeats) = (escape_html(&suite.title), escape_html(&suite.repeats));
    let mut html = format!(
        "<section id=\"{}\">\n<h2>{title}</h2>\n<p>{} Repeats: {repeats}.</p>\n",
        escape_html(name),
        to_sentence(&escape_html(&text::format_method(suite)))
    );
    for row in suite.rows.iter().filter(|row| row.is_control) {
        if let Some(words) = null_control::format_control_verdict(row) {
            let class = if null_control::is_differing_control(row) { "warning" } else { "machine" };
            let _ =
                writeln!(html, "<p class=\"{class}\">{}</p>", to_sentence(&escape_html(&words)));
        }
    }
    let units = suite.units();
    let strokes = Strokes::of(suite.rows.iter().map(|row| row.tracer.as_str()));
    for unit in &units {
        if units.len() > 1 {
            let _ = writeln!(html, "<h3>In {}</h3>", unit.words());
        }
        let rows = suite.measured_in(*unit);
        html += &draw_figures(suite, &rows, &strokes);
        html += &table::format_tables(suite, &rows);
    }
    html + "</section>\n"
}

/// Draws all figures of rows of one unit.
fn draw_figures(suite: &SuiteRows, rows: &[&Row], strokes: &Strokes<'_>) -> String {
    let (with_x, without): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| row.x.is_some());
    let (by_x, rest) = lines::draw_lines(suite, &with_x, strokes);
    // Cases with a single x have no line plot.
    let without: Vec<&Row> =
        rows.iter().copied().filter(|row| without.contains(row) || rest.contains(row)).collect();
    let single: Vec<&Row> = rows.iter().copied().filter(|row| !row.histogram.is_empty()).collect();
    let figures = [
        stacks::draw_stacks(&stacks::parts_by_tracer(rows)),
        bars::draw_bars(&without),
        by_x,
        boxes::draw_event_boxes(&single),
        polygons::draw_polygons(&single, strokes),
    ];
    let draw = |drawn: &Figure| wrap_figure(drawn, &suite.command);
    let html: String = figures.iter().flatten().map(draw).collect();
    let rounds = boxes::draw_round_boxes(rows).map(|drawn| draw(&drawn)).unwrap_or_default();
    html + &table::format_folded("Every round", &rounds)
}

fn wrap_figure(drawn: &Figure, command: &str) -> String {
    let (title, about) = (escape_html(&drawn.title), escape_html(&drawn.about));
    let command = escape_html(command);
    let panels = drawn.panels.concat();
    let is_half = drawn.panels.len() == 1 && !panels.contains("class=\"whole\"");
    let class = if is_half { " class=\"half\"" } else { "" };
    format!(
        "<figure{class}>\n<h4>{title} <span class=\"about\">{about}</span></h4>\n\
         <div class=\"panels\">\n{panels}</div>\n\
         <figcaption>Again: <code>{command}</code></figcaption></figure>\n"
    )
}

/// Returns `words` with a full stop at the end.
fn to_sentence(words: &str) -> String {
    let mut letters = words.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    first + letters.as_str() + "."
}

/// Notes on the method, for readers who check the figures.
const METHOD_NOTES: &str = "\
    <p>Tracers take turns, in an order that is drawn anew for each round. A row's figure is \
    the median of its rounds, ± half of what nine in ten of them span; <em>times</em> is how \
    many times as much it is as the row it is told in terms of, in the same round, with an \
    interval that holds the true ratio in 95 of 100 cases. Outliers are shown, never \
    dropped. A row whose tracer keeps events is measured only if its own output shows them. \
    Ratios count; nanoseconds of two machines, or of two days, do not.</p>\n";

fn format_foot(report: &Report) -> String {
    let mut html = format!("<h2 id=\"how\">How it was measured</h2>\n{METHOD_NOTES}");
    let command = escape_html(&report.command.join(" "));
    let minutes = report.seconds / 60.0;
    let _ = writeln!(html, "<p><code>{command}</code>, {minutes:.1} minutes.</p>\n<p>");
    for (program, version) in &report.versions {
        let _ = writeln!(html, "{}: {}<br>", escape_html(program), escape_html(version));
    }
    html + "</p>\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::fixtures::{measured_row, report_of_suite};

    /// Adds figures of single events, most of them near `figure`.
    fn with_single_events(row: Row, figure: f64) -> Row {
        let histogram = vec![(figure, 900), (figure + 1.0, 80), (figure * 40.0, 3)];
        let tail = crate::stats::Tail::of(&histogram);
        Row { histogram, tail, ..row }
    }

    fn with_status(row: Row, status: RowStatus, reason: &str) -> Row {
        Row { status, reason: Some(reason.to_owned()), spread: None, ..row }
    }

    #[test]
    fn pages_hold_figures_reasons_and_commands() {
        let rows = [
            measured_row("trackway", "u32", 21.0),
            measured_row("lttng-ust", "u32", 126.0),
            with_status(
                measured_row("perf", "u32", 1.0),
                RowStatus::Absent,
                "<perf> is not installed",
            ),
            with_status(measured_row("strace", "u32", 1.0), RowStatus::Failed, "shows no event"),
        ];
        let page = render_page(&report_of_suite("tracepoint", rows));
        for part in [
            "<section id=\"tracepoint\">",
            ">trackway<",
            ">126.0<",
            "<li>perf, u32: absent: &lt;perf&gt; is not installed",
            "2 measured, 1 absent, <span class=\"misses\">1 failed",
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
    fn ratios_stand_with_their_intervals_where_nothing_is_folded() {
        let times = Some(crate::stats::Ratio { median: 1.2, interval: Some((1.1, 1.3)) });
        let traced =
            Row { baseline: Some(0), times, ..measured_row("trackway", "hackbench", 90.0) };
        let page = render_page(&report_of_suite(
            "workload",
            [measured_row("untraced", "hackbench", 75.0), traced],
        ));
        let open = page.split("<details>").next().expect("what is not folded");
        // The ratio is in the summary, and as text in the figure.
        assert_eq!(open.matches("×1.20 (1.10–1.30)").count(), 2, "{open}");
    }

    #[test]
    fn rows_with_x_become_lines() {
        let at = |tracer: &str, x: f64, figure| Row {
            x: Some(x),
            ..measured_row(tracer, &format!("{x}"), figure)
        };
        let rows =
            [at("a", 1.0, 20.0), at("a", 2.0, 21.0), at("b", 1.0, 300.0), at("b", 2.0, 400.0)];
        let page = render_page(&report_of_suite("scaling", rows));
        assert_eq!(page.matches("<polyline").count(), 2);
        assert!(page.contains(">400.0  b<"), "{page}");
    }

    #[test]
    fn lines_leave_nothing_out_that_has_no_x() {
        let at = |x: f64| Row { x: Some(x), ..measured_row("a", &format!("{x} bytes"), 20.0 + x) };
        let page = render_page(&report_of_suite(
            "paths",
            [at(1.0), at(2.0), measured_row("a", "by itself", 30.0)],
        ));
        assert_eq!((page.matches("<polyline").count(), page.matches("<rect").count()), (1, 1));
        assert!(page.contains(">by itself<"), "{page}");
    }

    #[test]
    fn parts_of_an_event_are_one_behind_the_other() {
        let part = |case: &str, figure| measured_row("a", case, figure);
        let rows = [part("whole event", 30.0), part("site", 10.0), part("clock", 20.0)];
        let page = render_page(&report_of_suite("breakdown", rows));
        assert!(page.contains(">1 site 10.0<") && page.contains(">2 clock 20.0<"), "{page}");
        let drawn = page.split("<svg").nth(1).expect("a figure");
        let rects: Vec<[f64; 2]> = drawn
            .split("<rect")
            .skip(1)
            .map(|rest| {
                [" x=\"", " width=\""].map(|name| {
                    let number = rest.split(name).nth(1).and_then(|rest| rest.split('"').next());
                    number.and_then(|number| number.parse().ok()).expect("a number")
                })
            })
            .collect();
        let [[first, width], [second, _]] = rects[..] else { panic!("{drawn}") };
        assert!((first + width - second).abs() < 0.2, "{drawn}");
        // A suite without parts of events has no such figure.
        assert!(
            !self::render_page(&report_of_suite("breakdown", [part("site", 10.0)]))
                .contains("1 site")
        );
    }

    #[test]
    fn single_events_have_boxes_polygons_and_columns_of_their_tails() {
        let rows = [
            with_single_events(measured_row("trackway", "u32", 21.0), 21.0),
            with_single_events(measured_row("lttng-ust", "u32", 126.0), 126.0),
            measured_row("lw-ust", "u32", 30.0),
        ];
        let page = render_page(&report_of_suite("tracepoint", rows));
        assert_eq!(page.matches("<svg").count(), 3, "{page}");
        assert_eq!(page.matches("<polyline").count(), 2);
        for part in ["<th>99.9 %", "<td class=\"figure\">840.0", "Single events, in ns/event"] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }

    #[test]
    fn units_have_tables_of_their_own() {
        let extra = [("bytes <of> an event".to_owned(), 12.5)].into();
        let bytes = Row {
            unit: crate::results::Unit::BytesPerEvent,
            ..measured_row("trackway", "u32", 8.0)
        };
        let ns = Row { extra, ..measured_row("trackway", "u32", 21.0) };
        let page = render_page(&report_of_suite("size", [ns, bytes]));
        for part in ["<h3>In ns/event</h3>", "<h3>In bytes/event</h3>", "<th>bytes &lt;of&gt; an"] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert_eq!(page.matches("<table>").count(), 3);
    }

    #[test]
    fn hundreds_of_rows_are_drawn_in_parts() {
        let rows = (0..300).map(|one| {
            measured_row(&format!("tracer-{}", one % 50), &format!("case {}", one / 50), 20.0)
        });
        let page = render_page(&report_of_suite("filter", rows));
        let heights = page.split("viewBox=\"0 0 430 ").skip(1);
        let heights: Vec<f64> = heights
            .map(|rest| {
                rest.split('"').next().and_then(|text| text.parse().ok()).expect("a height")
            })
            .collect();
        assert!(heights.len() == 12 && heights.iter().all(|height| *height < 650.0), "{heights:?}");
        assert_eq!(page.matches("<rect").count(), 300);
    }
}
