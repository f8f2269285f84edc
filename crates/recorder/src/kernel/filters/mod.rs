//! Filters on kernel events, evaluated by the kernel, or by the recorder with tracefs.
//!
//! All kernel events are known before recording begins. So each expression is compiled for each
//! event in its scope at that time, and invalid expressions are reported then.

mod compiled_filter;
pub(crate) mod routing;

use trackway_filter::checked::CheckedObject;
use trackway_filter::compile::{Compiled, check_for, compile};
use trackway_filter::error::{Error, Topic, Warning};
use trackway_filter::layout::{Integer, Layout, Member, Type};
use trackway_filter::span::Span;
use trackway_filter::token::{Number, Token, tokenize};
use trackway_filter::types::{Need, Root};
use trackway_kernel::bpf_filter::translate::Unsupported;
use trackway_kernel::bpf_program::contexts::Context;
use trackway_kernel::bpf_program::filter::{Filter, FilterError};
use trackway_kernel::bpf_program::plan::EventPlan;
use trackway_kernel::catalogue::EventName;
use trackway_kernel::catalogue::btf::Btf;
use trackway_kernel::catalogue::error::CatalogueError;
use trackway_kernel::catalogue::model::{Event, Meaning};
use trackway_kernel::catalogue::select::Selection;
use trackway_schema::{EventDescription, Field, Label};
use trackway_session::{FilterSource, FilterSpec};

use self::compiled_filter::CompiledFilter;
use crate::error::RecordError;
use crate::filters::check;
use crate::kernel::{selection, value_names};
use crate::notices::Notices;

/// Most hints about accepted filters, and most events that one hint names.
const HINTS_MAX: usize = 4;
/// Hint for filters like `rwbs == "WS"`.
const RWBS_HINT: &str = "rwbs has LTTng's flags, as a number; the kernel's letters are rwbs_text";
/// Hint for a filter on all events that may be meant for user events only.
const NAME_EVENTS_HINT: &str = "if it is not about the kernel's events, say which: PATTERN: EXPR";

/// Compiled filters on kernel events, by their evaluator.
#[derive(Debug)]
pub(crate) struct KernelFilters<F: CompiledFilter = Filter> {
    /// Filters of each event, all of which must pass a record; `None` if the event lacks a field of
    /// one of its filters, so that none of its records passes.
    events: Vec<Option<Vec<F>>>,
    accepted: AcceptedFilters,
    /// State that the filters share, kept as long as new filters may use it.
    memory: Option<F::Memory>,
}

/// Filters that were accepted, with hints about them.
#[derive(Debug, Default)]
pub(crate) struct AcceptedFilters {
    /// Filters by number; later events are filtered by them, too.
    specs: Vec<FilterSpec>,
    /// Filters on all events that use fields of no kernel event, each with the reason.
    unmet: Vec<(FilterSpec, String)>,
    hints: Vec<String>,
    /// Filters that apply to user events, too.
    shared: Vec<FilterSpec>,
}

impl<F: CompiledFilter> Default for KernelFilters<F> {
    fn default() -> Self {
        Self { events: Vec::new(), accepted: AcceptedFilters::default(), memory: None }
    }
}

/// Kernel events that filters are compiled for.
struct EventPlans {
    names: Vec<EventName>,
    staged: Vec<EventPlan>,
    layouts: Vec<Layout>,
}

