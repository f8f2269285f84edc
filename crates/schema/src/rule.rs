//! Which events a session records: name patterns, matched without allocation because the library
//! inside a traced process matches them too.

/// Whether `pattern` matches all of `name`. `*` stands for any run of bytes, also an empty one;
/// nothing else is special (LTTng's event rules, lttng-event-rule(7)).
///
/// Linear in practice, at worst `pattern × name` steps: only the latest star is retried.
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

/// A session's event rules as they stand in the window: patterns for `provider:name`, one a line;
/// a line that begins with `!` excludes what the others include.
#[derive(Debug, Clone, Copy)]
pub struct Rules<'bytes> {
    text: &'bytes [u8],
}

impl<'bytes> Rules<'bytes> {
    /// Rules in this text.
    pub const fn new(text: &'bytes [u8]) -> Self {
        Self { text }
    }

    /// Whether the session records `provider:name`.
    pub fn selects(&self, provider: &[u8], name: &[u8]) -> bool {
        let mut full_name = [0_u8; 2 * crate::NAME_BYTES_MAX + 1];
        let length = provider.len() + 1 + name.len();
        let Some(full) = full_name.get_mut(..length) else { return false };
        full[..provider.len()].copy_from_slice(provider);
        full[provider.len()] = b':';
        full[provider.len() + 1..].copy_from_slice(name);
        let mut selected = false;
        for line in self.text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            match line.strip_prefix(b"!") {
                Some(excluded) if glob_matches(excluded, full) => return false,
                Some(_) => {}
                None => selected |= glob_matches(line, full),
            }
        }
        selected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(rules.selects(b"app", b"request"));
        assert!(!rules.selects(b"app", b"noise"));
        assert!(!rules.selects(b"other", b"request"));
        assert!(!Rules::new(b"").selects(b"a", b"b"));
    }
}
