//! Filters as people write them: in a file, on the command line, over the control socket.
//!
//! A filter is `PATTERN: EXPR`, or `EXPR` alone, which is about all events of its channel. What it
//! asks of them stays text here; whoever records compiles it.

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use trackway_filter::parse::{parse, split_pattern};

use crate::{OptionError, RuleSpec};

/// Most filters of a channel: while it changes, it may have twice as many.
pub const FILTERS_MAX: usize = 64;
/// Most bytes of a channel's filters together, as they are written.
pub const FILTERS_BYTES_MAX: usize = 32 << 10;

/// A filter. In a file, one may be written as it is on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterSpec {
    /// Which events it is about: for `provider:name`, or a provider alone; none: all.
    pub pattern: Option<String>,
    /// What it asks of them.
    pub source: FilterSource,
}

/// What a filter asks of events.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterSource {
    /// That this expression is true.
    Expression(String),
}

/// A filter as a table.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct FullFilter {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pattern: Option<String>,
    expression: String,
}

impl From<FullFilter> for FilterSpec {
    fn from(FullFilter { pattern, expression }: FullFilter) -> Self {
        Self { pattern, source: FilterSource::Expression(expression) }
    }
}

impl Serialize for FilterSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = self.to_string();
        if Self::new(&text) == *self {
            return serializer.serialize_str(&text);
        }
        let FilterSource::Expression(expression) = &self.source;
        let (pattern, expression) = (self.pattern.clone(), expression.clone());
        FullFilter { pattern, expression }.serialize(serializer)
    }
}

// By hand: of an untagged enum serde says only that no variant matched, and not where.
impl<'de> Deserialize<'de> for FilterSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FilterVisitor)
    }
}

struct FilterVisitor;

impl<'de> Visitor<'de> for FilterVisitor {
    type Value = FilterSpec;

    fn expecting(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str(
            "a filter, such as \"web:*: status >= 400\", \
             or { pattern = \"web:*\", expression = \"status >= 400\" }",
        )
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<FilterSpec, E> {
        Ok(FilterSpec::new(text))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<FilterSpec, A::Error> {
        FullFilter::deserialize(MapAccessDeserializer::new(map)).map(FilterSpec::from)
    }
}

/// As it is written: `PATTERN: EXPR`, or `EXPR`.
impl core::fmt::Display for FilterSpec {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let FilterSource::Expression(expression) = &self.source;
        match &self.pattern {
            Some(pattern) => write!(formatter, "{pattern}: {expression}"),
            None => formatter.write_str(expression),
        }
    }
}

impl FilterSpec {
    /// A filter as it is written: `PATTERN: EXPR`, or `EXPR`.
    pub fn new(text: &str) -> Self {
        let (pattern, expression) = split_pattern(text);
        Self::of(pattern, expression)
    }

    /// An expression about the events that a pattern is for.
    pub fn of(pattern: Option<&str>, expression: &str) -> Self {
        let source = FilterSource::Expression(expression.to_owned());
        Self { pattern: pattern.map(str::to_owned), source }
    }

    /// Which events it is about, as `trackway_schema::Rules` reads it.
    pub fn rules(&self) -> String {
        let pattern = self.pattern.as_deref().unwrap_or("*");
        RuleSpec::new(pattern).full_pattern()
    }

    /// Its size where it is kept, in bytes.
    pub(crate) fn size_bytes(&self) -> usize {
        let FilterSource::Expression(expression) = &self.source;
        self.pattern.as_ref().map_or(0, String::len) + expression.len()
    }

    /// Whether there can be such a filter, as far as that can be said before its events are known.
    pub(crate) fn check(&self) -> Result<(), OptionError> {
        if let Some(pattern) = &self.pattern {
            let is_none = pattern.starts_with('!') || pattern.contains(char::is_control);
            if is_none || pattern.is_empty() {
                return Err(OptionError::Pattern(pattern.clone()));
            }
        }
        let FilterSource::Expression(expression) = &self.source;
        let parsed = parse(expression);
        parsed.map(|_| ()).map_err(|error| OptionError::Filter(error.render(expression)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_what_was_written() {
        for (text, pattern, rules) in [
            ("size > 5", None, "*"),
            ("web:*: size > 5", Some("web:*"), "web:*"),
            ("web: size > 5", Some("web"), "web:*"),
            ("name == \"a: b\"", None, "*"),
        ] {
            let filter = FilterSpec::new(text);
            assert_eq!(filter.pattern.as_deref(), pattern, "{text}");
            assert_eq!((filter.rules().as_str(), filter.to_string().as_str()), (rules, text));
            assert_eq!(filter.check(), Ok(()));
        }
        for text in ["!web:*: size > 5", "size >", "web:*: size > 5 &&", "a\nb: c > 1"] {
            assert!(FilterSpec::new(text).check().is_err(), "{text}");
        }
        let error = FilterSpec::new("web:*: size >").check().expect_err("no expression");
        assert_eq!(error.to_string().lines().nth(1), Some("size >"));
    }
}
