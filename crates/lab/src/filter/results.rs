//! What was measured of filters, in the form in which it is kept.

use serde::{Deserialize, Serialize};

use crate::bars::{at_least, at_most};
use crate::machine::Machine;
use crate::results::{Bar, Note};
use crate::stats::Spread;

/// Version of the JSON form: raised when a member changes its meaning or goes.
pub(super) const FORMAT: u32 = 1;
/// How many predicates chains have.
pub(super) const PREDICATES: [usize; 6] = [1, 3, 5, 9, 20, 50];
/// How many predicates the filter has that is timed from its text on.
pub(super) const PREPARED_PREDICATES: usize = 50;
/// How many predicates filters of traced programs have.
pub(super) const TRACED_PREDICATES: [usize; 4] = [1, 3, 5, 9];
/// How many times less than LTTng's a filter is to take that drops an event, and of how many
/// predicates, the last of which is false.
const OF_LTTNG: f64 = 10.0;
const OF_LTTNG_PREDICATES: usize = 9;
/// Most that our machine code may take in terms of C, and for how many predicates.
const OF_C: f64 = 1.4;
const OF_C_PREDICATES: [usize; 2] = [1, 9];
/// Most that a filter may take from its text to its first answer, in ms.
const PREPARED_MS: f64 = 10.0;

/// Everything that a run of the lab found about filters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FilterResults {
    /// Version of this form.
    pub format: u32,
    /// Where it was measured.
    pub machine: Machine,
    /// What compiled the same questions in C, if anything did.
    pub compiler: Option<String>,
    /// How many rounds there were.
    pub rounds: u32,
    /// A call of nothing in the same loop, in ns.
    pub empty_ns: Option<Spread>,
    /// Each contestant with each chain.
    pub costs: Vec<FilterCost>,
    /// Filters of [`Preparation::predicates`] predicates, from text to first answer.
    pub preparations: Vec<Preparation>,
    /// Filters in traced programs.
    #[serde(default)]
    pub traced: Vec<TracedCost>,
    /// The bars, as they stand with these figures.
    pub bars: Vec<Bar>,
    /// What was skipped or failed, and why.
    pub notes: Vec<Note>,
}

/// What predicates compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operands {
    /// A field of 32 or 64 bits with a constant.
    Integers,
    /// A string field with a constant of 8 to 12 bytes: whether they are the same.
    Strings,
}

impl Operands {
    /// All of them.
    pub(super) const ALL: [Self; 2] = [Self::Integers, Self::Strings];

    /// In words.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Integers => "integers",
            Self::Strings => "strings",
        }
    }
}

/// How predicates are joined, and which of them are true.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Chain {
    /// All must be true, and are.
    AndTrue,
    /// All must be true, and the first is not.
    AndFalseFirst,
    /// All must be true, and only the last is not.
    AndFalseLast,
    /// One must be true, and only the last is.
    OrTrueLast,
    /// One must be true, and the first is.
    OrTrueFirst,
}

impl Chain {
    /// All of them.
    pub(super) const ALL: [Self; 5] = [
        Self::AndTrue,
        Self::AndFalseFirst,
        Self::AndFalseLast,
        Self::OrTrueLast,
        Self::OrTrueFirst,
    ];

    /// In words.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::AndTrue => "&&, all true",
            Self::AndFalseFirst => "&&, the first false",
            Self::AndFalseLast => "&&, the last false",
            Self::OrTrueLast => "||, the last true",
            Self::OrTrueFirst => "||, the first true",
        }
    }

    /// Whether one true predicate is enough.
    pub(super) const fn is_or(self) -> bool {
        matches!(self, Self::OrTrueLast | Self::OrTrueFirst)
    }

    /// Whether there is such a chain of so many predicates that is not another one already.
    pub(super) const fn is_of(self, predicates: usize) -> bool {
        predicates > 1 || matches!(self, Self::AndTrue | Self::AndFalseFirst)
    }

    /// Which predicates are true, of `predicates`.
    pub(super) fn truths(self, predicates: usize) -> Vec<bool> {
        let usual = !self.is_or();
        let mut truths = vec![usual; predicates];
        let exception = match self {
            Self::AndTrue => None,
            Self::AndFalseFirst | Self::OrTrueFirst => truths.first_mut(),
            Self::AndFalseLast | Self::OrTrueLast => truths.last_mut(),
        };
        if let Some(exception) = exception {
            *exception = !usual;
        }
        truths
    }
}

