//! Paths to members of events (fields, contexts, nested members, elements): formatting and parsing.

/// The kind of the name at the start of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Root {
    /// A field of the payload.
    Field,
    /// A context, `$ctx.`.
    Context,
    /// An application context, `$app.`.
    Application,
}

/// A step into a structure or an array.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Step {
    /// A member of a structure.
    Member(String),
    /// An element.
    Element(u64),
}

/// A path to a member of an event: a name, and the steps from there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MemberPath {
    /// Kind of the first name.
    pub root: Root,
    /// First name of the path.
    pub name: String,
    /// Steps after the first name.
    pub steps: Vec<Step>,
}

impl std::fmt::Display for MemberPath {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self.root {
            Root::Field => "",
            Root::Context => "$ctx.",
            Root::Application => "$app.",
        })?;
        formatter.write_str(&self.name)?;
        for step in &self.steps {
            match step {
                Step::Member(name) => write!(formatter, ".{name}")?,
                Step::Element(index) => write!(formatter, "[{index}]")?,
            }
        }
        Ok(())
    }
}

impl MemberPath {
    /// Parses the text form of a [`MemberPath`]: `$ctx.NAME`, `$app.PROVIDER:TYPE` or `NAME`, each
    /// followed by any `.MEMBER` and `[INDEX]`. Returns `None` if the text is no path.
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
            assert_eq!(
                MemberPath::parse(path).map(|place| place.to_string()).as_deref(),
                Some(path)
            );
        }
        for path in ["", ".a", "a.", "a[", "a[]", "a[x]", "a[1]b", "$ctx.", "$app.", "a..b"] {
            assert_eq!(MemberPath::parse(path), None, "{path}");
        }
    }
}
