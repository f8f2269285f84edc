//! The possible types of fields, as far as an expression determines them: found by the checker,
//! which alone knows what makes sense.
//!
//! Each part of an expression is asked by itself, the small ones first: what makes no sense in
//! `length(path)` makes none in all that this stands in. So types are taken away a few fields at a
//! time, and what is left over goes together as a rule. Where it does not, fields get types one
//! after the other, in the order in which the checker comes to them, so that it says at the first
//! wrong one that it is wrong. Both are bounded. What is not found out is not impossible.

use super::named::{Part, collect_parts};
use super::{TypeGuess, synthetic_layout};
use crate::error::{Error, Topic};
use crate::parse::Parsed;
use crate::types::{Widths, check_parsed, check_part, check_value};

/// Most fields of a part that is asked by itself.
const PART_FIELDS_MAX: usize = 3;
/// Most combinations of types that a part is asked for.
const PART_TRIED_MAX: usize = 64;
/// Passes over all parts.
const PASSES_MAX: usize = 8;
/// Nodes of trees that the checker goes through, in all.
const NODES_MAX: usize = 200_000;
/// Cost of a made-up event, in nodes.
const LAYOUT_NODES: usize = 8;

pub(super) struct Search<'p> {
    text: &'p str,
    parsed: &'p Parsed,
    fields: &'p [String],
    types: &'p [TypeGuess],
    /// For each field the types that it could have.
    could: Vec<Vec<bool>>,
    /// Number of nodes of the whole tree.
    size: usize,
    left: usize,
}

/// The result of the search for an event for which an expression makes sense.
pub(super) enum Found {
    /// There is: types by the numbers of the fields.
    Types(Vec<usize>),
    /// There is none, because of this.
    Nothing(Error),
    /// It is not known.
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

    /// Takes types away that fields cannot have for the sake of a part.
    ///
    /// # Errors
    ///
    /// That a part makes no sense whatever its fields are.
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

    /// For each field those of its types that are meant.
    pub(super) fn choices(&self, is_meant: impl Fn(&str, &TypeGuess) -> bool) -> Vec<Vec<usize>> {
        let chosen = |(field, could): (&String, &Vec<bool>)| {
            let is_chosen = |&of: &usize| could[of] && is_meant(field, &self.types[of]);
            (0..self.types.len()).filter(is_chosen).collect()
        };
        self.fields.iter().zip(&self.could).map(chosen).collect()
    }

    /// The types that a field could have, one for those that are alike.
    fn likes(&self, field: usize) -> Vec<usize> {
        let could = &self.could[field];
        let is_first = |&of: &usize| could[of] && self.types[of].is_like == of;
        (0..self.types.len()).filter(is_first).collect()
    }

    /// Returns true if a type was ruled out.
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
            // One digit for each field; the first types of all come first.
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

    /// Looks for types with which the whole makes sense.
    pub(super) fn whole(&mut self) -> Found {
        self.whole_with(&mut Vec::new())
    }

    /// The same, where some fields have these types.
    fn whole_with(&mut self, chosen: &mut Vec<(usize, usize)>) -> Found {
        let cost = self.size + LAYOUT_NODES;
        if cost > self.left {
            return Found::NotKnown;
        }
        self.left -= cost;
        let layout = self.layout(chosen.iter().copied());
        let error = match check_parsed(self.parsed, &layout, Widths::Own) {
            Ok(_) => {
                // What the checker has not asked for may be anything.
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

    /// The field whose lack an error is.
    fn missing(&self, error: &Error) -> Option<usize> {
        if error.topic != Topic::Unknown {
            return None;
        }
        let named = error.named(self.text);
        self.fields.iter().position(|field| field == named)
    }

    /// An event in which these fields have these types.
    fn layout(&self, chosen: impl Iterator<Item = (usize, usize)>) -> crate::layout::Layout {
        synthetic_layout(
            chosen.map(|(field, of)| (self.fields[field].as_str(), &self.types[of].of)),
        )
    }
}
