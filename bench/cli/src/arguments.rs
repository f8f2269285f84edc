//! The command line, declared once: parsing, help, manual pages and completions come from here.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Command, CommandFactory as _, FromArgMatches as _, Parser};
use trackway_bench_engine::results::SUITES;
use trackway_bench_suites::CATALOGUE;
use trackway_command_line::CommonArguments;
use trackway_command_line::help::{rewrite_help_command, with_short_pages};

use crate::{compare, doctor};

/// Measure the cost of tracing on this machine
///
/// Measures the cost of tracing and of reading traces, next to other programs that do the same.
/// trackway bench starts this program, with the same arguments.
#[derive(Debug, Parser)]
#[command(
    name = "trackway-bench",
    bin_name = "trackway bench",
    version,
    disable_help_flag = true,
    max_term_width = 100,
    args_conflicts_with_subcommands = true,
    subcommand_value_name = "COMMAND",
    subcommand_help_heading = "Other commands",
    after_help = "Examples:\n  trackway bench --list\n  \
                  trackway bench --quick\n  \
                  trackway bench tracepoint scaling --out here\n  \
                  trackway bench tracepoint --tracers trackway,lttng\n  \
                  trackway bench doctor\n  \
                  trackway bench compare before/results.json after/results.json\n\n\
                  Figures of different machines do not compare; ratios do. Ctrl-C ends it: what \
                  was measured until then is kept. The exit status is 0, 1 if something failed \
                  that \
                  should have worked, 130 after Ctrl-C, 2 for anything else."
)]
pub(crate) struct Arguments {
    /// Suites to measure [default: all; see --list]
    #[arg(value_name = "SUITE", value_parser = suite_names(), hide_possible_values = true)]
    pub(crate) suites: Vec<String>,
    /// Only these tracers and their baselines
    ///
    /// A word before a '-' in names selects all of them (lttng: lttng-ust, lttng-tracef).
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) tracers: Vec<String>,
    /// Folder for the results [default: trackway-bench-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// One short round: to see that all works, not for figures
    #[arg(long)]
    pub(crate) quick: bool,
    /// Measure N rounds [default: until the ratios are sure]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: Option<u32>,
    /// Draw the order of turns from N [default: a new N each time]
    ///
    /// The same N repeats the order.
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// List the suites and how long they take
    #[arg(long)]
    pub(crate) list: bool,
    #[command(flatten)]
    pub(crate) common: CommonArguments,
    #[command(subcommand)]
    pub(crate) other: Option<Other>,
}

/// The other commands.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Other {
    Compare(compare::Arguments),
    Doctor(doctor::Arguments),
    Page(Page),
    #[command(hide = true)]
    Completions(CompletionsArguments),
    #[command(hide = true)]
    Man(ManArguments),
}

/// Draw the page of a results.json again, of this version or of one that was interrupted
///
/// report.html is written next to the file, or to another folder.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  trackway bench page here/results.json --out there")]
pub(crate) struct Page {
    /// Results file of trackway bench
    #[arg(value_name = "FILE")]
    pub(crate) results: PathBuf,
    /// Folder for the page [default: that of the file]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

/// Returns a parser of suite names. The parser rejects misspelt names; shells complete the names.
fn suite_names() -> clap::builder::PossibleValuesParser {
    SUITES.into_iter().map(PossibleValue::new).collect::<Vec<_>>().into()
}

/// Print a completion script
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  trackway-bench completions bash")]
pub(crate) struct CompletionsArguments {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

/// Write the manual pages
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  trackway-bench man --output man1")]
pub(crate) struct ManArguments {
    /// Folder to write them to
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) output: PathBuf,
}

impl Arguments {
    /// Parses `words`; the command `help` is `--help` of the following command.
    pub(crate) fn parse_words(words: Vec<OsString>) -> Result<Self, clap::Error> {
        let command = with_short_pages(Self::command(), &[]);
        let words = rewrite_help_command(&command, words);
        let mut matches = command.try_get_matches_from(words)?;
        Self::from_arg_matches_mut(&mut matches)
    }
}

/// Returns the declaration for completions, with the names of all tracers. The command line also
/// accepts beginnings of names.
pub(crate) fn with_tracer_names() -> Command {
    let names = || PossibleValuesParser::new(CATALOGUE.tracer_names());
    let command = Arguments::command().mut_arg("tracers", |one| one.value_parser(names()));
    command.mut_subcommand("compare", |one| one.mut_arg("tracers", |one| one.value_parser(names())))
}

#[cfg(test)]
mod tests {
    use clap_complete::Shell;

    use super::*;

    /// A screen of 40 lines, less the prompt.
    const LINES_MAX: usize = 39;
    const COLUMNS: usize = 80;

    #[test]
    fn the_declaration_is_sound() {
        Arguments::command().debug_assert();
        with_tracer_names().debug_assert();
    }

    #[test]
    fn short_pages_fit_a_screen_and_have_examples() {
        let mut command = with_short_pages(Arguments::command(), &[]).term_width(COLUMNS);
        command.build();
        let below = command.get_subcommands().filter(|one| !one.is_hide_set()).cloned();
        for mut one in below.collect::<Vec<_>>().into_iter().chain([command]) {
            let page = one.clone().term_width(COLUMNS).render_help().to_string();
            assert!(page.lines().count() <= LINES_MAX, "{page}");
            assert!(page.lines().all(|line| line.chars().count() <= COLUMNS), "{page}");
            assert!(page.contains("Usage: trackway bench"), "{page}");
            let is_help = one.get_name() == "help";
            assert!(is_help || page.contains("\nExamples:\n  "), "{page}");
            let full = one.render_long_help().to_string();
            assert!(is_help || full.contains("Print all options"), "{full}");
        }
    }

    #[test]
    fn suites_and_tracers_are_completed_and_hidden_commands_are_not() {
        let script = |shell| {
            let script = trackway_command_line::completions::generate_script(
                with_tracer_names(),
                "trackway-bench",
                shell,
            );
            String::from_utf8(script).expect("text")
        };
        let bash = script(Shell::Bash);
        for offered in ["tracepoint", "lttng-ust", "compare", "--fail-on"] {
            assert!(bash.contains(offered), "{offered}");
        }
        assert!(!bash.contains("completions") && !bash.contains(" man "), "{bash}");
    }

    #[test]
    fn help_is_a_command_and_an_option() {
        for words in ["help", "help compare", "compare --help", "doctor --help-all", "-h"] {
            let words = std::iter::once("trackway-bench").chain(words.split(' ')).map(Into::into);
            let error = Arguments::parse_words(words.collect()).expect_err("a page");
            assert!(!error.use_stderr(), "{error}");
        }
        let parse = |words: &str| {
            let words = std::iter::once("trackway-bench").chain(words.split(' ')).map(Into::into);
            Arguments::parse_words(words.collect()).map_err(|error| error.to_string())
        };
        parse("doctor --color never").expect("options of every command come last, too");
        let error = parse("tracepiont").expect_err("there is no such suite");
        assert!(error.contains("tracepoint"), "{error}");
    }
}
