//! Options that every command has: `--color`, `--help` and `--help-all`.

use std::ffi::OsString;

use clap::{ArgAction, Args, ValueEnum};

use crate::help::HELP;

/// Options of every command, in front of its own or after them.
#[derive(Debug, Args)]
pub struct CommonArguments {
    /// Colour names, errors and losses: on terminals, unless NO_COLOR is set, or always, or never
    #[arg(long = "color", global = true, value_enum, value_name = "WHEN", help_heading = HELP,
        hide_short_help = true, default_value_t = ColourChoice::Auto, hide_default_value = true)]
    pub colour: ColourChoice,
    /// Print this page
    ///
    /// -h, --help and trackway help COMMAND print the most used options, on one screen.
    #[arg(short, long, global = true, action = ArgAction::HelpShort, help_heading = HELP,
        display_order = 1000)]
    help: Option<bool>,
    /// Print all options, with explanations
    #[arg(long, global = true, action = ArgAction::HelpLong, help_heading = HELP,
        display_order = 1001)]
    help_all: Option<bool>,
}

/// Values of `--color`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum ColourChoice {
    /// On terminals, unless NO_COLOR is set or TERM is dumb
    #[default]
    Auto,
    /// Into pipes and files, too
    Always,
    /// Nowhere
    Never,
}

impl From<ColourChoice> for trackway_console::ColourChoice {
    fn from(choice: ColourChoice) -> Self {
        match choice {
            ColourChoice::Auto => Self::Auto,
            ColourChoice::Always => Self::Always,
            ColourChoice::Never => Self::Never,
        }
    }
}

/// Returns the value of `--color` on a command line that cannot be parsed. Ignores words after
/// `--`, which may be options of another program.
pub fn typed_colour_choice(
    words: impl Iterator<Item = OsString>,
) -> trackway_console::ColourChoice {
    let words: Vec<String> = words
        .map_while(|word| Some(word.to_string_lossy().into_owned()).filter(|word| word != "--"))
        .collect();
    let values = words.iter().enumerate().filter_map(|(index, word)| match word.as_str() {
        "--color" => words.get(index + 1).map(String::as_str),
        word => word.strip_prefix("--color="),
    });
    let mut choices = values.filter_map(|value| ColourChoice::from_str(value, false).ok());
    choices.next_back().unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_colour_choice_before_the_other_program_holds() {
        use trackway_console::ColourChoice::{Always, Auto, Never};
        for (words, expected) in [
            ("record", Auto),
            ("--color never record", Never),
            ("--color=always --color=never", Never),
            ("record --color sometimes", Auto),
            ("--color=always record -- app --color=never", Always),
        ] {
            let found = typed_colour_choice(words.split(' ').map(OsString::from));
            assert_eq!(found, expected, "{words}");
        }
    }
}
