//! Event rules as users write them: in a file, on the command line, over the control socket.

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use trackway_schema::glob_matches;

use crate::OptionError;
use crate::spec::level::Level;

/// An event rule. A session file may contain a rule without levels as its pattern alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleSpec {
    /// The pattern for `provider:name`, with a leading `!` if it excludes events.
    pub pattern: String,
    /// The selected log levels.
    pub level: Levels,
}

/// The log levels of the events that a rule selects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Levels {
    /// All levels.
    #[default]
    All,
    /// This level and more severe levels.
    AtLeast(Level),
    /// Exactly this level.
    Exactly(Level),
}

/// An event rule in table form.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct FullRule {
    pattern: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at_least: Option<Level>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    exactly: Option<Level>,
}

impl From<FullRule> for RuleSpec {
    fn from(FullRule { pattern, at_least, exactly }: FullRule) -> Self {
        // With both limits, the narrower one is sufficient.
        let level = match (at_least, exactly) {
            (_, Some(level)) => Levels::Exactly(level),
            (Some(level), None) => Levels::AtLeast(level),
            (None, None) => Levels::All,
        };
        Self { pattern, level }
    }
}

impl Serialize for RuleSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let pattern = self.pattern.clone();
        let (at_least, exactly) = match self.level {
            Levels::All => return serializer.serialize_str(&pattern),
            Levels::AtLeast(level) => (Some(level), None),
            Levels::Exactly(level) => (None, Some(level)),
        };
        FullRule { pattern, at_least, exactly }.serialize(serializer)
    }
}

// Hand-written, because for an untagged enum serde reports only that no variant matched, without
// the place.
impl<'de> Deserialize<'de> for RuleSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RuleVisitor)
    }
}

struct RuleVisitor;

impl<'de> Visitor<'de> for RuleVisitor {
    type Value = RuleSpec;

    fn expecting(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str(
            "a pattern, such as \"web:*\", or { pattern = \"web:*\", at-least = \"warning\" }",
        )
    }

    fn visit_str<E: serde::de::Error>(self, pattern: &str) -> Result<RuleSpec, E> {
        Ok(RuleSpec::new(pattern))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RuleSpec, A::Error> {
        FullRule::deserialize(MapAccessDeserializer::new(map)).map(RuleSpec::from)
    }
}

impl RuleSpec {
    /// Creates a rule for all levels.
    pub fn new(pattern: impl Into<String>) -> Self {
        Self { pattern: pattern.into(), level: Levels::All }
    }

    /// Returns true if the rule excludes events.
    pub fn excludes(&self) -> bool {
        self.pattern.starts_with('!')
    }

    /// Returns the pattern in the form of the window: a provider alone selects all its events.
    pub fn full_pattern(&self) -> String {
        let (mark, name) = match self.pattern.strip_prefix('!') {
            Some(name) => ("!", name),
            None => ("", self.pattern.as_str()),
        };
        let rest = if name.contains(':') || name == "*" { "" } else { ":*" };
        format!("{mark}{name}{rest}")
    }

    /// Returns the rule's line in the form that `trackway_schema::Rules` parses.
    pub(crate) fn line(&self) -> Result<String, OptionError> {
        let name = self.pattern.strip_prefix('!').unwrap_or(&self.pattern);
        if name.is_empty() || name.starts_with('!') || name.contains(char::is_control) {
            return Err(OptionError::Pattern(self.pattern.clone()));
        }
        let is_for_all = self.level == Levels::All && matches!(name, "*" | "*:*");
        if self.excludes() && is_for_all {
            return Err(OptionError::ExcludesAll(self.pattern.clone()));
        }
        let pattern = self.full_pattern();
        Ok(match self.level {
            Levels::All => pattern,
            Levels::AtLeast(level) => format!("{pattern}\t<={}", level.number()),
            Levels::Exactly(level) => format!("{pattern}\t={}", level.number()),
        })
    }
}

/// Returns true if `pattern` matches every text that `other` matches: only a star in `pattern`
/// matches a star in `other`.
pub(crate) fn pattern_covers(pattern: &str, other: &str) -> bool {
    glob_matches(pattern.as_bytes(), other.as_bytes())
}

/// Returns true if some text matches both patterns.
pub(crate) fn patterns_overlap(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    // `both[j]` is true if some text matches the visited prefix of `one` and the first `j` bytes of
    // `other`.
    let mut both = vec![false; other.len() + 1];
    for i in 0..=one.len() {
        let (mut before, mut before_both) = (false, false);
        for (j, cell) in both.iter_mut().enumerate() {
            let (a, b) = (i.checked_sub(1).map(|i| one[i]), j.checked_sub(1).map(|j| other[j]));
            let is_star = a == Some(b'*') || b == Some(b'*');
            // A star in either pattern matches nothing more, or the last byte of the other prefix.
            let is_both = (i, j) == (0, 0) || is_star && (*cell || before) || a == b && before_both;
            before_both = std::mem::replace(cell, is_both);
            before = is_both;
        }
    }
    both[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_overlap_where_some_text_matches_both() {
        let same = [("", ""), ("a", "a"), ("*", ""), ("a*", "*b"), ("a*c", "ab*"), ("*b*", "*a*")];
        let other =
            [("a", ""), ("a", "b"), ("a*", "b*"), ("*a", "*b"), ("a*bc", "a*d"), ("ab", "a")];
        for (one, two) in same {
            assert!(patterns_overlap(one, two) && patterns_overlap(two, one), "{one} {two}");
        }
        for (one, two) in other {
            assert!(!patterns_overlap(one, two) && !patterns_overlap(two, one), "{one} {two}");
        }
    }
}
