//! Helper functions that filters can call. docs/design/0008-filters.md has the table.

/// Declares helpers: number, name, and number of arguments (registers 1 to 5, the frame first).
macro_rules! helpers {
    ($($number:literal $name:ident $text:literal $arguments:literal,)*) => {
        /// A helper function. Numbers are part of the contract.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(i32)]
        #[expect(missing_docs, reason = "the table in 0008-filters.md says what each does")]
        pub enum Helper {
            $($name = $number,)*
        }

        impl Helper {
            /// All helpers, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Returns the helper with this number.
            pub const fn from_number(number: i32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// Returns the helper's name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// Returns the number of arguments, including the frame.
            pub const fn arguments(self) -> usize {
                match self {
                    $(Self::$name => $arguments,)*
                }
            }
        }
    };
}

helpers! {
    1 StringCompare "string_compare" 3,
    2 StringMatches "string_matches" 3,
    3 StringStartsWith "string_starts_with" 3,
    4 StringEndsWith "string_ends_with" 3,
    5 StringContains "string_contains" 3,
    6 StringHash "string_hash" 2,
    7 Element "element" 4,
    8 Any "any" 4,
    9 FloatCompare "float_compare" 3,
    10 FloatAdd "float_add" 3,
    11 FloatSubtract "float_subtract" 3,
    12 FloatMultiply "float_multiply" 3,
    13 FloatDivide "float_divide" 3,
    14 FloatFromSigned "float_from_signed" 2,
    15 FloatFromUnsigned "float_from_unsigned" 2,
    16 TimeNs "time_ns" 1,
    17 Random "random" 1,
    18 Count "count" 2,
    19 Changed "changed" 3,
    20 Rate "rate" 4,
    21 TailCall "tail_call" 2,
    22 StringEdges8 "string_edges_8" 4,
    23 StringEdges4 "string_edges_4" 4,
    24 StringEdges2 "string_edges_2" 4,
    25 StringEdges1 "string_edges_1" 4,
    26 BytesDiffer1 "bytes_differ_1" 3,
    27 BytesDiffer2 "bytes_differ_2" 3,
    28 BytesDiffer3 "bytes_differ_3" 4,
    29 BytesDiffer4 "bytes_differ_4" 3,
    30 BytesDiffer5 "bytes_differ_5" 4,
    31 BytesDiffer6 "bytes_differ_6" 4,
    32 BytesDiffer7 "bytes_differ_7" 4,
    33 BytesDiffer8 "bytes_differ_8" 3,
    34 BytesDiffer9 "bytes_differ_9" 4,
    35 BytesDiffer10 "bytes_differ_10" 4,
    36 BytesDiffer11 "bytes_differ_11" 4,
    37 BytesDiffer12 "bytes_differ_12" 4,
    38 BytesDiffer13 "bytes_differ_13" 4,
    39 BytesDiffer14 "bytes_differ_14" 4,
    40 BytesDiffer15 "bytes_differ_15" 4,
    41 BytesDiffer16 "bytes_differ_16" 4,
    42 Sum "sum" 3,
    43 Least "least" 3,
    44 Greatest "greatest" 3,
}

impl Helper {
    /// Returns the number of bytes compared at each end of a string; `None` for other helpers.
    pub const fn edge_bytes(self) -> Option<u8> {
        match self {
            Self::StringEdges8 => Some(8),
            Self::StringEdges4 => Some(4),
            Self::StringEdges2 => Some(2),
            Self::StringEdges1 => Some(1),
            _ => None,
        }
    }

    /// Returns the number of bytes compared with numbers, 1 to 16; `None` for other helpers.
    pub const fn compared_bytes(self) -> Option<u8> {
        const NUMBER_OFFSET: u8 = Helper::BytesDiffer1 as u8 - 1;
        match self as u8 {
            number @ 26..=41 => Some(number - NUMBER_OFFSET),
            _ => None,
        }
    }

    /// Returns the sizes of the two numbers for a comparison of this many bytes. The first number
    /// covers the beginning: the largest power of two that fits, 8 at most. The last number covers
    /// the end; its size is 0 if the first number covers all bytes. The two may overlap.
    pub const fn number_bytes(compared: u8) -> (u8, u8) {
        match compared {
            13.. => (8, 8),
            9.. => (8, 4),
            8 => (8, 0),
            5.. => (4, 4),
            4 => (4, 0),
            3 => (2, 2),
            2 => (2, 0),
            _ => (1, 0),
        }
    }

    /// Returns true if machine code inlines the helper instead of calling it.
    pub const fn is_inline(self) -> bool {
        self.edge_bytes().is_some() || self.compared_bytes().is_some()
    }

    /// Returns true if the helper itself visits all elements of a sequence.
    pub const fn is_of_elements(self) -> bool {
        matches!(self, Self::Sum | Self::Least | Self::Greatest)
    }

    /// Returns true if register 1 still holds the frame after the call. Registers 2 to 5 are lost.
    pub const fn keeps_frame(self) -> bool {
        self.is_inline()
    }
}

/// A string or sequence in a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word {
    /// Offset in the frame's bytes, or in the program's constants.
    pub offset: u32,
    /// Length in bytes, or number of elements.
    pub length: u32,
    /// True if the offset refers to the program's constants.
    pub is_constant: bool,
}

impl Word {
    const CONSTANT: u32 = 1 << 31;
    /// Slot value of a string element that the event lacks; no string has this value. A filter that
    /// reads the element answers no.
    pub const ABSENT: u64 = u64::MAX;

    /// Decodes a slot or register.
    pub const fn from_bits(bits: u64) -> Self {
        let offset = bits as u32;
        Self {
            offset: offset & !Self::CONSTANT,
            length: (bits >> 32) as u32,
            is_constant: offset & Self::CONSTANT != 0,
        }
    }

    /// Encodes the word for a slot.
    pub const fn to_bits(self) -> u64 {
        let mark = if self.is_constant { Self::CONSTANT } else { 0 };
        (self.length as u64) << 32 | (self.offset & !Self::CONSTANT | mark) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_table() {
        for (index, &helper) in Helper::ALL.iter().enumerate() {
            assert_eq!(helper as usize, index + 1);
            assert_eq!(Helper::from_number(helper as i32), Some(helper));
        }
        assert_eq!(Helper::from_number(0), None);
    }

    #[test]
    fn words_come_back() {
        for is_constant in [false, true] {
            let word = Word { offset: 0x7fff_fffe, length: u32::MAX, is_constant };
            assert_eq!(Word::from_bits(word.to_bits()), word);
        }
    }
}
