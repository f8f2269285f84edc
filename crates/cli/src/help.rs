//! Help pages: a short one for `-h`, `--help` and `help COMMAND`, and a full one for `--help-all`.
//!
//! Main invariant: a short page fits one screen, 39 lines of 80 columns and a prompt, and shows
//! examples. Manual pages and completions are made from the full declaration. The idea is `git`'s:
//! `git -h` fits a screen, and the manual has the rest.

use std::ffi::OsString;
use std::fmt::Write as _;

use clap::builder::{StyledStr, Styles};
use clap::{Arg, Command};

use crate::COMMAND_GROUPS;

/// Headings of options, in the order in which `record` and `session create` declare them.
pub(crate) const MOST_USED: &str = "Most used";
pub(crate) const WHAT: &str = "What to record";
pub(crate) const WHERE: &str = "Where to write";
pub(crate) const HOW_MUCH: &str = "How much to keep";
pub(crate) const WHO: &str = "Which processes";
pub(crate) const HELP: &str = "Help and messages";
/// Headings of `print` and `trim`.
pub(crate) const EVENTS: &str = "Which events";
pub(crate) const FORM: &str = "How to print";

/// Examples on a short page, at most.
const EXAMPLES_MAX: usize = 3;

/// The command line with short pages: `command` and all commands below it.
pub(crate) fn with_short_pages(command: Command) -> Command {
    let command = with_examples(command);
    let template = template(&command);
    template.into_iter().fold(command, Command::help_template)
}

/// The declaration for manual pages: each option has its description.
pub(crate) fn for_manual(command: Command) -> Command {
    let command = command.mut_args(|argument: Arg| argument.hide_short_help(false));
    below(command, for_manual)
}

/// Puts the first examples of the full page below the options of the short one.
fn with_examples(command: Command) -> Command {
    let text = |text: Option<&StyledStr>| text.map(ToString::to_string).unwrap_or_default();
    let (page, after) = (text(command.get_long_about()), text(command.get_after_help()));
    let examples = [examples(&page), examples(&after)].concat();
    let command = below(command, with_examples);
    let title = command.get_about().map(|about| about.to_string());
    let title = title.map(|about| about.trim_end_matches('.').to_owned());
    let command = title.into_iter().fold(command, Command::about);
    if examples.is_empty() {
        return command;
    }
    let mut text = heading("Examples");
    for example in examples {
        let _ = write!(text, "\n{example}");
    }
    let after_all = command.get_after_long_help().or_else(|| command.get_after_help()).cloned();
    command.after_help(StyledStr::from(text)).after_long_help(after_all.unwrap_or_default())
}

/// Changes all commands directly below a command.
fn below(command: Command, change: fn(Command) -> Command) -> Command {
    let names: Vec<String> =
        command.get_subcommands().map(|one| one.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, change))
}

/// The first examples of a full page, one a line.
fn examples(page: &str) -> Vec<&str> {
    let lines = page.lines().skip_while(|line| !matches!(*line, "Examples:" | "Example:")).skip(1);
    let lines = lines.skip_while(|line| line.is_empty());
    lines.take_while(|line| line.starts_with("  ")).take(EXAMPLES_MAX).collect()
}

/// A heading in the style that clap gives its own.
fn heading(name: &str) -> String {
    let style = Styles::styled();
    let style = style.get_header();
    format!("{style}{name}:{}", style.render_reset())
}

/// The page of the top level, with the commands in groups.
fn template(command: &Command) -> Option<StyledStr> {
    let about = |name: &str| match command.find_subcommand(name) {
        Some(found) => found.get_about().map(ToString::to_string),
        None => Some("Print the most used options of a command".to_owned()),
    };
    let mut text = String::from("{about-with-newline}\n{usage-heading} {usage}\n\n");
    let style = Styles::styled();
    let style = style.get_literal();
    for (name, commands) in COMMAND_GROUPS {
        let _ = writeln!(text, "{}", heading(name));
        for name in commands {
            let about = about(name)?;
            let _ = writeln!(text, "  {style}{name:<8}{} {about}", style.render_reset());
        }
        text.push('\n');
    }
    let _ = write!(text, "{}\n{{options}}{{after-help}}", heading("Options"));
    Some(text.into())
}

