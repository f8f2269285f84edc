//! Comparisons of made-up reports.

use super::*;
use crate::host::machine::Machine;
use crate::results::fixtures::{measured_row, report_of_suite};

/// Makes a row with these figures, one for each round.
fn row_of_rounds(tracer: &str, case: &str, figures: impl IntoIterator<Item = f64>) -> Row {
    let figures: Vec<f64> = figures.into_iter().collect();
    Row {
        samples: figures.iter().copied().map(Some).collect(),
        spread: Spread::of(&figures),
        ..measured_row(tracer, case, 1.0)
    }
}

/// Returns the figures of twelve rounds around `figure`, all multiplied by `machine`.
fn figures_near(figure: f64, machine: f64) -> impl Iterator<Item = f64> {
    (0..12)
        .map(move |at| figure * machine * (1.0 + 0.03 * f64::from(at % 5)) + f64::from(at) * 1e-6)
}

fn compare_verdicts(before: &Report, after: &Report) -> Vec<(String, RowVerdict)> {
    let compared = compare_reports(before, after, &[]);
    compared.rows.into_iter().map(|row| (row.tracer, row.verdict)).collect()
}

#[test]
fn what_the_machine_does_makes_nobody_slower() {
    let at = |machine: f64, ours: f64| {
        report_of_suite(
            "tracepoint",
            [
                row_of_rounds("rdtsc", "u32", figures_near(15.0, machine)),
                row_of_rounds("trackway", "u32", figures_near(21.0 * ours, machine)),
                row_of_rounds("lttng-ust", "u32", figures_near(126.0, machine)),
            ],
        )
    };
    let calm = compare_reports(&at(1.0, 1.0), &at(1.3, 1.0), &[]);
    let ours = &calm.rows[1];
    assert_eq!((ours.verdict, ours.yardstick.as_deref()), (RowVerdict::Same, Some("rdtsc")));
    assert!(ours.figures.is_some_and(|shift| shift.times > 1.25 && shift.chance < 0.001));
    assert_eq!(
        (calm.rows[0].verdict, calm.rows[2].verdict),
        (RowVerdict::Yardstick, RowVerdict::Same)
    );
    let slower = compare_reports(&at(1.0, 1.0), &at(0.9, 1.2), &[]);
    assert_eq!(slower.rows[1].verdict, RowVerdict::Worse);
    assert_eq!(slower.rows[2].verdict, RowVerdict::Same);
    assert!(slower.has_worse());
    let faster = compare_verdicts(&at(1.0, 1.0), &at(1.0, 0.8));
    assert_eq!(faster[1], ("trackway".to_owned(), RowVerdict::Better));
}

#[test]
fn a_control_is_told_in_terms_of_others_and_others_never_in_its() {
    let at = |machine: f64| {
        let again = row_of_rounds("trackway again", "u32", figures_near(21.0, machine));
        report_of_suite(
            "tracepoint",
            [
                row_of_rounds("lttng-ust", "u32", figures_near(126.0, machine)),
                row_of_rounds("trackway", "u32", figures_near(21.0, machine)),
                Row { is_control: true, ..again },
            ],
        )
    };
    let found = compare_reports(&at(1.0), &at(1.5), &[]);
    for row in &found.rows[1..] {
        assert_eq!((row.verdict, row.yardstick.as_deref()), (RowVerdict::Same, Some("lttng-ust")));
    }
}

#[test]
fn memory_is_what_it_is_and_time_on_cpus_is_told_in_terms_of_others() {
    let at = |ours_kib: f64, theirs_kib: f64, machine: f64| {
        let row = |tracer, case: &str, unit, figures| Row {
            unit,
            ..row_of_rounds(tracer, case, figures)
        };
        let (kib, load) = (Unit::Kib, Unit::PercentOfCpu);
        report_of_suite(
            "sessions",
            [
                row("trackway", "memory", kib, figures_near(ours_kib, 1.0).collect::<Vec<_>>()),
                row("lttng-ust", "memory", kib, figures_near(theirs_kib, 1.0).collect()),
                row("trackway", "load", load, figures_near(2.0, machine).collect()),
                row("lttng-ust", "load", load, figures_near(1.0, machine).collect()),
            ],
        )
    };
    let found = compare_reports(&at(3000.0, 9000.0, 1.0), &at(3000.0, 4000.0, 1.5), &[]);
    assert_eq!(found.rows[0].verdict, RowVerdict::NotShown);
    assert_eq!(found.rows[2].verdict, RowVerdict::Same);
    assert_eq!(found.rows[0].yardstick, None);
    assert_eq!(found.rows[2].yardstick.as_deref(), Some("lttng-ust"));
}

