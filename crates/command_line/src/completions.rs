//! Completion scripts, generated from the command line's declaration, without its hidden parts.
//!
//! Main invariant: shells offer file names only for arguments that accept a file name.

use clap::{Arg, Command, ValueHint};
use clap_complete::Shell;

/// Returns a shell's completion script for the program `name` with the command line `declared`.
pub fn generate_script(declared: Command, name: &str, shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    // clap_complete requires names with a static lifetime.
    let declared: &'static Command = Box::leak(Box::new(declared));
    clap_complete::generate(shell, &mut without_hidden_parts(declared), name, &mut script);
    if shell == Shell::Bash { repair_bash_labels(script, name) } else { script }
}

/// Repairs the labels of a Bash script for a program whose name has a hyphen.
///
/// clap_complete 4.6 sets a state to `trackway__bench__subcmd__compare`, but labels that state's
/// case `trackway__subcmd__bench__subcmd__compare`, so that a subcommand would have no completions.
fn repair_bash_labels(script: Vec<u8>, name: &str) -> Vec<u8> {
    let Ok(text) = String::from_utf8(script) else {
        unreachable!("clap_complete wrote other bytes than names and descriptions in UTF-8");
    };
    text.replace(&name.replace('-', "__subcmd__"), &name.replace('-', "__")).into_bytes()
}

/// Returns a command without its hidden parts: clap_complete offers hidden words, too.
fn without_hidden_parts(declared: &'static Command) -> Command {
    let arguments =
        declared.get_arguments().filter(|one| !one.is_hide_set()).cloned().map(add_value_hint);
    let verbs =
        declared.get_subcommands().filter(|one| !one.is_hide_set()).map(without_hidden_parts);
    let copy = Command::new(declared.get_name()).args(arguments).subcommands(verbs);
    let copy = copy.disable_help_flag(declared.is_disable_help_flag_set());
    let copy = copy.visible_aliases(declared.get_visible_aliases());
    let copy = declared.get_about().cloned().into_iter().fold(copy, Command::about);
    declared.get_version().into_iter().fold(copy, Command::version)
}

/// Adds the kind of an argument's value, if shells support that kind.
fn add_value_hint(argument: Arg) -> Arg {
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
