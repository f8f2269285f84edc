//! Meanings of numbers, found by the names of their types: `write/meaning.rs` has the names, and
//! draws them.
//!
//! The labels are those of the metadata's enumerations, shared: a table that a thousand types
//! name is there once.

use std::sync::Arc;

use super::types::{Integer, Mapping};

/// Prefix of the names of types that have a meaning.
pub(crate) const MEANING_PREFIX: &str = "trackway_";
/// Linux's value for "the current folder" (linux/fcntl.h).
const AT_FDCWD: i64 = -100;
/// Greatest number of an error (MAX_ERRNO, linux/err.h).
const ERROR_MAX: i64 = 4095;

/// The meaning of a number.
#[derive(Debug, Clone)]
pub enum Meaning {
    /// By name: one of some values, some bits, or both.
    Names(Names),
    /// The result of a call, or an error's negative number.
    Result {
        /// Names of errors.
        errors: Names,
        /// True if a value that is no error is an address.
        is_address: bool,
    },
    /// A file descriptor, or `AT_FDCWD`.
    Folder,
    /// Shown in base 8.
    Octal,
    /// A device number: 12 bits major, 20 minor.
    Device,
    /// A byte of an address of the internet, or of a `struct sockaddr` with one.
    Internet,
    /// A byte of a network card's address.
    Hardware,
    /// A byte of a UUID.
    Uuid,
    /// By name, of those that have in the upper half of their values the number that stands before.
    NamesBehind(Names),
    /// In base 8, but for what of it has a name.
    Mode(Names),
    /// In base 16, but for what has a name.
    Address(Names),
    /// A set of these signals, the first in the lowest bit.
    Signals(Names),
    /// Status of a process from wait(2), with names of signals.
    Status(Names),
}

/// Names of values, as two enumerations have them.
#[derive(Debug, Clone)]
pub struct Names {
    /// The first label is that of the mask.
    choices: Option<Arc<[Mapping]>>,
    /// The first label may be that of the mask.
    flags: Option<Arc<[Mapping]>>,
}

/// The label of a mask.
const MASK_LABEL: &str = "&";

impl Names {
    /// The names of a table; `None` if there is no such table.
    fn of(hash: &str, labels: &dyn Fn(&str) -> Option<Arc<[Mapping]>>) -> Option<Self> {
        let choices = labels(&format!("enum {MEANING_PREFIX}choices_{hash}"));
        let flags = labels(&format!("enum {MEANING_PREFIX}flags_{hash}"));
        (choices.is_some() || flags.is_some()).then_some(Self { choices, flags })
    }

    fn all(&self) -> impl Iterator<Item = (&str, i64)> {
        let choices = self.choices.iter().flat_map(|choices| choices.iter().skip(1));
        let all = choices.chain(self.flags().1);
        all.filter_map(|of| Some((&*of.label, of.ranges.first()?.0.cast_signed())))
    }

    /// Bits that are shown, and those that have names.
    fn flags(&self) -> (u64, &[Mapping]) {
        match self.flags.as_deref().and_then(<[_]>::split_first) {
            None => (u64::MAX, &[]),
            Some((first, rest)) if &*first.label == MASK_LABEL => {
                (first.ranges.first().map_or(u64::MAX, |&(mask, _)| mask), rest)
            }
            Some(_) => (u64::MAX, self.flags.as_deref().unwrap_or_default()),
        }
    }

    /// The name that a value has among the choices.
    fn name(&self, value: u64) -> Option<&str> {
        let (_, choices) = self.choices.as_deref()?.split_first()?;
        let is_it = |of: &&Mapping| of.ranges.iter().any(|range| range.0 == value);
        choices.iter().find(is_it).map(|of| &*of.label)
    }