#[test]
fn what_is_nought_but_for_noise_is_no_yardstick() {
    let at = |ours: f64| {
        let noise = (0..12).map(|one| 0.01 + f64::from(one % 5) * 0.003);
        report_of_suite(
            "cases",
            [
                Row { measuring: Some(22.2), ..row_of_rounds("none", "bare", noise) },
                row_of_rounds("trackway", "active", figures_near(21.0 * ours, 1.0)),
                row_of_rounds("lttng-ust", "active", figures_near(126.0, 1.0)),
            ],
        )
    };
    let found = compare_reports(&at(1.0), &at(1.5), &[]);
    let ours = &found.rows[1];
    assert_eq!((ours.verdict, ours.yardstick.as_deref()), (RowVerdict::Worse, Some("lttng-ust")));
    assert_eq!(found.rows[0].verdict, RowVerdict::Yardstick);
}

#[test]
fn rows_that_are_in_one_only_have_failed_or_are_too_few_are_told_so() {
    let ended = |status, reason: &str| Row {
        status,
        reason: Some(reason.to_owned()),
        samples: Vec::new(),
        spread: None,
        ..measured_row("perf", "u32", 1.0)
    };
    let perf = || row_of_rounds("perf", "u32", figures_near(700.0, 1.0));
    let failed = ended(RowStatus::Failed, "shows no event");
    let before = report_of_suite("tracepoint", [perf(), measured_row("three", "u32", 7.0)]);
    let after = report_of_suite("tracepoint", [failed, measured_row("three", "u32", 9.0)]);
    let found = compare_reports(&before, &after, &[]);
    assert_eq!(found.rows[0].verdict, RowVerdict::Broken);
    assert_eq!(found.rows[0].reason.as_deref(), Some("shows no event"));
    assert_eq!(found.rows[1].verdict, RowVerdict::TooFewRounds);
    assert!(found.has_worse() && found.compared == 0);
    let absent = report_of_suite("tracepoint", [ended(RowStatus::Absent, "not installed")]);
    let only = [perf()];
    let now = report_of_suite("tracepoint", only);
    assert_eq!(compare_verdicts(&absent, &now), [("perf".to_owned(), RowVerdict::OnlyAfter)]);
    assert_eq!(compare_verdicts(&now, &absent), [("perf".to_owned(), RowVerdict::OnlyBefore)]);
    assert_eq!(compare_verdicts(&absent, &absent), []);
    let other = report_of_suite("scaling", [perf()]);
    assert_eq!(compare_verdicts(&other, &now).len(), 2);
    assert_eq!(compare_reports(&before, &after, &["THREE".to_owned()]).rows.len(), 1);
}

#[test]
fn of_hundreds_of_rows_that_did_not_change_none_is_called_slower() {
    let mut shuffle = crate::order::Shuffle::of(11);
    let mut lot = || {
        let mut figures: Vec<f64> = (0..200).map(|one| 20.0 + f64::from(one)).collect();
        shuffle.order(&mut figures);
        figures.into_iter().take(14)
    };
    let mut row = |at| Row {
        unit: Unit::InstructionsPerEvent,
        ..row_of_rounds("trackway", &format!("{at}"), lot())
    };
    let mut rows = || (0..300).map(&mut row).collect();
    let (before, after): (Vec<Row>, Vec<Row>) = (rows(), rows());
    let found =
        compare_reports(&report_of_suite("filter", before), &report_of_suite("filter", after), &[]);
    let alone = found.rows.iter().filter(|row| row.figures.is_some_and(|it| it.chance < 0.05));
    // If each row is tested by itself, one in twenty seems to differ.
    assert!((3..40).contains(&alone.count()));
    assert!(!found.has_worse());
    assert_eq!((found.compared, found.by_chance), (300, 15.0));
}

#[test]
fn more_events_a_second_are_better_and_bytes_need_no_yardstick() {
    let rows = |events: f64, bytes: f64| {
        let row = |tracer, unit, figure| Row {
            unit,
            ..row_of_rounds(tracer, "it", figures_near(figure, 1.0))
        };
        let bytes = row_of_rounds("trackway", "bytes", std::iter::repeat_n(bytes, 12));
        report_of_suite(
            "drain",
            [
                row("trackway", Unit::EventsPerSecond, events),
                Row { unit: Unit::BytesPerEvent, ..bytes },
                row("perf", Unit::EventsPerSecond, 1e5),
                row("trackway", Unit::Ns, 1e12 / events),
            ],
        )
    };
    let (mut one, mut other) = (rows(1e6, 8.0), rows(2e6, 9.0));
    let changed = |one: &Report, other: &Report| {
        compare_verdicts(one, other).into_iter().map(|row| row.1).collect::<Vec<_>>()
    };
    // A time without a yardstick has no verdict, even on the same machine.
    let expected = [RowVerdict::Better, RowVerdict::Worse, RowVerdict::NothingBeside];
    let of_ours = |all: Vec<RowVerdict>| [all[0], all[1], all[3]];
    assert_eq!(of_ours(changed(&one, &other)), expected);
    one.machine = Machine { cpu: "A".to_owned(), ..Machine::default() };
    other.machine = Machine { cpu: "B".to_owned(), ..Machine::default() };
    assert_eq!(of_ours(changed(&one, &other)), expected);
    let found = compare_reports(&one, &other, &[]);
    assert_eq!(found.circumstances[0], ("processor".to_owned(), "A".to_owned(), "B".to_owned()));
}

