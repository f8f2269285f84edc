//! Rules that mean no event that is known yet: mostly a name is misspelt then.
//!
//! Programs that are started later may bring what is meant, so it is no error.

use std::collections::BTreeSet;

use trackway_console::message;
use trackway_kernel::catalogue::Catalogue;
use trackway_kernel::catalogue::select::Selection;
use trackway_recorder::{Home, RuleSpec, near_pattern};
use trackway_schema::glob_matches;

/// A rule that no event of a name that is known matches.
#[derive(Debug, PartialEq, Eq)]
struct Unmatched {
    /// Its pattern, for provider and name.
    pattern: String,
    /// One that is like it, and matches an event.
    near: Option<String>,
}

/// Says which of these rules mean no event that programs of this user have registered.
pub(super) fn say<'rules>(rules: impl Iterator<Item = &'rules RuleSpec>) {
    // Where the window cannot be opened, there is nothing to compare with.
    let Ok(events) = Home::look(crate::list::events_in) else { return };
    let events = events.unwrap_or_default();
    let names: BTreeSet<String> = events.into_keys().collect();
    for Unmatched { pattern, near } in unmatched(rules, &names) {
        message!("trackway: no event matches '{pattern}' yet");
        if let Some(near) = near {
            message!("hint: there are events that match '{near}'");
        } else if let Some(name) = of_kernel(&pattern) {
            message!("hint: the kernel has events of that name: --kernel '{name}' is for those");
        }
    }
}

/// What a pattern is that means events of the kernel, as far as we may know.
fn of_kernel(pattern: &str) -> Option<&str> {
    let name = pattern.strip_suffix(":*").unwrap_or(pattern);
    let catalogue = Catalogue::open().ok()?;
    Selection::new(&[name]).ok()?.of(catalogue.names()).ok().map(|_| name)
}

fn unmatched<'rules>(
    rules: impl Iterator<Item = &'rules RuleSpec>,
    names: &BTreeSet<String>,
) -> Vec<Unmatched> {
    let patterns = rules.filter(|rule| !rule.excludes()).map(RuleSpec::full_pattern);
    let is_for_some = |pattern: &String| !matches!(pattern.as_str(), "*" | "*:*");
    let matches = |pattern: &str, name: &str| glob_matches(pattern.as_bytes(), name.as_bytes());
    patterns
        .filter(is_for_some)
        .filter(|pattern| !names.iter().any(|name| matches(pattern, name)))
        .map(|pattern| Unmatched { near: near_pattern(&pattern, names), pattern })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(patterns: &[&str], names: &[&str]) -> Vec<(String, Option<String>)> {
        let rules: Vec<RuleSpec> = patterns.iter().map(|&pattern| RuleSpec::new(pattern)).collect();
        let names = names.iter().map(|&name| name.to_owned()).collect();
        let unmatched = unmatched(rules.iter(), &names).into_iter();
        unmatched.map(|Unmatched { pattern, near }| (pattern, near)).collect()
    }

    #[test]
    fn rules_that_match_nothing_are_said_with_what_is_like_them() {
        let names = ["myapp:request", "myapp:noise", "db:query", "db:slow_query"];
        for (pattern, near) in [
            ("myap:*", Some("myapp:*")),
            ("myap", Some("myapp:*")),
            ("MyApp:req*", Some("myapp:req*")),
            ("myapp:reqest", Some("myapp:request")),
            ("mapp:reqest", Some("myapp:request")),
            ("*:reqest", Some("*:request")),
            ("dv:query", Some("db:query")),
            ("web:*", None),
            ("myapp:*quest_*", None),
            ("db:insert", None),
        ] {
            let found = said(&[pattern], &names);
            assert_eq!(found.len(), 1, "{pattern}");
            assert_eq!(found[0].1.as_deref(), near, "{pattern}");
        }
        assert_eq!(said(&["myap"], &names)[0].0, "myap:*", "as it is understood");
    }

    #[test]
    fn nothing_is_said_of_rules_that_match_or_exclude_or_mean_all() {
        let patterns = ["*", "*:*", "app", "app:req*", "!nothing:*"];
        assert_eq!(said(&patterns, &["app:request"]), []);
        assert_eq!(said(&["*", "*:*", "!app"], &[]), []);
        assert_eq!(said(&["app"], &[]), [("app:*".to_owned(), None)]);
    }
}
