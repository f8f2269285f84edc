//! Events that nobody has described yet: what the fields that an expression names could be.
//!
//! Bytecode depends on the kinds of what it needs, and on little else. So an expression can be
//! checked against made-up events, one for each combination of types that its fields could have,
//! and what comes out serves all events of those kinds. Combinations grow fast: first each part of
//! the expression that is true or false by itself says what its own fields cannot be, then the
//! likely ones come first, and only so many of them.

use std::collections::BTreeSet;

use trackway_schema::{Label, Scalar};

use crate::compile::read_elements;
use crate::error::{Error, Topic};
use crate::layout::{Integer, Layout, Member, Type};
use crate::parse::{Item, Node, Parsed, Tree, Unary};
use crate::span::Span;
use crate::text::Text;
use crate::types::{Filter, Options, Root, check_parsed, check_part};
use crate::width::needs_that_count;

/// Most combinations that become alternatives.
const ALTERNATIVES_MAX: usize = 64;
/// Most combinations that are tried.
const TRIED_MAX: usize = 1024;
/// Most fields of a part all combinations of whose types are tried; of others those where all
/// fields are the same.
const PART_FIELDS_MAX: usize = 3;
/// Most parts that are asked; of more, what all of them together cannot be is found out by trying.
const PARTS_MAX: usize = 128;
/// Most fields whose widths count that all combinations of widths are made of.
const WIDTHS_MAX: usize = 3;
/// Elements that a made-up array has: as many as a path can name.
const ARRAY_LENGTH: u64 = 1 << 16;

/// What the names of applications' contexts begin with, among those of fields.
pub(crate) const APPLICATION: &str = "$app.";

/// Types that applications' contexts can have.
pub(crate) fn application_types() -> [Type; 4] {
    [Scalar::I64.into(), Scalar::U64.into(), Type::String, Scalar::F64.into()]
}

fn is_of_application(of: &Type) -> bool {
    application_types().contains(of)
}

/// The contexts of applications that an expression names, without `$app.`.
pub(crate) fn applications(parsed: &Parsed) -> Vec<String> {
    let mut named = Named::default();
    named.walk(&parsed.tree);
    let name = |field: &String| field.strip_prefix(APPLICATION).map(str::to_owned);
    named.fields.iter().filter_map(name).collect()
}

/// The fields that an expression names.
pub(crate) fn named_fields(parsed: &Parsed) -> Vec<String> {
    let mut named = Named::default();
    named.walk(&parsed.tree);
    named.fields.retain(|field| !field.starts_with(APPLICATION));
    named.fields
}

/// What an expression is for events of which little is known.
#[derive(Debug)]
pub(crate) struct Guessed {
    /// With integers without a sign that have 64 bits.
    pub(crate) wide: Filter,
    /// Where that makes a difference, with such of less, and which needs those are: those with more
    /// of them first, as the others are for whatever is not for these.
    pub(crate) narrow: Vec<(Filter, Vec<usize>)>,
    /// Whether these are all that there could be: else nobody knows what [`Self::wide`] is for.
    pub(crate) is_all: bool,
}

/// What an expression could be for.
#[derive(Debug)]
pub(crate) struct Possible {
    /// What it is for events of which kinds alone need to be known, and widths, the likely ones
    /// first; no two of them have the same needs.
    pub(crate) filters: Vec<Guessed>,
    /// Whether there could be an event for which it makes sense.
    pub(crate) is_plausible: bool,
    /// What is wrong with it for a likely event for which it does not.
    error: Option<Error>,
}

impl Possible {
    /// Looks whether it makes sense for fields of these types; what it is then, if their kinds are
    /// all that it depends on.
    fn try_one<'t>(
        &mut self,
        parsed: &Parsed,
        fields: &[&'t str],
        types: impl Iterator<Item = &'t Guess>,
    ) -> Option<Filter> {
        let layout = layout(fields.iter().copied().zip(types));
        match check_parsed(parsed, &layout, Options { all_are_wide: true }) {
            Ok(filter) => {
                self.is_plausible = true;
                let mut reads = BTreeSet::new();
                read_elements(&filter.root, &mut reads);
                reads.is_empty().then_some(filter)
            }
            Err(error) => {
                self.error.get_or_insert(error);
                None
            }
        }
    }

