//! Compiles text to bytecode, for one event or for all events in the filter's scope.

use std::collections::BTreeSet;

use trackway_jit::meaning;
use trackway_jit::object::VERSION_OF_MEANINGS;
use trackway_jit::{Kind, SLOTS_MAX};

use crate::analysis::width::width_sensitive_fields;
use crate::emit::emit_code;
use crate::error::{Error, Subject, Topic, Warning};
use crate::generic::{self, named_fields, named_members};
use crate::graph::{Unsupported, build_graph};
use crate::layout::Layout;
use crate::meaning::{SlotMeanings, is_narrow};
use crate::object::{Alternative, Object, TooLarge};
use crate::parse::{Parsed, parse};
use crate::span::Span;
use crate::types::{Expr, Filter, MemberPath, Need, Node, Root, Widths, check_parsed, check_text};

/// Maximum number of alternatives in an object.
const ALTERNATIVES_MAX: usize = 255;
/// Offset of an object's version.
const VERSION_AT: usize = 3;
/// Bytes of an instruction in an object.
const INSTRUCTION_BYTES: usize = 8;

/// A filter for one event.
#[derive(Debug, Clone, PartialEq)]
pub struct Compiled {
    /// The typed tree.
    pub filter: Filter,
    /// The bytecode.
    pub alternative: Alternative,
}

impl Compiled {
    /// The bytecode as an object of one alternative.
    pub fn into_object(self) -> Object {
        Object { cells: self.filter.cells, alternatives: vec![self.alternative] }
    }

    /// Returns the filter of this text relaxed for unknown needs, like [`Filter::relaxed`].
    ///
    /// # Errors
    ///
    /// Returns an error if the filter exceeds the limits of bytecode.
    pub fn relaxed(
        &self,
        text: &str,
        is_unknown: impl Fn(&Need) -> bool,
    ) -> Result<Option<Self>, Error> {
        let Some(filter) = self.filter.relaxed(is_unknown) else { return Ok(None) };
        let alternative = compile_alternative(text, &filter)?;
        Ok(Some(Self { filter, alternative }))
    }
}

/// A filter for several events.
#[derive(Debug, Clone, PartialEq)]
pub struct CompiledFor {
    /// The bytecode.
    pub object: Object,
    /// The typed trees, one for each alternative.
    pub filters: Vec<Filter>,
    /// Meanings that the alternatives rely on in addition to kinds (`trackway_jit::meaning`); empty
    /// if there are none.
    pub meanings: Vec<u8>,
    /// True if some known events differ only in `meanings`.
    pub needs_meanings: bool,
    /// Index of the alternative for each layout; `None` for events that are not recorded.
    pub alternatives: Vec<Option<usize>>,
    /// Warnings.
    pub warnings: Vec<Warning>,
}

impl CompiledFor {
    /// Encodes the object, which must be stored together with its `meanings`.
    ///
    /// # Errors
    ///
    /// Returns an error if a part of the object exceeds its limit in the format.
    pub fn encode(&self) -> Result<Vec<u8>, TooLarge> {
        let mut bytes = self.object.encode()?;
        if self.needs_meanings {
            bytes[VERSION_AT] = VERSION_OF_MEANINGS;
        }
        Ok(bytes)
    }
}

/// Compiles `text` to bytecode for one event.
///
/// # Errors
///
/// Returns an error if `text` is invalid, or exceeds the limits of bytecode.
pub fn compile(text: &str, layout: &Layout) -> Result<Compiled, Error> {
    let filter = check_text(text, layout)?;
    let alternative = compile_alternative(text, &filter)?;
    Ok(Compiled { filter, alternative })
}

/// Compiles `text` for these events. Each combination of kinds of the named members gets an
/// alternative, and so does each combination of meanings that the filter depends on. Events that
/// lack a named member are not recorded.
///
/// # Errors
///
/// Returns an error if `text` is invalid for all of the events.
pub fn compile_for(text: &str, layouts: &[Layout]) -> Result<CompiledFor, Error> {
    let observed = ObservedFilters::new(text, layouts)?;
    if observed.groups.is_empty() {
        return Err(most_specific_error(text, observed.errors));
    }
    assemble_object(text, observed.groups, layouts.len(), observed.warnings)
}

