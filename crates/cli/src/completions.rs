//! Completion scripts: made of the command line's declaration, less what is hidden there.
//!
//! Main invariant: only what takes a file's name is offered names of files.

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Arg, Args, Command, ValueHint};
use trackway_console::stdout;

/// Print a completion script.
///
/// Examples:
///
///   trackway completions bash > /usr/share/bash-completion/completions/trackway
///   trackway completions zsh > _trackway
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

/// Prints the script.
///
/// # Errors
///
/// If standard output cannot be written.
pub(crate) fn run(arguments: Arguments, command: Command) -> anyhow::Result<ExitCode> {
    stdout().write_all(&script(arguments.shell, command))?;
    Ok(ExitCode::SUCCESS)
}

/// The script of `command` for a shell.
fn script(shell: clap_complete::Shell, command: Command) -> Vec<u8> {
    let mut script = Vec::new();
    // A command's name has to live as long as the program.
    let declared: &'static Command = Box::leak(Box::new(command));
    clap_complete::generate(shell, &mut shown(declared), "trackway", &mut script);
    script
}

/// What is not hidden of a command: clap_complete offers hidden words, too.
fn shown(declared: &'static Command) -> Command {
    let arguments = declared.get_arguments().filter(|one| !one.is_hide_set()).cloned().map(hinted);
    let verbs = declared.get_subcommands().filter(|one| !one.is_hide_set()).map(shown);
    let copy = Command::new(declared.get_name()).args(arguments).subcommands(verbs);
    let copy = copy.disable_help_flag(declared.is_disable_help_flag_set());
    let copy = copy.visible_aliases(declared.get_visible_aliases());
    let copy = declared.get_about().cloned().into_iter().fold(copy, Command::about);
    declared.get_version().into_iter().fold(copy, Command::version)
}

/// With what its value is, as far as shells know of such.
fn hinted(argument: Arg) -> Arg {
    if argument.get_id() == "tracers" {
        // Beginnings of names are taken, too; whole ones are offered.
        let names = trackway_lab::tracer_names();
        return argument.value_parser(clap::builder::PossibleValuesParser::new(names));
    }
    if !argument.get_action().takes_values() || !argument.get_possible_values().is_empty() {
        return argument;
    }
    let names = argument.get_value_names().unwrap_or_default();
    let hint = match names.first().map_or("", |name| name.as_str()) {
        "FILE" | "[PATTERN: ]FILE" => ValueHint::FilePath,
        "DIR" | "OUT" => ValueHint::DirPath,
        "PATH" => ValueHint::AnyPath,
        "CMD" => ValueHint::CommandWithArguments,
        "NAME|UID" | "NAME|UID|all" => ValueHint::Username,
        _ => ValueHint::Other,
    };
    argument.value_hint(hint)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use clap_complete::Shell;

    use super::*;

    #[test]
    fn what_is_hidden_is_not_offered_and_files_only_where_they_are_meant() {
        let text = |shell| {
            String::from_utf8(script(shell, crate::arguments::Arguments::command())).expect("text")
        };
        let bash = text(Shell::Bash);
        let is_of_words = |letter: char| letter.is_ascii_alphabetic() || letter == '-';
        let mut words = bash.split(|letter| !is_of_words(letter));
        for hidden in ["--clock-force-correlate", "recorder", "completions"] {
            assert!(!words.clone().any(|word| word == hidden), "{hidden}");
        }
        assert!(words.any(|word| word == "--kernel-only"));
        for offered in ["tracepoint", "lttng-ust"] {
            assert!(bash.contains(offered), "{offered}");
        }
        let zsh = text(Shell::Zsh);
        for (option, offered) in [
            ("--pid=", ""),
            ("--user=", "_users"),
            ("--config=", "_files"),
            ("--output=", "_files"),
        ] {
            let line = zsh.lines().find(|line| line.contains(option)).expect("an option");
            let action = line.rsplit_once(':').expect("an action").1;
            assert!(action.starts_with(offered), "{line}");
            assert!(!offered.is_empty() || !action.starts_with('_'), "{line}");
        }
    }
}