#[test]
fn a_slower_machine_is_not_slower_surely_where_nothing_is_beside() {
    let at = |machine: f64| {
        report_of_suite("preload", [row_of_rounds("trackway", "sh", figures_near(20.0, machine))])
    };
    let found = compare_reports(&at(1.0), &at(1.3), &[]);
    assert_eq!((found.rows[0].verdict, found.has_worse()), (RowVerdict::NothingBeside, false));
    assert!(comparison_text(&found).contains("nothing beside it to measure the machine by"));
    // A yardstick of zero gives no verdict; a round with a zero yardstick does not count.
    let nought = |machine: f64, noughts: usize| {
        let yardstick = figures_near(10.0, machine).enumerate();
        let yardstick = yardstick.map(|(at, it)| if at < noughts { 0.0 } else { it });
        let ours = row_of_rounds("trackway", "sh", figures_near(20.0, machine));
        report_of_suite("preload", [ours, row_of_rounds("rdtsc", "sh", yardstick)])
    };
    let none = compare_reports(&nought(1.0, 11), &nought(1.3, 11), &[]);
    assert_eq!(none.rows[0].verdict, RowVerdict::NothingBeside);
    let few = compare_reports(&nought(1.0, 2), &nought(1.3, 2), &[]);
    assert_eq!(few.rows[0].verdict, RowVerdict::Same);
}

#[test]
fn what_is_not_under_test_is_a_yardstick_where_there_are_no_peers() {
    let at = |machine: f64, ours: f64| {
        let ours = row_of_rounds("trackway-claim", "loop", figures_near(20.0 * ours, machine));
        report_of_suite(
            "paths",
            [ours, row_of_rounds(NO_PROTECTION, "loop", figures_near(5.0, machine))],
        )
    };
    let calm = compare_reports(&at(1.0, 1.0), &at(1.3, 1.0), &[]);
    assert_eq!(calm.rows[0].yardstick.as_deref(), Some(NO_PROTECTION));
    assert_eq!(
        (calm.rows[0].verdict, calm.rows[1].verdict),
        (RowVerdict::Same, RowVerdict::Yardstick)
    );
    assert_eq!(
        compare_reports(&at(1.0, 1.0), &at(1.0, 1.3), &[]).rows[0].verdict,
        RowVerdict::Worse
    );
}

fn comparison_text(found: &Comparison) -> String {
    let mut text = Vec::new();
    print_comparison(found, false, &mut text).expect("a string takes all");
    String::from_utf8(text).expect("UTF-8")
}

#[test]
fn what_cannot_be_shown_is_said_with_what_would_show_it() {
    let lot = |rows: usize, rounds: usize| -> Comparison {
        let rows = |times: f64| {
            let lot = |at| {
                let figures = (0..rounds).map(|one| times * (20.0 + one as f64 / 1000.0));
                self::row_of_rounds("trackway", &format!("{at}"), figures)
            };
            let counted = |row| Row { unit: Unit::InstructionsPerEvent, ..row };
            report_of_suite("filter", (0..rows).map(lot).map(counted).collect::<Vec<Row>>())
        };
        let mut after = rows(1.0);
        // Only one row is twice as slow.
        for figure in after.suites.get_mut("filter").expect("it").rows[0].samples.iter_mut() {
            *figure = figure.map(|figure| 2.0 * figure);
        }
        compare_reports(&rows(1.0), &after, &[])
    };
    let quick = lot(634, 1);
    let said = comparison_text(&quick);
    let expected = "With 634 rows and 1 round nothing can be shown; 9 rounds in each report would.";
    assert!(said.contains(expected), "{said}");
    assert_eq!(quick.reach, Reach { rows: 634, blind: 634, rounds: 1, rounds_needed: 9 });
    let few = lot(634, 8);
    assert!(!few.has_worse() && comparison_text(&few).contains("and 8 rounds no row can be shown"));
    let json: serde_json::Value = serde_json::from_str(&few.to_json().expect("JSON")).expect("it");
    assert_eq!(
        (&json["reach"]["blind"], &json["rows"][0]["could_be_shown"]),
        (&634.into(), &false.into())
    );
    // The reported number of rounds is enough.
    let enough = lot(634, 9);
    assert!(enough.has_worse() && enough.reach.blind == 0);
    assert!(!comparison_text(&enough).contains("can be shown"));
}

