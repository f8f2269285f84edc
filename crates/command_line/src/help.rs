//! Help pages: a short one for `-h`, `--help` and `help COMMAND`, and a full one for `--help-all`.
//!
//! Main invariant: a short page fits one screen, 39 lines of 80 columns and a prompt, and shows
//! examples. Manual pages and completions are generated from the full declaration. The model is
//! `git`: `git -h` fits a screen, and the manual has the full text.

use std::ffi::OsString;
use std::fmt::Write as _;

use clap::builder::{StyledStr, Styles};
use clap::{Arg, Command};

/// Heading of the options that every command has.
pub const HELP: &str = "Help and messages";

/// A heading on the top-level page, and the names of the commands below it.
pub type CommandGroup = (&'static str, &'static [&'static str]);

/// Most examples on a short page.
const EXAMPLES_MAX: usize = 3;

/// Adds short pages to `command` and all its subcommands. The page of `command` lists its direct
/// subcommands in `groups`, if there are any.
pub fn with_short_pages(command: Command, groups: &[CommandGroup]) -> Command {
    let command = with_examples(command);
    let template = build_top_level_template(&command, groups);
    template.into_iter().fold(command, Command::help_template)
}

/// Returns the declaration for manual pages, in which each option has its description.
pub fn with_manual_descriptions(command: Command) -> Command {
    let command = command.mut_args(|argument: Arg| argument.hide_short_help(false));
    map_subcommands(command, with_manual_descriptions)
}

/// Adds the first examples of the full page below the options of the short page.
fn with_examples(command: Command) -> Command {
    let text = |text: Option<&StyledStr>| text.map(ToString::to_string).unwrap_or_default();
    let (page, after) = (text(command.get_long_about()), text(command.get_after_help()));
    let examples = [first_examples(&page), first_examples(&after)].concat();
    let command = map_subcommands(command, with_examples);
    let title = command.get_about().map(|about| about.to_string());
    let title = title.map(|about| about.trim_end_matches('.').to_owned());
    let command = title.into_iter().fold(command, Command::about);
    if examples.is_empty() {
        return command;
    }
    let mut text = format_heading("Examples");
    for example in examples {
        let _ = write!(text, "\n{example}");
    }
    let after_all = command.get_after_long_help().or_else(|| command.get_after_help()).cloned();
    command.after_help(StyledStr::from(text)).after_long_help(after_all.unwrap_or_default())
}

/// Applies a change to all direct subcommands of a command.
fn map_subcommands(command: Command, change: fn(Command) -> Command) -> Command {
    let names: Vec<String> =
        command.get_subcommands().map(|one| one.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, change))
}

/// Returns the first examples of a full page, one example per line.
fn first_examples(page: &str) -> Vec<&str> {
    let lines = page.lines().skip_while(|line| !matches!(*line, "Examples:" | "Example:")).skip(1);
    let lines = lines.skip_while(|line| line.is_empty());
    lines.take_while(|line| line.starts_with("  ")).take(EXAMPLES_MAX).collect()
}

/// Returns a heading in clap's own style.
fn format_heading(name: &str) -> String {
    let style = Styles::styled();
    let style = style.get_header();
    format!("{style}{name}:{}", style.render_reset())
}

/// Returns the top-level page, with the commands in groups.
fn build_top_level_template(command: &Command, groups: &[CommandGroup]) -> Option<StyledStr> {
    if groups.is_empty() {
        return None;
    }
    let about = |name: &str| match command.find_subcommand(name) {
        Some(found) => found.get_about().map(ToString::to_string),
        None => Some("Print the most used options of a command".to_owned()),
    };
    let mut text = String::from("{about-with-newline}\n{usage-heading} {usage}\n\n");
    let style = Styles::styled();
    let style = style.get_literal();
    for (name, commands) in groups {
        let _ = writeln!(text, "{}", format_heading(name));
        for name in *commands {
            let about = about(name)?;
            let _ = writeln!(text, "  {style}{name:<8}{} {about}", style.render_reset());
        }
        text.push('\n');
    }
    let _ = write!(text, "{}\n{{options}}{{after-help}}", format_heading("Options"));
    Some(text.into())
}

/// Replaces `help COMMAND...` in a command line by `COMMAND... --help`, so that both print the same
/// page. Other words stay unchanged, also `help` before a word that is not a command.
pub fn rewrite_help_command(command: &Command, words: Vec<OsString>) -> Vec<OsString> {
    let (path, last) = command_path(command, &words);
    let end = path.last().map_or(1, |index| index + 1);
    let next = (end..words.len()).find(|index| !is_option(&words, *index));
    let Some(help) = next.filter(|index| words[*index] == "help" && last.has_subcommands()) else {
        return words;
    };
    if words[..help].iter().any(|word| word == "--") {
        return words;
    }
    let mut changed = words.clone();
    changed.remove(help);
    let (named, _) = command_path(command, &changed);
    let is_known = |index: &usize| named.contains(index) || is_option(&changed, *index);
    if !(help..changed.len()).all(|index| is_known(&index)) {
        return words;
    }
    changed.push("--help".into());
    changed
}

/// Returns true if a command line names no command.
pub fn names_no_command(command: &Command, words: &[OsString]) -> bool {
    command_path(command, words).0.is_empty()
}

/// Returns the indices of command names in a command line, each a subcommand of the previous one,
/// and the last of these commands.
fn command_path<'a>(command: &'a Command, words: &[OsString]) -> (Vec<usize>, &'a Command) {
    let mut path = Vec::new();
    let mut current = command;
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    for index in (1..end).filter(|index| !is_option(words, *index)) {
        let name = words[index].to_string_lossy();
        let Some(found) = current.find_subcommand(name.as_ref()) else { break };
        path.push(index);
        current = found;
    }
    (path, current)
}

/// Returns true if the word before a command's name is an option, or an option's value.
fn is_option(words: &[OsString], index: usize) -> bool {
    let is_value = index > 0 && words[index - 1] == "--color";
    is_value || words[index].to_string_lossy().starts_with('-')
}
