//! Prints a command's errors and help pages: once, at its end.

use std::io;
use std::process::ExitCode;

use clap::error::ErrorKind;
use trackway_console::{IoError, Style, Target, message};

/// Exit status of a command that failed.
pub const EXIT_FAILED: u8 = 2;

/// Prints the help page or the version that the user requested, to standard output; returns `None`
/// if `error` is neither.
pub fn print_page(error: &clap::Error) -> Option<ExitCode> {
    if error.use_stderr() {
        return None;
    }
    let shown = error.render();
    let text = match Target::Output.has_colours() {
        true => shown.ansi().to_string(),
        false => shown.to_string(),
    };
    // Ignores an error: the reader of the output may be gone.
    let _ = trackway_console::write_trusted(Target::Output, &text);
    Some(ExitCode::SUCCESS)
}

/// Prints why a command line cannot be parsed.
pub fn print_usage_error(error: &clap::Error) {
    let text = error.render().to_string();
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return trackway_console::write_lines(format_args!("{}", text.trim_end()));
    }
    // The text contains words that the user typed.
    let (head, rest) = text.split_once(' ').unwrap_or((&text, ""));
    let head = Target::Errors.paint(Style::Error, head);
    trackway_console::write_lines(format_args!("{head} {}", rest.trim_end_matches('\n')));
}

/// Returns the text of an error with its causes.
pub fn error_text(error: &anyhow::Error) -> String {
    // Names in the text may contain line ends: the text after one must not look like a separate
    // message.
    let text = IoError::chain_text(error.as_ref());
    if Target::Errors.is_escaped() { text.replace('\n', "\n  ") } else { text }
}

/// Prints an error with its causes; `name` is the program's name, with a colon.
pub fn print_error(name: &str, error: &anyhow::Error) {
    let name = Target::Errors.paint(Style::Error, name);
    trackway_console::write_lines(format_args!("{name} {}", error_text(error)));
}

/// Prints a step that the user can take after an error.
pub fn print_hint(hint: &str) {
    message!("hint: {hint}");
}

/// Returns true if `error` means that the reader of the output is gone.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        IoError::system_error(cause).is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    })
}