    /// What is wrong with it, if it is not plausible.
    pub(crate) fn error(self, text: &str) -> Error {
        let whole = Span { from: 0, to: text.len() };
        let message = "no event can have all that this names";
        self.error.unwrap_or_else(|| Error::new(Topic::Type, whole, message))
    }
}

/// What an expression could be for.
pub(crate) fn possible(parsed: &Parsed) -> Possible {
    let mut named = Named::default();
    named.walk(&parsed.tree);
    let types = types(&named.texts);
    let fields: Vec<&str> = named.fields.iter().map(String::as_str).collect();
    let could_be = |name: &&str| {
        let is_application = name.starts_with(APPLICATION);
        types.iter().map(|guess| !is_application || is_of_application(&guess.of)).collect()
    };
    let mut could: Vec<Vec<bool>> = fields.iter().map(could_be).collect();
    let mut parts = Vec::new();
    split(&parsed.tree, &mut parts);
    for part in parts.into_iter().take(PARTS_MAX) {
        narrow(part, &fields, &types, &mut could);
    }
    let choices = |is_meant: &dyn Fn(&Guess) -> bool| -> Vec<Vec<usize>> {
        let chosen = |could: &Vec<bool>| {
            (0..types.len()).filter(|&number| could[number] && is_meant(&types[number])).collect()
        };
        could.iter().map(chosen).collect()
    };
    let mut found = Possible { filters: Vec::new(), is_plausible: false, error: None };
    let mut needs = BTreeSet::new();
    for_each_combination(&choices(&|guess| guess.by_kind), &mut |chosen| {
        if let Some(filter) = found.try_one(parsed, &fields, chosen.iter().map(|&of| &types[of]))
            && needs.insert(needs_of(&filter))
        {
            let chosen: Vec<&Guess> = chosen.iter().map(|&of| &types[of]).collect();
            found.filters.push(guessed(parsed, filter, (&fields, &chosen)));
        }
        found.filters.len() < ALTERNATIVES_MAX
    });
    if !found.is_plausible {
        for_each_combination(&choices(&|_| true), &mut |chosen| {
            found.try_one(parsed, &fields, chosen.iter().map(|&of| &types[of]));
            !found.is_plausible
        });
    }
    if !found.is_plausible && found.error.is_none() {
        // Its parts ask for different things of one field: as an integer it is as good as any.
        let integers = layout(fields.iter().map(|name| (*name, &types[0])));
        found.error = check_parsed(parsed, &integers, Options::default()).err();
    }
    found
}

/// A filter for fields of these types, with what it is where integers without a sign have less than
/// 64 bits.
fn guessed(parsed: &Parsed, wide: Filter, (fields, types): (&[&str], &[&Guess])) -> Guessed {
    let made = |is_narrow: &dyn Fn(&str) -> bool| {
        let narrowed: Vec<Guess> = fields
            .iter()
            .zip(types)
            .map(|(field, guess)| {
                let of = if is_narrow(field) { as_narrow(&guess.of) } else { guess.of.clone() };
                Guess { of, by_kind: guess.by_kind }
            })
            .collect();
        let layout = layout(fields.iter().copied().zip(&narrowed));
        let made = check_parsed(parsed, &layout, Options::default());
        made.ok().filter(|made| needs_of(made) == needs_of(&wide))
    };
    let whole = |wide| Guessed { wide, narrow: Vec::new(), is_all: true };
    let Some(all) = made(&|_| true) else { return whole(wide) };
    let field_of = |need: usize| wide.needs[need].place.name.as_str();
    let is_own = |need: &usize| wide.needs[*need].place.root == Root::Field;
    let needs: Vec<usize> = needs_that_count(&all).into_iter().filter(is_own).collect();
    let count: BTreeSet<&str> = needs.iter().map(|&need| field_of(need)).collect();
    let count: Vec<&str> = count.into_iter().collect();
    if count.is_empty() {
        return whole(wide);
    }
    // Which of them are narrow, as bits.
    let is_all = count.len() <= WIDTHS_MAX;
    let every = (1_u32 << count.len().min(31)) - 1;
    let mut masks: Vec<u32> = if is_all { (1..=every).collect() } else { vec![every] };
    masks.sort_by_key(|mask| std::cmp::Reverse(mask.count_ones()));
    let is_in = |mask: u32, field: &str| {
        count.iter().take(31).position(|of| *of == field).is_some_and(|at| mask >> at & 1 == 1)
    };
    let narrow = masks.into_iter().filter_map(|mask| {
        let of_mask = |need: &usize| mask == every || is_in(mask, field_of(*need));
        let narrow = made(&|field| mask == every || is_in(mask, field))?;
        Some((narrow, needs.iter().copied().filter(of_mask).collect()))
    });
    Guessed { narrow: narrow.collect(), is_all, wide }
}

