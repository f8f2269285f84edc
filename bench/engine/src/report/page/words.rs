//! Descriptions of cases for people: the names of cases are short, for programs.

use crate::case::Payload;
use crate::results::Row;

/// First words of case names, and their meaning.
const PAYLOADS: [(Payload, &str); 5] = [
    (Payload::Number, "one u32"),
    (Payload::Record, "a string, a u32 and a u64"),
    (Payload::Printf, "a formatted text"),
    (Payload::Views, "a text, four u32 and a u64"),
    (Payload::Scope, "a scope: two events"),
];
/// Contexts of events, and their meaning.
const CONTEXTS: [(&str, &str); 3] = [
    (" + vtid", " + the thread's id"),
    (" + vpid", " + the process's id"),
    (" + procname", " + the process's name"),
];

/// Returns a case as a heading.
pub(super) fn case_heading(case: &str) -> String {
    let known = PAYLOADS.iter().find_map(|(payload, words)| {
        let rest = case.strip_prefix(payload.title())?;
        let is_whole = rest.is_empty() || rest.starts_with(", ") || rest.starts_with(" + ");
        is_whole.then(|| format!("{words}{rest}"))
    });
    let words = known.unwrap_or_else(|| case.to_owned());
    CONTEXTS.iter().fold(words, |words, (short, long)| words.replace(short, long))
}

/// Returns the common part of cases that differ in x: the words of a name without the number, which
/// may occur several times.
pub(super) fn case_family(case: &str, x: f64) -> String {
    let without = |word: &str| {
        let number = trim_to_digits(word);
        let word = if number.parse() == Ok(x) { word.replacen(number, "", 1) } else { word.into() };
        let (word, comma) = word.strip_suffix(',').map_or((&*word, ""), |word| (word, ","));
        format!("{}{comma}", word.strip_suffix('s').unwrap_or(word))
    };
    let words: Vec<String> = case.split(' ').map(without).filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

/// Returns one heading for cases that differ in x: `one u32, 1 to 8 threads`. `axis` is the meaning
/// of x.
pub(super) fn family_heading(rows: &[&Row], axis: &str) -> String {
    let with_x = || rows.iter().filter_map(|row| Some((row.x?, *row)));
    let Some((first, _)) = with_x().min_by(|one, other| one.0.total_cmp(&other.0)) else {
        return String::new();
    };
    // The greatest x has the words in the plural.
    let Some((last, row)) = with_x().max_by(|one, other| one.0.total_cmp(&other.0)) else {
        return String::new();
    };
    let mut is_said = false;
    let with_both = |word: &str| {
        if is_said || trim_to_digits(word).parse() != Ok(last) {
            return word.to_owned();
        }
        is_said = true;
        word.replacen(trim_to_digits(word), &format!("{first} to {last}"), 1)
    };
    let words: Vec<String> = row.case.split(' ').map(with_both).collect();
    let words = case_heading(&words.join(" "));
    if is_said { words } else { format!("{words}, {first} to {last} {axis}") }
}

/// Returns the number in a word.
fn trim_to_digits(word: &str) -> &str {
    word.trim_matches(|letter: char| !letter.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::fixtures::measured_row;

    #[test]
    fn cases_are_told_in_words() {
        for (case, words) in [
            ("u32, 1 thread", "one u32, 1 thread"),
            ("u32 + vtid + vpid", "one u32 + the thread's id + the process's id"),
            (
                "str,u32,u64 + vtid, 1 thread",
                "a string, a u32 and a u64 + the thread's id, 1 thread",
            ),
            ("\"%s (%d)\"", "a formatted text"),
            ("u32s", "u32s"),
            ("getppid", "getppid"),
        ] {
            assert_eq!(case_heading(case), words);
        }
    }

    #[test]
    fn cases_that_differ_in_x_are_a_family() {
        assert_eq!(case_family("u32, 1 thread", 1.0), case_family("u32, 16 threads", 16.0));
        assert_eq!(case_family("9 predicates, last false", 9.0), "predicate, last false");
        assert_ne!(case_family("u32, 1 thread", 1.0), case_family("u64, 1 thread", 1.0));
        assert_eq!(case_family("str(64)", 64.0), case_family("str(8)", 8.0));
        assert_ne!(case_family("str(64)", 64.0), case_family("bytes(64)", 64.0));
    }

    #[test]
    fn families_say_from_where_to_where() {
        let title = |cases: &[(&str, f64)]| {
            let rows: Vec<Row> = cases
                .iter()
                .map(|(case, x)| Row { x: Some(*x), ..measured_row("a", case, 1.0) })
                .collect();
            family_heading(&rows.iter().collect::<Vec<&Row>>(), "bytes")
        };
        assert_eq!(
            title(&[("u32, 1 thread", 1.0), ("u32, 8 threads", 8.0)]),
            "one u32, 1 to 8 threads"
        );
        assert_eq!(
            title(&[("openat, a name of 255 bytes", 255.0), ("openat, a name of 0 bytes", 0.0)]),
            "openat, a name of 0 to 255 bytes"
        );
        assert_eq!(title(&[("small", 1.0), ("large", 9.0)]), "large, 1 to 9 bytes");
    }
}
