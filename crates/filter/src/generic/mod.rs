//! Generic filters for events that are not registered yet: guesses the types of the named fields.
//!
//! Bytecode depends on the kinds of its needs, and on little else. So an expression is checked
//! against synthetic events, one for each possible combination of field types ([`search`]). The
//! resulting filters serve all events of those kinds. Each filter also lists its other assumptions,
//! such as widths and arrays ([`SlotMeanings`]), like a filter for a known event. So every
//! alternative is correct for all events that it applies to. Omitting alternatives only leaves more
//! events unfiltered and counted. Combinations grow exponentially: likely ones come first, and
//! their number is limited.

mod named;
mod search;

use std::collections::BTreeSet;

use trackway_schema::{Label, Scalar};

use self::named::ExpressionNames;
use self::search::{Found, Search};
use crate::analysis::width::width_sensitive_fields;
use crate::error::{Error, Topic};
use crate::layout::{Integer, Layout, Member, Type};
use crate::meaning::SlotMeanings;
use crate::parse::Parsed;
use crate::span::Span;
use crate::types::{Filter, Widths, check_parsed};

/// Maximum number of combinations that become alternatives.
const ALTERNATIVES_MAX: usize = 64;
/// Maximum number of combinations that are tried.
const COMBINATIONS_MAX: usize = 1024;
/// Maximum number of width-sensitive fields for which all width combinations are compiled.
const WIDTHS_MAX: usize = 3;
/// Length of arrays in synthetic events: the largest that a path can index.
const ARRAY_LENGTH: u64 = 1 << 16;

/// Prefix of application contexts among the names of fields.
pub(crate) const APPLICATION_PREFIX: &str = "$app.";

/// Returns the types that application contexts can have.
pub(crate) fn application_types() -> [Type; 4] {
    [Scalar::I64.into(), Scalar::U64.into(), Type::String, Scalar::F64.into()]
}

fn is_of_application(of: &Type) -> bool {
    application_types().contains(of)
}

/// Returns the names in an expression: fields, and application contexts with `$app.`.
pub(crate) fn named_members(parsed: &Parsed) -> Vec<String> {
    ExpressionNames::of(&parsed.tree).fields
}

/// Returns the application contexts that an expression names, without `$app.`.
pub(crate) fn named_applications(parsed: &Parsed) -> Vec<String> {
    let name = |field: &String| field.strip_prefix(APPLICATION_PREFIX).map(str::to_owned);
    named_members(parsed).iter().filter_map(name).collect()
}

/// Returns the fields that an expression names.
pub(crate) fn named_fields(parsed: &Parsed) -> Vec<String> {
    let mut named = named_members(parsed);
    named.retain(|field| !field.starts_with(APPLICATION_PREFIX));
    named
}

/// The possible filters of an expression.
#[derive(Debug)]
pub(crate) struct PossibleFilters {
    /// Filters that assume little about events, with their slot meanings; likely ones first.
    pub(crate) filters: Vec<(Filter, SlotMeanings)>,
    /// True if the expression type-checks for some possible event.
    pub(crate) is_plausible: bool,
    /// Error for a likely event, if the expression type-checks for no event.
    error: Option<Error>,
}

impl PossibleFilters {
    /// Returns the error of an implausible expression.
    pub(crate) fn error(self, text: &str) -> Error {
        let whole = Span { from: 0, to: text.len() };
        let message = "no event can have all that this names";
        self.error.unwrap_or_else(|| Error::new(Topic::Type, whole, message))
    }
}

