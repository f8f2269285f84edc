//! Names of tracers, for who chooses among them: which name a word means; what is misspelt is told
//! before minutes of measuring, and shells complete it.

use std::collections::BTreeSet;

use crate::error::{Error, Result};
use crate::suite::Suite;
use crate::suites;

/// What stands behind a tracer's name in a row that measures it a second time.
const AGAIN: &str = " again";

/// Names of all tracers that suites have rows of, each once, in the order of the alphabet.
pub fn tracer_names() -> Vec<&'static str> {
    let all = suites::all();
    let names: BTreeSet<&str> = all.iter().flat_map(|suite| suite.tracers()).collect();
    names.into_iter().collect()
}

/// Whether these words choose the tracer of this name; no word at all chooses each.
pub(crate) fn chosen(words: &[String], name: &str) -> bool {
    words.is_empty() || words.iter().any(|word| chooses(word, name))
}

/// Whether a word is a tracer's name, or what it begins with before a `-`, in whatever case:
/// `lttng` is `lttng-ust` and `lttng-tracef`; `ftrace` is `ftrace-uprobe`, and not `bpftrace`.
fn chooses(word: &str, name: &str) -> bool {
    let (word, name) = (word.trim(), name.strip_suffix(AGAIN).unwrap_or(name));
    let (Some(begin), Some(rest)) = (name.get(..word.len()), name.get(word.len()..)) else {
        return false;
    };
    begin.eq_ignore_ascii_case(word) && (rest.is_empty() || rest.starts_with('-'))
}

/// Whether each of these words chooses a tracer of some suite.
pub(crate) fn check(words: &[String]) -> Result<()> {
    let names = tracer_names();
    for word in words {
        if word.trim().is_empty() {
            return Err(Error::output("--tracers", "an empty name would be all tracers'"));
        }
        if !names.iter().any(|name| chooses(word, name)) {
            let meant = nearest(word, &names);
            let meant = meant.map(|nearest| format!("do you mean {nearest}? "));
            let (meant, all) = (meant.unwrap_or_default(), names.join(", "));
            let message = format!("no tracer has such a name; {meant}There are {all}");
            return Err(Error::output(word, message));
        }
    }
    Ok(())
}

/// Those words that choose none of these suites' tracers.
pub(crate) fn idle<'a>(words: &'a [String], suites: &[Box<dyn Suite>]) -> Vec<&'a str> {
    let has = |word: &str| {
        suites.iter().any(|suite| suite.tracers().iter().any(|name| chooses(word, name)))
    };
    words.iter().map(String::as_str).filter(|word| !has(word)).collect()
}

/// Whether a row's tracer is among a suite's.
pub(crate) fn is_listed(suite: &dyn Suite, tracer: &str) -> bool {
    suite.tracers().contains(&tracer.strip_suffix(AGAIN).unwrap_or(tracer))
}

/// The name, or beginning of names, that the fewest changes of letters lead to, if they are few.
fn nearest<'a>(word: &str, names: &[&'a str]) -> Option<&'a str> {
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
    use crate::place::Place;
    use crate::progress::Progress;
    use crate::suite::{Hall, Settings};
    use crate::suites::{paths::Paths, sharing::Sharing};

    #[test]
    fn words_choose_names_and_what_goes_on_behind_them() {
        for (word, chosen, others) in [
            ("ftrace", ["ftrace", "ftrace-uprobe"], ["bpftrace", "uftrace"]),
            ("LTTng", ["lttng-ust", "lttng-tracef"], ["trackway", "lttngs"]),
            ("strace", ["strace", "strace again"], ["fastrace", "stra"]),
            (" trackway-c++", ["trackway-c++", "trackway-c++-off"], ["trackway", "trackway-c"]),
        ] {
            assert!(chosen.iter().all(|name| chooses(word, name)), "{word}: {chosen:?}");
            assert!(!others.iter().any(|name| chooses(word, name)), "{word}: {others:?}");
        }
        assert!(chosen(&[], "any"));
        assert!(!chosen(&["é".to_owned(), String::new()], "strace"));
    }

    #[test]
    fn what_nobody_is_called_is_refused_with_who_is_meant() {
        let error = |name: &str| check(&[name.to_owned()]).expect_err(name).to_string();
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
            check(&[name.to_owned()]).expect(name);
        }
    }

    #[test]
    fn every_suite_has_tracers_that_words_can_choose() {
        for suite in suites::all() {
            let (name, tracers) = (suite.about().name, suite.tracers());
            assert!(
                tracers.iter().any(|tracer| tracer.starts_with("trackway")) || name == "startup",
                "{name}: {tracers:?}"
            );
            for tracer in tracers {
                // Commas are between words of --tracers.
                let is_word = |letter: char| letter.is_ascii_graphic() && letter != ',';
                assert!(tracer.chars().all(is_word), "{name}: {tracer}");
                assert_eq!(tracer, tracer.to_lowercase(), "{name}");
            }
        }
        let idle = |words: &[&str]| -> Vec<String> {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let only: [Box<dyn Suite>; 1] = [Box::new(Sharing::default())];
            super::idle(&words, &only).into_iter().map(str::to_owned).collect()
        };
        assert_eq!(idle(&["bpf", "perf", "mmap"]), ["perf"]);
    }

    /// Of suites that have rows within milliseconds; the engine looks at those of all.
    #[test]
    fn rows_are_of_the_tracers_that_their_suite_tells() {
        let place = Place::at("trackway".into());
        let (progress, settings) = (Progress::new(), Settings::default());
        let hall = Hall { place: &place, progress: &progress, settings: &settings, cpus: 2 };
        let both: [Box<dyn Suite>; 2] = [Box::new(Sharing::default()), Box::new(Paths::new())];
        for mut suite in both {
            let entries = suite.enter(&hall).expect("rows");
            suite.leave();
            for tracer in suite.tracers() {
                assert!(entries.iter().any(|entry| entry.tracer == tracer), "{tracer}");
            }
            for entry in entries {
                assert!(is_listed(suite.as_ref(), &entry.tracer), "{}", entry.tracer);
            }
        }
    }
}