#[test]
fn who_loses_more_is_told_and_not_faster_without_a_word_of_it() {
    let lossy = |figure: f64, lost: u64| {
        let row = row_of_rounds("trackway", "u32", figures_near(figure, 1.0));
        let row = Row { emitted: Some(1000), lost: Some(lost), ..row };
        report_of_suite("scaling", [row, row_of_rounds("rdtsc", "u32", figures_near(10.0, 1.0))])
    };
    let found = compare_reports(&lossy(30.0, 0), &lossy(20.0, 120), &[]);
    assert_eq!(
        (found.rows[0].verdict, found.rows[0].lost),
        (RowVerdict::Better, Some((0.0, 0.12)))
    );
    let said = comparison_text(&found);
    for part in ["faster, lost 12.0 % (before: 0 %)", "1 row: another part of its events is lost"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // Losses are reported for equal figures, too, but not if they differ no more than between two
    // runs.
    let same = compare_reports(&lossy(20.0, 1), &lossy(20.0, 0), &[]);
    assert_eq!(same.losing().count(), 1);
    let near = compare_reports(&lossy(20.0, 400), &lossy(20.0, 405), &[]);
    assert!(near.losing().count() == 0 && !comparison_text(&near).contains("another part"));
}

#[test]
fn builds_of_one_version_are_told_apart() {
    let of = |builds: &[&str]| {
        let versions = BUILD_KEYS.iter().zip(builds);
        let versions = versions.map(|(name, build)| ((*name).to_owned(), (*build).to_owned()));
        Report { versions: versions.collect(), ..report_of_suite("tracepoint", []) }
    };
    let told = |one: &Report, other: &Report| {
        let found = compare_reports(one, other, &[]);
        (found.is_same_build, comparison_text(&found))
    };
    let (one, other) = (of(&["aa", "bb"]), of(&["aa", "cc"]));
    let (is_same, said) = told(&one, &one);
    assert!(is_same == Some(true) && said.starts_with("the same build of Trackway"), "{said}");
    let (is_same, said) = told(&one, &other);
    assert!(said.starts_with("build of libtrackway.so: bb -> cc\ntwo builds"), "{said}");
    assert_eq!((is_same, told(&one, &of(&[])).0), (Some(false), None));
}

#[test]
fn comparisons_are_text_that_no_terminal_obeys() {
    let at = |figure: f64| {
        let row = row_of_rounds("a\x1b[2Jb", "u32", figures_near(figure, 1.0));
        report_of_suite("tracepoint", [row, row_of_rounds("rdtsc", "u32", figures_near(10.0, 1.0))])
    };
    let (before, after) = (at(20.0), at(30.0));
    let found = compare_reports(&before, &after, &[]);
    let text = comparison_text(&found);
    for part in [
        "\n1 row: slower, or larger, and not by chance\n",
        "tracepoint: a?[2Jb: u32",
        "1.50 (",
        "slower\n",
        "1 row compared. Of so many, 0",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&found.to_json().expect("JSON")).expect("JSON");
    assert_eq!(json["rows"][0]["verdict"], "worse");
}

#[test]
fn files_that_are_no_reports_are_refused_in_words() {
    let folder = std::env::temp_dir().join(format!("trackway-compare-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("results.json");
    let refused = |bytes: &[u8]| {
        std::fs::write(&path, bytes).expect("a file");
        read_report(&path).expect_err("it is none").to_string()
    };
    let deep = "[".repeat(100_000);
    for (bytes, expected) in [
        (&b"{}"[..], "it is not a report of trackway bench"),
        (b"\xff\xfe", "it is not text"),
        (b"", "it is not a report"),
        (deep.as_bytes(), "it is not a report"),
    ] {
        let error = refused(bytes);
        assert!(error.contains(expected) && error.contains("results.json"), "{error}");
    }
    let missing = read_report(&folder.join("none")).unwrap_err().to_string();
    assert!(missing.starts_with("cannot open "), "{missing}");
    // Indices out of range refer to no row.
    let lost = Row {
        baseline: Some(usize::MAX),
        ..row_of_rounds("trackway", "u32", figures_near(1.0, 1.0))
    };
    let report = report_of_suite("tracepoint", [lost]);
    std::fs::write(&path, report.to_json().expect("JSON")).expect("a file");
    let read = read_report(&path).expect("a report");
    assert_eq!(compare_reports(&read, &read, &[]).rows.len(), 1);
    assert!(crate::report::page::render_page(&read).contains("trackway"));
    std::fs::remove_dir_all(folder).expect("ours");
}