/// The same with less than 64 bits, if it has no sign.
fn as_narrow(of: &Type) -> Type {
    match of {
        Type::Integer(integer) if integer.is_wide() => Scalar::U32.into(),
        Type::Array(of, length) => Type::Array(Box::new(as_narrow(of)), *length),
        of => of.clone(),
    }
}

/// What those who run a filter tell events apart by.
fn needs_of(filter: &Filter) -> Vec<(String, u8)> {
    filter.needs.iter().map(|need| (need.path.clone(), need.kind as u8)).collect()
}

/// A type that a field could have.
struct Guess {
    of: Type,
    /// Whether its kind says all that bytecode depends on.
    by_kind: bool,
}

/// Types of fields, the likely ones first; an enumeration has whatever labels are asked for.
fn types(texts: &BTreeSet<Vec<u8>>) -> Vec<Guess> {
    let array = |scalar: Scalar| Type::Array(Box::new(scalar.into()), ARRAY_LENGTH);
    let label = |text: &Vec<u8>| Label {
        name: String::from_utf8_lossy(text).into_owned(),
        first: 0,
        last: 0,
    };
    let enumeration = |scalar: Scalar| match scalar.into() {
        Type::Integer(integer) => {
            Type::Integer(Integer { labels: texts.iter().map(label).collect(), ..integer })
        }
        other => other,
    };
    let by_kind = [
        Scalar::I64.into(),
        Scalar::U64.into(),
        Type::String,
        Scalar::F64.into(),
        array(Scalar::I64),
        array(Scalar::U64),
        array(Scalar::F64),
    ];
    let mut types: Vec<Guess> = by_kind.into_iter().map(|of| Guess { of, by_kind: true }).collect();
    if !texts.is_empty() {
        types.push(Guess { of: enumeration(Scalar::I64), by_kind: false });
        let labelled = Type::Array(Box::new(enumeration(Scalar::I64)), ARRAY_LENGTH);
        types.push(Guess { of: labelled, by_kind: false });
    }
    types
}

/// A made-up event.
fn layout<'t>(fields: impl Iterator<Item = (&'t str, &'t Guess)>) -> Layout {
    let (mut of_event, mut applications) = (Vec::new(), Vec::new());
    for (name, guess) in fields {
        let (members, name) = match name.strip_prefix(APPLICATION) {
            Some(name) => (&mut applications, name),
            None => (&mut of_event, name),
        };
        members.push(Member { name: name.into(), of: guess.of.clone() });
    }
    Layout {
        event: "an event".into(),
        fields: of_event,
        contexts: Layout::program_contexts(),
        applications,
    }
}

/// What an expression names.
#[derive(Default)]
struct Named {
    /// Fields, in order; contexts of applications as `$app.provider:name`.
    fields: Vec<String>,
    /// Strings, as labels that they mean: without stars.
    texts: BTreeSet<Vec<u8>>,
}

impl Named {
    fn walk(&mut self, tree: &Tree) {
        match &tree.node {
            Node::Name(name) if !self.fields.contains(name) => self.fields.push(name.clone()),
            Node::Application(name) => {
                let name = format!("{APPLICATION}{name}");
                if !self.fields.contains(&name) {
                    self.fields.push(name);
                }
            }
            Node::Text(text) => _ = self.texts.insert(without_stars(text)),
            // What stands there are numbers and units.
            Node::Call(name, ..) if matches!(name.as_str(), "rate" | "sample") => {}
            _ => children(tree).into_iter().for_each(|child| self.walk(child)),
        }
    }
}