/// The words of a command line with `help COMMAND...` as `COMMAND... --help`, so that both print
/// the same page. Other words stay as they are, and so does `help` before a word that is no
/// command.
pub(crate) fn with_help_as_option(command: &Command, words: Vec<OsString>) -> Vec<OsString> {
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

/// Whether a command line names no command.
pub(crate) fn names_no_command(command: &Command, words: &[OsString]) -> bool {
    command_path(command, words).0.is_empty()
}

/// Where the names of commands are in a command line, each of them below the one before it, and
/// the last of these commands.
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

/// Whether a word in front of a command's name is an option, or the value of one.
fn is_option(words: &[OsString], index: usize) -> bool {
    let is_value = index > 0 && words[index - 1] == "--color";
    is_value || words[index].to_string_lossy().starts_with('-')
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::arguments::Arguments;

    /// A screen of 40 lines, less the prompt.
    const LINES_MAX: usize = 39;
    const COLUMNS: usize = 80;

    fn built() -> Command {
        let mut command = with_short_pages(Arguments::command()).term_width(COLUMNS);
        command.build();
        command
    }

    fn is_shown_option(argument: &Arg) -> bool {
        !argument.is_hide_set() && !argument.is_positional()
    }

    /// Calls `check` with every command that is shown, and its name.
    fn for_each(command: &Command, check: &mut dyn FnMut(&str, Command)) {
        let name = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
        check(&name, command.clone().term_width(COLUMNS));
        let shown = command.get_subcommands().filter(|one| !one.is_hide_set());
        for one in shown.filter(|one| one.get_name() != "help") {
            for_each(one, check);
        }
    }

    #[test]
    fn every_short_page_fits_a_screen_and_every_full_page_has_all_options() {
        let mut count = 0;
        for_each(&built(), &mut |name, mut command| {
            count += 1;
            let short = command.render_help().to_string();
            let lines = short.lines().count();
            assert!(lines <= LINES_MAX, "{name} has {lines} lines:\n{short}");
            for line in short.lines() {
                assert!(line.chars().count() <= COLUMNS, "{name}: {line}");
            }
            assert!(short.contains("--help-all"), "{short}");
            let full = command.render_long_help().to_string();
            for option in command.get_arguments().filter(|one| is_shown_option(one)) {
                let long = format!("--{}", option.get_long().expect("a long name"));
                assert!(full.contains(&long), "{name} --help-all lacks {long}:\n{full}");
            }
        });
        assert!(count > 25, "{count} commands");
    }

    #[test]
    fn the_groups_name_every_command_once() {
        let mut grouped: Vec<&str> =
            COMMAND_GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        grouped.sort_unstable();
        let command = built();
        let mut shown: Vec<&str> = command
            .get_subcommands()
            .filter(|one| !one.is_hide_set())
            .map(Command::get_name)
            .collect();
        shown.sort_unstable();
        assert_eq!(grouped, shown);
    }

    #[test]
    fn long_pages_have_the_five_most_used_options_first() {
        for path in [&["record"][..], &["print"], &["session", "create"]] {
            let mut command = built();
            for name in path {
                command = command.find_subcommand(name).expect("a command").clone();
            }
            let mut command = command.term_width(COLUMNS);
            let most_used: Vec<String> = command
                .get_arguments()
                .filter(|one| one.get_help_heading() == Some(MOST_USED))
                .map(|one| one.get_long().expect("a long name").to_owned())
                .collect();
            assert_eq!(most_used.len(), 5, "{path:?}: {most_used:?}");
            let page = command.render_help().to_string();
            let (_, options) = page.split_once("Most used:\n").expect("a heading");
            let first = options.lines().take_while(|line| !line.is_empty());
            let first: Vec<&str> = first.filter(|line| line.contains(" --")).collect();
            assert_eq!(first.len(), 5, "{page}");
            for option in &most_used {
                assert!(first.iter().any(|line| line.contains(option)), "{option}:\n{page}");
            }
        }
    }

    #[test]
    fn manual_pages_describe_every_option() {
        for_each(&for_manual(Arguments::command()), &mut |name, command| {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page).expect("memory");
            let page = String::from_utf8(page).expect("UTF-8");
            let lines: Vec<&str> = page.lines().collect();
            for window in lines.windows(3).filter(|window| window[0] == ".TP") {
                let has_text = !window[2].is_empty() && !window[2].starts_with('.');
                assert!(has_text, "{name}: {window:?}");
            }
        });
    }

    #[test]
    fn help_as_a_command_is_help_as_an_option() {
        let command = Arguments::command();
        let changed = |words: &str| {
            let words = words.split(' ').map(OsString::from).collect();
            let changed = with_help_as_option(&command, words);
            changed.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
        };
        for (typed, meant) in [
            ("trackway help", "trackway --help"),
            ("trackway help record", "trackway record --help"),
            ("trackway help session create", "trackway session create --help"),
            ("trackway session help create", "trackway session create --help"),
            ("trackway session help", "trackway session --help"),
            ("trackway --color never help record", "trackway --color never record --help"),
            ("trackway help record --help-all", "trackway record --help-all --help"),
            ("trackway help nothing", "trackway help nothing"),
            ("trackway help record nothing", "trackway help record nothing"),
            ("trackway record -- help", "trackway record -- help"),
            ("trackway record help", "trackway record help"),
            ("trackway print help", "trackway print help"),
            ("trackway", "trackway"),
        ] {
            assert_eq!(changed(typed), meant);
        }
    }
}
