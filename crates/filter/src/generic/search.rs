//! Searches the possible types of fields that an expression allows, by calls of the type checker.
//!
//! Each subexpression is checked on its own, small ones first: types that fail in `length(path)`
//! fail in all larger expressions around it. So types are ruled out for a few fields at a time, and
//! the remaining ones usually fit together. If not, a backtracking search assigns types to fields
//! in the order in which the checker reaches them, and stops at the first wrong one. Both steps are
//! bounded, so a type that is not ruled out may still be impossible.

use super::named::{Part, collect_parts};
use super::{TypeGuess, synthetic_layout};
use crate::error::{Error, Topic};
use crate::parse::Parsed;
use crate::types::{Widths, check_parsed, check_part, check_value};

/// Maximum number of fields in a subexpression that is checked on its own.
const PART_FIELDS_MAX: usize = 3;
/// Maximum number of type combinations tried for a subexpression.
const PART_TRIED_MAX: usize = 64;
/// Maximum number of passes over all subexpressions.
const PASSES_MAX: usize = 8;
/// Maximum total number of tree nodes that the checker visits.
const NODES_MAX: usize = 200_000;
/// Cost of a synthetic event, in nodes.
const LAYOUT_NODES: usize = 8;

pub(super) struct Search<'p> {
    text: &'p str,
    parsed: &'p Parsed,
    fields: &'p [String],
    types: &'p [TypeGuess],
    /// For each field, a flag for each type that the field could have.
    could: Vec<Vec<bool>>,
    /// Number of nodes of the whole tree.
    size: usize,
    left: usize,
}

/// The result of the search for an event for which an expression makes sense.
pub(super) enum Found {
    /// A solution exists: the index of a type for each field.
    Types(Vec<usize>),
    /// No solution exists, because of this error.
    Nothing(Error),
    /// The search ended at its limit.
    NotKnown,
}

impl<'p> Search<'p> {
    pub(super) fn new(
        (text, parsed): (&'p str, &'p Parsed),
        fields: &'p [String],
        types: &'p [TypeGuess],
        could: Vec<Vec<bool>>,
    ) -> Self {
        Self { text, parsed, fields, types, could, size: 1, left: NODES_MAX }
    }

    /// Rules out types that fail in some subexpression.
    ///
    /// # Errors
    ///
    /// Returns an error if a subexpression fails for all types of its fields.
    pub(super) fn narrow(&mut self) -> Result<(), Error> {
        let mut all = Vec::new();
        (_, self.size) = collect_parts(&self.parsed.tree, true, self.fields, &mut all);
        all.retain(|part| part.fields.len() <= PART_FIELDS_MAX);
        for _ in 0..PASSES_MAX {
            let mut has_changed = false;
            for part in &all {
                has_changed |= self.narrow_by(part)?;
            }
            if !has_changed {
                break;
            }
        }
        Ok(())
    }

    /// Returns, for each field, the possible types that `is_meant` accepts.
    pub(super) fn choices(&self, is_meant: impl Fn(&str, &TypeGuess) -> bool) -> Vec<Vec<usize>> {
        let chosen = |(field, could): (&String, &Vec<bool>)| {
            let is_chosen = |&of: &usize| could[of] && is_meant(field, &self.types[of]);
            (0..self.types.len()).filter(is_chosen).collect()
        };
        self.fields.iter().zip(&self.could).map(chosen).collect()
    }

    /// Returns the possible types of a field, one for each group of similar types.
    fn likes(&self, field: usize) -> Vec<usize> {
        let could = &self.could[field];
        let is_first = |&of: &usize| could[of] && self.types[of].is_like == of;
        (0..self.types.len()).filter(is_first).collect()
    }

    /// Checks one subexpression; returns true if a type was ruled out.
    fn narrow_by(&mut self, part: &Part<'_>) -> Result<bool, Error> {
        let choices: Vec<Vec<usize>> = part.fields.iter().map(|&field| self.likes(field)).collect();
        let many: usize = choices.iter().map(Vec::len).product();
        let cost = many.saturating_mul(part.size + LAYOUT_NODES);
        if many > PART_TRIED_MAX || cost > self.left {
            return Ok(false);
        }
        self.left -= cost;
        let mut fits = vec![vec![false; self.types.len()]; choices.len()];
        let mut first = None;
        for number in 0..many {
            // One digit for each field; the first type of every field comes first.
            let mut rest = number;
            let chosen: Vec<usize> = choices
                .iter()
                .map(|of| {
                    let digit = rest % of.len();
                    rest /= of.len();
                    of[digit]
                })
                .collect();
            let layout = self.layout(part.fields.iter().copied().zip(chosen.iter().copied()));
            let check = if part.is_truth { check_part } else { check_value };
            match check(part.tree, &layout) {
                Ok(()) => chosen.iter().zip(&mut fits).for_each(|(&of, fits)| fits[of] = true),
                Err(error) => _ = first.get_or_insert(error),
            }
        }
        let mut has_changed = false;
        for (&field, fits) in part.fields.iter().zip(&fits) {
            for (could, of) in self.could[field].iter_mut().zip(self.types) {
                has_changed |= *could && !fits[of.is_like];
                *could &= fits[of.is_like];
            }
        }
        match first {
            Some(error) if !fits.iter().flatten().any(|&fits| fits) => Err(error),
            _ => Ok(has_changed),
        }
    }

    /// Searches types for which the whole expression type-checks.
    pub(super) fn whole(&mut self) -> Found {
        self.whole_with(&mut Vec::new())
    }

    /// Searches like [`Self::whole`], with the types of some fields fixed.
    fn whole_with(&mut self, chosen: &mut Vec<(usize, usize)>) -> Found {
        let cost = self.size + LAYOUT_NODES;
        if cost > self.left {
            return Found::NotKnown;
        }
        self.left -= cost;
        let layout = self.layout(chosen.iter().copied());
        let error = match check_parsed(self.parsed, &layout, Widths::Own) {
            Ok(_) => {
                // Fields that the checker did not look up may have any type.
                let of = |field: usize| chosen.iter().find(|(own, _)| *own == field);
                let of = |field| of(field).map_or(0, |(_, of)| *of);
                return Found::Types((0..self.fields.len()).map(of).collect());
            }
            Err(error) => error,
        };
        let next = self.missing(&error).filter(|next| chosen.iter().all(|(own, _)| own != next));
        let Some(field) = next else { return Found::Nothing(error) };
        let mut first = None;
        for of in self.likes(field) {
            chosen.push((field, of));
            let found = self.whole_with(chosen);
            chosen.pop();
            match found {
                Found::Nothing(error) => _ = first.get_or_insert(error),
                found => return found,
            }
        }
        Found::Nothing(first.unwrap_or(error))
    }

    /// Returns the field that an error reports as missing.
    fn missing(&self, error: &Error) -> Option<usize> {
        if error.topic != Topic::Unknown {
            return None;
        }
        let named = error.named(self.text);
        self.fields.iter().position(|field| field == named)
    }

    /// Builds an event in which these fields have these types.
    fn layout(&self, chosen: impl Iterator<Item = (usize, usize)>) -> crate::layout::Layout {
        synthetic_layout(
            chosen.map(|(field, of)| (self.fields[field].as_str(), &self.types[of].of)),
        )
    }
}
