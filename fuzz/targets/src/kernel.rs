//! Descriptions that the kernel provides: event formats and BTF types.

use std::sync::Arc;

use trackway_kernel::catalogue::btf::{Btf, Class};
use trackway_kernel::catalogue::format::{NameLookup, parse};
use trackway_kernel::catalogue::model::{Meaning, Symbols};
use trackway_schema::Scalar;

use crate::Bound;

/// Limit of values: fields, value names and their letters; types, and the queries on each type.
pub(crate) const VALUES: Bound = Bound { per_byte: 4096, base: 1024 };
/// Limit of memory: tokens of C, and tables of names.
pub(crate) const MEMORY: Bound = Bound { per_byte: 512, base: 1 << 20 };
pub(crate) const ALLOCATIONS: Bound = Bound { per_byte: 512, base: 16 << 10 };
/// Maximum number of types whose properties are queried; more add no coverage.
const TYPES_MAX: usize = 64;

/// A lookup that finds some names.
struct PartialLookup;

impl NameLookup for PartialLookup {
    fn enumerator(&self, name: &str) -> Option<u64> {
        name.len().is_multiple_of(2).then_some(name.len() as u64)
    }

    fn enumeration(&self, _: &str) -> Option<Arc<Symbols>> {
        None
    }

    fn integer(&self, name: &str) -> Option<Scalar> {
        name.len().is_multiple_of(3).then_some(Scalar::I16)
    }
}

/// Reads an event format. The work is the number of fields and value names.
pub fn read_format(bytes: &[u8]) -> u64 {
    let Ok(text) = core::str::from_utf8(bytes) else { return 0 };
    let format = match parse(text, &PartialLookup) {
        Ok(format) => format,
        Err(error) => {
            let lines = text.lines().count() + 1;
            assert!(error.line >= 1 && error.line <= lines && !error.what.is_empty(), "{error}");
            return 0;
        }
    };
    let mut values = format.common.len() as u64;
    for field in &format.fields {
        assert!(field.offset + field.size <= 64 << 10, "{}", field.name);
        values += 1;
        if let Meaning::Symbols(symbols) = &field.meaning {
            values += symbols.iter().count() as u64;
            for symbol in symbols.iter() {
                assert!(!symbols.show(symbol.value).is_empty() || symbol.name.is_empty());
            }
        }
    }
    values
}

/// Reads types, and queries every property. The work is the number of type members.
pub fn read_btf(bytes: &[u8]) -> u64 {
    let Ok(btf) = Btf::parse(bytes.to_vec()) else { return 0 };
    let mut values = btf.len() as u64;
    for of in btf.types().take(TYPES_MAX) {
        values += (btf.members(&of).count() + btf.enumerators(&of).count()) as u64;
        values += (btf.parameters(&of).count() + btf.section_variables(&of).count()) as u64;
        let _ = (btf.scalar(of.id), btf.elements(&of), btf.resolve(of.id));
        values += btf.type_text(of.id).len() as u64;
        let _ = btf.find_member(of.id, "a.b");
        let structure = btf.structure(of.name);
        values += structure.map_or(0, |structure| structure.members.len() as u64);
        assert!(of.name.is_empty() || btf.find(of.class, of.name).is_some(), "{}", of.name);
        if of.class == Class::Enum {
            for (name, _) in btf.enumerators(&of).take(TYPES_MAX) {
                assert!(name.is_empty() || btf.enumerator(name).is_some(), "{name}");
            }
        }
    }
    values
}
