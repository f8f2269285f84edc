//! Filters as users write them: in a file, on the command line, over the control socket.
//!
//! A filter is `PATTERN: EXPR`, or `EXPR` alone, which applies to all events of its channel. The
//! specification keeps the expression as text; the recorder compiles it. A filter in C is already
//! compiled: the specification contains its object, so that a saved session does not depend on a
//! file.

use std::sync::Arc;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use trackway_filter::checked::CheckedObject;
use trackway_filter::elf::OBJECT_BYTES_MAX;
use trackway_filter::parse::{parse, split_pattern};

use crate::{ByteCount, OptionError, RuleSpec};

/// Most filters of a channel; during a change, the channel may have twice as many.
pub const FILTERS_MAX: usize = 64;
/// Most bytes of all filters of a channel, as text.
pub const FILTERS_BYTES_MAX: usize = 32 << 10;
/// Most bytes of all filters in C of a channel: half of what the window can hold, because during a
/// change old and new filters exist together.
pub const FILTER_OBJECTS_BYTES_MAX: usize = OBJECT_BYTES_MAX;
/// Longest file name on Linux, in bytes.
const FILE_NAME_BYTES_MAX: usize = 255;

/// A filter. A session file may contain it in the form of the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterSpec {
    /// The events to which the filter applies: `provider:name`, or a provider alone; `None`: all
    /// events.
    pub pattern: Option<String>,
    /// The filter's condition.
    pub source: FilterSource,
}

/// The condition of a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterSource {
    /// An expression that must be true.
    Expression(String),
    /// A filter in C that must accept the event.
    Object(FilterObject),
}

/// A filter in C.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterObject {
    /// The name of the object's file, for messages.
    pub file: String,
    /// The object, as `trackway filter compile` writes it.
    pub bytes: Arc<[u8]>,
}

/// A filter in table form.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct FullFilter {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pattern: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expression: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::units::toml::bytes")]
    object: Option<Arc<[u8]>>,
}

impl FullFilter {
    fn new(pattern: Option<String>, source: FilterSource) -> Self {
        let full = Self { pattern, ..Self::default() };
        match source {
            FilterSource::Expression(expression) => Self { expression: Some(expression), ..full },
            FilterSource::Object(FilterObject { file, bytes }) => {
                Self { file: Some(file), object: Some(bytes), ..full }
            }
        }
    }

    fn source(self) -> Result<FilterSource, &'static str> {
        match (self.expression, self.object, self.file) {
            (Some(expression), None, None) => Ok(FilterSource::Expression(expression)),
            (None, Some(bytes), file) => {
                let file = file.unwrap_or_else(|| "filter.twf".into());
                Ok(FilterSource::Object(FilterObject { file, bytes }))
            }
            (None, None, Some(_)) => Err("a filter's file is named, and its object is not there: \
                                          trackway session save writes both"),
            (None, None, None) => Err("a filter has an expression or an object"),
            (Some(_), ..) => Err("a filter has an expression or an object, not both"),
        }
    }
}

impl Serialize for FilterSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let FilterSource::Expression(_) = &self.source {
            let text = self.to_string();
            if Self::new(&text) == *self {
                return serializer.serialize_str(&text);
            }
        }
        FullFilter::new(self.pattern.clone(), self.source.clone()).serialize(serializer)
    }
}

// Hand-written, because for an untagged enum serde reports only that no variant matched, without
// the place.
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

    fn visit_str<E: Error>(self, text: &str) -> Result<FilterSpec, E> {
        Ok(FilterSpec::new(text))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<FilterSpec, A::Error> {
        let mut full = FullFilter::deserialize(MapAccessDeserializer::new(map))?;
        let pattern = full.pattern.take();
        Ok(FilterSpec { pattern, source: full.source().map_err(A::Error::custom)? })
    }
}

/// Serializes an expression as text, an object as a table.
impl Serialize for FilterSource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Expression(expression) => serializer.serialize_str(expression),
            Self::Object(_) => FullFilter::new(None, self.clone()).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for FilterSource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SourceVisitor)
    }
}

struct SourceVisitor;

impl<'de> Visitor<'de> for SourceVisitor {
    type Value = FilterSource;

