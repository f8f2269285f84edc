//! Tests with made-up suites, for rows, failures and the end of rounds.

use super::*;
use crate::host::workspace::Workspace;
use crate::progress::Progress;
use crate::results::Unit;
use crate::single_events::SingleEvents;
use crate::suite::About;

/// A suite whose rows follow a script of figures and failures.
struct ScriptedSuite {
    entries: Vec<Entry>,
    samples: Vec<Box<dyn FnMut(u32) -> Result<Sample>>>,
    runs: Vec<u32>,
    seconds: f64,
    has_left: bool,
}

impl Suite for ScriptedSuite {
    fn about(&self) -> About {
        About { name: "planted", title: "Planted", repeats: "nothing", unit: Unit::Ns, x_axis: "" }
    }

    fn seconds(&self, _settings: &Settings) -> f64 {
        self.seconds
    }

    fn tracers(&self) -> Vec<&'static str> {
        Vec::new()
    }

    fn enter(&mut self, _context: &SuiteContext<'_>) -> Result<Vec<Entry>> {
        Ok(self.entries.clone())
    }

    fn sample(&mut self, _context: &SuiteContext<'_>, row: usize) -> Result<Sample> {
        self.runs[row] += 1;
        (self.samples[row])(self.runs[row])
    }

    fn leave(&mut self) {
        self.has_left = true;
    }
}

fn test_entry(tracer: &str) -> Entry {
    Entry { tracer: tracer.to_owned(), case: "a case".to_owned(), ..Entry::default() }
}

fn sample_of_figure(figure: f64) -> Result<Sample> {
    Ok(Sample { figure, ..Sample::default() })
}

type Script = Box<dyn FnMut(u32) -> Result<Sample>>;

/// Measures a suite whose time limit is reached at once.
fn measure_rows(settings: &Settings, rows: Vec<(Entry, Script)>) -> (SuiteRows, Vec<u32>) {
    measure_rows_for(0.0, settings, rows)
}

fn measure_rows_for(
    seconds: f64,
    settings: &Settings,
    rows: Vec<(Entry, Script)>,
) -> (SuiteRows, Vec<u32>) {
    let (entries, samples): (Vec<Entry>, Vec<Script>) = rows.into_iter().unzip();
    let runs = vec![0; entries.len()];
    let mut suite = ScriptedSuite { entries, samples, runs, seconds, has_left: false };
    let workspace = Workspace::for_executable("trackway".into());
    let context =
        SuiteContext { workspace: &workspace, progress: &Progress::new(), settings, cpus: 1 };
    let found = measure_suite(&mut suite, &context, &mut |_| ()).expect("rows");
    assert!(suite.has_left);
    (found, suite.runs)
}

/// Returns the row that results from repeating this sample.
fn measure_row(sample: Sample) -> Row {
    let again = Box::new(move |_| Ok(sample.clone()));
    let (mut found, _) = measure_rows(&settings_for_rounds(1), vec![(test_entry("one"), again)]);
    found.rows.remove(0)
}

fn settings_for_rounds(rounds: u32) -> Settings {
    Settings { rounds: Some(rounds), ..Settings::default() }
}

#[test]
fn rounds_that_are_asked_for_are_in_the_time_that_is_told() {
    let told = |settings: &Settings| {
        let (entries, samples, runs) = Default::default();
        let suite = ScriptedSuite { entries, samples, runs, seconds: 60.0, has_left: false };
        estimate_seconds(&suite, settings)
    };
    let quick = Settings { quick: true, ..settings_for_rounds(3) };
    assert_eq!(
        [told(&Settings::default()), told(&settings_for_rounds(24)), told(&quick)],
        [60.0, 180.0, 180.0]
    );
}

#[test]
fn a_tracer_that_was_silently_off_is_not_measured() {
    let off = |recorded| {
        move |_| {
            let account = Account { emitted: 10, recorded, lost: 10, ..Account::default() };
            Ok(Sample { figure: 1.0, account: Some(account), ..Sample::default() })
        }
    };
    let records = |tracer| Entry { records: true, ..test_entry(tracer) };
    let (found, runs) = measure_rows(
        &settings_for_rounds(3),
        vec![
            (records("says that all is lost"), Box::new(off(0))),
            (records("counts wrong"), Box::new(off(1))),
            (records("says nothing"), Box::new(|_| sample_of_figure(1.0))),
            (test_entry("has nothing to say"), Box::new(|_| sample_of_figure(1.0))),
        ],
    );
    let reasons: Vec<&str> = found.failures().filter_map(|row| row.reason.as_deref()).collect();
    let account = "10 emitted, 0 recorded, 10 lost, 0 overwritten";
    assert_eq!(
        reasons,
        [
            &format!("says that all is lost: its own output shows no event: {account}"),
            "counts wrong: events do not add up: 10 emitted, 1 recorded, 10 lost, 0 overwritten",
            "says nothing: its output does not say what it has recorded",
        ]
    );
    assert!(found.rows[..3].iter().all(|row| row.spread.is_none() && row.samples.is_empty()));
    assert_eq!(found.rows[3].status, RowStatus::Measured);
    assert_eq!(runs, [1, 1, 1, 3]);
}