/// Compiles like [`compile_for`], and adds alternatives for events that are not registered yet: one
/// for each combination of kinds that the names in `text` could have. They follow those of
/// `layouts` and take at most `generic_bytes`; at least one is always present. So a program that
/// starts later is filtered from its first event on.
///
/// Filters that depend on more than kinds (labels of enumerations, types of elements) get
/// alternatives for `layouts` only. If there is no alternative at all, no event is recorded until a
/// layout fits.
///
/// # Errors
///
/// Returns an error if `text` is invalid for every possible event. Names that `layouts` lack are no
/// error; [`check_for`] reports those.
pub fn compile_for_any(
    text: &str,
    layouts: &[Layout],
    generic_bytes: usize,
) -> Result<CompiledFor, Error> {
    let ObservedFilters { mut groups, mut warnings, errors } = ObservedFilters::new(text, layouts)?;
    let parsed = parse(text)?;
    let possible = generic::find_possible_filters(text, &parsed);
    if groups.is_empty() && !possible.is_plausible {
        let is_known = |error: &Error| error.topic != Topic::Unknown;
        return Err(errors.into_iter().find(is_known).unwrap_or(possible.error(text)));
    }
    let mut bytes = 0;
    let mut unsupported = None;
    for more in possible.filters.into_iter().map(EventGroup::for_unknown_events) {
        // A group without required meanings already serves every candidate with the same needs.
        let serves = |group: &EventGroup| {
            (group.slot_meanings.is_any() || group.slot_meanings == more.slot_meanings)
                && have_same_needs(&group.filter, &more.filter)
        };
        if groups.iter().any(serves) {
            continue;
        }
        match compile_alternative(text, &more.filter) {
            Ok(alternative) => bytes += estimate_size_bytes(&alternative),
            Err(error) => {
                unsupported.get_or_insert(error);
                continue;
            }
        }
        let is_full = bytes > generic_bytes || groups.len() == ALTERNATIVES_MAX;
        if is_full && !groups.is_empty() {
            break;
        }
        groups.push(more);
    }
    if groups.is_empty() {
        if let Some(error) = unsupported {
            return Err(error);
        }
        let message = "no event is known yet for which this can be compiled: none is recorded \
                       until there is one";
        warnings.push(Error::new(Topic::Unknown, whole_span(text), message));
        groups.push(build_never_group(&parsed)?);
    }
    assemble_object(text, groups, layouts.len(), warnings)
}

/// Returns an alternative that rejects every event. It applies to no event, so events with the
/// named members are counted until a fitting alternative exists.
fn build_never_group(parsed: &Parsed) -> Result<EventGroup, Error> {
    let need = |name: String| Need {
        path: name.clone(),
        kind: Kind::Unsigned,
        place: MemberPath { root: Root::Field, name, steps: Vec::new() },
        elements: None,
    };
    let needs: Vec<Need> = named_members(parsed).into_iter().take(SLOTS_MAX).map(need).collect();
    let slot_meanings = SlotMeanings::for_no_event(needs.len());
    let filter = Filter { needs, ..check_text("false", &Layout::default())? };
    Ok(EventGroup::for_unknown_events((filter, slot_meanings)))
}

/// Checks that `text` can apply to at least one of these events, and returns the filter for it.
/// `layouts` must not be empty.
///
/// # Errors
///
/// Returns an error if `text` is invalid for all of the events.
pub fn check_for(text: &str, layouts: &[Layout]) -> Result<Filter, Error> {
    let fields = named_fields(&parse(text)?);
    let (mut errors, mut others) = (Vec::new(), Vec::new());
    for layout in layouts {
        let has = |name: &String| layout.fields.iter().any(|field| field.name == *name);
        match check_text(text, layout) {
            Ok(filter) => return Ok(filter),
            // An event that lacks other names is outside the scope, whatever this error is.
            Err(error) if error.topic != Topic::Unknown && !fields.iter().all(has) => {
                others.push(error);
            }
            Err(error) => errors.push(error),
        }
    }
    Err(most_specific_error(text, if errors.is_empty() { others } else { errors }))
}

/// The filters of `text` for known events.
struct ObservedFilters {
    groups: Vec<EventGroup>,
    warnings: Vec<Warning>,
    /// Errors for events that are not recorded.
    errors: Vec<Error>,
}