/// Who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Runner {
    /// The same test in C.
    C,
    /// Our machine code.
    Compiled,
    /// Our interpreter.
    Interpreted,
    /// The machine code that rbpf makes of our bytecode.
    RbpfCompiled,
    /// rbpf's interpreter, of our bytecode.
    RbpfInterpreted,
}

impl Runner {
    /// All of them.
    pub(super) const ALL: [Self; 5] =
        [Self::C, Self::Compiled, Self::Interpreted, Self::RbpfCompiled, Self::RbpfInterpreted];

    /// In words.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::C => "C",
            Self::Compiled => "Trackway, compiled",
            Self::Interpreted => "Trackway, interpreted",
            Self::RbpfCompiled => "rbpf, compiled",
            Self::RbpfInterpreted => "rbpf, interpreted",
        }
    }
}

/// What one contestant takes for one chain.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct FilterCost {
    /// Who answers.
    pub runner: Runner,
    /// What is compared.
    pub operands: Operands,
    /// How predicates are joined, and which are true.
    pub chain: Chain,
    /// How many there are.
    pub predicates: usize,
    /// An answer, with the loop and the call, in ns: the median of each round's batches, over the
    /// rounds.
    pub ns: Spread,
    /// The same in terms of C's in the same round.
    pub of_c: Option<Spread>,
}

/// What a filter takes before it can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Preparation {
    /// What is compared.
    pub operands: Operands,
    /// How many predicates there are, joined by `&&`.
    pub predicates: usize,
    /// From the text to the bytes of an object, in µs: parsed, compiled, encoded.
    pub to_bytes_us: Spread,
    /// From there to the first answer, in µs: decoded, verified, made machine code, called.
    pub to_answer_us: Spread,
    /// From the text to the first answer, in µs.
    pub us: Spread,
}

/// Whose tracepoints a program has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FilterTracer {
    /// LTTng-UST's.
    Lttng,
    /// Ours.
    Trackway,
    /// None: the test stands in the program, in C, behind the load of a word.
    C,
}

impl FilterTracer {
    /// All of them.
    pub(super) const ALL: [Self; 3] = [Self::Lttng, Self::Trackway, Self::C];
    /// The chains that their filters are.
    pub(super) const CHAINS: [Chain; 3] =
        [Chain::AndTrue, Chain::AndFalseFirst, Chain::AndFalseLast];

    /// In words.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Lttng => "LTTng-UST",
            Self::Trackway => "Trackway",
            Self::C => "C, in the loop",
        }
    }
}

/// What an event of a traced program takes, and its filter's share in that.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TracedCost {
    /// Whose event it is.
    pub tracer: FilterTracer,
    /// What its fields are.
    pub operands: Operands,
    /// Whether a session wants it.
    pub is_on: bool,
    /// The filter, if there is one.
    pub chain: Option<Chain>,
    /// How many predicates it has.
    pub predicates: usize,
    /// An event, with the loop, in ns: the median of each round's batches, over the rounds.
    pub ns: Spread,
    /// What that is beyond an event that no session wants, if the filter drops it; beyond one that
    /// is recorded without a filter, if it takes it. In ns, of the same round.
    pub filter_ns: Option<Spread>,
}

impl FilterResults {
    /// What was measured of a traced program.
    pub(super) fn traced(
        &self,
        tracer: FilterTracer,
        operands: Operands,
        chain: Option<Chain>,
        predicates: usize,
    ) -> Option<&TracedCost> {
        self.traced.iter().find(|cost| {
            (cost.tracer, cost.operands, cost.is_on, cost.chain, cost.predicates)
                == (tracer, operands, true, chain, predicates)
        })
    }

