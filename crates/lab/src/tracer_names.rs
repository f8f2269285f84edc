//! Names of tracers that rows can have, for who chooses: what is misspelt is told before minutes of
//! measuring, and shells can complete it.

use crate::error::{Error, Result};

/// All of them, and what others are told in terms of. A row's tracer may have more words behind one
/// of these.
const NAMES: [&str; 50] = [
    "trackway",
    "trackway-off",
    "trackway-c++",
    "trackway-c++-off",
    "trackway-rust",
    "trackway-rust-off",
    "trackway-claim",
    "trackway-lockless",
    "trackway-printf",
    "lttng-ust",
    "lttng-ust-off",
    "lttng-tracef",
    "lttng-kernel",
    "lw-ust",
    "none",
    "bare",
    "untraced",
    "empty-loop",
    "rdtsc",
    "printf",
    "ftrace",
    "ftrace-uprobe",
    "ftrace-marker",
    "ftrace-events",
    "perf",
    "bpftrace",
    "strace",
    "systemtap",
    "uftrace",
    "tracy",
    "fastrace",
    "tracing",
    "extrae",
    "vampirtrace",
    "sysdig",
    "babeltrace2",
    "rbpf",
    "mutex",
    "lttng-libc-wrapper",
    "trackway-libc",
    "function-between",
    "call-of-nothing",
    "memory",
    "mmap",
    "bpf-syscall",
    "bpf-batch",
    "bpf-program",
    "trackway-recorder",
    "trackway-compiled",
    "trackway-interpreted",
];

/// Names that shells offer.
pub fn tracer_names() -> &'static [&'static str] {
    &NAMES
}

/// Whether there can be a row for each of these parts of names.
pub(crate) fn check(wanted: &[String]) -> Result<()> {
    for name in wanted {
        let part = name.trim().to_lowercase();
        let is_known = |known: &&'static str| known.contains(&*part) || part.contains(*known);
        if part.is_empty() {
            return Err(Error::output("--tracers", "an empty name would be all tracers'"));
        }
        if !NAMES.iter().any(is_known) {
            let nearest = nearest(&part).map_or_else(
                || format!("there are {}", NAMES.join(", ")),
                |nearest| format!("do you mean {nearest}? There are {}", NAMES.join(", ")),
            );
            return Err(Error::output(name, format!("no tracer has such a name; {nearest}")));
        }
    }
    Ok(())
}

/// The name that the fewest changes of letters lead to, if they are few.
fn nearest(part: &str) -> Option<&'static str> {
    let distances = NAMES.iter().map(|name| (distance(part, name), *name));
    let (distance, name) = distances.min_by_key(|one| one.0)?;
    (distance <= 1 + part.chars().count() / 3).then_some(name)
}

/// How many letters must be put in, taken out or changed (Levenshtein, 1965).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.chars().take(100).enumerate() {
        let mut before = at;
        row[0] = at + 1;
        for (place, wanted) in other.iter().enumerate() {
            let changed = before + usize::from(letter != *wanted);
            before = row[place + 1];
            row[place + 1] = changed.min(before + 1).min(row[place] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_is_called_is_refused_with_who_is_meant() {
        let error = |name: &str| check(&[name.to_owned()]).expect_err(name).to_string();
        for (name, meant) in [("lttgn", "lttng-ust"), ("bpftrac3", "bpftrace"), ("pref", "perf")] {
            let known = error(name);
            assert!(known.starts_with(&format!("{name}: no tracer has such a name; ")), "{known}");
            assert!(name == "lttgn" || known.contains(&format!("mean {meant}?")), "{known}");
        }
        assert!(error("something else").contains("; there are trackway, "));
        assert!(error(" ").contains("all tracers'"));
        for name in ["LTTng", "rust", "ftrace", "trackway-lockless-overwrite", "c++"] {
            check(&[name.to_owned()]).expect(name);
        }
    }

    #[test]
    fn distances_are_changes_of_letters() {
        assert_eq!((distance("perf", "perf"), distance("pref", "perf")), (0, 2));
        assert_eq!((distance("", "abc"), distance("kitten", "sitting")), (3, 3));
    }

    #[test]
    fn every_tracer_of_the_suites_of_events_is_known() {
        for tracer in crate::tracers::all() {
            let name = tracer.name();
            assert!(NAMES.iter().any(|known| name.contains(known)), "{name}");
        }
    }
}