    /// Gives each name of `value`, in which only its own bits are; returns the bits that have none.
    fn for_each_name<'names>(&'names self, value: u64, each: &mut dyn FnMut(&'names str)) -> u64 {
        let (shown, flags) = self.flags();
        let value = value & shown;
        let (mut rest, mut is_named) = (value, false);
        if let Some((first, choices)) = self.choices.as_deref().and_then(<[_]>::split_first) {
            let mask = first.ranges.first().map_or(0, |&(mask, _)| mask);
            let is_it = |of: &&Mapping| of.ranges.iter().any(|range| range.0 == value & mask);
            if let Some(chosen) = choices.iter().find(is_it) {
                each(&chosen.label);
                is_named = true;
                rest &= !mask;
            }
        }
        for flag in flags {
            for &(bits, _) in &flag.ranges {
                if bits != 0 && rest & bits == bits {
                    each(&flag.label);
                    is_named = true;
                    rest &= !bits;
                }
            }
        }
        if !is_named && value == 0 {
            // What nothing is called, if anything.
            let none = flags.iter().find(|flag| flag.ranges.iter().any(|range| range.0 == 0));
            none.into_iter().for_each(|flag| each(&flag.label));
        }
        rest
    }

    /// The same of names for a value that stands behind this one.
    fn for_each_dependent_name<'names>(
        &'names self,
        before: u64,
        value: u64,
        each: &mut dyn FnMut(&'names str),
    ) -> u64 {
        let Some(whole) = u32::try_from(value).ok().map(|low| before << 32 | u64::from(low)) else {
            return value;
        };
        if let Some(name) = self.name(whole) {
            each(name);
            return 0;
        }
        let (mut rest, mut is_named) = (value, false);
        let of_before = self.flags().1.iter().filter_map(|flag| {
            let bits = flag.ranges.first()?.0;
            (bits >> 32 == before & LOW_HALF_MASK).then_some((bits & LOW_HALF_MASK, flag))
        });
        for (bits, flag) in of_before.clone().filter(|(bits, _)| *bits != 0) {
            if rest & bits == bits {
                each(&flag.label);
                is_named = true;
                rest &= !bits;
            }
        }
        if !is_named && value == 0 {
            of_before
                .filter(|(bits, _)| *bits == 0)
                .take(1)
                .for_each(|(_, flag)| each(&flag.label));
        }
        rest
    }
}

/// The lower half of a value.
const LOW_HALF_MASK: u64 = 0xffff_ffff;
/// Layout of a status from wait(2) (bits/waitstatus.h): a signal, or `STOPPED` with one above it;
/// the exit code; a bit that is set if the process has dumped its memory.
const SIGNAL: u64 = 0x7f;
const STOPPED: u64 = 0x7f;
const DUMPED: u64 = 0x80;
const CONTINUED: u64 = 0xffff;

impl Meaning {
    /// Returns the meaning of a type of this name, if it has one; `labels` are those of a named
    /// enumeration.
    pub(crate) fn of(
        name: &str,
        labels: &dyn Fn(&str) -> Option<Arc<[Mapping]>>,
    ) -> Option<Arc<Self>> {
        let (kind, _scalar) = name.strip_prefix(MEANING_PREFIX)?.rsplit_once('_')?;
        let (what, hash) = kind.rsplit_once('_').unwrap_or((kind, ""));
        Some(Arc::new(match what {
            "names" => Self::Names(Names::of(hash, labels)?),
            "result" => Self::Result { errors: Names::of(hash, labels)?, is_address: false },
            "result_address" => Self::Result { errors: Names::of(hash, labels)?, is_address: true },
            "folder" => Self::Folder,
            "octal" => Self::Octal,
            "device" => Self::Device,
            "internet" => Self::Internet,
            "hardware" => Self::Hardware,
            "uuid" => Self::Uuid,
            "behind" => Self::NamesBehind(Names::of(hash, labels)?),
            "mode" => Self::Mode(Names::of(hash, labels)?),
            "address" => Self::Address(Names::of(hash, labels)?),
            "signals" => Self::Signals(Names::of(hash, labels)?),
            "status" => Self::Status(Names::of(hash, labels)?),
            _ => return None,
        }))
    }

