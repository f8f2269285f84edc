//! Meanings of numbers in kernel events, written so that a reader on another machine can show them,
//! and so that a reader that does not know them sees plain numbers.
//!
//! A number with a meaning has a type with a name that says it, an alias of the plain type:
//!
//! ```text
//! enum trackway_choices_1f… : integer { size = 64; … } { "&" = 3, "O_RDONLY" = 0, "O_RDWR" = 2 };
//! enum trackway_flags_1f… : integer { size = 64; … } { "O_CREAT" = 64, "O_CLOEXEC" = 524288 };
//! typealias integer { size = 32; … } := trackway_names_1f…_x32;
//! event { … fields := struct { trackway_names_1f…_x32 _flags; }; };
//! ```
//!
//! ```text
//! trackway_names_TABLE_SCALAR           bits, and one of some values, by name
//! trackway_result_TABLE_SCALAR          a result, or an error's negative number; TABLE: errors
//! trackway_result_address_TABLE_SCALAR  likewise, and the result is an address
//! trackway_folder_SCALAR                a file descriptor, or AT_FDCWD
//! trackway_octal_SCALAR                 shown in base 8
//! trackway_device_SCALAR                a device: 12 bits major, 20 bits minor
//! trackway_behind_TABLE_SCALAR          by name; the upper 32 bits of each name's value are those
//!                                       of the number before it for which the name counts
//! trackway_mode_TABLE_SCALAR            in base 8, but for the type of a file; TABLE: of those
//! trackway_address_TABLE_SCALAR         in base 16, but for those that have names
//! trackway_internet_SCALAR              of an array: an internet address, or a `struct sockaddr`
//! trackway_hardware_SCALAR              of an array: a network card's address
//! trackway_uuid_SCALAR                  of an array: a UUID
//! trackway_signals_TABLE_SCALAR         a set of signals, the first in the lowest bit
//! trackway_status_TABLE_SCALAR          what wait(2) tells of a process; TABLE: signals
//! ```
//!
//! A table is two enumerations that no field has. Of `choices`, one is in the bits of a mask, which
//! is the value of the first label, `&`; each other bit may be one of `flags`, of which the first
//! that fits counts. Where the first of `flags` is called `&`, bits that are not in its value
//! belong to something else, and are not shown. Their values are of 64 bits with a sign, which all
//! readers can hold. TABLE is the hash of the table's content, so that each table is declared once,
//! however many types use it.

use std::fmt::Write as _;
use std::sync::Arc;

use trackway_schema::{FieldKind, Scalar};

use super::metadata::{Integer, Quoted};

/// The meaning of a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meaning {
    /// By name: one of some values, some bits, or both.
    Names(Arc<ValueNames>),
    /// The result of a call, or the negative number of one of these errors.
    Result {
        /// Names of errors, by their numbers.
        errors: Arc<ValueNames>,
        /// True if a value that is no error is an address.
        is_address: bool,
    },
    /// A file descriptor of a folder, or `AT_FDCWD`.
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
    NamesBehind(Arc<ValueNames>),
    /// In base 8, but for what of it has a name.
    Mode(Arc<ValueNames>),
    /// In base 16, but for what has a name.
    Address(Arc<ValueNames>),
    /// A set of these signals, the first in the lowest bit.
    Signals(Arc<ValueNames>),
    /// Status of a process from wait(2), with names of signals.
    Status(Arc<ValueNames>),
}

/// Names of values: what is in `choice_mask` is one of `choices`, and each other bit may be one of
/// `flags`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ValueNames {
    /// Bits that together are one of the choices.
    pub choice_mask: u64,
    /// Values of those bits.
    pub choices: Vec<(String, u64)>,
    /// Bits, the first that fit taken first.
    pub flags: Vec<(String, u64)>,
    /// Bits that are about something else.
    pub hidden: u64,
}

/// A type that fields use, and is to be declared before them, once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeDeclaration {
    /// Name of the type, which is unique in the trace.
    pub name: String,
    /// Its declaration.
    pub text: String,
}

impl ValueNames {
    /// Returns a hash that differs between tables with different content.
    fn hash(&self) -> u64 {
        let mut bytes = self.choice_mask.to_le_bytes().to_vec();
        for part in [&self.choices, &self.flags] {
            bytes.extend((part.len() as u64).to_le_bytes());
            for (name, value) in part {
                bytes.extend(value.to_le_bytes());
                bytes.extend((name.len() as u64).to_le_bytes());
                bytes.extend(name.as_bytes());
            }
        }
        if self.hidden != 0 {
            bytes.extend(self.hidden.to_le_bytes());
        }
        trackway_schema::fnv1a_hash(&bytes)
    }

