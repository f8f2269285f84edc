//! The cost of sharing data with BPF programs: an element of a BPF array, read and updated in user
//! space by each available method. Sharma and Dagenais: *Enhanced Userspace and In-Kernel Trace
//! Filtering for Quasi-Realtime Systems* (2015), table 2.
//!
//! ```text
//! bpf      the system call, the mapping, BPF programs
//! methods  methods to read and update a thousand elements, and their checks
//! ```
//!
//! Main invariant: the values that are read come from another writer, and another reader finds the
//! values that are written. A pass with a wrong value has no figure.

mod bpf;
mod methods;

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::affinity::thread_cpu_ns;
use trackway_bench_engine::ratios::{FigureFormat, FiguresByRound, bar_at_least};
use trackway_bench_engine::results::{Bar, SuiteRows, Unit};
use trackway_bench_engine::settings::Settings;
use trackway_bench_engine::signals;
use trackway_bench_engine::suite::{About, Entry, Sample, Suite, SuiteContext};

use methods::{AccessMethod, SharedElements};

/// Least time between two readings of the clock, in ns, so that the cost of a reading is
/// negligible.
const GROUP_NS: u64 = 20_000;
/// Most passes between two readings of the clock.
const PASSES_MAX: u32 = 1 << 12;
/// Time for which a row is measured in a round, in ns.
const ROUND_NS: u64 = 20_000_000;
const ROUND_NS_QUICK: u64 = 4_000_000;
/// Fewest and most readings of a round.
const GROUPS: std::ops::RangeInclusive<usize> = 5..=200;

/// Least ratio of bpf(2) to a mapping, as in the paper.
const MMAP_RATIO_MIN: f64 = 99.0;

/// The measurement of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SharingRow {
    method: AccessMethod,
    is_update: bool,
}

impl SharingRow {
    const fn case(self) -> &'static str {
        if self.is_update { UPDATED } else { READ }
    }
}

const READ: &str = "one of 1000 elements read";
const UPDATED: &str = "one of 1000 elements updated";

/// The suite `sharing`.
#[derive(Default)]
pub(crate) struct Sharing {
    shared: Option<SharedElements>,
    turns: Vec<SharingRow>,
    /// Number of samples so far; each sample writes new values.
    samples: u64,
}

impl Suite for Sharing {
    fn about(&self) -> About {
        About {
            name: "sharing",
            title: "Data shared with the kernel's programs",
            repeats: "2015 paper, Table 2",
            unit: Unit::Ns,
            x_axis: "",
        }
    }

    fn seconds(&self, settings: &Settings) -> f64 {
        if settings.quick { 1.0 } else { 30.0 }
    }

    fn tracers(&self) -> Vec<&'static str> {
        AccessMethod::ALL.map(AccessMethod::name).into()
    }

    fn enter(&mut self, context: &SuiteContext<'_>) -> Result<Vec<Entry>> {
        let shared = SharedElements::new();
        let mut entries = Vec::new();
        for is_update in [false, true] {
            let from = entries.len();
            let is_wanted = |method: &&AccessMethod| {
                **method == AccessMethod::Memory || context.settings.wants(method.name())
            };
            for &method in AccessMethod::ALL.iter().filter(is_wanted) {
                if is_update && !method.can_update() {
                    continue;
                }
                let turn = SharingRow { method, is_update };
                let (absent, failed) = match shared.unavailability(method) {
                    Some(unavailability) if unavailability.is_failure => {
                        (None, Some(unavailability.words.clone()))
                    }
                    unavailability => {
                        (unavailability.map(|unavailability| unavailability.words.clone()), None)
                    }
                };
                entries.push(Entry {
                    tracer: method.name().to_owned(),
                    case: turn.case().to_owned(),
                    absent,
                    failed,
                    baseline: (method != AccessMethod::Memory).then_some(from),
                    command: format!("trackway bench sharing --tracers {}", method.name()),
                    ..Entry::default()
                });
                self.turns.push(turn);
            }
        }
        // The control repeats the first row, which is the row of memory.
        let again = format!("{} again", AccessMethod::Memory.name());
        let first = entries[0].clone();
        entries.push(Entry { tracer: again, baseline: Some(0), is_control: true, ..first });
        self.turns.push(self.turns[0]);
        self.shared = Some(shared);
        Ok(entries)
    }

    fn sample(&mut self, context: &SuiteContext<'_>, row: usize) -> Result<Sample> {
        if signals::is_stopped() {
            return Err(Error::Interrupted);
        }
        let missing = || Error::output("sharing", "there is no such row");
        let turn = *self.turns.get(row).ok_or_else(missing)?;
        let shared = self.shared.as_mut().ok_or_else(missing)?;
        self.samples += 1;
        let round_ns = if context.settings.quick { ROUND_NS_QUICK } else { ROUND_NS };
        let figures = if turn.is_update {
            let timing = &mut |pass: &mut dyn FnMut() -> _| time_passes(round_ns, pass);
            let figures = shared.update_elements(turn.method, self.samples, timing)?;
            shared.check_updated(turn.method)?;
            figures
        } else {
            shared.write_values(turn.method, self.samples)?;
            shared.read_elements(turn.method, &mut |pass| time_passes(round_ns, pass))?
        };
        let mut sorted = figures;
        sorted.sort_by(f64::total_cmp);
        let figure = *sorted.get(sorted.len() / 2).ok_or_else(missing)?;
        let histogram =
            sorted.into_iter().map(|figure| (round_to_three_digits(figure), 1)).collect();
        Ok(Sample { figure, histogram, ..Sample::default() })
    }

    fn leave(&mut self) {
        *self = Self::default();
    }
}