    fn expecting(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str("an expression, or a table with an object")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<FilterSource, E> {
        Ok(FilterSource::Expression(text.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<FilterSource, A::Error> {
        let full = FullFilter::deserialize(MapAccessDeserializer::new(map))?;
        if full.pattern.is_some() {
            return Err(A::Error::custom("which events it is about, the rules say"));
        }
        full.source().map_err(A::Error::custom)
    }
}

impl core::fmt::Display for FilterSource {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Expression(expression) => formatter.write_str(expression),
            Self::Object(FilterObject { file, bytes }) => {
                write!(formatter, "{file} ({})", ByteCount(bytes.len() as u64))
            }
        }
    }
}

/// Formats the filter as the user writes it: `PATTERN: EXPR`, or `EXPR`. For an object, formats the
/// file's name and size.
impl core::fmt::Display for FilterSpec {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if let Some(pattern) = &self.pattern {
            write!(formatter, "{pattern}: ")?;
        }
        self.source.fmt(formatter)
    }
}

impl FilterSource {
    /// Returns true if the condition is empty; such a source removes a filter.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::Expression(expression) if expression.trim().is_empty())
    }

    /// Returns the size of the condition's text in bytes; for an object, that of its file name.
    pub(crate) fn size_bytes(&self) -> usize {
        match self {
            Self::Expression(text) | Self::Object(FilterObject { file: text, .. }) => text.len(),
        }
    }

    /// Returns the size of the object in bytes; 0 for an expression.
    pub(crate) fn object_bytes(&self) -> usize {
        match self {
            Self::Expression(_) => 0,
            Self::Object(object) => object.bytes.len(),
        }
    }

    fn check(&self) -> Result<(), OptionError> {
        match self {
            Self::Expression(expression) => {
                let parsed = parse(expression);
                parsed.map(|_| ()).map_err(|error| OptionError::Filter(error.render(expression)))
            }
            Self::Object(FilterObject { file, bytes }) => {
                let is_name = !file.is_empty()
                    && file.len() <= FILE_NAME_BYTES_MAX
                    && !file.contains(char::is_control);
                if !is_name {
                    return Err(OptionError::Filter(format!("no file is called {file:?}")));
                }
                let checked = CheckedObject::new(bytes);
                checked.map(|_| ()).map_err(|why| OptionError::Filter(format!("{file}: {why}")))
            }
        }
    }
}

impl FilterSpec {
    /// Parses a filter as the user writes it: `PATTERN: EXPR`, or `EXPR`.
    pub fn new(text: &str) -> Self {
        let (pattern, expression) = split_pattern(text);
        Self::of(pattern, expression)
    }

    /// Creates a filter with an expression for the events of a pattern.
    pub fn of(pattern: Option<&str>, expression: &str) -> Self {
        let source = FilterSource::Expression(expression.to_owned());
        Self { pattern: pattern.map(str::to_owned), source }
    }

    /// Returns true if the filters are equal, so that the filter's state continues. Ignores the
    /// name of an object's file.
    pub fn is_same(&self, other: &Self) -> bool {
        let is_same_source = match (&self.source, &other.source) {
            (FilterSource::Object(one), FilterSource::Object(other)) => one.bytes == other.bytes,
            (one, other) => one == other,
        };
        self.pattern == other.pattern && is_same_source
    }

