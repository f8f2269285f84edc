//! Meanings of numbers, recognized by the names of their types. `write/meaning.rs` lists the names
//! and draws their declarations.
//!
//! The labels are shared with the metadata's enumerations: a table that a thousand types name is in
//! memory once.

use std::sync::Arc;

use super::types::{Integer, Mapping};

/// Prefix of the names of types that have a meaning.
pub(crate) const MEANING_PREFIX: &str = "trackway_";
/// Linux's value for "the current folder" (linux/fcntl.h).
const AT_FDCWD: i64 = -100;
/// Greatest number of an error (MAX_ERRNO, linux/err.h).
const ERROR_MAX: i64 = 4095;

/// The meaning of a number in a field.
#[derive(Debug, Clone)]
pub enum Meaning {
    /// Named values, named bits, or both.
    Names(Names),
    /// The result of a call, or the negative number of an error.
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
    /// A named value whose upper half is the preceding number.
    NamesBehind(Names),
    /// A file mode: shown in base 8, except for named bits.
    Mode(Names),
    /// An address: shown in base 16, except for named values.
    Address(Names),
    /// A set of named signals, the first in the lowest bit.
    Signals(Names),
    /// Status of a process from wait(2), with names of signals.
    Status(Names),
}

/// Names of values and bits, from the two enumerations of a table.
#[derive(Debug, Clone)]
pub struct Names {
    /// Enumeration of values; its first label holds the mask.
    choices: Option<Arc<[Mapping]>>,
    /// Enumeration of bits; its first label may hold the mask.
    flags: Option<Arc<[Mapping]>>,
}

/// The label that holds a mask.
const MASK_LABEL: &str = "&";

impl Names {
    /// Returns the names of a table; `None` if there is no such table.
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

    /// Returns the mask of the bits that are shown, and the bits that have names.
    fn flags(&self) -> (u64, &[Mapping]) {
        match self.flags.as_deref().and_then(<[_]>::split_first) {
            None => (u64::MAX, &[]),
            Some((first, rest)) if &*first.label == MASK_LABEL => {
                (first.ranges.first().map_or(u64::MAX, |&(mask, _)| mask), rest)
            }
            Some(_) => (u64::MAX, self.flags.as_deref().unwrap_or_default()),
        }
    }

    /// Returns the name of `value` among the choices.
    fn name(&self, value: u64) -> Option<&str> {
        let (_, choices) = self.choices.as_deref()?.split_first()?;
        let is_it = |of: &&Mapping| of.ranges.iter().any(|range| range.0 == value);
        choices.iter().find(is_it).map(|of| &*of.label)
    }

    /// Passes each name of `value` to `each`; returns the bits that have no name. `value` must have
    /// no bits beyond its own width.
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
            // The name of the value 0, if it has one.
            let none = flags.iter().find(|flag| flag.ranges.iter().any(|range| range.0 == 0));
            none.into_iter().for_each(|flag| each(&flag.label));
        }
        rest
    }

    /// Passes to `each` the names of `value` that apply if the preceding number is `before`.
    /// Returns the bits that have no name.
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

/// Mask of a value's lower half.
const LOW_HALF_MASK: u64 = 0xffff_ffff;
/// Layout of a wait(2) status (bits/waitstatus.h): the signal, or `STOPPED` with the signal one
/// byte above; the exit code one byte above; a bit that is set if the process dumped core.
const SIGNAL: u64 = 0x7f;
const STOPPED: u64 = 0x7f;
const DUMPED: u64 = 0x80;
const CONTINUED: u64 = 0xffff;

impl Meaning {
    /// Returns the meaning of a type named `name`, if it has one; `labels` returns the labels of a
    /// named enumeration.
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

    /// Returns all names, each with its value or its bits.
    pub fn names(&self) -> Vec<(&str, i64)> {
        match self {
            Self::Names(names) | Self::Mode(names) | Self::Address(names) => names.all().collect(),
            // The upper halves of the values matter only for decoding a trace.
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

    /// Returns true if some bits of a value belong to another field and are not shown.
    pub fn has_hidden_bits(&self) -> bool {
        matches!(self, Self::Names(names) if names.flags().0 != u64::MAX)
    }

    /// Describes the end of a process from its wait(2) status: `exited 1`, `killed by SIGTERM`.
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

    /// Passes each name of `value` to `each`; returns the bits that have no name. `value` is one of
    /// an integer of type `kind`, and follows the number `before`.
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
                // At most one iteration for each bit.
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