#[test]
fn who_hangs_costs_its_own_rows() {
    let overdue = |_| Err(Error::Overdue { what: "hung".to_owned(), limit_s: 60 });
    let other = Entry { case: "another".to_owned(), ..test_entry("hung") };
    let (found, runs) = measure_rows(
        &settings_for_rounds(2),
        vec![
            (test_entry("hung"), Box::new(overdue)),
            (other, Box::new(overdue)),
            (test_entry("other"), Box::new(|_| sample_of_figure(2.0))),
            (
                Entry { absent: Some("none".to_owned()), ..test_entry("none") },
                Box::new(|_| sample_of_figure(1.0)),
            ),
        ],
    );
    assert_eq!(runs[0] + runs[1], 1);
    assert_eq!(found.failures().count(), 2);
    assert_eq!((runs[2], found.rows[2].median()), (2, Some(2.0)));
    assert_eq!((runs[3], found.rows[3].status), (0, RowStatus::Absent));
}

/// Makes a script that fails in these turns of its row.
fn script_failing_in(turns: &'static [u32]) -> Script {
    Box::new(move |turn| {
        let is_bad = turns.contains(&turn);
        if is_bad {
            Err(Error::output("flaky", format!("turn {turn}")))
        } else {
            sample_of_figure(2.0)
        }
    })
}

#[test]
fn a_round_that_fails_now_and_then_costs_itself() {
    let (found, runs) = measure_rows(
        &settings_for_rounds(12),
        vec![
            (test_entry("once"), script_failing_in(&[11])),
            (test_entry("a third"), script_failing_in(&[4, 6, 8, 10])),
            (test_entry("more"), script_failing_in(&[4, 6, 8, 10, 12])),
            (test_entry("at once"), script_failing_in(&[1])),
            (test_entry("as often as not"), script_failing_in(&[3, 4])),
        ],
    );
    assert_eq!(runs, [12, 12, 12, 1, 4]);
    let told: Vec<(RowStatus, usize, usize)> = found
        .rows
        .iter()
        .map(|row| (row.status, row.failed_rounds, row.samples.iter().flatten().count()))
        .collect();
    let failed = |rounds| (RowStatus::Failed, rounds, 0);
    let good = |rounds, of| (RowStatus::Measured, rounds, of);
    assert_eq!(told, [good(1, 11), good(4, 8), failed(5), failed(1), failed(2)]);
    let once = &found.rows[0];
    assert_eq!(once.samples[10..], [None, Some(2.0)]);
    assert_eq!(once.reason.as_deref(), Some("flaky: turn 11"));
    assert_eq!(once.fate(), "measured, but for a round that failed");
    // Two good rounds of three are two thirds, but fewer than the least number of good rounds.
    let (found, _) =
        measure_rows(&settings_for_rounds(3), vec![(test_entry("few"), script_failing_in(&[3]))]);
    assert_eq!(found.rows[0].status, RowStatus::Failed);
}

#[test]
fn who_hangs_late_keeps_what_there_was_and_has_no_more_turns() {
    let hung = |at: u32| {
        move |turn: u32| match turn == at {
            true => Err(Error::Overdue { what: "hung".to_owned(), limit_s: 60 }),
            false => sample_of_figure(2.0),
        }
    };
    for (at, status) in [(11, RowStatus::Measured), (4, RowStatus::Failed)] {
        let other = Entry { case: "another".to_owned(), ..test_entry("hung") };
        let rows: Vec<(Entry, Script)> = vec![
            (test_entry("hung"), Box::new(hung(at))),
            (other, script_failing_in(&[])),
            (test_entry("goes on"), script_failing_in(&[])),
        ];
        let (found, runs) = measure_rows(&settings_for_rounds(12), rows);
        assert_eq!((runs[0], runs[2]), (at, 12));
        assert!(runs[1] == at || runs[1] == at - 1, "{runs:?}");
        assert!(found.rows[..2].iter().all(|row| row.status == status), "{found:?}");
        assert_eq!((found.rows[0].failed_rounds, found.rows[1].failed_rounds), (1, 0));
    }
}