/// Returns the possible filters of an expression.
pub(crate) fn find_possible_filters(text: &str, parsed: &Parsed) -> PossibleFilters {
    let named = ExpressionNames::of(&parsed.tree);
    let fields = &named.fields;
    let types = candidate_types(&named.texts);
    let could = |name: &String| {
        let is_application = name.starts_with(APPLICATION_PREFIX);
        types.iter().map(|guess| !is_application || is_of_application(&guess.of)).collect()
    };
    let could = fields.iter().map(could).collect();
    let mut found = PossibleFilters { filters: Vec::new(), is_plausible: false, error: None };
    let mut search = Search::new((text, parsed), fields, &types, could);
    if let Err(error) = search.narrow() {
        return PossibleFilters { error: Some(error), ..found };
    }
    // For an array that is used as a whole, the element type does not matter.
    let is_meant = |field: &str, guess: &TypeGuess| {
        let is_other = guess.of.is_array() && guess.of != array_of(Scalar::I64);
        guess.by_kind && (!is_other || named.indexed.contains(field))
    };
    let mut needs = BTreeSet::new();
    let mut combinations = 0;
    for_each_combination(&search.choices(is_meant), &mut |chosen| {
        let layout = synthetic_layout(
            fields.iter().map(String::as_str).zip(chosen.iter().map(|&of| &types[of].of)),
        );
        if let Ok(filter) = check_parsed(parsed, &layout, Widths::Own) {
            found.is_plausible = true;
            if depends_on_kinds(&filter) && needs.insert(needs_of(&filter)) {
                combinations += 1;
                found.filters.extend(filters_of_all_widths(parsed, &layout));
            }
        }
        combinations < ALTERNATIVES_MAX
    });
    if !found.is_plausible {
        match search.whole() {
            Found::Nothing(error) => found.error = Some(error),
            Found::Types(chosen) => {
                found.is_plausible = true;
                let of = chosen.iter().map(|&of| &types[of].of);
                let layout = synthetic_layout(fields.iter().map(String::as_str).zip(of));
                let filter = check_parsed(parsed, &layout, Widths::Own);
                if chosen.iter().all(|&of| types[of].by_kind)
                    && filter.is_ok_and(|filter| depends_on_kinds(&filter))
                {
                    found.filters.extend(filters_of_all_widths(parsed, &layout));
                }
            }
            Found::NotKnown => found.is_plausible = true,
        }
    }
    found
}

/// Returns true if the kinds of the needs determine everything that the filter reads.
fn depends_on_kinds(filter: &Filter) -> bool {
    let mut reads = BTreeSet::new();
    filter.root.collect_element_needs(&mut reads);
    reads.is_empty()
}

/// Returns the filters of an expression for an event of these kinds, with their slot meanings: one
/// for each combination of widths that matters, or for some combinations.
fn filters_of_all_widths(parsed: &Parsed, layout: &Layout) -> Vec<(Filter, SlotMeanings)> {
    let that_count = width_sensitive_fields(parsed, layout);
    let every = (1_u32 << that_count.len().min(u32::BITS as usize - 1)) - 1;
    // Bit masks of narrow fields; with many fields, only all or none.
    let is_all = that_count.len() <= WIDTHS_MAX;
    let mut masks: Vec<u32> = if is_all { (0..=every).collect() } else { vec![0, every] };
    masks.sort_by_key(|mask| std::cmp::Reverse(mask.count_ones()));
    let made = |mask: u32| {
        let is_in = |at: usize| mask == every || mask >> at.min(31) & 1 == 1;
        let narrow = that_count.iter().enumerate().filter(|(at, _)| mask != 0 && is_in(*at));
        let narrow: BTreeSet<String> = narrow.map(|(_, name)| name.clone()).collect();
        let filter = check_parsed(parsed, layout, Widths::NarrowOnly(&narrow)).ok()?;
        let slot_meanings = SlotMeanings::for_unknown_events(&filter, &that_count, &narrow);
        Some((filter, slot_meanings))
    };
    masks.into_iter().filter_map(made).collect()
}

/// Returns the paths and kinds by which programs that run a filter select its alternative.
fn needs_of(filter: &Filter) -> Vec<(String, u8)> {
    filter.needs.iter().map(|need| (need.path.clone(), need.kind as u8)).collect()
}

