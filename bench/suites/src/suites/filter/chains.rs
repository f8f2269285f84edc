//! Dimensions of filters: the operands of predicates, the operators between predicates, the true
//! predicates, and the contestants.

/// Numbers of predicates of chains.
pub(super) const PREDICATES: [usize; 6] = [1, 3, 5, 9, 20, 50];
/// Numbers of predicates of chains in a quick run.
pub(super) const PREDICATES_QUICK: [usize; 3] = [1, 9, 50];
/// Numbers of predicates of filters in traced programs: LTTng's tracepoints had no more strings in
/// the paper.
pub(super) const TRACED_PREDICATES: [usize; 4] = [1, 3, 5, 9];
/// Numbers of predicates of filters in traced programs in a quick run.
pub(super) const TRACED_PREDICATES_QUICK: [usize; 2] = [1, 9];

/// The operands of predicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operands {
    /// Compares a field of 32 or 64 bits with a constant.
    Integers,
    /// Compares a string field with a constant of 8 to 12 bytes for equality.
    Strings,
}

impl Operands {
    /// All operands.
    pub(super) const ALL: [Self; 2] = [Self::Integers, Self::Strings];

    /// Returns the description in words.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Integers => "integers",
            Self::Strings => "strings",
        }
    }
}

/// The operator between predicates, and the predicates that are true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chain {
    /// Conjunction; all predicates are true.
    AndTrue,
    /// Conjunction; the first predicate is false.
    AndFalseFirst,
    /// Conjunction; only the last predicate is false.
    AndFalseLast,
    /// Disjunction; only the last predicate is true.
    OrTrueLast,
    /// Disjunction; the first predicate is true.
    OrTrueFirst,
}

impl Chain {
    /// All chains; the chains of the paper's figures come first.
    pub(super) const ALL: [Self; 5] = [
        Self::AndTrue,
        Self::AndFalseLast,
        Self::AndFalseFirst,
        Self::OrTrueLast,
        Self::OrTrueFirst,
    ];
    /// Chains of filters in traced programs.
    pub(super) const TRACED: [Self; 3] = [Self::AndFalseLast, Self::AndFalseFirst, Self::AndTrue];

    /// Returns the description in words.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::AndTrue => "&&, all true",
            Self::AndFalseFirst => "&&, the first false",
            Self::AndFalseLast => "&&, the last false",
            Self::OrTrueLast => "||, the last true",
            Self::OrTrueFirst => "||, the first true",
        }
    }

    /// Returns true if one true predicate is enough.
    pub(super) const fn is_or(self) -> bool {
        matches!(self, Self::OrTrueLast | Self::OrTrueFirst)
    }

    /// Returns true if the chain with this number of predicates differs from the chains before it:
    /// with a single predicate, the first is also the last.
    pub(super) const fn is_of(self, predicates: usize) -> bool {
        predicates > 1 || matches!(self, Self::AndTrue | Self::AndFalseLast)
    }

    /// Returns the truth of each predicate, for `predicates` predicates.
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

/// A contestant: an implementation that evaluates a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Runner {
    /// The same test compiled from C.
    C,
    /// Trackway's machine code.
    Compiled,
    /// Trackway's interpreter.
    Interpreted,
    /// Machine code that rbpf generates from the same bytecode.
    RbpfCompiled,
    /// rbpf's interpreter with the same bytecode.
    RbpfInterpreted,
}

impl Runner {
    /// All contestants.
    pub(super) const ALL: [Self; 5] =
        [Self::C, Self::Compiled, Self::Interpreted, Self::RbpfCompiled, Self::RbpfInterpreted];

    /// Returns the name of the contestant's row.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::C => "c",
            Self::Compiled => "trackway-compiled",
            Self::Interpreted => "trackway-interpreted",
            Self::RbpfCompiled => "rbpf-compiled",
            Self::RbpfInterpreted => "rbpf-interpreted",
        }
    }

    /// Returns true for rbpf, which has other helpers and therefore only evaluates questions about
    /// integers.
    pub(super) const fn is_rbpf(self) -> bool {
        matches!(self, Self::RbpfCompiled | Self::RbpfInterpreted)
    }

    /// Returns true if the contestant is machine code that is generated at run time.
    pub(super) const fn is_code(self) -> bool {
        matches!(self, Self::Compiled | Self::RbpfCompiled)
    }
}

/// The tracer whose events a program contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FilterTracer {
    /// LTTng-UST.
    Lttng,
    /// Trackway.
    Trackway,
    /// No tracer: the program contains the test, in C, after the load of a word.
    C,
}

impl FilterTracer {
    /// All of these tracers.
    pub(super) const ALL: [Self; 3] = [Self::C, Self::Trackway, Self::Lttng];

    /// Returns the name of the tracer's row.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Lttng => crate::tracers::name::LTTNG,
            Self::Trackway => crate::tracers::name::TRACKWAY,
            Self::C => "c-in-the-loop",
        }
    }
}

/// Returns a number of predicates in words.
pub(super) fn predicates_words(count: usize) -> String {
    format!("{count} predicate{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
