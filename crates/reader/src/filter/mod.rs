//! Filters on events that are read: expressions over fields and contexts, as `trackway record` has
//! them, evaluated where events are decoded.
//!
//! ```text
//! class    what a class of events has, as filters name it
//! gather   the values that a filter needs, taken while an event is decoded
//! object   filters in C, which are bytecode
//! ```
//!
//! An event that lacks a value of a filter does not pass it, as when it is recorded. Streams
//! are decoded beside each other, on as many threads as there are; but what a filter remembers from
//! one event to the next (`count()`, `changed()`, `rate()`) depends on their order. So of such
//! filters the values alone are gathered there, and go with the event's line to the merge, which
//! decides.

mod class;
mod gather;
mod object;

use trackway_ctf::read::{DecodeError, EventBody, EventClass, StreamClass, Trace};
use trackway_ctf::write::application_member;
use trackway_filter::applications::add_existing_application_contexts;
use trackway_filter::compile::check_for;
use trackway_filter::error::{Topic, Warning};
use trackway_filter::evaluate::{Runtime, State, evaluate};
use trackway_filter::layout::Layout;
use trackway_filter::parse::{parse, split_pattern};
use trackway_filter::types::{Filter, Root, check_text};
use trackway_jit::frame::Cell;

use gather::Plan;
use object::VerifiedObject;

pub(crate) use gather::Gather;

/// Filters, all of which must take an event.
#[derive(Debug, Clone)]
pub struct Filters {
    all: Vec<FilterSource>,
    /// The test whether a pattern, the first, matches a name.
    matches: fn(&str, &str) -> bool,
}

/// A filter as it was written.
#[derive(Debug, Clone)]
struct FilterSource {
    /// Names of the events that it is about; `None`: all.
    pattern: Option<String>,
    what: Condition,
}

/// The condition of a filter.
#[derive(Debug, Clone)]
enum Condition {
    Expression(String),
    Object(VerifiedObject),
}

/// An error of a filter, in lines for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterError(String);

impl std::fmt::Display for FilterError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for FilterError {}

/// Returns the members of a trace's events, as filters name them.
pub fn event_layouts(trace: &Trace) -> impl Iterator<Item = Layout> {
    event_classes(trace).map(|(stream, event)| class::layout_of_class(stream, event))
}

