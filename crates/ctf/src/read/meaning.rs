//! What numbers stand for, where the name of their type says so: `write/meaning.rs` has the names,
//! and draws them.
//!
//! The labels are those of the metadata's enumerations, shared: a table that a thousand types
//! name is there once.

use std::sync::Arc;

use super::types::{Integer, Mapping};

/// What begins the names of types that have a meaning.
pub(crate) const PREFIX: &str = "trackway_";
/// Linux's value for "the current folder" (linux/fcntl.h).
const AT_FDCWD: i64 = -100;
/// Greatest number of an error (MAX_ERRNO, linux/err.h).
const ERROR_MAX: i64 = 4095;

/// What a number stands for.
#[derive(Debug, Clone)]
pub enum Meaning {
    /// By name: one of some values, some bits, or both.
    Names(Names),
    /// The result of a call, or an error's negative number.
    Result {
        /// Names of errors.
        errors: Names,
        /// Whether what is no error is an address.
        is_address: bool,
    },
    /// A file descriptor, or `AT_FDCWD`.
    Folder,
    /// Shown in base 8.
    Octal,
    /// A device number: 12 bits major, 20 minor.
    Device,
}

/// Names of values, as two enumerations have them.
#[derive(Debug, Clone)]
pub struct Names {
    /// The first label is that of the mask.
    choices: Option<Arc<[Mapping]>>,
    flags: Option<Arc<[Mapping]>>,
}

impl Names {
    /// The names of a table; `None` if there is no such table.
    fn of(hash: &str, labels: &dyn Fn(&str) -> Option<Arc<[Mapping]>>) -> Option<Self> {
        let choices = labels(&format!("enum {PREFIX}choices_{hash}"));
        let flags = labels(&format!("enum {PREFIX}flags_{hash}"));
        (choices.is_some() || flags.is_some()).then_some(Self { choices, flags })
    }

    fn all(&self) -> impl Iterator<Item = (&str, i64)> {
        let choices = self.choices.iter().flat_map(|choices| choices.iter().skip(1));
        let all = choices.chain(self.flags.iter().flat_map(|flags| flags.iter()));
        all.filter_map(|of| Some((&*of.label, of.ranges.first()?.0.cast_signed())))
    }

    /// Gives each name of `value`, in which only its own bits are; returns the bits that have none.
    fn each<'names>(&'names self, value: u64, each: &mut dyn FnMut(&'names str)) -> u64 {
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
        let flags = self.flags.as_deref().unwrap_or_default();
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
}

impl Meaning {
    /// What a type of this name means, if anything; `labels` are those of a named enumeration.
    pub(crate) fn of(
        name: &str,
        labels: &dyn Fn(&str) -> Option<Arc<[Mapping]>>,
    ) -> Option<Arc<Self>> {
        let (kind, _scalar) = name.strip_prefix(PREFIX)?.rsplit_once('_')?;
        let (what, hash) = kind.rsplit_once('_').unwrap_or((kind, ""));
        Some(Arc::new(match what {
            "names" => Self::Names(Names::of(hash, labels)?),
            "result" => Self::Result { errors: Names::of(hash, labels)?, is_address: false },
            "result_address" => Self::Result { errors: Names::of(hash, labels)?, is_address: true },
            "folder" => Self::Folder,
            "octal" => Self::Octal,
            "device" => Self::Device,
            _ => return None,
        }))
    }

    /// All names that there are, and what they stand for: values, or bits of them.
    pub fn names(&self) -> Vec<(&str, i64)> {
        match self {
            Self::Names(names) => names.all().collect(),
            Self::Result { errors, .. } => {
                errors.all().map(|(name, error)| (name, error.wrapping_neg())).collect()
            }
            Self::Folder => vec![("AT_FDCWD", AT_FDCWD)],
            Self::Octal | Self::Device => Vec::new(),
        }
    }

    /// Whether values may have names.
    pub const fn has_labels(&self) -> bool {
        matches!(self, Self::Names(_) | Self::Result { .. } | Self::Folder)
    }

    /// Gives each name of a value of this integer; returns what of it has none.
    pub fn labels<'names>(
        &'names self,
        kind: &Integer,
        value: u64,
        each: &mut dyn FnMut(&'names str),
    ) -> u64 {
        let signed = value.cast_signed();
        match self {
            Self::Names(names) => names.each(value & (u64::MAX >> (64 - kind.bits())), each),
            Self::Result { errors, .. } if (-ERROR_MAX..0).contains(&signed) => {
                errors.each(signed.unsigned_abs(), each)
            }
            Self::Folder if signed == AT_FDCWD => {
                each("AT_FDCWD");
                0
            }
            Self::Result { .. } | Self::Folder | Self::Octal | Self::Device => value,
        }
    }
}
