//! Determines the meanings that a filter relies on in addition to the kinds of its needs
//! (`trackway_jit::meaning`). So a program that runs the filter does not apply it to an event with
//! the same kinds but other meanings.

use std::collections::BTreeSet;

use trackway_jit::Kind;
use trackway_jit::meaning::{Meaning, RECORD_BYTES, hash_of_labels};
use trackway_schema::Label;

use crate::analysis::always_evaluated::is_surely_asked;
use crate::layout::{Layout, Type};
use crate::parse::Parsed;
use crate::types::{Filter, Need, Root, Step, Widths, check_parsed};

/// Allowed meanings for the slot of each need; an empty list allows any meaning of the kind.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct SlotMeanings(Vec<Vec<Meaning>>);

impl SlotMeanings {
    /// Returns the meanings that `filter`, which was compiled for this event, relies on. Widths
    /// matter only for the fields in `that_count`.
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

    /// Returns the meanings of a filter with this number of needs that applies to no event.
    pub(crate) fn for_no_event(needs_count: usize) -> Self {
        Self(vec![vec![Meaning { is_nobodys: true, ..Meaning::default() }]; needs_count])
    }

    /// Returns the meanings of a filter for all events with its kinds. Widths matter for the fields
    /// in `that_count`; the fields in `narrow` are narrower than 64 bits.
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

    /// Returns true if every need allows any meaning of its kind.
    pub(crate) fn is_any(&self) -> bool {
        self.0.iter().all(Vec::is_empty)
    }

    /// Allows any width for needs outside the fields in `that_count`.
    pub(crate) fn widen(&mut self, needs: &[Need], that_count: &BTreeSet<String>) {
        let others =
            self.0.iter_mut().zip(needs).filter(|(_, need)| !is_width_sensitive(need, that_count));
        for (meanings, _) in others {
            meanings.iter_mut().for_each(|meaning| meaning.is_narrow = false);
            meanings.retain(|meaning| !meaning.is_any());
        }
    }

    /// Also allows the meanings of `other`, an event with the same filter. Needs are independent:
    /// each meaning of one need may occur with each meaning of another.
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

    /// Returns the records of the meanings for the alternative of this number.
    pub(crate) fn records(&self, alternative: u8) -> Vec<[u8; RECORD_BYTES]> {
        let of_need = |(need, meanings): (u8, &Vec<Meaning>)| -> Vec<_> {
            meanings.iter().map(|meaning| meaning.record(alternative, need)).collect()
        };
        (0..).zip(&self.0).flat_map(of_need).collect()
    }
}

/// Returns true if the need is an unsigned integer in one of these fields.
fn is_width_sensitive(need: &Need, that_count: &BTreeSet<String>) -> bool {
    need.kind == Kind::Unsigned
        && need.place.root == Root::Field
        && that_count.contains(&need.place.name)
}

/// Returns true if the need is an element that the frame requires but the filter may not reach.
/// Such a need must come from an array, which always has the element.
fn must_be_of_array(filter: &Filter, number: usize) -> bool {
    let need = &filter.needs[number];
    let is_element = matches!(need.place.steps.last(), Some(Step::Element(_)));
    is_element
        && need.place.root == Root::Field
        && !need.is_text_element()
        && !is_surely_asked(filter, number)
}

/// Returns true if the integer, or the array's elements, are narrower than 64 bits or signed.
pub(crate) fn is_narrow(of: &Type) -> bool {
    match of {
        Type::Integer(integer) => !integer.is_wide(),
        Type::Array(of, _) => is_narrow(of),
        _ => false,
    }
}

/// Returns the hash of a need's labels if the filter depends on them.
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

/// Encodes labels like an event description.
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