impl<F: CompiledFilter> KernelFilters<F> {
    /// Compiles these filters for these events, by the events' plans.
    ///
    /// # Errors
    ///
    /// The first filter that is invalid, or that the kernel cannot evaluate.
    pub(crate) fn new(
        (specs, shared): (&[FilterSpec], &[FilterSpec]),
        events: &[Event],
        staged: impl Fn(&Event) -> EventPlan,
        (cpus, btf): (usize, Option<&Btf>),
    ) -> Result<Self, RecordError> {
        let mut filters = Self::default();
        if specs.is_empty() {
            return Ok(filters);
        }
        let mut memory = F::create_memory(cpus, specs, btf)
            .map_err(crate::kernel::error::bpf_unavailable_error)?;
        let staged = events.iter().map(staged).collect();
        let plans = EventPlans::new::<F>(staged, events.iter(), &memory);
        filters.events = events.iter().map(|_| Some(Vec::new())).collect();
        filters.accepted.specs = specs.to_vec();
        filters.accepted.shared = shared.to_vec();
        for (number, spec) in specs.iter().enumerate() {
            let is_own = !spec.is_for_all_events() || !shared.contains(spec);
            let about = match find_matching_events(&plans.names, spec) {
                Err(_) if is_own => Vec::new(),
                about => about?,
            };
            if about.is_empty() {
                if is_own && !spec.is_for_all_events() {
                    let hint =
                        format!("no kernel event that is recorded is what '{spec}' is about");
                    filters.accepted.hints.push(hint);
                }
                continue;
            }
            let lacking = filters.add((number, spec), (&plans, 0), &about, &mut memory)?;
            if lacking == about.len() {
                let why = format_missing_fields::<F>(spec, (&plans, &memory), &about);
                if is_own {
                    return Err(RecordError::Filter(why));
                }
                // A user event may have the fields.
                filters.accepted.unmet.push((spec.clone(), why));
            }
        }
        filters.memory = Some(memory);
        Ok(filters)
    }

    /// Compiles the filters for more events, which are numbered from `known` on. An event that
    /// lacks a filter's fields is not recorded; a notice reports that.
    ///
    /// # Errors
    ///
    /// The first filter that the kernel cannot evaluate.
    pub(crate) fn extend(
        &mut self,
        known: usize,
        events: &[&Event],
        staged: impl Fn(&Event) -> EventPlan,
    ) -> Result<(), RecordError> {
        self.accepted.hints.clear();
        let Some(mut memory) = self.memory.take() else { return Ok(()) };
        let staged = events.iter().map(|event| staged(event)).collect();
        let plans = EventPlans::new::<F>(staged, events.iter().copied(), &memory);
        // Remove filters of events that could not be recorded.
        self.events.truncate(known);
        self.events.resize_with(known + events.len(), || Some(Vec::new()));
        let mut made = Ok(());
        for (number, spec) in self.accepted.specs.clone().iter().enumerate() {
            // A pattern that matches none of these events may match others.
            let about = find_matching_events(&plans.names, spec).unwrap_or_default();
            let added = self.add((number, spec), (&plans, known), &about, &mut memory);
            made = made.and(added.map(drop));
        }
        self.memory = Some(memory);
        made
    }

    /// Adds a filter to the events in its scope, which are numbered from `first` on. Returns the
    /// number of events that lack fields of the filter.
    fn add(
        &mut self,
        (number, spec): (usize, &FilterSpec),
        (plans, first): (&EventPlans, usize),
        about: &[usize],
        memory: &mut F::Memory,
    ) -> Result<usize, RecordError> {
        let mut lacking = Vec::new();
        let mut warnings = Vec::new();
        for &event in about {
            let staged = &plans.staged[event];
            let is_unknown = |need: &Need| {
                need.place.root == Root::Field && F::may_be_unknown(staged, &need.place.name)
            };
            let objects =
                compile_objects(spec, (&plans.layouts[event], &is_unknown), &mut warnings)?;
            let make = |object: Vec<u8>| F::compile_object(&object, number, staged, memory);
            let made: Result<Option<Vec<F>>, FilterError> =
                objects.map_or(Ok(None), |objects| objects.into_iter().map(make).collect());
            match (
                made.map_err(|error| unsupported_filter_error(spec, error))?,
                &mut self.events[first + event],
            ) {
                (Some(made), Some(filters)) => {
                    filters.extend(made);
                    F::check_combination(filters)
                        .map_err(|error| unsupported_filter_error(spec, error))?;
                }
                (Some(_), None) => {}
                (None, filters) => {
                    *filters = None;
                    lacking.push(event);
                }
            }
        }
        warnings.truncate(HINTS_MAX);
        self.accepted
            .hints
            .extend(warnings.into_iter().map(|warning| format!("filter:\n{warning}")));
        if !lacking.is_empty() {
            let name = |&event: &usize| plans.layouts[event].event.as_str();
            let named: Vec<&str> = lacking.iter().take(HINTS_MAX).map(name).collect();
            let more = match lacking.len().saturating_sub(HINTS_MAX) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let named = named.join(", ");
            self.accepted.hints.push(format!(
                "not recorded, for want of what the filter '{spec}' asks for: {named}{more}"
            ));
        }
        Ok(lacking.len())
    }

