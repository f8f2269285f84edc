//! UUIDs as text (RFC 9562, section 4).

use std::fmt::Write as _;

/// A UUID in its usual text form, `01234567-89ab-…`.
#[derive(Debug, Clone, Copy)]
pub struct Uuid<'bytes>(pub &'bytes [u8; 16]);

impl std::fmt::Display for Uuid<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                formatter.write_char('-')?;
            }
            write!(formatter, "{byte:02x}")?;
        }
        Ok(())
    }
}
