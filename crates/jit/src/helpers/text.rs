//! String helpers: comparison, search, pattern matching. Strings are bytes, not characters.
//!
//! The search is Crochemore and Perrin's two-way algorithm ("Two-way string-matching", 1991):
//! linear time in both lengths and constant memory for all strings.

use core::cmp::Ordering;

/// Compares two strings: -1, 0 or 1 as a signed number.
pub(super) fn compare_bytes(a: &[u8], b: &[u8]) -> u64 {
    (a.cmp(b) as i64) as u64
}

/// Returns the 64-bit FNV-1a hash.
pub(super) fn hash_fnv1a(text: &[u8]) -> u64 {
    text.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

pub(super) fn contains(text: &[u8], part: &[u8]) -> bool {
    find_part(text, part).is_some()
}

/// Returns true if the pattern matches the whole text, where `*` matches any bytes. `\` makes the
/// next byte literal; at the end, `\` is literal itself.
///
/// Each part between two `*` is matched at its first position: if this leads to no match, no later
/// position does. So there is no backtracking, and the time is linear in both lengths (for parts
/// with `\`: proportional to their product).
pub(super) fn matches_pattern(text: &[u8], pattern: &[u8]) -> bool {
    let (first, rest) = split_at_star(pattern);
    let Some(mut text) = strip_part(text, first) else { return false };
    let Some(mut rest) = rest else { return text.is_empty() };
    // Each iteration consumes a part of the pattern.
    loop {
        let (part, next) = split_at_star(rest);
        let Some(next) = next else {
            let start = text.len().checked_sub(unescape_bytes(part).count());
            return start.is_some_and(|start| strip_part(&text[start..], part).is_some());
        };
        let Some(left) = skip_past_part(text, part) else { return false };
        (text, rest) = (left, next);
    }
}

/// Splits the pattern at its first `*`: the part before it, and the part after it.
fn split_at_star(pattern: &[u8]) -> (&[u8], Option<&[u8]>) {
    let mut is_escaped = false;
    let star = pattern.iter().position(|&byte| {
        let was_escaped = core::mem::take(&mut is_escaped);
        is_escaped = byte == b'\\' && !was_escaped;
        byte == b'*' && !was_escaped
    });
    star.map_or((pattern, None), |star| (&pattern[..star], Some(&pattern[star + 1..])))
}

/// Returns the literal bytes of a part of a pattern.
fn unescape_bytes(part: &[u8]) -> impl Iterator<Item = u8> {
    let mut rest = part.iter();
    core::iter::from_fn(move || match *rest.next()? {
        b'\\' => Some(rest.next().copied().unwrap_or(b'\\')),
        byte => Some(byte),
    })
}

/// Returns the text after a part of a pattern, if the text begins with this part.
fn strip_part<'t>(text: &'t [u8], part: &[u8]) -> Option<&'t [u8]> {
    unescape_bytes(part).try_fold(text, |text, byte| text.strip_prefix(&[byte]))
}

/// Returns the text after the first match of a part of a pattern.
fn skip_past_part<'t>(text: &'t [u8], part: &[u8]) -> Option<&'t [u8]> {
    if part.contains(&b'\\') {
        (0..=text.len()).find_map(|start| strip_part(&text[start..], part))
    } else {
        find_part(text, part).map(|start| &text[start + part.len()..])
    }
}

/// Returns the first position of `part`.
fn find_part(text: &[u8], part: &[u8]) -> Option<usize> {
    if part.is_empty() || part.len() > text.len() {
        return part.is_empty().then_some(0);
    }
    let (less, greater) =
        (maximal_suffix(part, Ordering::Less), maximal_suffix(part, Ordering::Greater));
    let (critical, period) = if less.0 > greater.0 { less } else { greater };
    // True if `period` is a period of the whole part, not only of its right half.
    let is_periodic = part.get(period..period + critical) == Some(&part[..critical]);
    let shift = if is_periodic { period } else { critical.max(part.len() - critical) + 1 };
    let mut start = 0;
    // Length of the prefix known to match; nonzero only for periodic parts.
    let mut known = 0;
    while let Some(window) = text.get(start..start + part.len()) {
        let differs = |&at: &usize| part[at] != window[at];
        if let Some(at) = (critical.max(known)..part.len()).find(differs) {
            start += at - critical + 1;
            known = 0;
        } else if (known..critical).rev().any(|at| differs(&at)) {
            start += shift;
            known = if is_periodic { part.len() - period } else { 0 };
        } else {
            return Some(start);
        }
    }
    None
}

