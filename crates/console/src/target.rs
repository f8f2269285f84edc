//! The targets of text, and whether they get colours and escapes.

use std::borrow::Cow;
use std::env;
use std::io::IsTerminal as _;
use std::sync::OnceLock;

use crate::escape::escape_unprintable;
use crate::mark::{self, Style};

/// The choice of colours: `--color`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ColourChoice {
    /// On terminals, unless `NO_COLOR` is set or `TERM` is `dumb`.
    #[default]
    Auto,
    /// Everywhere, also into pipes and files.
    Always,
    /// Nowhere.
    Never,
}

/// The choice of colours for this process.
static COLOUR_CHOICE: OnceLock<ColourChoice> = OnceLock::new();

/// Sets the choice of colours for this process; only the first call has an effect.
pub fn set_colour_choice(choice: ColourChoice) {
    let _ = COLOUR_CHOICE.set(choice);
}

/// Standard output or standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Standard output.
    Output,
    /// Standard error.
    Errors,
}

impl Target {
    fn is_terminal(self) -> bool {
        match self {
            Self::Output => std::io::stdout().is_terminal(),
            Self::Errors => std::io::stderr().is_terminal(),
        }
    }

    /// Returns true if text to the target has colours.
    pub fn has_colours(self) -> bool {
        has_colours(self.is_terminal())
    }

    /// Returns true if text to the target has its control characters escaped.
    pub fn is_escaped(self) -> bool {
        is_escaped(self.is_terminal())
    }

    /// Returns `text` in a style, or unchanged if the target has no colours.
    pub fn paint<'a>(self, style: Style, text: &'a str) -> Cow<'a, str> {
        if self.has_colours() { mark::wrap_in_marks(style, text).into() } else { text.into() }
    }

    /// Returns the marks before and after a text in a style; empty if the target has no colours.
    pub fn marks(self, style: Style) -> (String, String) {
        if self.has_colours() { mark::style_marks(style) } else { Default::default() }
    }

    /// Returns a name that must not break a line or a table: on one line if the target escapes
    /// control characters, unchanged otherwise.
    pub fn one_line(self, text: &str) -> Cow<'_, str> {
        if self.is_escaped() { escape_unprintable(text) } else { text.into() }
    }
}

/// Returns true if a terminal, or a file that is none, gets colours.
pub(crate) fn has_colours(is_terminal: bool) -> bool {
    match COLOUR_CHOICE.get().copied().unwrap_or_default() {
        ColourChoice::Always => true,
        ColourChoice::Never => false,
        ColourChoice::Auto => is_terminal && environment_allows_colours(),
    }
}

/// Returns true if control characters are escaped for a terminal, or for a file that is none. A
/// file with colours is escaped too, because a terminal shows it in the end, e.g. by `less -R`.
pub(crate) fn is_escaped(is_terminal: bool) -> bool {
    is_terminal || has_colours(is_terminal)
}

/// Returns true if the environment allows colours (no-color.org).
fn environment_allows_colours() -> bool {
    env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) && !is_dumb_terminal()
}

/// Returns true if the terminal supports no control sequences.
pub(crate) fn is_dumb_terminal() -> bool {
    env::var_os("TERM").is_some_and(|value| value == "dumb")
}