/// A string that is as the text says.
fn without_stars(text: &Text) -> Vec<u8> {
    let pattern = text.to_pattern();
    let mut bytes = Vec::new();
    let mut rest = pattern.iter();
    while let Some(&byte) = rest.next() {
        match byte {
            b'*' => {}
            b'\\' => bytes.extend(rest.next()),
            _ => bytes.push(byte),
        }
    }
    bytes
}

fn children(tree: &Tree) -> Vec<&Tree> {
    match &tree.node {
        Node::Number(_)
        | Node::Text(_)
        | Node::Truth(_)
        | Node::Name(_)
        | Node::Context(_)
        | Node::Application(_) => Vec::new(),
        Node::Member(of, _) | Node::Unary(_, of) => vec![of],
        Node::Index(a, b) | Node::Binary(_, a, b) => vec![a, b],
        Node::All(parts) | Node::Either(parts) | Node::Call(_, _, parts) => parts.iter().collect(),
        Node::In(value, items) => {
            let mut all = vec![&**value];
            for item in items {
                match item {
                    Item::One(one) => all.push(one),
                    Item::Range(first, last) => all.extend([first, last]),
                }
            }
            all
        }
    }
}

/// The parts that are true or false by themselves.
fn split<'t>(tree: &'t Tree, parts: &mut Vec<&'t Tree>) {
    match &tree.node {
        Node::All(all) | Node::Either(all) => all.iter().for_each(|part| split(part, parts)),
        Node::Unary(Unary::Not, of) => split(of, parts),
        _ => parts.push(tree),
    }
}

/// Takes types away that the fields of a part cannot have for its sake.
fn narrow(part: &Tree, fields: &[&str], types: &[Guess], could: &mut [Vec<bool>]) {
    let mut named = Named::default();
    named.walk(part);
    let own: Vec<usize> = fields
        .iter()
        .enumerate()
        .filter(|(_, field)| named.fields.iter().any(|name| name == *field))
        .map(|(number, _)| number)
        .collect();
    let all: Vec<usize> = (0..types.len()).collect();
    let mut fits = vec![vec![false; types.len()]; own.len()];
    let mut try_one = |chosen: &[usize]| {
        let layout = layout(own.iter().zip(chosen).map(|(&f, &of)| (fields[f], &types[of])));
        if check_part(part, &layout).is_ok() {
            chosen.iter().zip(&mut fits).for_each(|(&of, fits)| fits[of] = true);
        }
        true
    };
    if own.len() <= PART_FIELDS_MAX {
        for_each_combination(&vec![all; own.len()], &mut try_one);
    } else {
        all.iter().for_each(|&of| _ = try_one(&vec![of; own.len()]));
    }
    // Where fields of one type do not go together, ask no more of them here.
    if own.len() > PART_FIELDS_MAX && !fits.iter().flatten().any(|&fits| fits) {
        return;
    }
    for (&field, fits) in own.iter().zip(&fits) {
        could[field].iter_mut().zip(fits).for_each(|(could, &fits)| *could &= fits);
    }
}

/// Calls `try_one` with a choice for each of these, until it says that it is enough: those first
/// that take the first choices, and not more than [`TRIED_MAX`].
fn for_each_combination(choices: &[Vec<usize>], try_one: &mut dyn FnMut(&[usize]) -> bool) {
    let most: usize = choices.iter().map(|of| of.len().saturating_sub(1)).sum();
    if choices.iter().any(Vec::is_empty) {
        return;
    }
    let mut left = TRIED_MAX;
    let mut chosen = Vec::new();
    for rank in 0..=most {
        let mut bounded = |chosen: &[usize]| {
            left = left.saturating_sub(1);
            try_one(chosen) && left > 0
        };
        if !with_rank(choices, rank, &mut chosen, &mut bounded) {
            return;
        }
    }
}

/// The same of those choices whose places in their lists come to `rank`; whether to go on.
fn with_rank(
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
        // What the others cannot come to need not be gone into.
        if rank - place > rest_most {
            continue;
        }
        chosen.push(choice);
        let goes_on = with_rank(rest, rank - place, chosen, try_one);
        chosen.pop();
        if !goes_on {
            return false;
        }
    }
    true
}