    /// Returns the events to which the filter applies, in the form that `trackway_schema::Rules`
    /// parses: one line for each pattern of a list.
    pub fn rules(&self) -> String {
        let list = self.pattern.as_deref().unwrap_or("*");
        let lines = list.split(',').map(|pattern| RuleSpec::new(pattern.trim()).full_pattern());
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Returns true if the filter applies to all events of programs and of the kernel.
    pub fn is_for_all_events(&self) -> bool {
        self.rules() == "*"
    }

    /// Returns the size of the filter's text in bytes, without an object's bytes.
    pub(crate) fn size_bytes(&self) -> usize {
        self.pattern.as_ref().map_or(0, String::len) + self.source.size_bytes()
    }

    /// Checks the filter, as far as that is possible before its events are known.
    pub(crate) fn check(&self) -> Result<(), OptionError> {
        if let Some(pattern) = &self.pattern {
            let is_none = pattern.starts_with('!') || pattern.contains(char::is_control);
            let is_none = is_none || pattern.split(',').any(|one| one.trim().is_empty());
            if is_none {
                return Err(OptionError::Pattern(pattern.clone()));
            }
        }
        self.source.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ChannelSpec, SessionSpec};

    /// Returns a filter in C; its object is compiled from an expression that reads no fields.
    fn object_filter(file: &str, expression: &str) -> FilterSpec {
        let compiled = trackway_filter::compile::compile(expression, &<_>::default());
        let bytes = compiled.expect("a filter").into_object().encode().expect("an object").into();
        let source = FilterSource::Object(FilterObject { file: file.into(), bytes });
        FilterSpec { pattern: Some("web:*".into()), source }
    }

    fn session_with_filters(filters: Vec<FilterSpec>) -> SessionSpec {
        let channels = vec![ChannelSpec { filters, ..ChannelSpec::default() }];
        SessionSpec { channels, ..SessionSpec::default() }
    }

    #[test]
    fn an_object_is_saved_whole_and_shown_by_its_files_name() {
        let filter = object_filter("slow.o", "count() % 10 == 0");
        let FilterSource::Object(FilterObject { bytes, .. }) = &filter.source else { panic!() };
        let shown = format!("web:*: slow.o ({} bytes)", bytes.len());
        assert_eq!((filter.to_string(), filter.check()), (shown, Ok(())));
        let saved = session_with_filters(vec![filter.clone(), FilterSpec::new("size > 5")]);
        let text = saved.to_toml().expect("a text");
        assert!(text.contains("object = \"747766"), "{text}");
        assert_eq!(SessionSpec::from_toml(&text), Ok(saved));
        let wrong = |from: &str, to: &str| {
            let read = SessionSpec::from_toml(&text.replacen(from, to, 1));
            read.expect_err("no such filter").to_string()
        };
        assert!(wrong("747766", "74776").contains("two hexadecimal digits"));
        assert!(wrong("747766", "74776g").contains("two hexadecimal digits"));
        assert!(wrong("747766", "757766").contains("slow.o: "));
        assert!(wrong("object = ", "expression = ").contains("not both"));
        assert!(wrong("slow.o", "").contains("no file is called"));
        let list = "[[channel]]\nfilters = [{ file = \"slow.o\" }]\n";
        let error = SessionSpec::from_toml(list).expect_err("no object").to_string();
        assert!(error.contains("its object is not there"), "{error}");
    }

    #[test]
    fn the_same_bytes_are_the_same_filter() {
        let filter = object_filter("slow.o", "count() % 10 == 0");
        let renamed = object_filter("other.o", "count() % 10 == 0");
        assert!(filter.is_same(&renamed) && filter != renamed);
        assert!(!filter.is_same(&object_filter("slow.o", "count() % 10 == 1")));
        assert!(!filter.is_same(&FilterSpec { pattern: None, ..renamed }));
        assert!(!filter.is_same(&FilterSpec::new("web:*: count() % 10 == 0")));
    }

    #[test]
    fn objects_have_only_so_much_room_together() {
        let large = |count: usize| {
            let bytes = vec![0; FILTER_OBJECTS_BYTES_MAX / 2 + 1].into();
            let source = FilterSource::Object(FilterObject { file: "large.o".into(), bytes });
            session_with_filters(vec![FilterSpec { pattern: None, source }; count])
        };
        let error = |count| large(count).check().expect_err("no objects").to_string();
        assert!(error(1).contains("large.o: "), "{}", error(1));
        assert!(error(2).contains("larger than 64.0 KiB together"), "{}", error(2));
    }

    #[test]
    fn a_filter_is_what_was_written() {
        for (text, pattern, rules) in [
            ("size > 5", None, "*"),
            ("web:*: size > 5", Some("web:*"), "web:*"),
            ("web: size > 5", Some("web"), "web:*"),
            ("web:get,db: size > 5", Some("web:get,db"), "web:get\ndb:*"),
            ("*, !web:put: size > 5", Some("*, !web:put"), "*\n!web:put"),
            ("name == \"a: b\"", None, "*"),
        ] {
            let filter = FilterSpec::new(text);
            assert_eq!(filter.pattern.as_deref(), pattern, "{text}");
            assert_eq!((filter.rules().as_str(), filter.to_string().as_str()), (rules, text));
            assert_eq!(filter.check(), Ok(()));
        }
        let none = FilterSpec::of(Some("web:get,"), "size > 5");
        assert!(none.check().is_err(), "{none}");
        for text in ["!web:*: size > 5", "size >", "web:*: size > 5 &&", "a\nb: c > 1"] {
            assert!(FilterSpec::new(text).check().is_err(), "{text}");
        }
        let error = FilterSpec::new("web:*: size >").check().expect_err("no expression");
        assert_eq!(error.to_string().lines().nth(1), Some("size >"));
    }
}
