//! Suggests similar names for unknown ones.

/// Maximum length of compared names, in bytes; the work grows with the square of the length.
const NAME_BYTES_MAX: usize = 64;

/// Returns the candidate nearest to `name`, if at most a third of the letters differ.
pub fn closest_name<'name>(
    name: &str,
    candidates: impl Iterator<Item = &'name str>,
) -> Option<&'name str> {
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    let most = (name.len() / 3).max(1);
    candidates
        .filter(|candidate| candidate.len() <= NAME_BYTES_MAX)
        .map(|candidate| (edit_distance(name.as_bytes(), candidate.as_bytes()), candidate))
        .filter(|(distance, candidate)| *distance <= most && *distance < candidate.len())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Returns the edit distance of two names: inserted, deleted, changed or transposed letters,
/// ignoring case (restricted Damerau-Levenshtein).
fn edit_distance(a: &[u8], b: &[u8]) -> usize {
    let mut two_ago = vec![0; b.len() + 1];
    let mut before: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut now = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let change = usize::from(!a[i - 1].eq_ignore_ascii_case(&b[j - 1]));
            now[j] = (before[j] + 1).min(now[j - 1] + 1).min(before[j - 1] + change);
            let is_exchanged = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if is_exchanged {
                now[j] = now[j].min(two_ago[j - 2] + 1);
            }
        }
        two_ago = std::mem::replace(&mut before, now);
    }
    before[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        let names = ["length", "latency_us", "status", "x"];
        for (written, meant) in [
            ("lenght", Some("length")),
            ("latency", None),
            ("latencyus", Some("latency_us")),
            ("Status", Some("status")),
            ("y", None),
            ("zzz", None),
        ] {
            assert_eq!(closest_name(written, names.into_iter()), meant, "{written}");
        }
    }

    #[test]
    fn distances_are_counted() {
        for (a, b, expected) in [("", "abc", 3), ("abc", "acb", 1), ("kitten", "sitting", 3)] {
            assert_eq!(edit_distance(a.as_bytes(), b.as_bytes()), expected);
        }
    }
}
