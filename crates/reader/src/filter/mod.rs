//! Filters on events of a trace: expressions over fields and contexts, as in `trackway record`,
//! evaluated while events are decoded.
//!
//! ```text
//! class    members of an event class, under the names that filters use
//! gather   values that a filter needs, gathered while an event is decoded
//! object   filters in C, as bytecode
//! ```
//!
//! Like in recording, an event that lacks a value of a filter does not pass it. Many threads decode
//! the streams in parallel, but a filter with state (`count()`, `changed()`, `rate()`) depends on
//! the order of events. For such filters, the threads only gather the values and pass them with the
//! event's line to the merge, which decides.

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

/// Filters, all of which must accept an event.
#[derive(Debug, Clone)]
pub struct Filters {
    all: Vec<FilterSource>,
    /// Returns true if a pattern, the first argument, matches a name.
    matches: fn(&str, &str) -> bool,
}

/// A filter in its source form.
#[derive(Debug, Clone)]
struct FilterSource {
    /// Pattern of the names of events that the filter applies to; `None` for all.
    pattern: Option<String>,
    what: Condition,
}

/// The condition of a filter.
#[derive(Debug, Clone)]
enum Condition {
    Expression(String),
    Object(VerifiedObject),
}

/// An error of a filter, as lines of text for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterError(String);

impl std::fmt::Display for FilterError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for FilterError {}

/// Returns the layouts of a trace's event classes, under the names that filters use.
pub fn event_layouts(trace: &Trace) -> impl Iterator<Item = Layout> {
    event_classes(trace).map(|(stream, event)| class::layout_of_class(stream, event))
}

impl Filters {
    /// Parses filters from options: `EXPR` applies to all events, `PATTERN: EXPR` to events whose
    /// name `matches` the pattern.
    ///
    /// # Errors
    ///
    /// Returns an error if an expression is invalid.
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

    /// Adds a filter in C: the bytes of its object, for events whose name matches `pattern`.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes are no valid object, or one of its programs is refused.
    pub fn add_object(
        &mut self,
        pattern: Option<&str>,
        bytes: &'static [u8],
    ) -> Result<(), FilterError> {
        let what = Condition::Object(VerifiedObject::new(bytes)?);
        self.all.push(FilterSource { pattern: pattern.map(str::to_owned), what });
        Ok(())
    }

    /// Returns true if there are no filters.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the filters that apply to no event class, although the traces have event classes. In
    /// most cases a name is misspelt.
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

    /// Checks the filters against the event classes of traces, which may get more classes if they
    /// are `growing`. Returns hints about probable mistakes, for people.
    ///
    /// # Errors
    ///
    /// Returns an error if a filter applies to event classes, but fits none of them.
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

    /// Returns the filters for events of this class; `None` if a filter accepts none of them.
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

    /// Returns the filter for events with this layout, if the layout has all values that the filter
    /// needs.
    fn of_class(&self, layout: &Layout) -> Option<ClassCondition> {
        Some(match &self.what {
            Condition::Expression(expression) => {
                let layouts = layouts_with_applications(expression, layout.clone());
                let check = |layout: &Layout| check_text(expression, layout).ok();
                let mut filters: Vec<Filter> = layouts.iter().filter_map(check).collect();
                let first = filters.first()?;
                let plan = Plan::new(first.needs.iter().map(|need| &need.place));
                // The needed places are the same, whatever types the contexts are assumed to have.
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

    /// Returns the option that defined the filter.
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
    /// True if an event class that may still appear could have them.
    may_come: bool,
}

impl std::fmt::Display for UnmetFilter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Position marks need a line of their own, below the marked text.
        let between = if self.why.contains('\n') { '\n' } else { ' ' };
        write!(formatter, "{}:{between}{}", self.option, self.why)
    }
}

/// A filter whose pattern matches no event class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnmatchedFilter {
    /// Pattern of the filter.
    pub pattern: String,
    /// Option that defined the filter.
    pub option: &'static str,
}

/// Returns the event classes of a trace.
fn event_classes(trace: &Trace) -> impl Iterator<Item = (&StreamClass, &EventClass)> + Clone {
    let streams = trace.streams().iter();
    streams.flat_map(|stream| stream.events().iter().map(move |event| (stream, event)))
}

/// Returns the layout once for each combination of types that the expression's application contexts
/// may have in a record.
fn layouts_with_applications(expression: &str, layout: Layout) -> Vec<Layout> {
    let members: Vec<String> = layout.contexts.iter().map(|one| one.name.clone()).collect();
    let is_there = |name: &str| members.contains(&application_member(name));
    add_existing_application_contexts(expression, vec![layout], is_there)
}

/// Returns the filter for the types of this record's application contexts; `None` if one is not
/// set.
fn filter_of_record<'f>(filters: &'f [Filter], values: &Gather) -> Option<&'f Filter> {
    filters.iter().find(|filter| {
        let needs = filter.needs.iter().enumerate();
        let mut applications = needs.filter(|(_, need)| need.place.root == Root::Application);
        applications.all(|(number, need)| values.kind(number) == Some(need.kind))
    })
}

/// A filter that was checked against an event class.
struct ClassFilter {
    /// Index of the filter in [`Filters`].
    number: usize,
    of: ClassCondition,
}

/// A filter for a class of events.
enum ClassCondition {
    /// Expressions that differ in their assumed types of application contexts; at least one.
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

/// The filters that decide about events of one class.
pub(crate) struct ClassFilters {
    filters: Vec<ClassFilter>,
}

impl ClassFilters {
    /// Returns true if a filter keeps state between events.
    pub(crate) fn is_stateful(&self) -> bool {
        self.filters.iter().any(|one| one.cells() > 0)
    }

    /// Returns true if all filters accept an event. They must be without state.
    ///
    /// # Errors
    ///
    /// Returns an error if the event's bytes are damaged.
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

    /// Gathers the values that the filters need from an event, for a later decision in the order of
    /// time.
    ///
    /// # Errors
    ///
    /// Returns an error if the event's bytes are damaged.
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

/// The values of an event on which filters with state must decide.
#[derive(Debug)]
pub(crate) struct GatheredEvent {
    moment: FilterRuntime,
    /// Values for each filter of the event's class.
    values: Vec<Gather>,
}

impl GatheredEvent {
    /// Replaces all texts that are equal to `old` by `new`.
    pub(crate) fn replace(&mut self, old: &[u8], new: &[u8]) {
        self.values.iter_mut().for_each(|values| values.replace(old, new));
    }

    /// Returns the approximate memory size in bytes.
    pub(crate) fn size(&self) -> usize {
        size_of::<Self>() + self.values.iter().map(Gather::size).sum::<usize>()
    }
}

/// The state of filters over all streams; events must come in the order of time.
#[derive(Debug, Default)]
pub(crate) struct StatefulFilters {
    /// States by the filter's index in [`Filters`].
    memories: Vec<FilterState>,
}

impl StatefulFilters {
    /// Returns true if all filters of the event's class accept it.
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

/// The environment of a filter. Its random numbers are the same in each reading of a trace.
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

    /// Returns the next number of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom
    /// number generators, 2014).
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
