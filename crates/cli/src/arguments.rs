//! The declaration of the command line: the source of parsing, help, manual pages and completions.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use trackway_command_line::CommonArguments;
use trackway_command_line::help::{rewrite_help_command, with_short_pages};

use crate::help::COMMAND_GROUPS;
use crate::session::args::{ChannelArguments, EventArguments, SessionArguments};
use crate::{bench, completions, doctor, filter, list, man, merge, print, record, recover, trim};

/// Trackway records, in time order, what programs do.
///
/// Examples:
///
///   trackway record -- ./app --its-args
///   trackway print trackway-20261121-093000
///
/// Events are recorded into buffers in shared memory, by restartable sequences; traces are CTF.
/// Without a command, trackway prints the first commands to try, with exit status 2.
#[derive(Debug, Parser)]
#[command(
    name = "trackway",
    bin_name = "trackway",
    version,
    verbatim_doc_comment,
    disable_help_flag = true,
    max_term_width = 100
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: CommonArguments,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

impl Arguments {
    /// Parses this process's command line.
    ///
    /// # Errors
    ///
    /// If the command line is wrong; or if it requests help or the version.
    pub(crate) fn read() -> Result<Self, clap::Error> {
        Self::parse_words(std::env::args_os().collect())?.checked()
    }

    /// Parses a command line; replaces `help COMMAND` by `COMMAND --help`.
    pub(crate) fn parse_words(words: Vec<OsString>) -> Result<Self, clap::Error> {
        let command = with_short_pages(Self::command(), &COMMAND_GROUPS);
        let words = rewrite_help_command(&command, words);
        let mut matches = command.try_get_matches_from(words)?;
        Self::from_arg_matches_mut(&mut matches)
    }

    /// Rejects combinations of options that are valid separately.
    fn checked(self) -> Result<Self, clap::Error> {
        let Verb::Print(print) = &self.verb else { return Ok(self) };
        let Some(why) = print.refusal() else { return Ok(self) };
        let mut command = Self::command();
        // Puts the command's name before the subcommand in the usage line.
        command.build();
        let verb = command.find_subcommand_mut("print");
        Err(verb.unwrap_or(&mut Self::command()).error(ErrorKind::ArgumentConflict, why))
    }
}

/// Subcommands of `trackway`.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Record(record::Arguments),
    Session(SessionArguments),
    Channel(ChannelArguments),
    Event(EventArguments),
    Recover(recover::Arguments),
    List(list::Arguments),
    Print(print::Arguments),
    Trim(trim::Arguments),
    Merge(merge::Arguments),
    Filter(filter::Arguments),
    Doctor(doctor::Arguments),
    Bench(bench::Arguments),
    #[command(hide = true)]
    Completions(completions::Arguments),
    #[command(hide = true)]
    Man(man::Arguments),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Arguments, String> {
        let words = std::iter::once("trackway").chain(words.split(' ')).map(Into::into);
        let parsed = Arguments::parse_words(words.collect()).and_then(Arguments::checked);
        parsed.map_err(|error| error.to_string())
    }

    #[test]
    fn the_declaration_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn forms_that_would_print_nothing_are_refused() {
        for wrong in ["--details --format csv", "--details --format none", "--stats --format none"]
        {
            let error = parse(&format!("print {wrong} d")).expect_err(wrong);
            let (option, _) = wrong.split_once(' ').expect("two options");
            let advice = ["leave it out", "use --format json"];
            let has_advice = advice.iter().any(|advice| error.contains(advice));
            assert!(error.contains(option) && has_advice, "{error}");
            assert!(error.contains("Usage: trackway print "), "{error}");
        }
        for right in ["--details --format json", "--stats --format csv", "--format none"] {
            parse(&format!("print {right} d")).expect(right);
        }
        assert!(parse("print --count --format csv d").is_err());
    }

    #[test]
    fn numbers_of_threads_are_refused_in_words() {
        for verb in ["print d", "trim -o out d", "merge -o out d"] {
            let refused = |number| parse(&format!("{verb} -j {number}")).expect_err("refused");
            assert!(refused("0").contains("at least one thread is needed"), "{}", refused("0"));
            assert!(refused("two").contains("not a number of threads"), "{}", refused("two"));
            parse(&format!("{verb} -j 2")).expect("two threads");
        }
    }
}