/// Returns the start and the period of the maximal suffix, in the order in which `smaller` bytes
/// come first.
fn maximal_suffix(part: &[u8], smaller: Ordering) -> (usize, usize) {
    let (mut start, mut rival, mut same, mut period) = (0, 1, 0, 1);
    while let Some(byte) = part.get(rival + same) {
        match byte.cmp(&part[start + same]) {
            Ordering::Equal if same + 1 == period => (rival, same) = (rival + period, 0),
            Ordering::Equal => same += 1,
            order if order == smaller => {
                rival += same + 1;
                (same, period) = (0, rival - start);
            }
            _ => {
                start = rival;
                (rival, same, period) = (start + 1, 0, 1);
            }
        }
    }
    (start, period)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Reference implementation of matching, for patterns without `\`.
    fn matches_naively(text: &[u8], pattern: &[u8]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((b'*', rest)) => {
                (0..=text.len()).any(|start| matches_naively(&text[start..], rest))
            }
            Some((byte, rest)) => text.first() == Some(byte) && matches_naively(&text[1..], rest),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn parts_are_found_where_they_are(
            text in vec(b'a'..=b'c', 0..40),
            part in vec(b'a'..=b'c', 0..12),
        ) {
            let plain = (0..=text.len()).find(|&start| text[start..].starts_with(&part));
            prop_assert_eq!(find_part(&text, &part), plain);
        }

        #[test]
        fn periodic_parts_are_found_where_they_are(
            text in vec(b'a'..=b'b', 0..10), part in vec(b'a'..=b'b', 1..6),
            times in (1..8usize, 1..5usize),
        ) {
            let (text, part) = (text.repeat(times.0), part.repeat(times.1));
            let plain = (0..=text.len()).find(|&start| text[start..].starts_with(&part));
            prop_assert_eq!(find_part(&text, &part), plain);
        }

        #[test]
        fn patterns_match_what_they_say(
            text in vec(b'a'..=b'b', 0..12),
            pattern in vec(prop_oneof![Just(b'*'), b'a'..=b'b'], 0..8),
        ) {
            prop_assert_eq!(matches_pattern(&text, &pattern), matches_naively(&text, &pattern));
        }

        /// A pattern with every byte escaped matches only itself.
        #[test]
        fn escaped_patterns_are_texts(
            text in vec(prop_oneof![Just(b'*'), Just(b'\\'), Just(b'a')], 0..8),
            other in vec(prop_oneof![Just(b'*'), Just(b'\\'), Just(b'a')], 0..8),
        ) {
            let pattern: Vec<u8> = text.iter().flat_map(|&byte| [b'\\', byte]).collect();
            prop_assert!(matches_pattern(&text, &pattern));
            prop_assert_eq!(matches_pattern(&other, &pattern), other == text);
            let anywhere = [b"*".as_slice(), &pattern, b"*"].concat();
            prop_assert_eq!(matches_pattern(&other, &anywhere), contains(&other, &text));
        }
    }

    #[test]
    fn a_pattern_that_ends_in_a_backslash() {
        assert!(matches_pattern(br"a\", br"a\"));
        assert!(matches_pattern(br"xa\", br"*a\"));
        assert!(!matches_pattern(b"a", br"a\"));
    }

    #[test]
    fn hash_is_fnv_1a() {
        // Test vectors from the specification of FNV.
        assert_eq!(hash_fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash_fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(hash_fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn strings_compare_as_unsigned_bytes() {
        assert_eq!(compare_bytes(b"a", b"b") as i64, -1);
        assert_eq!(compare_bytes(b"\xff", b"a") as i64, 1);
        assert_eq!(compare_bytes(b"a", b"ab") as i64, -1);
        assert_eq!(compare_bytes(b"a", b"a"), 0);
    }
}
