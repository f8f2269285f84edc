//! Meanings of numbers in kernel events, written into the metadata. A reader on another machine can
//! show them; a reader that does not know them shows plain numbers.
//!
//! A number with a meaning has a type whose name encodes the meaning, an alias of the plain type:
//!
//! ```text
//! enum trackway_choices_1f… : integer { size = 64; … } { "&" = 3, "O_RDONLY" = 0, "O_RDWR" = 2 };
//! enum trackway_flags_1f… : integer { size = 64; … } { "O_CREAT" = 64, "O_CLOEXEC" = 524288 };
//! typealias integer { size = 32; … } := trackway_names_1f…_x32;
//! event { … fields := struct { trackway_names_1f…_x32 _flags; }; };
//! ```
//!
//! ```text
//! trackway_names_TABLE_SCALAR           named bits, and one of some named values
//! trackway_result_TABLE_SCALAR          a result, or an error's negative number; TABLE: errors
//! trackway_result_address_TABLE_SCALAR  an address, or an error's negative number; TABLE: errors
//! trackway_folder_SCALAR                a file descriptor, or AT_FDCWD
//! trackway_octal_SCALAR                 shown in base 8
//! trackway_device_SCALAR                a device: 12 bits major, 20 bits minor
//! trackway_behind_TABLE_SCALAR          a named value; the upper 32 bits of each name's value are
//!                                       the preceding number for which the name applies
//! trackway_mode_TABLE_SCALAR            a file mode, in base 8; TABLE: types of files
//! trackway_address_TABLE_SCALAR         in base 16, except for named values
//! trackway_internet_SCALAR              of an array: an internet address, or a `struct sockaddr`
//! trackway_hardware_SCALAR              of an array: a network card's address
//! trackway_uuid_SCALAR                  of an array: a UUID
//! trackway_signals_TABLE_SCALAR         a set of signals, the first in the lowest bit
//! trackway_status_TABLE_SCALAR          a process status from wait(2); TABLE: signals
//! ```
//!
//! A table is two enumerations that no field has. The first label of `choices`, `&`, holds a mask;
//! the bits in the mask are one of the choices. Each other bit may be one of `flags`; the first
//! flag that fits applies. If the first label of `flags` is `&`, bits outside its value belong to
//! another field and are not shown. The values have 64 bits and a sign, which all readers can hold.
//! TABLE is the hash of the table's content, so that each table is declared once, however many
//! types use it.

use std::fmt::Write as _;
use std::sync::Arc;

use trackway_schema::{FieldKind, Scalar};

use super::metadata::{Integer, Quoted};

/// The meaning of a number in a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meaning {
    /// Named values, named bits, or both.
    Names(Arc<ValueNames>),
    /// The result of a call, or the negative number of an error.
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
    /// A named value whose upper half is the preceding number.
    NamesBehind(Arc<ValueNames>),
    /// A file mode: shown in base 8, except for named bits.
    Mode(Arc<ValueNames>),
    /// An address: shown in base 16, except for named values.
    Address(Arc<ValueNames>),
    /// A set of named signals, the first in the lowest bit.
    Signals(Arc<ValueNames>),
    /// Status of a process from wait(2), with names of signals.
    Status(Arc<ValueNames>),
}

/// Names of values. The bits in `choice_mask` are one of `choices`; each other bit may be one of
/// `flags`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ValueNames {
    /// Bits that together hold one of the choices.
    pub choice_mask: u64,
    /// Names of the values of the masked bits.
    pub choices: Vec<(String, u64)>,
    /// Names of single or combined bits; the first that fits applies.
    pub flags: Vec<(String, u64)>,
    /// Bits that belong to another field and are not shown.
    pub hidden: u64,
}

/// A type that must be declared once, before the fields that use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeDeclaration {
    /// Name of the type, which is unique in the trace.
    pub name: String,
    /// Declaration of the type in TSDL.
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
        // TSDL has no empty enumerations.
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
    /// Returns the type of a field's numbers, each of which may have a meaning.
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

    /// Returns the types that a scalar with this meaning needs, in the order of their declaration.
    /// The last one is the scalar's own type.
    pub fn declarations(&self, scalar: Scalar) -> Vec<TypeDeclaration> {
        let name = self.type_name(scalar);
        let text = format!("typealias {} := {name};\n\n", Integer(scalar));
        let mut declarations: Vec<_> =
            self.names().into_iter().flat_map(|names| names.declarations()).collect();
        declarations.push(TypeDeclaration { name, text });
        declarations
    }
}

/// Returns the name of the type that a line of metadata declares, if [`Meaning::declarations`] can
/// have written the line.
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