impl Filters {
    /// Filters as they were typed: `EXPR` for all events, `PATTERN: EXPR` for those whose name
    /// `matches` the pattern.
    ///
    /// # Errors
    ///
    /// If one is no expression.
    pub fn new<'t>(
        texts: impl IntoIterator<Item = &'t str>,
        matches: fn(&str, &str) -> bool,
    ) -> Result<Self, FilterError> {
        let filter = |text: &'t str| {
            let (pattern, expression) = split_pattern(text);
            parse(expression).map_err(|error| FilterError(error.render(expression)))?;
            let what = Condition::Expression(expression.to_owned());
            Ok(FilterSource { pattern: pattern.map(str::to_owned), what })
        };
        Ok(Self { all: texts.into_iter().map(filter).collect::<Result<_, _>>()?, matches })
    }

    /// One more, in C: the bytes of its object, for events whose name matches `pattern`.
    ///
    /// # Errors
    ///
    /// If they are no object, or what is in it is refused.
    pub fn add_object(
        &mut self,
        pattern: Option<&str>,
        bytes: &'static [u8],
    ) -> Result<(), FilterError> {
        let what = Condition::Object(VerifiedObject::new(bytes)?);
        self.all.push(FilterSource { pattern: pattern.map(str::to_owned), what });
        Ok(())
    }

    /// Returns true if there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The filters that are about no class of events in traces, though there are classes: mostly
    /// a name is misspelt then.
    pub fn unmatched_filters<'t>(
        &self,
        traces: impl Iterator<Item = &'t Trace> + Clone,
    ) -> Vec<UnmatchedFilter> {
        let classes = traces.flat_map(event_classes);
        if classes.clone().next().is_none() {
            return Vec::new();
        }
        let is_about_one = |wanted: &FilterSource| {
            classes.clone().any(|(_, event)| wanted.applies_to(event, self.matches))
        };
        let others = self.all.iter().filter(|wanted| !is_about_one(wanted));
        let nothing = |wanted: &FilterSource| {
            Some(UnmatchedFilter { pattern: wanted.pattern.clone()?, option: wanted.option() })
        };
        others.filter_map(nothing).collect()
    }

    /// Checks the filters against what there is in traces, to which more may come if they are
    /// `growing`; what may not be meant, for people.
    ///
    /// # Errors
    ///
    /// If a filter cannot be meant for any class of events that it is about, though there are such.
    pub fn check<'t>(
        &self,
        traces: impl Iterator<Item = &'t Trace> + Clone,
        growing: bool,
    ) -> Result<Vec<String>, FilterError> {
        let mut hints = Vec::new();
        for wanted in &self.all {
            let meant = traces.clone().flat_map(event_classes);
            let meant = meant.filter(|(_, event)| wanted.applies_to(event, self.matches));
            match wanted.check(meant) {
                Ok(found) => hints.extend(found),
                Err(unmet) if growing && wanted.pattern.is_none() && unmet.may_come => {
                    hints.push(format!("no event that is there yet is one for {unmet}"));
                }
                Err(unmet) => return Err(FilterError(unmet.to_string())),
            }
        }
        Ok(hints)
    }

    /// Returns the filters of events of this class; `None`: none of them is taken.
    pub(crate) fn of_class(
        &self,
        stream: &StreamClass,
        event: &EventClass,
    ) -> Option<ClassFilters> {
        let layout = class::layout_of_class(stream, event);
        let all = self.all.iter().enumerate();
        let about = all.filter(|(_, wanted)| wanted.applies_to(event, self.matches));
        let filters = about
            .map(|(number, wanted)| Some(ClassFilter { number, of: wanted.of_class(&layout)? }));
        Some(ClassFilters { filters: filters.collect::<Option<_>>()? })
    }
}

impl FilterSource {
    fn applies_to(&self, event: &EventClass, matches: fn(&str, &str) -> bool) -> bool {
        let Some(list) = &self.pattern else { return true };
        let name = event.name().unwrap_or_default();
        let mut is_about = false;
        for pattern in list.split(',').map(str::trim) {
            match pattern.strip_prefix('!') {
                Some(excluded) if matches(excluded, name) => return false,
                Some(_) => {}
                None => is_about |= matches(pattern, name),
            }
        }
        is_about
    }

    /// Returns the filter for events with this layout, if they have what it needs.
    fn of_class(&self, layout: &Layout) -> Option<ClassCondition> {
        Some(match &self.what {
            Condition::Expression(expression) => {
                let layouts = layouts_with_applications(expression, layout.clone());
                let check = |layout: &Layout| check_text(expression, layout).ok();
                let mut filters: Vec<Filter> = layouts.iter().filter_map(check).collect();
                let first = filters.first()?;
                let plan = Plan::new(first.needs.iter().map(|need| &need.place));
                // What it is asked of is the same, whatever it is taken for.
                let places = |of: &Filter| -> Vec<_> {
                    of.needs.iter().map(|need| need.place.clone()).collect()
                };
                let asked = places(first);
                filters.retain(|filter| places(filter) == asked);
                ClassCondition::Expression(plan, filters)
            }
            Condition::Object(object) => ClassCondition::Object(object.of_class(layout)?),
        })
    }