    /// Returns the filters of the event with this number; `None` if the event is never recorded.
    pub(crate) fn of(&self, event: usize) -> Option<&[F]> {
        self.events.get(event).map_or(Some(&[]), Option::as_deref)
    }

    /// Returns true if the event with this number has filters.
    pub(crate) fn has(&self, event: usize) -> bool {
        self.of(event).is_none_or(|filters| !filters.is_empty())
    }

    /// Returns the filters that were accepted.
    pub(crate) const fn accepted(&self) -> &AcceptedFilters {
        &self.accepted
    }

    /// Removes and returns the filters of the event with this number, for their evaluator. The
    /// result has the form of [`Self::of`].
    pub(crate) fn take_filters(&mut self, event: usize) -> Option<Vec<F>> {
        match self.events.get_mut(event) {
            Some(filters) => filters.take(),
            None => Some(Vec::new()),
        }
    }
}

impl AcceptedFilters {
    /// Returns true if a filter applies to all events, and some kernel events have its fields.
    pub(crate) fn applies_to_kernel(&self, spec: &FilterSpec) -> bool {
        spec.is_for_all_events() && !self.unmet.iter().any(|(unmet, _)| unmet == spec)
    }

    /// Returns an error if a filter uses fields of neither kernel events nor these user events.
    pub(crate) fn refuse_unmet(&self, known: &[EventDescription]) -> Result<(), RecordError> {
        let is_unmet = |(spec, _): &&(FilterSpec, String)| !check::fits_any_event(spec, known);
        let unmet = self.unmet.iter().find(is_unmet);
        unmet.map_or(Ok(()), |(_, why)| Err(RecordError::Filter(why.clone())))
    }

    /// Returns the filters that apply to user events, too, as the user specified them.
    pub(crate) fn shared(&self) -> &[FilterSpec] {
        &self.shared
    }

    /// Reports probable mistakes in filters.
    pub(crate) fn report(&self, notices: &Notices) {
        for hint in &self.hints {
            notices.report(format_args!("{hint}"));
        }
    }
}

impl EventPlans {
    fn new<'a, F: CompiledFilter>(
        staged: Vec<EventPlan>,
        events: impl Iterator<Item = &'a Event>,
        memory: &F::Memory,
    ) -> Self {
        let layouts = staged.iter().map(|staged| layout_of::<F>(staged, memory)).collect();
        Self { names: events.map(selection::name_of).collect(), staged, layouts }
    }
}

/// Returns the indices of the events in `names` that are in a filter's scope.
pub(crate) fn find_matching_events(
    names: &[EventName],
    spec: &FilterSpec,
) -> Result<Vec<usize>, RecordError> {
    if spec.is_for_all_events() {
        return Ok((0..names.len()).collect());
    }
    let Some(pattern) = &spec.pattern else { return Ok(Vec::new()) };
    // A pattern that cannot match kernel events may match user events.
    let Ok(selection) = Selection::new(&[pattern]) else { return Ok(Vec::new()) };
    match selection.select_from(names) {
        Ok(_) => {
            let named = names.iter().enumerate();
            Ok(named.filter(|(_, name)| selection.selects(name)).map(|(at, _)| at).collect())
        }
        Err(error) => match &error {
            CatalogueError::NoEvent(_, Some(meant))
                if !meant.starts_with('*') && *meant != format!("syscalls:{pattern}") =>
            {
                let why = format!(
                    "filter '{spec}': no kernel event that is recorded matches '{pattern}'; did \
                     you mean '{meant}'?"
                );
                Err(RecordError::Kernel(why, None))
            }
            _ => Ok(Vec::new()),
        },
    }
}