#[test]
fn who_has_failed_does_not_keep_others_from_being_sure() {
    let baseline = |other| Entry { baseline: Some(other), ..test_entry("other") };
    let (found, runs) = measure_rows_for(
        1e6,
        &Settings::default(),
        vec![
            (test_entry("broken"), script_failing_in(&[1])),
            (baseline(0), script_failing_in(&[])),
            (test_entry("sound"), script_failing_in(&[])),
            (baseline(2), script_failing_in(&[])),
        ],
    );
    assert_eq!((found.rounds, found.ended), (ROUNDS_MIN, EndReason::Sure));
    assert_eq!((runs[0], found.rows[1].times), (1, None));
}

#[test]
fn who_cannot_begin_has_failed_and_nothing_is_told_in_terms_of_it() {
    let failed = Entry { failed: Some("it does not compile".to_owned()), ..test_entry("broken") };
    let baseline = Entry { baseline: Some(0), ..test_entry("other") };
    let (found, runs) = measure_rows(
        &Settings::default(),
        vec![
            (failed, Box::new(|_| sample_of_figure(1.0))),
            (baseline, Box::new(|_| sample_of_figure(2.0))),
        ],
    );
    assert_eq!((runs[0], found.rows[0].status), (0, RowStatus::Failed));
    assert_eq!((found.rows[1].times, found.ended), (None, EndReason::Time));
    assert_eq!(found.failures().count(), 1);
}

#[test]
fn ratios_are_of_the_same_round() {
    let baseline = Entry { baseline: Some(0), ..test_entry("twice") };
    let drifting = |times: f64| move |turn: u32| sample_of_figure(times * f64::from(turn));
    let (found, _) = measure_rows_for(
        1e6,
        &Settings::default(),
        vec![(test_entry("once"), Box::new(drifting(1.0))), (baseline, Box::new(drifting(2.0)))],
    );
    // The ratio is certain at once, however much the figures themselves vary.
    assert_eq!((found.rounds, found.ended), (ROUNDS_MIN, EndReason::Sure));
    let row = &found.rows[1];
    assert_eq!(row.times.map(|times| times.median), Some(2.0));
    assert_eq!(row.added.map(|added| added.median), Some(6.5));
}

#[test]
fn what_stays_unsure_ends_with_its_time() {
    let baseline = Entry { baseline: Some(0), is_control: true, ..test_entry("wild") };
    let wild = |turn: u32| sample_of_figure(if turn.is_multiple_of(2) { 1.0 } else { 9.0 });
    let (found, _) = measure_rows(
        &Settings::default(),
        vec![(test_entry("calm"), Box::new(|_| sample_of_figure(3.0))), (baseline, Box::new(wild))],
    );
    assert_eq!((found.rounds, found.ended), (ROUNDS_LATE, EndReason::Time));
    assert!(found.rows[1].is_control);
}

#[test]
fn an_interruption_keeps_what_there_is() {
    let until = |turn: u32| if turn < 3 { sample_of_figure(1.0) } else { Err(Error::Interrupted) };
    let (found, _) =
        measure_rows(&settings_for_rounds(9), vec![(test_entry("one"), Box::new(until))]);
    assert!(found.is_partial);
    assert_eq!((found.rounds, found.rows[0].median()), (2, Some(1.0)));
    let at_once = |_| Err(Error::Interrupted);
    let (found, _) =
        measure_rows(&settings_for_rounds(9), vec![(test_entry("one"), Box::new(at_once))]);
    assert_eq!((found.rows[0].status, found.rounds), (RowStatus::Absent, 0));
    assert_eq!(found.rows[0].reason.as_deref(), Some("not reached: interrupted"));
}

#[test]
fn half_a_round_is_a_round_in_which_some_have_nothing() {
    // The third row is interrupted in the first round, and in the other case in the second round.
    for whole in [0, 1] {
        let turns = std::rc::Rc::new(std::cell::Cell::new(0));
        let script = || -> Script {
            let turns = turns.clone();
            Box::new(move |_| {
                turns.set(turns.get() + 1);
                if turns.get() == 3 * whole + 3 {
                    Err(Error::Interrupted)
                } else {
                    sample_of_figure(1.0)
                }
            })
        };
        let rows = ["one", "two", "three"].map(|name| (test_entry(name), script()));
        let (found, _) = measure_rows(&settings_for_rounds(9), rows.into());
        let rounds: Vec<usize> = found.rows.iter().map(|row| row.samples.len()).collect();
        assert_eq!((found.rounds, rounds.iter().max()), (whole + 1, Some(&(whole as usize + 1))));
        assert_eq!(rounds.iter().sum::<usize>(), 3 * whole as usize + 2);
        let unreached = found.rows.iter().filter(|row| row.status == RowStatus::Absent).count();
        assert_eq!(unreached, usize::from(whole == 0));
    }
}

