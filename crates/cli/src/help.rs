//! Help pages: groups of commands, and headings of options.
//!
//! Main invariant: a short page fits one screen, 39 lines of 80 columns and a prompt, and shows
//! examples. Manual pages and completions are generated from the full declaration.

use trackway_command_line::help::CommandGroup;

/// Headings of options, in the order in which `record` and `session create` declare them.
pub(crate) const MOST_USED: &str = "Most used";
pub(crate) const SUBJECT: &str = "What to record";
pub(crate) const WHERE: &str = "Where to write";
pub(crate) const HOW_MUCH: &str = "How much to keep";
pub(crate) const PROCESSES: &str = "Which processes";
pub(crate) use trackway_command_line::help::HELP;
/// Headings of options of `print` and `trim`.
pub(crate) const EVENTS: &str = "Which events";
pub(crate) const FORM: &str = "How to print";

/// The commands in groups, the most used first.
pub(crate) const COMMAND_GROUPS: [CommandGroup; 4] = [
    (MOST_USED, &["record", "print", "list", "session", "doctor"]),
    ("While a session records", &["channel", "event"]),
    ("Traces", &["trim", "merge", "recover"]),
    ("More", &["filter", "bench", "help"]),
];

#[cfg(test)]
mod tests {
    use clap::{Arg, Command, CommandFactory as _};
    use std::ffi::OsString;
    use trackway_command_line::help::{
        rewrite_help_command, with_manual_descriptions, with_short_pages,
    };

    use super::*;
    use crate::arguments::Arguments;

    /// Most lines of a page: a screen of 40 lines, minus the prompt.
    const LINES_MAX: usize = 39;
    const COLUMNS: usize = 80;

    fn build_command() -> Command {
        let mut command =
            with_short_pages(Arguments::command(), &COMMAND_GROUPS).term_width(COLUMNS);
        command.build();
        command
    }

    fn is_shown_option(argument: &Arg) -> bool {
        !argument.is_hide_set() && !argument.is_positional()
    }

    /// Calls `check` with the name and declaration of every visible command.
    fn for_each_command(command: &Command, check: &mut dyn FnMut(&str, Command)) {
        let name = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
        check(&name, command.clone().term_width(COLUMNS));
        let shown = command.get_subcommands().filter(|one| !one.is_hide_set());
        for one in shown.filter(|one| one.get_name() != "help") {
            for_each_command(one, check);
        }
    }

    #[test]
    fn every_short_page_fits_a_screen_and_every_full_page_has_all_options() {
        let mut count = 0;
        for_each_command(&build_command(), &mut |name, mut command| {
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
        let command = build_command();
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
            let mut command = build_command();
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
        for_each_command(&with_manual_descriptions(Arguments::command()), &mut |name, command| {
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
            let changed = rewrite_help_command(&command, words);
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
