//! Sizes and durations in a session file, in the units of users; a number means bytes.

/// Serializes sizes: `"4M"`, or bytes as a number.
pub(crate) mod size {
    use core::fmt;

    use serde::de::{Error, Visitor};
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::parse_size;

    /// Serializes a size in the largest unit that leaves no remainder.
    pub(crate) fn serialize<S: Serializer>(
        size: &Option<u64>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match size {
            Some(bytes) => serializer.serialize_str(&format_size(*bytes)),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<u64>, D::Error> {
        Ok(Option::<Size>::deserialize(deserializer)?.map(|Size(bytes)| bytes))
    }

    struct Size(u64);

    impl<'de> Deserialize<'de> for Size {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_any(SizeVisitor)
        }
    }

    struct SizeVisitor;

    impl Visitor<'_> for SizeVisitor {
        type Value = Size;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a size, such as \"4M\", or a number of bytes")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Size, E> {
            parse_size(text).map(Size).map_err(E::custom)
        }

        fn visit_u64<E: Error>(self, bytes: u64) -> Result<Size, E> {
            Ok(Size(bytes))
        }

        fn visit_i64<E: Error>(self, bytes: i64) -> Result<Size, E> {
            let size = u64::try_from(bytes).map(Size);
            size.map_err(|_| E::custom(format_args!("no size is less than 0, as {bytes} is")))
        }
    }

    fn format_size(bytes: u64) -> String {
        let units = [(30, "G"), (20, "M"), (10, "K")];
        let whole = |&&(shift, _): &&(u32, &str)| bytes != 0 && bytes.trailing_zeros() >= shift;
        match units.iter().find(whole) {
            Some((shift, unit)) => format!("{}{unit}", bytes >> shift),
            None => bytes.to_string(),
        }
    }
}

/// Serializes durations: `"10ms"`.
pub(crate) mod time {
    use core::fmt;
    use core::time::Duration;

    use serde::de::{Error, Visitor};
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::{Time, parse_duration};

    pub(crate) fn serialize<S: Serializer>(
        time: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => serializer.collect_str(&Time(*time)),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<Text>::deserialize(deserializer)?.map(|Text(time)| time))
    }

    struct Text(Duration);

    impl<'de> Deserialize<'de> for Text {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_any(TextVisitor)
        }
    }

    struct TextVisitor;

    impl Visitor<'_> for TextVisitor {
        type Value = Text;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a time with its unit, such as \"10ms\"")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Text, E> {
            parse_duration(text).map(Text).map_err(E::custom)
        }
    }
}

/// Serializes bytes as two hexadecimal digits each.
pub(crate) mod bytes {
    use core::fmt::{self, Write as _};
    use std::sync::Arc;

    use serde::de::{Error, Visitor};
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        bytes: &Option<Arc<[u8]>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match bytes {
            Some(bytes) => serializer.collect_str(&Digits(bytes)),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Arc<[u8]>>, D::Error> {
        Ok(Option::<Text>::deserialize(deserializer)?.map(|Text(bytes)| bytes))
    }

    struct Digits<'a>(&'a [u8]);

    impl fmt::Display for Digits<'_> {
        fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            for byte in self.0 {
                for digit in [byte >> 4, byte & 15] {
                    formatter.write_char(char::from(b"0123456789abcdef"[usize::from(digit)]))?;
                }
            }
            Ok(())
        }
    }

    struct Text(Arc<[u8]>);

    impl<'de> Deserialize<'de> for Text {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_any(TextVisitor)
        }
    }

    struct TextVisitor;

    impl Visitor<'_> for TextVisitor {
        type Value = Text;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("bytes, as two hexadecimal digits each")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Text, E> {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            let byte = |pair: &[u8]| match pair {
                [high, low] => Some((digit(*high)? << 4 | digit(*low)?) as u8),
                _ => None,
            };
            let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(byte).collect();
            let none = || E::custom("these are no bytes: two hexadecimal digits each");
            bytes.map(|bytes| Text(bytes.into())).ok_or_else(none)
        }
    }
}