    /// How many times less than LTTng's our filter takes that drops an event.
    fn of_lttng(&self, operands: Operands) -> Bar {
        let predicates = OF_LTTNG_PREDICATES;
        let filter_ns = |tracer| {
            let chain = Some(Chain::AndFalseLast);
            let filter = self.traced(tracer, operands, chain, predicates)?.filter_ns?;
            Some(filter.median)
        };
        let times = filter_ns(FilterTracer::Lttng)
            .zip(filter_ns(FilterTracer::Trackway))
            .filter(|(_, ours)| *ours > 0.0)
            .map(|(theirs, ours)| theirs / ours);
        let what = format!(
            "{}, {predicates} predicates, dropping: LTTng's at least {OF_LTTNG:.0} times ours",
            operands.name()
        );
        at_least(&what, times, OF_LTTNG)
    }

    /// What was measured of one contestant with one chain.
    pub(super) fn cost(
        &self,
        runner: Runner,
        operands: Operands,
        chain: Chain,
        predicates: usize,
    ) -> Option<&FilterCost> {
        self.costs.iter().find(|cost| {
            (cost.runner, cost.operands, cost.chain, cost.predicates)
                == (runner, operands, chain, predicates)
        })
    }

    /// The bars. Reported, never asserted.
    pub(super) fn all_bars(&self) -> Vec<Bar> {
        let mut bars: Vec<Bar> = Operands::ALL
            .into_iter()
            .flat_map(|operands| OF_C_PREDICATES.map(|predicates| self.of_c(operands, predicates)))
            .collect();
        let slowest = self.preparations.iter().max_by(|a, b| a.us.median.total_cmp(&b.us.median));
        bars.push(at_most(
            &format!(
                "{PREPARED_PREDICATES} predicates, from text to first answer: at most \
                 {PREPARED_MS:.0} ms"
            ),
            slowest.map(|slowest| slowest.us.median / 1e3),
            PREPARED_MS,
            |ms| format!("{ms:.2} ms"),
        ));
        bars.extend(Operands::ALL.map(|operands| self.of_lttng(operands)));
        bars
    }

    /// The worst chain of so many predicates, beside C.
    fn of_c(&self, operands: Operands, predicates: usize) -> Bar {
        let times = |chain| {
            let cost = self.cost(Runner::Compiled, operands, chain, predicates)?;
            Some(cost.of_c?.median)
        };
        let of = if predicates == 1 { "predicate" } else { "predicates" };
        let name = operands.name();
        at_most(
            &format!("{name}, {predicates} {of}: worst chain at most {OF_C} of C (aim 1.1)"),
            Chain::ALL.into_iter().filter_map(times).max_by(f64::total_cmp),
            OF_C,
            |times| format!("{times:.2}"),
        )
    }

    /// Whether anything that should have worked did not.
    pub fn has_failures(&self) -> bool {
        self.notes.iter().any(|note| note.is_failure)
    }

    /// From that JSON again.
    ///
    /// # Errors
    ///
    /// If it is none of this form.
    pub fn from_json(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }

    /// As JSON, for programs.
    ///
    /// # Errors
    ///
    /// Never for figures that were measured: they are finite.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::results::Verdict;

