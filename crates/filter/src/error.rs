//! Errors and warnings of an expression, with their positions in the text.

use crate::span::Span;

/// Topic of an error, for callers that handle topics differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topic {
    /// The text is not an expression.
    Syntax,
    /// A field, context, member or label that the event does not have.
    Unknown,
    /// Types that do not match.
    Type,
    /// A limit of the language or of bytecode.
    Limit,
}

/// The kind of thing that an error of [`Topic::Unknown`] reports as missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// A field or a context of the event.
    Name,
    /// A member, a label or a function; the event may have all other names.
    Part,
    /// No event has all names of the expression together; each name may exist.
    Combination,
}

/// An error or a warning: a message, its position in the text, and an optional hint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// Topic of the error.
    pub topic: Topic,
    /// The missing thing, for errors of [`Topic::Unknown`].
    pub subject: Option<Subject>,
    /// An existing name similar to the unknown one; the message contains it, too.
    pub suggestion: Option<String>,
    /// Faulty part of the text.
    pub span: Span,
    /// The message, without a full stop.
    pub message: String,
    /// Advice for the user.
    pub hint: Option<String>,
}

/// A warning: an expression is valid, but probably not what the user meant.
pub type Warning = Error;

impl Error {
    /// Creates an error about this part of the text.
    pub fn new(topic: Topic, span: Span, message: impl Into<String>) -> Self {
        let subject = (topic == Topic::Unknown).then_some(Subject::Part);
        Self { topic, subject, suggestion: None, span, message: message.into(), hint: None }
    }

    pub(crate) fn with_subject(mut self, subject: Subject) -> Self {
        self.subject = Some(subject);
        self
    }

    /// Adds a similar name, quoted, to the message.
    pub(crate) fn with_suggestion(mut self, quoted: String) -> Self {
        self.message = format!("{}; did you mean {quoted}?", self.message);
        self.suggestion = Some(quoted);
        self
    }

    /// Adds advice for the user.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Returns how informative the error is, to choose among the errors of several events. A higher
    /// value means that the event is closer to the intended one.
    pub(crate) fn nearness(&self) -> u8 {
        let is_near = u8::from(self.suggestion.is_some());
        match self.subject {
            Some(Subject::Name) => is_near,
            Some(Subject::Part | Subject::Combination) => 3 + is_near,
            None => 2,
        }
    }

    /// Returns the faulty name in `text`, without the parentheses around it.
    pub(crate) fn named<'text>(&self, text: &'text str) -> &'text str {
        let is_around = |c: char| c.is_whitespace() || ['(', ')'].contains(&c);
        let named = text.get(self.span.from..self.span.to).unwrap_or_default();
        named.trim_matches(is_around)
    }

    /// Returns the column in `text` where the error begins, in characters, from 1.
    pub fn column(&self, text: &str) -> usize {
        let (line, _) = line_at(text, self.span.from);
        count_characters(&text[line..floor_char_boundary(text, self.span.from)]) + 1
    }

    /// Renders the error for users: the line of `text`, markers below the faulty part, the message,
    /// and the hint, if any.
    pub fn render(&self, text: &str) -> String {
        let (begin, end) = line_at(text, self.span.from);
        let from = floor_char_boundary(text, self.span.from);
        let to = floor_char_boundary(text, self.span.to).clamp(from, end);
        // Other control characters would misalign the markers.
        let line: String =
            text[begin..end].chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let indent = " ".repeat(count_characters(&text[begin..from]));
        let marks = "^".repeat(count_characters(&text[from..to]).max(1));
        let mut rendered = format!("{line}\n{indent}{marks}\n{}", self.message);
        if let Some(hint) = &self.hint {
            rendered.push_str("\nhint: ");
            rendered.push_str(hint);
        }
        rendered
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

fn count_characters(text: &str) -> usize {
    text.chars().count()
}

/// Returns the character boundary at or before `at`.
fn floor_char_boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// Returns the start and the end of the line that contains the byte `at`.
fn line_at(text: &str, at: usize) -> (usize, usize) {
    let at = floor_char_boundary(text, at);
    let begin = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let end = text[at..].find('\n').map_or(text.len(), |newline| at + newline);
    (begin, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_stand_below_what_they_mark() {
        let text = "a == \"ä\" &&\n\tb == c";
        let at = text.find('c').expect("a c");
        let span = Span { from: at, to: at + 1 };
        let error = Error::new(Topic::Type, span, "no").with_hint("yes");
        assert_eq!(error.render(text), " b == c\n      ^\nno\nhint: yes");
        assert_eq!(error.column(text), 7);
        let at = text.find('&').expect("an ampersand");
        let error = Error::new(Topic::Type, Span { from: at, to: at + 2 }, "no");
        assert_eq!(error.render(text), "a == \"ä\" &&\n         ^^\nno");
    }

    #[test]
    fn spans_that_make_no_sense_are_cut() {
        let error = Error::new(Topic::Syntax, Span { from: 1, to: 99 }, "no");
        assert_eq!(error.render("ä"), "ä\n^\nno");
        assert_eq!(error.render(""), "\n^\nno");
    }
}