    fn declarations(&self) -> impl Iterator<Item = TypeDeclaration> {
        let hash = self.hash();
        let mask = (!self.choices.is_empty()).then_some(("&", self.choice_mask));
        let named = |(name, value): &'_ (String, u64)| (Quoted(name).to_string(), *value);
        let choices = mask.into_iter().map(|(name, value)| (Quoted(name).to_string(), value));
        let choices: Vec<_> = choices.chain(self.choices.iter().map(named)).collect();
        let shown = (self.hidden != 0).then_some(("&", !self.hidden));
        let shown = shown.into_iter().map(|(name, value)| (Quoted(name).to_string(), value));
        let flags: Vec<_> = shown.chain(self.flags.iter().map(named)).collect();
        let parts = [("choices", choices), ("flags", flags)];
        // There are no empty enumerations in TSDL.
        parts.into_iter().filter(|(_, labels)| !labels.is_empty()).map(move |(part, labels)| {
            let name = format!("trackway_{part}_{hash:016x}");
            let mut text = format!("enum {name} : {} {{\n", Integer(Scalar::I64));
            for (label, value) in labels {
                let _ = writeln!(text, "\t{label} = {},", value.cast_signed());
            }
            text.push_str("};\n\n");
            TypeDeclaration { name, text }
        })
    }
}

impl Meaning {
    /// Returns the type of the numbers in a field, of which each may have a meaning.
    pub const fn scalar_of_field(kind: &FieldKind) -> Option<Scalar> {
        match kind {
            FieldKind::Scalar(scalar)
            | FieldKind::Array(scalar, _)
            | FieldKind::Sequence(scalar) => Some(*scalar),
            _ => None,
        }
    }

    const fn names(&self) -> Option<&Arc<ValueNames>> {
        match self {
            Self::Names(names) | Self::NamesBehind(names) | Self::Result { errors: names, .. } => {
                Some(names)
            }
            Self::Mode(names) | Self::Address(names) => Some(names),
            Self::Signals(names) | Self::Status(names) => Some(names),
            Self::Folder | Self::Octal | Self::Device => None,
            Self::Internet | Self::Hardware | Self::Uuid => None,
        }
    }

    /// Returns the name of the type of a scalar with this meaning.
    pub(super) fn type_name(&self, scalar: Scalar) -> String {
        let kind = match self {
            Self::Names(_) => "names",
            Self::Result { is_address: false, .. } => "result",
            Self::Result { .. } => "result_address",
            Self::Folder => "folder",
            Self::Octal => "octal",
            Self::Device => "device",
            Self::Internet => "internet",
            Self::Hardware => "hardware",
            Self::Uuid => "uuid",
            Self::NamesBehind(_) => "behind",
            Self::Mode(_) => "mode",
            Self::Address(_) => "address",
            Self::Signals(_) => "signals",
            Self::Status(_) => "status",
        };
        let table = self.names().map(|names| format!("_{:016x}", names.hash())).unwrap_or_default();
        let letter = match scalar {
            _ if scalar.is_hexadecimal() => 'x',
            _ if scalar.is_signed() => 'i',
            _ => 'u',
        };
        format!("trackway_{kind}{table}_{letter}{}", 8 * scalar.size_bytes())
    }

    /// The types that a scalar with this meaning needs, in the order of their declaration: the
    /// last is its own.
    pub fn declarations(&self, scalar: Scalar) -> Vec<TypeDeclaration> {
        let name = self.type_name(scalar);
        let text = format!("typealias {} := {name};\n\n", Integer(scalar));
        let mut declarations: Vec<_> =
            self.names().into_iter().flat_map(|names| names.declarations()).collect();
        declarations.push(TypeDeclaration { name, text });
        declarations
    }
}

/// The name of the type that a line of metadata declares as [`Meaning::declarations`] do.
pub fn parse_declared_type_name(line: &str) -> Option<&str> {
    let alias = line.strip_prefix("typealias ").and_then(|rest| rest.split_once(" := "));
    let table = line.strip_prefix("enum ").and_then(|rest| rest.split_once(" : "));
    let name = match (alias, table) {
        (Some((_, name)), _) => name.strip_suffix(';')?,
        (None, Some((name, _))) => name,
        (None, None) => return None,
    };
    name.starts_with("trackway_").then_some(name)
}
