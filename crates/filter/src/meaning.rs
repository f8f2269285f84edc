//! The meanings that a filter relies on in addition to the kinds of its needs
//! (`trackway_jit::meaning`), for a known event: a program that runs it does not take it for an
//! event of the same kinds with other meanings.

use std::collections::BTreeSet;

use trackway_jit::Kind;
use trackway_jit::meaning::{Meaning, RECORD_BYTES, hash_of_labels};
use trackway_schema::Label;

use crate::analysis::always_evaluated::is_surely_asked;
use crate::layout::{Layout, Type};
use crate::parse::Parsed;
use crate::types::{Filter, Need, Root, Step, Widths, check_parsed};

/// For each need, the meanings that its slot may have; none: any of its kind.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct SlotMeanings(Vec<Vec<Meaning>>);

impl SlotMeanings {
    /// Returns the meanings of fields that `filter` relies on, which was compiled for this event.
    /// Widths matter only for the fields `that_count`.
    pub(crate) fn of(
        parsed: &Parsed,
        layout: &Layout,
        filter: &Filter,
        that_count: &BTreeSet<String>,
    ) -> Self {
        let mut reads = BTreeSet::new();
        filter.root.collect_element_needs(&mut reads);
        let meaning = |(number, need): (usize, &Need)| {
            let of = layout.find(&need.place);
            let elements = need.elements.filter(|_| reads.contains(&number));
            let is_narrow = of.is_some_and(is_narrow);
            let meaning = Meaning {
                is_nobodys: false,
                is_narrow: is_narrow && need.kind == Kind::Unsigned,
                is_wide: !is_narrow && is_width_sensitive(need, that_count),
                is_of_array: must_be_of_array(filter, number),
                elements: elements.and_then(|elements| elements.scalar),
                labels: labels_used(parsed, layout, filter, need),
            };
            if meaning.is_any() { Vec::new() } else { vec![meaning] }
        };
        Self(filter.needs.iter().enumerate().map(meaning).collect())
    }

    /// Returns the meanings of a filter with so many needs that is made for no event.
    pub(crate) fn for_no_event(needs_count: usize) -> Self {
        Self(vec![vec![Meaning { is_nobodys: true, ..Meaning::default() }]; needs_count])
    }

    /// Returns the meanings of a filter that is made for all events with its kinds, where the width
    /// of the fields `that_count` makes a difference, and these of them have less than 64 bits.
    pub(crate) fn for_unknown_events(
        filter: &Filter,
        that_count: &BTreeSet<String>,
        narrow: &BTreeSet<String>,
    ) -> Self {
        let meaning = |(number, need): (usize, &Need)| {
            let is_narrow = narrow.contains(&need.place.name);
            let counts = is_width_sensitive(need, that_count);
            let meaning = Meaning {
                is_narrow: counts && is_narrow,
                is_wide: counts && !is_narrow,
                is_of_array: must_be_of_array(filter, number),
                ..Meaning::default()
            };
            if meaning.is_any() { Vec::new() } else { vec![meaning] }
        };
        Self(filter.needs.iter().enumerate().map(meaning).collect())
    }

    /// Returns true if all needs may have any meaning of their kinds.
    pub(crate) fn is_any(&self) -> bool {
        self.0.iter().all(Vec::is_empty)
    }

    /// Widths make no difference but to the fields `that_count`.
    pub(crate) fn widen(&mut self, needs: &[Need], that_count: &BTreeSet<String>) {
        let others =
            self.0.iter_mut().zip(needs).filter(|(_, need)| !is_width_sensitive(need, that_count));
        for (meanings, _) in others {
            meanings.iter_mut().for_each(|meaning| meaning.is_narrow = false);
            meanings.retain(|meaning| !meaning.is_any());
        }
    }

    /// May be what `other` may be, too: another event for which the filter is the same. What each
    /// need means is for itself, so any of one goes with any of another.
    pub(crate) fn add(&mut self, other: Self) {
        for (own, others) in self.0.iter_mut().zip(other.0) {
            if own.is_empty() || others.is_empty() {
                own.clear();
                continue;
            }
            for meaning in others {
                if !own.contains(&meaning) {
                    own.push(meaning);
                }
            }
        }
    }

    /// The records of the alternative of this number.
    pub(crate) fn records(&self, alternative: u8) -> Vec<[u8; RECORD_BYTES]> {
        let of_need = |(need, meanings): (u8, &Vec<Meaning>)| -> Vec<_> {
            meanings.iter().map(|meaning| meaning.record(alternative, need)).collect()
        };
        (0..).zip(&self.0).flat_map(of_need).collect()
    }
}

/// Returns true if its width is that of one of these fields.
fn is_width_sensitive(need: &Need, that_count: &BTreeSet<String>) -> bool {
    need.kind == Kind::Unsigned
        && need.place.root == Root::Field
        && that_count.contains(&need.place.name)
}

/// Returns true if it is an element that a filter must have before it comes to it: a member that
/// has one each time is an array.
fn must_be_of_array(filter: &Filter, number: usize) -> bool {
    let need = &filter.needs[number];
    let is_element = matches!(need.place.steps.last(), Some(Step::Element(_)));
    is_element
        && need.place.root == Root::Field
        && !need.is_text_element()
        && !is_surely_asked(filter, number)
}

/// Returns true if it has, or its elements have, less than 64 bits.
pub(crate) fn is_narrow(of: &Type) -> bool {
    match of {
        Type::Integer(integer) => !integer.is_wide(),
        Type::Array(of, _) => is_narrow(of),
        _ => false,
    }
}

/// The labels of what a filter needs, if it would be another one without.
fn labels_used(parsed: &Parsed, layout: &Layout, filter: &Filter, need: &Need) -> Option<u32> {
    let is_it = |name: &str| need.place.root == Root::Field && name == need.place.name;
    let at = layout.fields.iter().position(|field| is_it(&field.name))?;
    let Type::Integer(integer) = &layout.fields[at].of else { return None };
    if integer.labels.is_empty() {
        return None;
    }
    let mut without = layout.clone();
    if let Type::Integer(integer) = &mut without.fields[at].of {
        integer.labels.clear();
    }
    let same = check_parsed(parsed, &without, Widths::Own);
    let is_used = same.map_or(true, |same| same.root != filter.root);
    is_used.then(|| hash_of_labels(&encode_labels(&integer.labels)))
}

/// Labels as a description has them.
fn encode_labels(labels: &[Label]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in labels {
        bytes.extend(label.first.to_le_bytes());
        bytes.extend(label.last.to_le_bytes());
        bytes.push(label.name.len() as u8);
        bytes.extend(label.name.as_bytes());
    }
    bytes
}
