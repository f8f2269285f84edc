//! Places as text, read back.

use super::{Place, Root, Step};

impl Place {
    /// Parses a path, which is [`Place`] as text: `$ctx.NAME`, `$app.PROVIDER:TYPE`, `NAME`, each
    /// followed by `.MEMBER` and `[INDEX]`. Returns `None` if that is no path.
    pub fn parse(path: &str) -> Option<Self> {
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
                let (member, behind) =
                    member.split_at_checked(end).filter(|(m, _)| !m.is_empty())?;
                steps.push(Step::Member(member.to_owned()));
                rest = behind;
            } else {
                let (index, behind) = rest.strip_prefix('[')?.split_once(']')?;
                steps.push(Step::Element(index.parse().ok()?));
                rest = behind;
            }
        }
        Some(Self { root, name: name.to_owned(), steps })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_come_back() {
        for path in ["a", "pos.x", "xs[3]", "a.b[1][2].c", "$ctx.vpid", "$app.p:t", "$ctx.a.b"] {
            assert_eq!(Place::parse(path).map(|place| place.to_string()).as_deref(), Some(path));
        }
        for path in ["", ".a", "a.", "a[", "a[]", "a[x]", "a[1]b", "$ctx.", "$app.", "a..b"] {
            assert_eq!(Place::parse(path), None, "{path}");
        }
    }
}