    pub(in crate::filter) fn example() -> FilterResults {
        let spread = |median: f64, by: f64| Spread::of(&[median - by, median, median + by]);
        let cost = |runner, operands, chain, predicates, ns: f64, of_c: Option<f64>| FilterCost {
            runner,
            operands,
            chain,
            predicates,
            ns: spread(ns, 0.5).expect("figures"),
            of_c: of_c.and_then(|times| spread(times, 0.01)),
        };
        let preparation = |operands, us: f64| Preparation {
            operands,
            predicates: PREPARED_PREDICATES,
            to_bytes_us: spread(us * 0.75, 1.0).expect("figures"),
            to_answer_us: spread(us * 0.25, 1.0).expect("figures"),
            us: spread(us, 2.0).expect("figures"),
        };
        let (integers, strings) = (Operands::Integers, Operands::Strings);
        let traced = |is_on, chain, predicates, ns: f64, filter_ns: Option<f64>| TracedCost {
            tracer: FilterTracer::Lttng,
            operands: integers,
            is_on,
            chain,
            predicates,
            ns: spread(ns, 0.5).expect("figures"),
            filter_ns: filter_ns.and_then(|ns| spread(ns, 0.25)),
        };
        FilterResults {
            format: FORMAT,
            machine: Machine::default(),
            compiler: Some("clang version 14.0.6".to_owned()),
            rounds: 3,
            empty_ns: spread(1.5, 0.25),
            costs: vec![
                cost(Runner::C, integers, Chain::AndTrue, 1, 2.0, Some(1.0)),
                cost(Runner::Compiled, integers, Chain::AndTrue, 1, 2.25, Some(1.125)),
                cost(Runner::Compiled, integers, Chain::AndFalseFirst, 1, 2.5, Some(1.25)),
                cost(Runner::C, integers, Chain::OrTrueLast, 9, 5.0, Some(1.0)),
                cost(Runner::Compiled, integers, Chain::OrTrueLast, 9, 7.5, Some(1.5)),
                cost(Runner::RbpfInterpreted, integers, Chain::OrTrueLast, 9, 75.0, Some(15.0)),
                cost(Runner::C, strings, Chain::AndTrue, 1, 2.5, Some(1.0)),
                cost(Runner::Interpreted, strings, Chain::AndTrue, 1, 40.0, Some(16.0)),
            ],
            preparations: vec![preparation(integers, 400.0), preparation(strings, 800.0)],
            traced: vec![
                traced(false, None, 0, 2.0, None),
                traced(true, None, 0, 150.0, None),
                traced(true, Some(Chain::AndFalseLast), 9, 102.0, Some(100.0)),
                traced(true, Some(Chain::AndTrue), 1, 180.0, Some(30.0)),
                TracedCost {
                    tracer: FilterTracer::Trackway,
                    ..traced(true, Some(Chain::AndFalseLast), 9, 10.0, Some(8.0))
                },
            ],
            bars: Vec::new(),
            notes: vec![Note::skipped("rbpf on strings", "it has other helpers")],
        }
    }

    #[test]
    fn bars_follow_the_worst_chain() {
        let told: Vec<(String, Verdict)> =
            example().all_bars().into_iter().map(|bar| (bar.measured, bar.verdict)).collect();
        let expected = [
            ("1.25".to_owned(), Verdict::Holds),
            ("1.50".to_owned(), Verdict::Misses),
            ("not measured".to_owned(), Verdict::Unknown),
            ("not measured".to_owned(), Verdict::Unknown),
            ("0.80 ms".to_owned(), Verdict::Holds),
            ("12.50 times".to_owned(), Verdict::Holds),
            ("not measured".to_owned(), Verdict::Unknown),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn chains_are_as_true_as_their_names() {
        assert_eq!(Chain::AndTrue.truths(3), [true, true, true]);
        assert_eq!(Chain::AndFalseFirst.truths(3), [false, true, true]);
        assert_eq!(Chain::AndFalseLast.truths(3), [true, true, false]);
        assert_eq!(Chain::OrTrueLast.truths(3), [false, false, true]);
        assert_eq!(Chain::OrTrueFirst.truths(3), [true, false, false]);
        let of_one = Chain::ALL.into_iter().filter(|chain| chain.is_of(1)).count();
        assert_eq!(of_one, 2);
    }

    #[test]
    fn json_goes_round() {
        let results = example();
        let text = results.to_json().expect("text");
        assert_eq!(FilterResults::from_json(&text).expect("results"), results);
    }
}
