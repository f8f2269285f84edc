//! Encodes objects for the programs that run filters: docs/design/0008-filters.md, "Object format".
//! The decoder (crate `jit`) treats objects as hostile; this module only encodes them.

use trackway_jit::insn::Insn;
use trackway_jit::object::VERSION;

use crate::types::Need;

const MAGIC: [u8; 3] = *b"twf";
/// Alignment of programs, from the beginning of the object.
const ALIGNMENT: usize = 8;

/// A filter compiled for one combination of kinds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alternative {
    /// Needs of the filter, each a slot of the frame: at most 64.
    pub needs: Vec<Need>,
    /// Constant strings, at most 65,535 bytes.
    pub constants: Vec<u8>,
    /// Programs, the entry program first: at most 255.
    pub programs: Vec<Vec<Insn>>,
}

/// A filter with an alternative for each combination of kinds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Number of state cells: at most 64.
    pub cells: usize,
    /// Alternatives, at most 255. The first whose needs an event has is the event's filter.
    pub alternatives: Vec<Alternative>,
}

/// Error: a part of an object exceeds the format's limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLarge(
    /// Name of the part.
    pub &'static str,
);

impl std::fmt::Display for TooLarge {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "more {} than an object of a filter has room for", self.0)
    }
}

impl std::error::Error for TooLarge {}

fn count_to_byte(count: usize, what: &'static str) -> Result<u8, TooLarge> {
    count.try_into().map_err(|_| TooLarge(what))
}

impl Object {
    /// Encodes the object.
    ///
    /// # Errors
    ///
    /// Returns an error if a part exceeds its limit in the format.
    pub fn encode(&self) -> Result<Vec<u8>, TooLarge> {
        let mut bytes = MAGIC.to_vec();
        let alternatives = count_to_byte(self.alternatives.len(), "alternatives")?;
        bytes.extend([VERSION, alternatives, count_to_byte(self.cells, "cells")?]);
        for alternative in &self.alternatives {
            alternative.encode(&mut bytes)?;
        }
        Ok(bytes)
    }
}

impl Alternative {
    fn encode(&self, bytes: &mut Vec<u8>) -> Result<(), TooLarge> {
        let needs = count_to_byte(self.needs.len(), "needs")?;
        bytes.extend([needs, count_to_byte(self.programs.len(), "programs")?]);
        let constants = u16::try_from(self.constants.len());
        let constants = constants.map_err(|_| TooLarge("bytes of constants"))?;
        bytes.extend(constants.to_le_bytes());
        for need in &self.needs {
            bytes.extend([need.kind as u8, count_to_byte(need.path.len(), "bytes of a path")?]);
            bytes.extend(need.path.as_bytes());
        }
        bytes.extend(&self.constants);
        bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
        for program in &self.programs {
            let count = u32::try_from(program.len()).map_err(|_| TooLarge("instructions"))?;
            bytes.extend(count.to_le_bytes());
            bytes.extend([0; 4]);
            bytes.extend(program.iter().flat_map(|insn| insn.encode()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::compile;
    use crate::layout::{Layout, Member};
    use trackway_schema::Scalar;

    #[test]
    fn bytes_are_those_of_the_document() {
        let field = Member { name: "size".into(), of: Scalar::U32.into() };
        let layout = Layout { fields: vec![field], ..Layout::default() };
        let object = compile("size > 5", &layout).expect("a filter").into_object();
        let bytes = object.encode().expect("an object");
        // 6 bytes of header, 4 of the alternative, 6 of the need: 16, so no padding.
        assert_eq!(bytes[..16], *b"twf\x01\x01\x00\x01\x01\x00\x00\x02\x04size");
        let program = &object.alternatives[0].programs[0];
        assert_eq!(bytes[16..24], [program.len() as u8, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes.len(), 24 + 8 * program.len());
        assert_eq!(bytes[bytes.len() - 8..], [0x95, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let object = Object { cells: 256, alternatives: Vec::new() };
        assert_eq!(object.encode(), Err(TooLarge("cells")));
        let alternative =
            Alternative { needs: Vec::new(), constants: vec![0; 65_536], programs: Vec::new() };
        let object = Object { cells: 0, alternatives: vec![alternative] };
        assert_eq!(object.encode(), Err(TooLarge("bytes of constants")));
    }
}
