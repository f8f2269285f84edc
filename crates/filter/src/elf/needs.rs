//! Parses the slots of a frame from text: a line `KIND PATH` for each slot, in order.

use trackway_jit::{Kind, SLOTS_MAX};

use crate::types::{MemberPath, Need};

/// Maximum length of a path, in bytes: an object stores the length in one byte.
const PATH_BYTES_MAX: usize = 255;

/// Parses the needs in a section's text, which may end in a NUL like C strings.
pub(super) fn parse_needs(text: &[u8]) -> Result<Vec<Need>, String> {
    let text = text.strip_suffix(&[0]).unwrap_or(text);
    let text = std::str::from_utf8(text).map_err(|_| "it is no text")?;
    let mut needs = Vec::new();
    for line in text.lines() {
        if needs.len() == SLOTS_MAX {
            return Err(format!("there are more than {SLOTS_MAX} lines"));
        }
        needs.push(parse_need(line).ok_or_else(|| format!("{line:?} is no line KIND PATH"))?);
    }
    Ok(needs)
}

fn parse_need(line: &str) -> Option<Need> {
    let (kind, path) = line.split_once(' ')?;
    let kind = Kind::ALL.into_iter().find(|one| one.name() == kind)?;
    let is_short = path.len() <= PATH_BYTES_MAX;
    is_short.then_some(())?;
    Some(Need { path: path.to_owned(), kind, place: MemberPath::parse(path)?, elements: None })
}

/// Returns true if the place, written as text, is one line that parses back to the same place.
pub(crate) fn is_path(of: &MemberPath) -> bool {
    let path = of.to_string();
    path.len() <= PATH_BYTES_MAX
        && !path.contains(['\n', '\r'])
        && MemberPath::parse(&path).as_ref() == Some(of)
}

/// Removes needs that are not read, so that events may lack them: truncates after the last slot
/// that is read. Every other unread slot becomes a copy of the cheapest need that is read.
pub(super) fn drop_unread_needs(needs: &mut Vec<Need>, slots_read: u64) {
    needs.truncate((u64::BITS - slots_read.leading_zeros()) as usize);
    let is_read = |slot: usize| slots_read >> slot & 1 != 0;
    let is_word = |need: &Need| matches!(need.kind, Kind::String | Kind::Sequence);
    let read = needs.iter().enumerate().filter(|&(slot, _)| is_read(slot));
    let Some(cheapest) = read.map(|(_, need)| need).min_by_key(|need| is_word(need)).cloned()
    else {
        return;
    };
    for (slot, need) in needs.iter_mut().enumerate() {
        if !is_read(slot) {
            need.clone_from(&cheapest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_needs() {
        let needs = parse_needs(b"string path\nsigned $ctx.vtid\nfloat x y\n\0").expect("needs");
        let seen: Vec<_> = needs.iter().map(|need| (need.kind, need.path.as_str())).collect();
        let expected = [(Kind::String, "path"), (Kind::Signed, "$ctx.vtid"), (Kind::Float, "x y")];
        assert_eq!(seen, expected);
        assert_eq!(parse_needs(b"\0").expect("none"), []);
        assert_eq!(parse_needs(b"text path\n").unwrap_err(), "\"text path\" is no line KIND PATH");
        assert_eq!(parse_needs(b"\xff").unwrap_err(), "it is no text");
        assert!(parse_needs("signed a\n".repeat(64).as_bytes()).is_ok());
        assert!(parse_needs("signed a\n".repeat(65).as_bytes()).unwrap_err().contains("64"));
        assert!(parse_needs(format!("signed {}\n", "a".repeat(256)).as_bytes()).is_err());
    }

    #[test]
    fn what_is_not_read_need_not_be_there() {
        let all = parse_needs(b"string a\nsigned b\nfloat c\nunsigned d\n").expect("needs");
        let left = |slots_read| {
            let mut needs = all.clone();
            drop_unread_needs(&mut needs, slots_read);
            needs.into_iter().map(|need| need.path).collect::<Vec<_>>().concat()
        };
        assert_eq!(left(0b1111), "abcd");
        assert_eq!(left(0b0001), "a");
        assert_eq!(left(0b0100), "ccc");
        assert_eq!(left(0b1001), "addd");
        assert_eq!(left(0), "");
    }
}