/// Returns the fields and contexts of an event that filters can use.
fn layout_of<F: CompiledFilter>(staged: &EventPlan, memory: &F::Memory) -> Layout {
    let fields = staged.description.fields.iter().zip(&staged.meanings);
    let field = |((field, meaning), withheld): ((&Field, &Meaning), Option<_>)| Member {
        name: field.name.clone(),
        of: withheld.map_or_else(|| with_value_names((&field.kind).into(), meaning), Type::Other),
    };
    let context = |context: Context| Member {
        name: context.name.to_owned(),
        of: match F::missing_context(memory, context.name) {
            Some((instead, _)) => Type::Other(instead),
            None => context.scalar().map_or(Type::String, Type::from),
        },
    };
    Layout {
        event: staged.description.name.clone(),
        fields: fields.zip(F::unusable_fields(staged)).map(field).collect(),
        contexts: Context::filterable().map(context).collect(),
        applications: Vec::new(),
    }
}

/// Returns a hint with the available contexts, if an expression names an unavailable context; the
/// hint includes the reason, if known.
fn available_contexts_hint<F: CompiledFilter>(text: &str, memory: &F::Memory) -> Option<String> {
    let missing = |(token, _): (Token, Span)| {
        let Token::Context(name) = token else { return None };
        if Context::filterable().any(|context| context.name == name) {
            return F::missing_context(memory, &name).map(|(_, why)| why);
        }
        Some(None)
    };
    let why = tokenize(text).ok()?.into_iter().find_map(missing)?;
    let why = why.map_or_else(String::new, |why| format!("{why}; "));
    let there =
        Context::filterable().filter(|context| F::missing_context(memory, context.name).is_none());
    let there: Vec<String> = there.map(|context| format!("$ctx.{}", context.name)).collect();
    Some(format!("{why}of the kernel's events there are {}", there.join(", ")))
}

/// Returns a type with the names of its values, as traces declare them.
fn with_value_names(of: Type, meaning: &Meaning) -> Type {
    match of {
        Type::Integer(integer) if integer.labels.is_empty() => {
            let label = |(name, value)| Label { name, first: value, last: value };
            let labels = value_names::labels_of_meaning(meaning).into_iter().map(label).collect();
            Type::Integer(Integer { labels, ..integer })
        }
        of => of,
    }
}

/// Returns the objects of a filter for an event, in order of evaluation; all of them must pass.
/// Returns `None` if the event lacks a field. Adds probable mistakes to the warnings.
///
/// The filter passes an event if a field is unknown. So if a field may be unknown, the first object
/// is the part that does not need the field. (A filter given as an object has no such part.)
fn compile_objects(
    spec: &FilterSpec,
    (layout, is_unknown): (&Layout, &dyn Fn(&Need) -> bool),
    warnings: &mut Vec<String>,
) -> Result<Option<Vec<Vec<u8>>>, RecordError> {
    let text = match &spec.source {
        FilterSource::Expression(text) => text,
        FilterSource::Object(object) => return Ok(Some(vec![object.bytes.to_vec()])),
        _ => return Err(RecordError::Filter(format!("{spec}: of a kind not known here"))),
    };
    let warn = |warning: &Warning| {
        let rendered = warning.render(text);
        if !warnings.contains(&rendered) {
            warnings.push(rendered);
        }
    };
    // The event may lack a field, or have it with another type: string fields are optional at the
    // exit of a system call.
    let Ok(compiled) = compile(text, layout) else { return Ok(None) };
    compiled.filter.warnings.iter().for_each(warn);
    let relaxed = compiled.relaxed(text, is_unknown);
    let relaxed = relaxed.map_err(|error| RecordError::Filter(error.render(text)))?;
    let encode = |compiled: Compiled| {
        let object = compiled.into_object().encode();
        object.map_err(|error| RecordError::Filter(format!("{text}\n{error}")))
    };
    relaxed.into_iter().chain([compiled]).map(encode).collect::<Result<_, _>>().map(Some)
}