#[test]
fn what_measuring_takes_is_subtracted_and_said() {
    let clocked = |turn: u32| {
        let measuring = f64::from(turn);
        let histogram = vec![(10.0 + measuring, 3), (90.0 + measuring, 1)];
        let figure = 10.0 + measuring;
        Ok(Sample { figure, histogram, measuring: Some(measuring), ..Sample::default() })
    };
    let (found, _) =
        measure_rows(&settings_for_rounds(3), vec![(test_entry("clocked"), Box::new(clocked))]);
    let row = &found.rows[0];
    assert_eq!(row.samples, [Some(10.0); 3]);
    assert_eq!(row.histogram, [(10.0, 9), (90.0, 3)]);
    assert_eq!(row.measuring, Some(2.0));
    let wild = |_| Ok(Sample { measuring: Some(f64::NAN), ..Sample::default() });
    let (found, _) =
        measure_rows(&settings_for_rounds(3), vec![(test_entry("wild"), Box::new(wild))]);
    assert_eq!(found.rows[0].status, RowStatus::Failed);
}

/// Returns the rows in the order of their turns.
fn order_of_turns(seed: u64) -> Vec<String> {
    let told = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let row = |tracer: &str, case: &str, baseline: Option<usize>| {
        let (told, name) = (told.clone(), format!("{case} {tracer}"));
        let case = case.to_owned();
        let script: Script = Box::new(move |_| {
            told.borrow_mut().push(name.clone());
            sample_of_figure(1.0)
        });
        (Entry { case, baseline, ..test_entry(tracer) }, script)
    };
    let mut rows = Vec::new();
    for case in 0..5 {
        let first = rows.len();
        rows.push(row("ours", &format!("case{case}"), None));
        rows.push(row("theirs", &format!("case{case}"), Some(first)));
        // A row with a baseline in another case belongs to the group of that case.
        rows.push(row("again", &format!("other{case}"), Some(first)));
    }
    let _ = measure_rows(&Settings { seed, ..settings_for_rounds(4) }, rows);
    told.take()
}

#[test]
fn what_is_told_in_terms_of_each_other_is_measured_together() {
    let told = order_of_turns(3);
    assert_eq!(told.len(), 60);
    for group in told.chunks(3) {
        let numbers: std::collections::BTreeSet<Option<char>> =
            group.iter().map(|name| name.chars().find(char::is_ascii_digit)).collect();
        assert_eq!(numbers.len(), 1, "{group:?}");
    }
    let first = told.chunks(15).next().expect("a round");
    assert!(told.chunks(15).any(|round| round != first), "{told:?}");
}

#[test]
fn a_seed_repeats_an_order_and_nought_is_a_seed() {
    assert_eq!(order_of_turns(0), order_of_turns(0));
    assert_ne!(order_of_turns(0), order_of_turns(1));
}

#[test]
fn what_is_divided_by_nought_has_no_interval() {
    let baseline = || Entry { baseline: Some(0), ..test_entry("other") };
    let other =
        |at_four: f64| move |turn: u32| sample_of_figure(if turn == 4 { at_four } else { 2.0 });
    for (at_four, has_interval) in [(2.0, true), (0.0, false), (-1.0, false)] {
        let rows: Vec<(Entry, Script)> = vec![
            (test_entry("one"), Box::new(other(at_four))),
            (baseline(), Box::new(|_| sample_of_figure(3.0))),
        ];
        let times = measure_rows(&settings_for_rounds(8), rows).0.rows[1].times.expect("a ratio");
        assert_eq!((times.median, times.interval.is_some()), (1.5, has_interval));
    }
}

#[test]
fn what_timing_takes_is_subtracted_once() {
    // A tick is 1 ns; timing takes 20 ns, and one event 30 ns more; one event takes 800 ns more.
    let output = "timing 20 100\ntiming-most 20\nsingle 50 99\nsingle 820 1\n\
                  single-most 820\nticks 1000 1000\n";
    let sample = SingleEvents::parse(output, 100).expect("all").sample();
    let row = measure_row(sample);
    assert_eq!((row.median(), row.measuring), (Some(30.0), Some(20.0)));
    assert_eq!(row.histogram, [(30.0, 99), (800.0, 1)]);
}
