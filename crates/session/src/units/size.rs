//! Sizes in bytes as users write and read them.

/// The error that a text is not a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SizeError {
    /// The text is not a whole number, optionally followed by K, M, G, KiB, MiB or GiB.
    Form,
    /// The size does not fit 64 bits.
    TooLarge,
}

impl core::fmt::Display for SizeError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str(match self {
            Self::Form => {
                "write a number of bytes, or of K, M or G, also KiB, MiB, GiB (powers of 1024)"
            }
            Self::TooLarge => "too large",
        })
    }
}

impl core::error::Error for SizeError {}

/// Units, with their sizes as powers of two. A unit that ends like another unit precedes it.
const UNITS: [(&str, u32); 6] =
    [("kib", 10), ("mib", 20), ("gib", 30), ("k", 10), ("m", 20), ("g", 30)];

/// Parses a size in bytes: `4194304`, `4096K`, `4M`, `4MiB`, also in lower case.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let text = text.to_ascii_lowercase();
    let found = UNITS.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift)));
    let (digits, shift) = found.unwrap_or((&text, 0));
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(SizeError::Form);
    }
    let number: u64 = digits.parse().map_err(|_| SizeError::TooLarge)?;
    number.checked_mul(1 << shift).ok_or(SizeError::TooLarge)
}

/// A number of bytes, formatted for users: `12 bytes`, `64.0 KiB`, `4.2 MiB`.
#[derive(Debug, Clone, Copy)]
pub struct ByteCount(pub u64);

impl core::fmt::Display for ByteCount {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let bytes = self.0;
        for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
            if bytes >> shift != 0 {
                let whole = bytes >> shift;
                let tenth = ((bytes & ((1 << shift) - 1)) * 10) >> shift;
                return write!(formatter, "{whole}.{tenth} {unit}");
            }
        }
        write!(formatter, "{bytes} bytes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, expected) in [
            ("0", Ok(0)),
            ("4096", Ok(4096)),
            ("64k", Ok(65536)),
            ("4M", Ok(4 << 20)),
            ("1G", Ok(1 << 30)),
            ("4KiB", Ok(4096)),
            ("4MiB", Ok(4 << 20)),
            ("1gib", Ok(1 << 30)),
            ("", Err(SizeError::Form)),
            ("K", Err(SizeError::Form)),
            ("-1", Err(SizeError::Form)),
            ("1.5M", Err(SizeError::Form)),
            ("4MB", Err(SizeError::Form)),
            ("4iB", Err(SizeError::Form)),
            ("MiB", Err(SizeError::Form)),
            ("4 MiB", Err(SizeError::Form)),
            ("é", Err(SizeError::Form)),
            ("99999999999999999999", Err(SizeError::TooLarge)),
            ("17179869184G", Err(SizeError::TooLarge)),
        ] {
            assert_eq!(parse_size(text), expected, "{text}");
        }
    }

    #[test]
    fn byte_counts_are_short() {
        for (bytes, expected) in
            [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1.0 KiB"), (4_404_019, "4.1 MiB")]
        {
            assert_eq!(ByteCount(bytes).to_string(), expected);
        }
        assert!(ByteCount(u64::MAX).to_string().ends_with(" GiB"));
    }
}
