//! Implementations of helpers. The interpreter calls them with a frame; machine code calls the same
//! functions with the frame's slots.
//!
//! Arguments are arbitrary numbers from the program, and are fully checked: a word outside its
//! bytes is an empty string; an unknown cell or scalar yields 0. No helper blocks or allocates, and
//! a signal handler that interrupts one finds consistent state.

mod address;
mod sequence;
mod state;
mod text;

pub(crate) use address::helper_address;

use core::cmp::Ordering;

use crate::frame::Frame;
use crate::helper::{Helper, Word};

impl Frame<'_> {
    /// Calls a helper with its arguments after the frame. Returns 0 for `any` and `tail_call`,
    /// which the callers implement.
    pub(crate) fn help(&self, helper: Helper, a: u64, b: u64, c: u64) -> u64 {
        let float = f64::from_bits;
        match helper {
            Helper::StringCompare => text::compare_bytes(self.string(a), self.string(b)),
            Helper::StringMatches => text::matches_pattern(self.string(a), self.string(b)).into(),
            Helper::StringStartsWith => self.string(a).starts_with(self.string(b)).into(),
            Helper::StringEndsWith => self.string(a).ends_with(self.string(b)).into(),
            Helper::StringContains => text::contains(self.string(a), self.string(b)).into(),
            Helper::StringHash => text::hash_fnv1a(self.string(a)),
            Helper::Element => self.element(a, b, c),
            Helper::FloatCompare => match float(a).partial_cmp(&float(b)) {
                Some(order) => order as i64 as u64,
                None => 2,
            },
            Helper::FloatAdd => (float(a) + float(b)).to_bits(),
            Helper::FloatSubtract => (float(a) - float(b)).to_bits(),
            Helper::FloatMultiply => (float(a) * float(b)).to_bits(),
            Helper::FloatDivide => (float(a) / float(b)).to_bits(),
            Helper::FloatFromSigned => (a as i64 as f64).to_bits(),
            Helper::FloatFromUnsigned => (a as f64).to_bits(),
            Helper::TimeNs => (self.environment.time_ns)(),
            Helper::Random => (self.environment.random)(),
            Helper::Count => self.cell(a).map_or(0, state::count_call),
            Helper::Changed => self.cell(a).map_or(0, |cell| state::has_changed(cell, b).into()),
            Helper::Rate => self.cell(a).map_or(0, |cell| {
                state::passes_rate_limit(cell, b, c, (self.environment.time_ns)()).into()
            }),
            Helper::StringEdges8 => self.edges::<8>(a, b, c).into(),
            Helper::StringEdges4 => self.edges::<4>(a, b, c).into(),
            Helper::StringEdges2 => self.edges::<2>(a, b, c).into(),
            Helper::StringEdges1 => self.edges::<1>(a, b, c).into(),
            Helper::Sum => self.sum(a, b),
            Helper::Least => self.outermost(a, b, Ordering::Less),
            Helper::Greatest => self.outermost(a, b, Ordering::Greater),
            Helper::Any | Helper::TailCall => 0,
            // All other helpers compare bytes with numbers.
            _ => helper.compared_bytes().map_or(0, |count| self.differ(count, a, b, c)),
        }
    }

    /// Returns the bytes of a word whose length counts elements of `size` bytes.
    fn region(&self, word: u64, size: usize) -> &[u8] {
        let word = Word::from_bits(word);
        let bytes = if word.is_constant { self.environment.constants } else { self.bytes() };
        let start = word.offset as usize;
        let end = (word.length as usize).checked_mul(size).and_then(|size| start.checked_add(size));
        end.and_then(|end| bytes.get(start..end)).unwrap_or_default()
    }

    fn string(&self, word: u64) -> &[u8] {
        self.region(word, 1)
    }

    /// Returns true if a string of the event begins with the `N` lowest bytes of `first`, and ends
    /// with those of `last`; the two may overlap. A word of a constant never matches. The code in
    /// `x86::text` computes the same result.
    fn edges<const N: usize>(&self, word: u64, first: u64, last: u64) -> bool {
        // The constant flag moves the start beyond all bytes.
        let (start, length) = (word as u32 as usize, (word >> 32) as usize);
        let end = start.checked_add(length);
        let string = end.and_then(|end| self.bytes().get(start..end)).unwrap_or_default();
        let edge = |number: u64| number.to_le_bytes().first_chunk::<N>().copied();
        string.len() >= N
            && string.first_chunk().copied() == edge(first)
            && string.last_chunk().copied() == edge(last)
    }

    /// Returns the bits in which `count` of the event's bytes, from `offset` on, differ from two
    /// numbers ([`Helper::number_bytes`]), one for each end. If the bytes do not exist, returns the
    /// end offset that they would have. The code of `x86::text` computes the same result.
    #[inline(always)]
    fn differ(&self, count: u8, offset: u64, first: u64, last: u64) -> u64 {
        // The constant flag moves the start beyond all bytes.
        let start = u64::from(offset as u32);
        let end = start + u64::from(count);
        let Some(bytes) = self.bytes().get(start as usize..end as usize) else { return end };
        match Helper::number_bytes(count) {
            (8, 8) => {
                differing_bits_of_first::<8>(bytes, first)
                    | differing_bits_of_last::<8>(bytes, last)
            }
            (8, 4) => {
                differing_bits_of_first::<8>(bytes, first)
                    | differing_bits_of_last::<4>(bytes, last)
            }
            (8, _) => differing_bits_of_first::<8>(bytes, first),
            (4, 4) => {
                differing_bits_of_first::<4>(bytes, first)
                    | differing_bits_of_last::<4>(bytes, last)
            }
            (4, _) => differing_bits_of_first::<4>(bytes, first),
            (2, 2) => {
                differing_bits_of_first::<2>(bytes, first)
                    | differing_bits_of_last::<2>(bytes, last)
            }
            (2, _) => differing_bits_of_first::<2>(bytes, first),
            _ => differing_bits_of_first::<1>(bytes, first),
        }
    }
}

/// Returns the bits in which the first `N` bytes differ from the lowest bytes of a number.
fn differing_bits_of_first<const N: usize>(bytes: &[u8], number: u64) -> u64 {
    differing_bits::<N>(bytes.first_chunk(), number)
}

/// Returns the bits in which the last `N` bytes differ from the lowest bytes of a number.
fn differing_bits_of_last<const N: usize>(bytes: &[u8], number: u64) -> u64 {
    differing_bits::<N>(bytes.last_chunk(), number)
}

fn differing_bits<const N: usize>(bytes: Option<&[u8; N]>, number: u64) -> u64 {
    let mut wide = [0; 8];
    if let (Some(bytes), Some(there)) = (bytes, wide.first_chunk_mut()) {
        *there = *bytes;
    }
    (u64::from_le_bytes(wide) ^ number) & u64::MAX >> (64 - 8 * N)
}