    /// The option that it was given with.
    fn option(&self) -> &'static str {
        match &self.what {
            Condition::Expression(_) => "--filter",
            Condition::Object(_) => "--filter-object",
        }
    }

    fn check<'t>(
        &self,
        classes: impl Iterator<Item = (&'t StreamClass, &'t EventClass)>,
    ) -> Result<Vec<String>, UnmetFilter> {
        let expression = match &self.what {
            Condition::Expression(expression) => expression,
            Condition::Object(object) => return self.check_object(object, classes),
        };
        let layouts = |(stream, event)| {
            layouts_with_applications(expression, class::layout_of_class(stream, event))
        };
        let layouts: Vec<Layout> = classes.flat_map(layouts).collect();
        if layouts.is_empty() {
            return Ok(Vec::new());
        }
        let filter = check_for(expression, &layouts).map_err(|error| UnmetFilter {
            option: self.option(),
            may_come: error.topic == Topic::Unknown && error.suggestion.is_none(),
            why: error.render(expression),
        })?;
        let shown = |warning: &Warning| format!("filter:\n{}", warning.render(expression));
        Ok(filter.warnings.iter().map(shown).collect())
    }

    fn check_object<'t>(
        &self,
        object: &VerifiedObject,
        classes: impl Iterator<Item = (&'t StreamClass, &'t EventClass)>,
    ) -> Result<Vec<String>, UnmetFilter> {
        let mut layouts =
            classes.map(|(stream, event)| class::layout_of_class(stream, event)).peekable();
        if layouts.peek().is_none() || layouts.any(|layout| object.of_class(&layout).is_some()) {
            return Ok(Vec::new());
        }
        let why = format!("no kind of event has all that the object reads: {}", object.needs());
        Err(UnmetFilter { option: self.option(), may_come: true, why })
    }
}

/// An unmet filter: no class of events that it applies to has what it needs.
struct UnmetFilter {
    option: &'static str,
    why: String,
    /// True if others may have it, as far as can be seen.
    may_come: bool,
}

impl std::fmt::Display for UnmetFilter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Marks stand below what they mark: on lines of their own.
        let between = if self.why.contains('\n') { '\n' } else { ' ' };
        write!(formatter, "{}:{between}{}", self.option, self.why)
    }
}

/// A filter whose pattern is for no class of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnmatchedFilter {
    /// The pattern.
    pub pattern: String,
    /// The option that it was given with.
    pub option: &'static str,
}

/// The classes of events of a trace.
fn event_classes(trace: &Trace) -> impl Iterator<Item = (&StreamClass, &EventClass)> + Clone {
    let streams = trace.streams().iter();
    streams.flat_map(|stream| stream.events().iter().map(move |event| (stream, event)))
}

/// A layout, once for each combination of types that the contexts of applications which an
/// expression names may have in a record: what they are stands in each.
fn layouts_with_applications(expression: &str, layout: Layout) -> Vec<Layout> {
    let members: Vec<String> = layout.contexts.iter().map(|one| one.name.clone()).collect();
    let is_there = |name: &str| members.contains(&application_member(name));
    add_existing_application_contexts(expression, vec![layout], is_there)
}

/// The filter for what contexts of applications are in this record; `None`: one of them is not set.
fn filter_of_record<'f>(filters: &'f [Filter], values: &Gather) -> Option<&'f Filter> {
    filters.iter().find(|filter| {
        let needs = filter.needs.iter().enumerate();
        let mut applications = needs.filter(|(_, need)| need.place.root == Root::Application);
        applications.all(|(number, need)| values.kind(number) == Some(need.kind))
    })
}

/// A filter, checked against a class of events.
struct ClassFilter {
    /// Its place among [`Filters`].
    number: usize,
    of: ClassCondition,
}

/// A filter for a class of events.
enum ClassCondition {
    /// Expressions that differ in what they take contexts of applications for; there is one.
    Expression(Plan, Vec<Filter>),
    Object(object::ObjectClassFilter),
}

/// The state of a filter.
#[derive(Debug, Default)]
struct FilterState {
    expression: State,
    object: Vec<Cell>,
}

impl ClassFilter {
    fn plan(&self) -> &Plan {
        match &self.of {
            ClassCondition::Expression(plan, _) => plan,
            ClassCondition::Object(object) => &object.plan,
        }
    }

    fn cells(&self) -> usize {
        match &self.of {
            ClassCondition::Expression(_, filters) => {
                filters.first().map_or(0, |filter| filter.cells)
            }
            ClassCondition::Object(object) => object.cells,
        }
    }

