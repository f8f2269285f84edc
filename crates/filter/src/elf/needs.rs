//! What slots of a frame are: text, a line `KIND PATH` for each, in the order of the slots.

use trackway_jit::{Kind, SLOTS_MAX};

use crate::types::{Need, Place, Root, Step};

/// Longest path, in bytes: an object has one byte for its length.
const PATH_BYTES_MAX: usize = 255;

/// The needs of a section's text, which may end in a NUL as C strings do.
pub(super) fn read(text: &[u8]) -> Result<Vec<Need>, String> {
    let text = text.strip_suffix(&[0]).unwrap_or(text);
    let text = std::str::from_utf8(text).map_err(|_| "it is no text")?;
    let mut needs = Vec::new();
    for line in text.lines() {
        if needs.len() == SLOTS_MAX {
            return Err(format!("there are more than {SLOTS_MAX} lines"));
        }
        needs.push(need(line).ok_or_else(|| format!("{line:?} is no line KIND PATH"))?);
    }
    Ok(needs)
}

fn need(line: &str) -> Option<Need> {
    let (kind, path) = line.split_once(' ')?;
    let kind = match kind {
        "signed" => Kind::Signed,
        "unsigned" => Kind::Unsigned,
        "float" => Kind::Float,
        "string" => Kind::String,
        "sequence" => Kind::Sequence,
        _ => return None,
    };
    let is_short = path.len() <= PATH_BYTES_MAX;
    is_short.then_some(())?;
    Some(Need { path: path.to_owned(), kind, place: place(path)?, elements: None })
}

/// Where a path leads: `$ctx.NAME`, `$app.PROVIDER:TYPE`, `NAME`, each with `.MEMBER` and
/// `[INDEX]` behind.
fn place(path: &str) -> Option<Place> {
    let (root, rest) = match path.strip_prefix("$ctx.") {
        Some(rest) => (Root::Context, rest),
        None => match path.strip_prefix("$app.") {
            Some(rest) => (Root::Application, rest),
            None => (Root::Field, path),
        },
    };
    let end = rest.find(['.', '[']).unwrap_or(rest.len());
    let (name, mut rest) = rest.split_at_checked(end).filter(|(name, _)| !name.is_empty())?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if let Some(member) = rest.strip_prefix('.') {
            let end = member.find(['.', '[']).unwrap_or(member.len());
            let (member, behind) = member.split_at_checked(end).filter(|(m, _)| !m.is_empty())?;
            steps.push(Step::Member(member.to_owned()));
            rest = behind;
        } else {
            let (index, behind) = rest.strip_prefix('[')?.split_once(']')?;
            steps.push(Step::Element(index.parse().ok()?));
            rest = behind;
        }
    }
    Some(Place { root, name: name.to_owned(), steps })
}

/// Whether a place, as text, is a path of a line that leads there again.
pub(crate) fn is_path(of: &Place) -> bool {
    let path = of.to_string();
    path.len() <= PATH_BYTES_MAX
        && !path.contains(['\n', '\r'])
        && place(&path).as_ref() == Some(of)
}

/// Leaves out what is not read, so that events need not have it: what is behind the last slot that
/// is read, and of the rest each becomes another one's copy, the cheapest one's.
pub(super) fn shorten(needs: &mut Vec<Need>, slots_read: u64) {
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
    fn paths_come_back() {
        for path in ["a", "pos.x", "xs[3]", "a.b[1][2].c", "$ctx.vpid", "$app.p:t", "$ctx.a.b"] {
            assert_eq!(place(path).map(|place| place.to_string()).as_deref(), Some(path));
        }
        for path in ["", ".a", "a.", "a[", "a[]", "a[x]", "a[1]b", "$ctx.", "$app.", "a..b"] {
            assert_eq!(place(path), None, "{path}");
        }
    }

    #[test]
    fn lines_are_needs() {
        let needs = read(b"string path\nsigned $ctx.vtid\nfloat x y\n\0").expect("needs");
        let seen: Vec<_> = needs.iter().map(|need| (need.kind, need.path.as_str())).collect();
        let expected = [(Kind::String, "path"), (Kind::Signed, "$ctx.vtid"), (Kind::Float, "x y")];
        assert_eq!(seen, expected);
        assert_eq!(read(b"\0").expect("none"), []);
        assert_eq!(read(b"text path\n").unwrap_err(), "\"text path\" is no line KIND PATH");
        assert_eq!(read(b"\xff").unwrap_err(), "it is no text");
        assert!(read("signed a\n".repeat(64).as_bytes()).is_ok());
        assert!(read("signed a\n".repeat(65).as_bytes()).unwrap_err().contains("64"));
        assert!(read(format!("signed {}\n", "a".repeat(256)).as_bytes()).is_err());
    }

    #[test]
    fn what_is_not_read_need_not_be_there() {
        let all = read(b"string a\nsigned b\nfloat c\nunsigned d\n").expect("needs");
        let left = |slots_read| {
            let mut needs = all.clone();
            shorten(&mut needs, slots_read);
            needs.into_iter().map(|need| need.path).collect::<Vec<_>>().concat()
        };
        assert_eq!(left(0b1111), "abcd");
        assert_eq!(left(0b0001), "a");
        assert_eq!(left(0b0100), "ccc");
        assert_eq!(left(0b1001), "addd");
        assert_eq!(left(0), "");
    }
}