    /// All names that there are, and what they stand for: values, or bits of them.
    pub fn names(&self) -> Vec<(&str, i64)> {
        match self {
            Self::Names(names) | Self::Mode(names) | Self::Address(names) => names.all().collect(),
            // Only the trace distinguishes the halves.
            Self::NamesBehind(names) => names
                .all()
                .map(|(name, value)| (name, value & LOW_HALF_MASK.cast_signed()))
                .collect(),
            Self::Signals(signals) => {
                let bit = |(name, signal): (_, i64)| {
                    let bit = u32::try_from(signal).ok()?.checked_sub(1)?;
                    Some((name, 1_u64.checked_shl(bit)?.cast_signed()))
                };
                signals.all().filter_map(bit).collect()
            }
            Self::Result { errors, .. } => {
                errors.all().map(|(name, error)| (name, error.wrapping_neg())).collect()
            }
            Self::Folder => vec![("AT_FDCWD", AT_FDCWD)],
            Self::Status(_) | Self::Octal | Self::Device => Vec::new(),
            Self::Internet | Self::Hardware | Self::Uuid => Vec::new(),
        }
    }

    /// Returns true if values may have names.
    pub const fn has_labels(&self) -> bool {
        match self {
            Self::Names(_) | Self::NamesBehind(_) | Self::Result { .. } | Self::Folder => true,
            Self::Mode(_) | Self::Signals(_) => true,
            Self::Address(_) | Self::Status(_) | Self::Octal | Self::Device => false,
            Self::Internet | Self::Hardware | Self::Uuid => false,
        }
    }

    /// Returns true if some bits of a value belong to something else and are not shown.
    pub fn has_hidden_bits(&self) -> bool {
        matches!(self, Self::Names(names) if names.flags().0 != u64::MAX)
    }

    /// Returns the end of a process from its status in wait(2): `exited 1`, `killed by SIGTERM`.
    pub fn exit_description(&self, status: u64) -> Option<String> {
        let Self::Status(signals) = self else { return None };
        let status = status & LOW_HALF_MASK;
        let named = |signal: u64| match signals.name(signal) {
            Some(name) => name.to_owned(),
            None => signal.to_string(),
        };
        Some(match (status & SIGNAL, status >> 8) {
            _ if status == CONTINUED => "continued".to_owned(),
            (0, code) => format!("exited {}", code & 0xff),
            (STOPPED, signal) => format!("stopped by {}", named(signal & 0xff)),
            (signal, _) if status & DUMPED != 0 => format!("killed by {}, dumped", named(signal)),
            (signal, _) => format!("killed by {}", named(signal)),
        })
    }

    /// Gives each name of a value of this integer, which stands behind another one; returns what of
    /// it has none.
    pub fn for_each_label<'names>(
        &'names self,
        kind: &Integer,
        (before, value): (u64, u64),
        each: &mut dyn FnMut(&'names str),
    ) -> u64 {
        let signed = value.cast_signed();
        let own = value & (u64::MAX >> (64 - kind.bits()));
        match self {
            Self::Names(names) | Self::Mode(names) | Self::Address(names) => {
                names.for_each_name(own, each)
            }
            Self::NamesBehind(names) => names.for_each_dependent_name(before, own, each),
            Self::Signals(signals) => {
                let (mut rest, mut left) = (own, own);
                // A turn for each bit at most.
                while left != 0 {
                    let bit = left.trailing_zeros();
                    left &= left - 1;
                    if let Some(name) = signals.name(u64::from(bit) + 1) {
                        each(name);
                        rest &= !(1 << bit);
                    }
                }
                rest
            }
            Self::Result { errors, .. } if (-ERROR_MAX..0).contains(&signed) => {
                errors.for_each_name(signed.unsigned_abs(), each)
            }
            Self::Folder if signed == AT_FDCWD => {
                each("AT_FDCWD");
                0
            }
            Self::Result { .. } | Self::Folder => value,
            Self::Status(_) | Self::Octal | Self::Device => value,
            Self::Internet | Self::Hardware | Self::Uuid => value,
        }
    }
}