/// Rounds to three digits: single measurements differ by more.
fn round_to_three_digits(figure: f64) -> f64 {
    if figure <= 0.0 {
        return figure;
    }
    let unit = 10_f64.powf(figure.log10().floor() - 2.0);
    (figure / unit).round() * unit
}

/// Times passes over all elements until the time is over; returns ns per element for each group of
/// passes. A pass may return its own figure in ns per element; otherwise the figure is the thread's
/// CPU time.
fn time_passes(round_ns: u64, pass: &mut dyn FnMut() -> Result<Option<f64>>) -> Result<Vec<f64>> {
    let mut passes = 1;
    // The first passes are not counted: they determine the number of passes in a group.
    loop {
        let begin = thread_cpu_ns();
        for _ in 0..passes {
            pass()?;
        }
        if thread_cpu_ns() - begin >= GROUP_NS || passes >= PASSES_MAX {
            break;
        }
        passes *= 2;
    }
    let (begin, mut figures) = (thread_cpu_ns(), Vec::new());
    while figures.len() < *GROUPS.start()
        || (figures.len() < *GROUPS.end() && thread_cpu_ns() - begin < round_ns)
    {
        let (from, mut said) = (thread_cpu_ns(), None);
        for _ in 0..passes {
            said = pass()?;
        }
        let ns = (thread_cpu_ns() - from) as f64;
        figures.push(said.unwrap_or(ns / f64::from(passes) / f64::from(methods::ELEMENTS)));
    }
    Ok(figures)
}

/// Returns the goals for sharing. The bench reports goals and never asserts them.
pub(crate) fn judge_goals(suite: &SuiteRows) -> Vec<Bar> {
    let ns = |method: AccessMethod| FiguresByRound::of(suite.row(method.name(), READ));
    let bar = |of: &str, method| {
        let what = format!("{of} by mmap: bpf(2) takes {MMAP_RATIO_MIN:.0} times as long");
        bar_at_least(
            &what,
            ns(AccessMethod::Syscall).over(&ns(method)).estimate(),
            MMAP_RATIO_MIN,
            FigureFormat::of(0, "times"),
        )
    };
    vec![
        bar("BPF map element", AccessMethod::Mmap),
        bar("the recorder's counter", AccessMethod::Recorder),
    ]
}

#[cfg(test)]
mod tests {
    use trackway_bench_engine::results::Verdict;
    use trackway_bench_engine::results::fixtures::{steady_row, suite_of_rows};

    use super::*;

    #[test]
    fn bars_are_about_how_elements_are_read() {
        let rows = [steady_row("bpf-syscall", READ, 555.0), steady_row("mmap", READ, 0.7)];
        let bars = judge_goals(&suite_of_rows(rows));
        assert_eq!(bars[0].measured, "793 times (793 to 793)");
        assert_eq!(
            [bars[0].verdict, bars[1].verdict],
            [Verdict::Holds, Verdict::Unknown],
            "{bars:?}"
        );
    }

    #[test]
    fn groups_are_long_enough_for_the_clock_and_wrong_passes_end_them() {
        let mut passes = 0;
        let figures = time_passes(0, &mut || {
            passes += 1;
            Ok(None)
        });
        assert_eq!(figures.expect("figures").len(), *GROUPS.start());
        assert!(passes > 100, "{passes} passes of nothing");
        let said = time_passes(0, &mut || Ok(Some(2.5))).expect("figures");
        assert_eq!(said, [2.5; 5]);
        time_passes(0, &mut || Err(Error::output("it", "a wrong value"))).unwrap_err();
    }

    #[test]
    fn figures_have_three_digits() {
        assert_eq!(
            (
                round_to_three_digits(555.4),
                round_to_three_digits(0.0),
                round_to_three_digits(12_345.0)
            ),
            (555.0, 0.0, 12_300.0)
        );
        assert!((round_to_three_digits(0.71234) - 0.712).abs() < 1e-12);
    }
}