/// Returns the message for a filter that uses fields of no event.
fn format_missing_fields<F: CompiledFilter>(
    spec: &FilterSpec,
    (plans, memory): (&EventPlans, &F::Memory),
    about: &[usize],
) -> String {
    let layouts: Vec<Layout> = about.iter().map(|&event| plans.layouts[event].clone()).collect();
    match &spec.source {
        FilterSource::Expression(text) => match check_for(text, &layouts).err() {
            Some(mut error) => {
                let is_near = error.suggestion.is_some();
                if let Some(hint) = available_contexts_hint::<F>(text, memory) {
                    error.hint = Some(hint);
                } else if compares_flags_with_text(&error, text) {
                    error.hint = Some(RWBS_HINT.to_owned());
                } else if spec.is_for_all_events() && error.topic == Topic::Unknown && !is_near {
                    error.hint = Some(NAME_EVENTS_HINT.to_owned());
                }
                error.render(text)
            }
            None => format!("{spec}: no kernel event that is recorded has what it asks for"),
        },
        FilterSource::Object(object) => {
            let checked = CheckedObject::new(&object.bytes);
            let lack = checked.map(|checked| checked.check_for(&layouts));
            let file = &object.file;
            match lack {
                Ok(Err(lack)) => {
                    let hint = if spec.is_for_all_events() { NAME_EVENTS_HINT } else { &lack.hint };
                    format!("{file}: {}\nhint: {hint}", lack.message)
                }
                Ok(Ok(())) => format!("{file}: no kernel event has what it asks for"),
                Err(why) => format!("{file}: {why}"),
            }
        }
        _ => format!("{spec}: of a kind not known here"),
    }
}

/// Returns true if the error is at a string that the expression compares with `rwbs` of block
/// events, as if `rwbs` had the kernel's letters.
fn compares_flags_with_text(error: &Error, text: &str) -> bool {
    let is_wrong = |span: Span| error.span.from <= span.from && span.to <= error.span.to;
    let is_flags = |token: &Token| matches!(token, Token::Name(name) if name == "rwbs");
    tokenize(text).unwrap_or_default().windows(3).any(|three| match three {
        [(one, _), (Token::Symbol(_), _), (Token::Text(_), span)]
        | [(Token::Text(_), span), (Token::Symbol(_), _), (one, _)] => {
            is_flags(one) && is_wrong(*span)
        }
        _ => false,
    })
}

/// Returns the error for a filter that the kernel cannot evaluate.
fn unsupported_filter_error(spec: &FilterSpec, error: FilterError) -> RecordError {
    match (&spec.source, error) {
        (_, FilterError::Memory(error)) => crate::kernel::error::bpf_unavailable_error(error),
        (FilterSource::Expression(text), FilterError::Unsupported(Unsupported::Helper(..))) => {
            RecordError::Filter(float_arithmetic_error(text).render(text))
        }
        (_, error) => RecordError::Filter(format!("{spec}\n{error}")),
    }
}

/// Returns the error for an expression with floating-point arithmetic, which the kernel lacks; the
/// error points at the number that causes it.
fn float_arithmetic_error(text: &str) -> Error {
    let is_float = |token: &Token| matches!(token, Token::Number(Number::Float(_)));
    let all = tokenize(text).unwrap_or_default();
    let float = all.into_iter().find(|(token, _)| is_float(token)).map(|(_, span)| span);
    let span = float.unwrap_or(Span { from: 0, to: text.len() });
    let message = "the kernel does not calculate with floating-point numbers";
    Error::new(Topic::Limit, span, message).with_hint(
        "say it in integers (x * 2 > 3 for x > 1.5), or ask the trace afterwards: trackway print \
         --filter",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_are_taken_for_letters_are_known_by_what_is_wrong() {
        let field =
            |name: &str| Member { name: name.into(), of: Type::from(trackway_schema::Scalar::X32) };
        let is_known_of = |rwbs: Type, text: &str| {
            let fields = vec![Member { name: "rwbs".into(), of: rwbs }, field("sector")];
            let layouts = [Layout { fields, ..Layout::default() }];
            let error = check_for(text, &layouts).expect_err("that is no flag");
            compares_flags_with_text(&error, text)
        };
        let is_known = |text: &str| {
            let of = Type::from(trackway_schema::Scalar::X32);
            let named = with_value_names(of.clone(), &Meaning::Request);
            assert_ne!(named, of);
            let is_known = is_known_of(named, text);
            assert_eq!(is_known_of(of, text), is_known, "by tracefs, too");
            is_known
        };
        assert!(is_known("sector > 5 && rwbs == \"WS\""));
        assert!(is_known("\"W*\" != rwbs"));
        assert!(!is_known("rwbs & 1 && sector == \"WS\""));
    }
}