impl ObservedFilters {
    fn new(text: &str, layouts: &[Layout]) -> Result<Self, Error> {
        let parsed = parse(text)?;
        let mut observed =
            Self { groups: Vec::new(), warnings: parsed.warnings.clone(), errors: Vec::new() };
        for (index, layout) in layouts.iter().enumerate() {
            let warnings = match check_parsed(&parsed, layout, Widths::Own) {
                Ok(filter) => {
                    let warnings = filter.warnings.clone();
                    add_to_group(&parsed, &mut observed.groups, layouts, index, filter)?;
                    warnings
                }
                Err(error) => {
                    observed.errors.push(error.clone());
                    // An event that lacks a name is outside the scope, and causes no warning.
                    let message = format!("{} is not recorded: {}", layout.event, error.message);
                    let is_meant = error.topic != Topic::Unknown;
                    is_meant.then_some(Error { message, ..error }).into_iter().collect()
                }
            };
            for warning in warnings {
                if !observed.warnings.contains(&warning) {
                    observed.warnings.push(warning);
                }
            }
        }
        Ok(observed)
    }
}

/// Builds the object from the groups, one alternative for each.
fn assemble_object(
    text: &str,
    mut groups: Vec<EventGroup>,
    layouts_count: usize,
    warnings: Vec<Warning>,
) -> Result<CompiledFor, Error> {
    if groups.len() > ALTERNATIVES_MAX {
        return Err(limit_error(text, "there are too many kinds of events for one filter".into()));
    }
    // Groups that read elements from whole arrays come last: their code also fits longer arrays,
    // but is slower.
    groups.sort_by_key(|group| reads_elements(&group.filter.root));
    let mut alternatives = vec![None; layouts_count];
    for (number, group) in groups.iter().enumerate() {
        for &layout in &group.layouts {
            alternatives[layout] = Some(number);
        }
    }
    let needs_meanings = groups_need_meanings(&groups);
    let meanings = meanings_of(&groups);
    let filters: Vec<Filter> = groups.into_iter().map(|group| group.filter).collect();
    let object = Object {
        cells: filters.iter().map(|filter| filter.cells).max().unwrap_or(0),
        alternatives: filters
            .iter()
            .map(|filter| compile_alternative(text, filter))
            .collect::<Result<_, _>>()?,
    };
    Ok(CompiledFor { object, filters, meanings, needs_meanings, alternatives, warnings })
}

/// Estimates the size of an alternative in an object, in bytes.
fn estimate_size_bytes(alternative: &Alternative) -> usize {
    let needs: usize = alternative.needs.iter().map(|need| need.path.len() + 2).sum();
    let programs = alternative.programs.iter().flatten().count() * INSTRUCTION_BYTES;
    needs + alternative.constants.len() + programs
}

/// Encodes the meanings that the groups rely on in addition to kinds, one alternative for each.
fn meanings_of(groups: &[EventGroup]) -> Vec<u8> {
    let records: Vec<_> =
        (0..=u8::MAX).zip(groups).flat_map(|(at, group)| group.slot_meanings.records(at)).collect();
    match records.is_empty() {
        true => Vec::new(),
        false => meaning::HEAD.into_iter().chain(records.into_iter().flatten()).collect(),
    }
}

/// Returns true if a reader without meanings would apply one known event's alternative to another
/// known event.
fn groups_need_meanings(groups: &[EventGroup]) -> bool {
    let known = || groups.iter().enumerate().filter(|(_, group)| !group.layouts.is_empty());
    known().any(|(at, group)| {
        known().any(|(number, other)| number < at && have_same_needs(&group.filter, &other.filter))
    })
}

/// Events with the same needs whose meanings do not change the filter.
struct EventGroup {
    filter: Filter,
    is_wide: bool,
    layouts: Vec<usize>,
    slot_meanings: SlotMeanings,
}

impl EventGroup {
    /// Creates the group of a filter for no known event.
    fn for_unknown_events((filter, slot_meanings): (Filter, SlotMeanings)) -> Self {
        Self { filter, is_wide: true, layouts: Vec::new(), slot_meanings }
    }
}

fn have_same_needs(a: &Filter, b: &Filter) -> bool {
    need_paths_and_kinds(a).eq(need_paths_and_kinds(b))
}