/// A type that a field could have.
struct TypeGuess {
    of: Type,
    /// True if the kind determines everything that bytecode depends on.
    by_kind: bool,
    /// Index of the first type that type-checks wherever this type does.
    is_like: usize,
}

fn array_of(of: impl Into<Type>) -> Type {
    Type::Array(Box::new(of.into()), ARRAY_LENGTH)
}

impl Type {
    fn is_array(&self) -> bool {
        matches!(self, Self::Array(..))
    }
}

/// Returns the candidate types of fields, likely ones first; enumerations get all labels in
/// `texts`.
fn candidate_types(texts: &BTreeSet<Vec<u8>>) -> Vec<TypeGuess> {
    let by_kind = [
        (Scalar::I64.into(), 0),
        (Scalar::U64.into(), 0),
        (Type::String, 2),
        (Scalar::F64.into(), 3),
        (array_of(Scalar::I64), 4),
        (array_of(Scalar::U64), 4),
        (array_of(Scalar::F64), 6),
    ];
    let guess = |(of, is_like)| TypeGuess { of, by_kind: true, is_like };
    let mut types: Vec<TypeGuess> = by_kind.into_iter().map(guess).collect();
    if let (false, Type::Integer(integer)) = (texts.is_empty(), Scalar::I64.into()) {
        let name = |text: &Vec<u8>| String::from_utf8_lossy(text).into_owned();
        let label = |text| Label { name: name(text), first: 0, last: 0 };
        let labels = texts.iter().map(label).collect();
        let labelled = Type::Integer(Integer { labels, ..integer });
        for of in [labelled.clone(), array_of(labelled)] {
            types.push(TypeGuess { of, by_kind: false, is_like: types.len() });
        }
    }
    types
}

/// Builds a synthetic event with these members.
fn synthetic_layout<'t>(fields: impl Iterator<Item = (&'t str, &'t Type)>) -> Layout {
    let (mut of_event, mut applications) = (Vec::new(), Vec::new());
    for (name, of) in fields {
        let (members, name) = match name.strip_prefix(APPLICATION_PREFIX) {
            Some(name) => (&mut applications, name),
            None => (&mut of_event, name),
        };
        members.push(Member { name: name.into(), of: of.clone() });
    }
    Layout {
        event: "an event".into(),
        fields: of_event,
        contexts: Layout::program_contexts(),
        applications,
    }
}

/// Calls `try_one` with one choice from each list until it returns false, at most
/// [`COMBINATIONS_MAX`] times. Combinations of early choices come first.
fn for_each_combination(choices: &[Vec<usize>], try_one: &mut dyn FnMut(&[usize]) -> bool) {
    let most: usize = choices.iter().map(|of| of.len().saturating_sub(1)).sum();
    if choices.iter().any(Vec::is_empty) {
        return;
    }
    let mut left = COMBINATIONS_MAX;
    let mut chosen = Vec::new();
    for rank in 0..=most {
        let mut bounded = |chosen: &[usize]| {
            left = left.saturating_sub(1);
            try_one(chosen) && left > 0
        };
        if !try_combinations_of_rank(choices, rank, &mut chosen, &mut bounded) {
            return;
        }
    }
}

/// Tries the combinations whose list positions sum to `rank`; returns false to stop.
fn try_combinations_of_rank(
    choices: &[Vec<usize>],
    rank: usize,
    chosen: &mut Vec<usize>,
    try_one: &mut dyn FnMut(&[usize]) -> bool,
) -> bool {
    let Some((first, rest)) = choices.split_first() else {
        return rank > 0 || try_one(chosen);
    };
    let rest_most: usize = rest.iter().map(|of| of.len() - 1).sum();
    for (place, &choice) in first.iter().enumerate().take(rank + 1) {
        // The other lists cannot reach the rest of the rank.
        if rank - place > rest_most {
            continue;
        }
        chosen.push(choice);
        let goes_on = try_combinations_of_rank(rest, rank - place, chosen, try_one);
        chosen.pop();
        if !goes_on {
            return false;
        }
    }
    true
}