    fn accepts(
        &self,
        values: &Gather,
        memory: &mut FilterState,
        moment: &mut FilterRuntime,
    ) -> bool {
        match &self.of {
            ClassCondition::Expression(_, filters) => filter_of_record(filters, values)
                .is_some_and(|of| evaluate(of, values, &mut memory.expression, moment)),
            ClassCondition::Object(object) => {
                if memory.object.len() < object.cells {
                    memory.object.resize_with(object.cells, Cell::default);
                }
                object.takes(values, &memory.object, moment)
            }
        }
    }
}

/// The filters that decide about one class of events.
pub(crate) struct ClassFilters {
    filters: Vec<ClassFilter>,
}

impl ClassFilters {
    /// Returns true if one of them keeps state from one event to the next.
    pub(crate) fn is_stateful(&self) -> bool {
        self.filters.iter().any(|one| one.cells() > 0)
    }

    /// Returns true if all of them take an event. They keep no state.
    ///
    /// # Errors
    ///
    /// If its bytes are damaged.
    pub(crate) fn accepts(
        &self,
        body: &mut EventBody<'_, '_, '_>,
        gather: &mut Gather,
    ) -> Result<bool, DecodeError> {
        let mut moment = FilterRuntime::of(body);
        for filter in &self.filters {
            body.peek(&mut gather.begin(filter.plan()))?;
            if !filter.accepts(gather, &mut FilterState::default(), &mut moment) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Gathers the values that the filters need from an event, to be judged in the order of time.
    ///
    /// # Errors
    ///
    /// If its bytes are damaged.
    pub(crate) fn gather(
        &self,
        body: &mut EventBody<'_, '_, '_>,
    ) -> Result<GatheredEvent, DecodeError> {
        let moment = FilterRuntime::of(body);
        let gathered = self.filters.iter().map(|one| {
            let mut gather = Gather::default();
            body.peek(&mut gather.begin(one.plan())).map(|()| gather)
        });
        Ok(GatheredEvent { moment, values: gathered.collect::<Result<_, _>>()? })
    }
}

/// An event about which filters decide that remember something.
#[derive(Debug)]
pub(crate) struct GatheredEvent {
    moment: FilterRuntime,
    /// The values that each of the class's filters needs.
    values: Vec<Gather>,
}

impl GatheredEvent {
    /// Puts another text in the place of `old`.
    pub(crate) fn replace(&mut self, old: &[u8], new: &[u8]) {
        self.values.iter_mut().for_each(|values| values.replace(old, new));
    }

    /// About what it takes, in bytes.
    pub(crate) fn size(&self) -> usize {
        size_of::<Self>() + self.values.iter().map(Gather::size).sum::<usize>()
    }
}

/// The state of filters, over all streams: used in the order of time.
#[derive(Debug, Default)]
pub(crate) struct StatefulFilters {
    /// By the filter's place among [`Filters`].
    memories: Vec<FilterState>,
}

impl StatefulFilters {
    /// Returns true if all filters of its class take an event.
    pub(crate) fn accepts(&mut self, filters: &ClassFilters, question: &GatheredEvent) -> bool {
        let mut moment = question.moment;
        filters.filters.iter().zip(&question.values).all(|(one, values)| {
            if self.memories.len() <= one.number {
                self.memories.resize_with(one.number + 1, FilterState::default);
            }
            one.accepts(values, &mut self.memories[one.number], &mut moment)
        })
    }
}

/// The environment of a filter. Its random numbers are the same each time that the trace is read.
#[derive(Debug, Clone, Copy)]
struct FilterRuntime {
    time_ns: u64,
    seed: u64,
}

impl FilterRuntime {
    fn of(body: &mut EventBody<'_, '_, '_>) -> Self {
        Self {
            time_ns: body.header.time.unwrap_or_default().cast_unsigned(),
            seed: body.header.clock ^ body.position_bits().rotate_left(32),
        }
    }
}

impl Runtime for FilterRuntime {
    fn time_ns(&mut self) -> u64 {
        self.time_ns
    }

    /// Steele, Lea, Flood: Fast splittable pseudorandom number generators (2014): SplitMix64.
    fn random(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.seed;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_expression_is_said_with_its_place() {
        let error =
            Filters::new(["app:*: size >"], |_, _| true).expect_err("no expression").to_string();
        assert!(error.starts_with("size >\n"), "{error}");
    }
}
