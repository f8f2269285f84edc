//! Selection of tracers by words: names, or parts of names. Misspelt names are reported before
//! minutes of measuring, and shells complete names.

use crate::error::{Error, Result};

/// Suffix of a tracer's name in a row that measures it a second time.
const AGAIN_SUFFIX: &str = " again";

/// Returns true if these words select the tracer `name`; an empty list selects every tracer.
pub fn is_chosen(words: &[String], name: &str) -> bool {
    words.is_empty() || words.iter().any(|word| word_selects(word, name))
}

/// Returns true if a word is a tracer's name or its part before a `-`, ignoring case: `lttng`
/// selects `lttng-ust` and `lttng-tracef`; `ftrace` selects `ftrace-uprobe`, and not `bpftrace`.
fn word_selects(word: &str, name: &str) -> bool {
    let (word, name) = (word.trim(), name.strip_suffix(AGAIN_SUFFIX).unwrap_or(name));
    let (Some(begin), Some(rest)) = (name.get(..word.len()), name.get(word.len()..)) else {
        return false;
    };
    begin.eq_ignore_ascii_case(word) && (rest.is_empty() || rest.starts_with('-'))
}

/// Rejects words that select none of these tracers.
///
/// # Errors
///
/// If such a word exists; the error contains the nearest name.
pub fn check_words(words: &[String], names: &[&str]) -> Result<()> {
    for word in words {
        if word.trim().is_empty() {
            return Err(Error::output("--tracers", "an empty name would be all tracers'"));
        }
        if !names.iter().any(|name| word_selects(word, name)) {
            let meant = nearest_name(word, names);
            let meant = meant.map(|nearest| format!("do you mean {nearest}? "));
            let (meant, all) = (meant.unwrap_or_default(), names.join(", "));
            let message = format!("no tracer has such a name; {meant}There are {all}");
            return Err(Error::output(word, message));
        }
    }
    Ok(())
}

/// Returns the words that select none of these tracers.
pub fn unused_words<'a>(words: &'a [String], names: &[&str]) -> Vec<&'a str> {
    let has = |word: &str| names.iter().any(|name| word_selects(word, name));
    words.iter().map(String::as_str).filter(|word| !has(word)).collect()
}

/// Returns true if a row's tracer is one of `names`, or repeats one of them.
pub fn is_listed(names: &[&str], tracer: &str) -> bool {
    names.contains(&tracer.strip_suffix(AGAIN_SUFFIX).unwrap_or(tracer))
}

/// Returns the name, or the beginning of names, with the fewest changed letters, if they are few.
fn nearest_name<'a>(word: &str, names: &[&'a str]) -> Option<&'a str> {
    let word = word.trim().to_lowercase();
    let begins = |name: &'a str| name.match_indices('-').map(move |(at, _)| &name[..at]);
    let all = names.iter().flat_map(|name| [*name].into_iter().chain(begins(name)));
    let with_distance = |name: &'a str| (strsim::levenshtein(&word, name), name);
    let (distance, name) = all.map(with_distance).min_by_key(|one| one.0)?;
    (distance <= 1 + word.chars().count() / 3).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 11] = [
        "bpftrace",
        "c",
        "fastrace",
        "ftrace-uprobe",
        "lttng-tracef",
        "lttng-ust",
        "none",
        "perf",
        "systemtap",
        "trackway",
        "trackway-rust",
    ];

    #[test]
    fn words_choose_names_and_what_goes_on_behind_them() {
        for (word, chosen, others) in [
            ("ftrace", ["ftrace", "ftrace-uprobe"], ["bpftrace", "uftrace"]),
            ("LTTng", ["lttng-ust", "lttng-tracef"], ["trackway", "lttngs"]),
            ("strace", ["strace", "strace again"], ["fastrace", "stra"]),
            (" trackway-c++", ["trackway-c++", "trackway-c++-off"], ["trackway", "trackway-c"]),
        ] {
            assert!(chosen.iter().all(|name| word_selects(word, name)), "{word}: {chosen:?}");
            assert!(!others.iter().any(|name| word_selects(word, name)), "{word}: {others:?}");
        }
        assert!(is_chosen(&[], "any"));
        assert!(!is_chosen(&["é".to_owned(), String::new()], "strace"));
    }

    #[test]
    fn what_nobody_is_called_is_refused_with_who_is_meant() {
        let error =
            |name: &str| check_words(&[name.to_owned()], &NAMES).expect_err(name).to_string();
        for (name, meant) in [("lttgn", "lttng"), ("bpftrac3", "bpftrace"), ("pref", "perf")] {
            let said = error(name);
            let expected = format!("{name}: no tracer has such a name; do you mean {meant}? There");
            assert!(said.starts_with(&expected), "{said}");
        }
        assert!(error("something else").contains("such a name; There are "));
        assert!(error(" ").contains("all tracers'"));
        for part in ["race", "lttng-", "trackway-c+"] {
            assert!(error(part).contains("no tracer has such a name"), "{part}");
        }
        for name in ["LTTng", "trackway-rust", "ftrace", "none", "c", "systemtap"] {
            check_words(&[name.to_owned()], &NAMES).expect(name);
        }
    }
}
