//! Event rules: patterns for names, and levels, that select the events of a session. They are
//! matched without allocation because the agent in a traced process matches them too.

/// Returns true if `pattern` matches all of `name`. `*` matches any run of bytes, even an empty
/// one; no other character is special (LTTng's event rules, lttng-event-rule(7)).
///
/// Takes linear time in practice, at worst `pattern × name` steps: only the latest star is retried.
pub fn glob_matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if p < pattern.len() && pattern[p] == b'*' {
            star = Some((p, n));
            p += 1;
        } else if p < pattern.len() && pattern[p] == name[n] {
            p += 1;
            n += 1;
        } else if let Some((star_p, star_n)) = star {
            star = Some((star_p, star_n + 1));
            p = star_p + 1;
            n = star_n + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

/// Separator between a rule's pattern and its levels. No event name contains it.
const LEVELS_SEPARATOR: u8 = b'\t';

/// A session's event rules in the text form of the window, one rule a line:
///
/// ```text
/// rule   := ["!"] pattern ["\t" levels]
/// levels := "<=" n | "=" n        n: 0 to 14 in decimal, LTTng's level: smaller is graver
/// ```
///
/// A pattern matches `provider:name`. A line that begins with `!` excludes events that other lines
/// include, wherever the line is. An unreadable line has no effect.
#[derive(Debug, Clone, Copy)]
pub struct Rules<'bytes> {
    text: &'bytes [u8],
}

impl<'bytes> Rules<'bytes> {
    /// Creates the rules of this text.
    pub const fn new(text: &'bytes [u8]) -> Self {
        Self { text }
    }

    /// Returns true if the session records `provider:name` at this level (0–14).
    pub fn selects(&self, provider: &[u8], name: &[u8], level: u8) -> bool {
        let mut full_name = [0_u8; 2 * crate::NAME_BYTES_MAX + 1];
        let length = provider.len() + 1 + name.len();
        let Some(full) = full_name.get_mut(..length) else { return false };
        full[..provider.len()].copy_from_slice(provider);
        full[provider.len()] = b':';
        full[provider.len() + 1..].copy_from_slice(name);
        let mut selected = false;
        for rule in self.text.split(|&byte| byte == b'\n').filter_map(Rule::read) {
            if rule.levels.contain(level) && glob_matches(rule.pattern, full) {
                if rule.excludes {
                    return false;
                }
                selected = true;
            }
        }
        selected
    }

    /// Returns true if the session records `provider:name` at any level.
    pub fn may_select(&self, provider: &[u8], name: &[u8]) -> bool {
        (0..=LEVEL_MAX).any(|level| self.selects(provider, name, level))
    }
}

/// Highest level number, the least grave level.
const LEVEL_MAX: u8 = crate::LEVEL_NAMES.len() as u8 - 1;

/// A line of [`Rules`].
struct Rule<'bytes> {
    excludes: bool,
    pattern: &'bytes [u8],
    levels: Levels,
}

impl<'bytes> Rule<'bytes> {
    /// Parses a rule; returns `None` if the line is unreadable.
    fn read(line: &'bytes [u8]) -> Option<Self> {
        let (excludes, rest) = match line.strip_prefix(b"!") {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        let (pattern, levels) = match rest.iter().position(|&byte| byte == LEVELS_SEPARATOR) {
            Some(at) => (&rest[..at], Levels::read(&rest[at + 1..])?),
            None => (rest, Levels::AtMost(u8::MAX)),
        };
        Some(Self { excludes, pattern, levels })
    }
}

/// The levels that a rule selects.
#[derive(Debug, Clone, Copy)]
enum Levels {
    /// This level and all graver ones.
    AtMost(u8),
    /// This level alone.
    Exactly(u8),
}

impl Levels {
    fn read(text: &[u8]) -> Option<Self> {
        if let Some(level) = text.strip_prefix(b"<=") {
            read_level(level).map(Self::AtMost)
        } else {
            read_level(text.strip_prefix(b"=")?).map(Self::Exactly)
        }
    }

    const fn contain(self, level: u8) -> bool {
        match self {
            Self::AtMost(most) => level <= most,
            Self::Exactly(only) => level == only,
        }
    }
}

/// Parses a level of one or two digits.
fn read_level(text: &[u8]) -> Option<u8> {
    if text.is_empty() || text.len() > 2 {
        return None;
    }
    let mut level = 0;
    for byte in text {
        level = level * 10 + byte.checked_sub(b'0').filter(|&digit| digit < 10)?;
    }
    (level <= LEVEL_MAX).then_some(level)
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    /// The level of most events.
    const INFO: u8 = 6;

    #[test]
    fn globs_match_as_users_expect() {
        for (pattern, name, expected) in [
            ("*", "a:b", true),
            ("a:*", "a:b", true),
            ("a:*", "b:b", false),
            ("*:req*", "app:request", true),
            ("*:req*t", "app:request", true),
            ("*:req*x", "app:request", false),
            ("", "a:b", false),
            ("a:b", "a:b", true),
            ("a:b", "a:bc", false),
            ("**b", "a:b", true),
            ("*a*a*b", "aaaaaaaaab", true),
        ] {
            assert_eq!(glob_matches(pattern.as_bytes(), name.as_bytes()), expected, "{pattern}");
        }
    }

    #[test]
    fn exclusion_wins_over_inclusion() {
        let rules = Rules::new(b"app:*\n!app:noise");
        assert!(rules.selects(b"app", b"request", INFO));
        assert!(!rules.selects(b"app", b"noise", INFO));
        assert!(!rules.selects(b"other", b"request", INFO));
        assert!(!Rules::new(b"").selects(b"a", b"b", INFO));
        let rules = Rules::new(b"!app:noise\napp:*");
        assert!(!rules.selects(b"app", b"noise", INFO), "wherever it stands");
    }

    /// Returns the levels at which `text` selects `app:request`, as a set of bits.
    fn levels_of(text: &str) -> u32 {
        let rules = Rules::new(text.as_bytes());
        let of = |level: u8| u32::from(rules.selects(b"app", b"request", level)) << level;
        let levels = (0..=LEVEL_MAX).map(of).sum();
        assert_eq!(rules.may_select(b"app", b"request"), levels != 0, "{text:?}");
        levels
    }

    #[test]
    fn levels_are_what_lttng_takes_them_for() {
        for (text, expected) in [
            ("app:*", 0x7fff),
            ("app:*\t<=4", 0x1f),
            ("app:*\t=4", 0x10),
            ("app:*\t<=0", 1),
            ("app:*\t<=14", 0x7fff),
            ("app:*\t=14", 0x4000),
            ("app:*\t=04", 0x10),
            ("app:*\t=4\napp:req*\t=6", 0x50),
            ("app:*\n!app:*\t<=4", 0x7fe0),
            ("app:*\t<=6\n!*\t=3", 0x77),
            ("other:*\t<=14", 0),
        ] {
            assert_eq!(levels_of(text), expected, "{text:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_means_nothing() {
        for levels in
            ["", "4", "<4", "<=", "=", "<=15", "=15", "<=-1", "<= 4", "=4 ", "=004", "=4\t", ">=4"]
        {
            assert_eq!(levels_of(&format!("app:*\t{levels}")), 0, "{levels:?}");
            assert_eq!(levels_of(&format!("*\n!app:*\t{levels}")), 0x7fff, "{levels:?}");
        }
        assert_eq!(levels_of("\n\n!\n\t\n!\t<=4\n\t<=14"), 0);
    }
}