fn need_paths_and_kinds(filter: &Filter) -> impl Iterator<Item = (&str, Kind)> {
    filter.needs.iter().map(|need| (need.path.as_str(), need.kind))
}

/// Returns true if two filters with the same needs have the same condition. Element types matter
/// only for needs whose elements are read.
fn have_same_condition(a: &Filter, b: &Filter) -> bool {
    let mut reads = BTreeSet::new();
    a.root.collect_element_needs(&mut reads);
    a.root == b.root && reads.into_iter().all(|need| a.needs[need] == b.needs[need])
}

/// Adds an event to a group with the same needs and condition, or to a new group.
fn add_to_group(
    parsed: &Parsed,
    groups: &mut Vec<EventGroup>,
    layouts: &[Layout],
    index: usize,
    filter: Filter,
) -> Result<(), Error> {
    let that_count = width_sensitive_fields(parsed, &layouts[index]);
    let mut slot_meanings = SlotMeanings::of(parsed, &layouts[index], &filter, &that_count);
    // Compiles the filter with the widest type for every field whose width does not matter.
    let wide = |index: usize| {
        let is_narrow = |name: &&String| {
            let named = layouts[index].fields.iter().filter(|field| field.name == **name);
            named.map(|field| &field.of).any(is_narrow)
        };
        let narrow = that_count.iter().filter(is_narrow).cloned().collect();
        check_parsed(parsed, &layouts[index], Widths::NarrowOnly(&narrow))
    };
    for group in groups.iter_mut().filter(|group| have_same_needs(&group.filter, &filter)) {
        if group.is_wide || !have_same_condition(&group.filter, &filter) {
            // The filters may differ only in widths that do not matter: the widest type serves all.
            let (first, this) = (wide(group.layouts[0])?, wide(index)?);
            if !have_same_condition(&first, &this) {
                continue;
            }
            group.filter = first;
            group.is_wide = true;
            group.slot_meanings.widen(&filter.needs, &that_count);
            slot_meanings.widen(&filter.needs, &that_count);
        }
        group.layouts.push(index);
        group.slot_meanings.add(slot_meanings);
        return Ok(());
    }
    groups.push(EventGroup { filter, is_wide: false, layouts: vec![index], slot_meanings });
    Ok(())
}

/// Returns true if the expression reads an array or sequence element with a constant index.
fn reads_elements(expr: &Expr) -> bool {
    let reads = matches!(&expr.node, Node::Element(_, index) if index.constant().is_some());
    reads || expr.children().into_iter().any(reads_elements)
}

/// Returns the most informative error, if all events have one.
fn most_specific_error(text: &str, errors: Vec<Error>) -> Error {
    let Some(first) = errors.first() else {
        return Error::new(Topic::Unknown, whole_span(text), "there is no event that this is for");
    };
    // Takes the first of several equally informative errors.
    let nearest = errors.iter().rev().max_by_key(|error| error.nearness()).unwrap_or(first);
    if nearest.nearness() > 1 {
        return nearest.clone();
    }
    if errors.iter().any(|error| error.span != first.span) {
        // Picks the error furthest to the right: its event has most of the names before.
        let last = errors.iter().rev().max_by_key(|error| error.span.from).unwrap_or(first);
        let message = format!("no event has all that this names: {}", last.message);
        return Error { message, ..last.clone() }.with_subject(Subject::Combination);
    }
    if nearest.nearness() == 0 && errors.iter().any(|error| error.message != first.message) {
        // All events lack the name, so the message names no event.
        let named = first.named(text);
        let what = if named.starts_with('$') { "context" } else { "field" };
        let message = format!("unknown {what} '{named}': no event that this is for has it");
        return Error { message, hint: None, ..first.clone() };
    }
    nearest.clone()
}

fn whole_span(text: &str) -> Span {
    Span { from: 0, to: text.len() }
}

fn limit_error(text: &str, message: String) -> Error {
    Error::new(Topic::Limit, whole_span(text), message)
}

fn compile_alternative(text: &str, filter: &Filter) -> Result<Alternative, Error> {
    let unsupported = |Unsupported(message)| limit_error(text, message);
    let code = build_graph(filter).and_then(|graph| emit_code(&graph)).map_err(unsupported)?;
    Ok(Alternative {
        needs: filter.needs.clone(),
        constants: code.constants,
        programs: vec![code.instructions],
    })
}
