//! The `trackway` command: parses the command line, calls commands, and prints errors once.
#![deny(unsafe_code)]

mod arguments;
mod bench;
mod common;
mod completions;
mod doctor;
mod filter;
mod help;
mod list;
#[expect(unsafe_code, reason = "the C library's time zone has no safe interface")]
mod local_time;
mod man;
mod merge;
mod output_guard;
mod patterns;
mod print;
mod progress;
mod record;
mod recover;
mod rights;
mod session;
mod session_traces;
mod time_range;
mod trim;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::CommandFactory as _;
use clap::error::ErrorKind;
use trackway_command_line::help::names_no_command;
use trackway_command_line::{
    EXIT_FAILED, is_broken_pipe, print_error, print_hint, print_page, print_usage_error,
    typed_colour_choice,
};
use trackway_console::{Style, Target};
use trackway_kernel::catalogue::error::CatalogueError;
use trackway_reader::OpenError;

use arguments::{Arguments, Verb};
use rights::NextCommands;

/// The prefix of error messages.
const MESSAGE_PREFIX: &str = "trackway:";
/// Output of `trackway` without arguments.
const FIRST_COMMANDS: &str = "\
no command given. The first commands to try:
  trackway record -- ./app    # records ./app and its children into a new folder
  trackway print DIR          # prints the events in that folder
  trackway list               # lists the events of running programs
trackway --help lists all commands; trackway help COMMAND shows options and examples of one.";
/// Exit status for a negative answer, for example damage in a trace.
const EXIT_NEGATIVE: u8 = 1;

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    if let Some(words) = bench::extract_bench_arguments(&words) {
        return start_bench(&words);
    }
    let arguments = match Arguments::read() {
        Ok(arguments) => arguments,
        Err(error) => {
            trackway_console::set_colour_choice(typed_colour_choice(words.into_iter()));
            return report_usage_error(&error);
        }
    };
    trackway_console::set_colour_choice(arguments.common.colour.into());
    let is_record = matches!(arguments.verb, Verb::Record(_));
    let next = NextCommands::of(&arguments.verb, &words);
    match run(arguments) {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let status = match next.filter(|_| needs_root(&error)) {
                Some(next) => report_missing_rights(&error, &next),
                None => report_error(&error),
            };
            ExitCode::from(if is_record { status } else { EXIT_FAILED })
        }
    }
}

fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    // `record` does this by itself, because its command must inherit the original signal action.
    if !matches!(arguments.verb, Verb::Record(_)) {
        trackway_sys::signal::ignore_size_limit();
    }
    match arguments.verb {
        Verb::Record(arguments) => record::run(arguments),
        Verb::Session(arguments) => session::run(arguments),
        Verb::Channel(arguments) => session::run_channel(arguments),
        Verb::Event(arguments) => session::run_event(arguments),
        Verb::Recover(arguments) => recover::run(arguments),
        Verb::List(arguments) => list::run(arguments),
        Verb::Print(arguments) => print::run(arguments),
        Verb::Trim(arguments) => trim::run(arguments),
        Verb::Merge(arguments) => merge::run(arguments),
        Verb::Filter(arguments) => filter::run(arguments),
        Verb::Doctor(arguments) => doctor::run(arguments),
        Verb::Bench(arguments) => Ok(start_bench(&arguments.words())),
        Verb::Completions(arguments) => completions::run(arguments, Arguments::command()),
        Verb::Man(arguments) => man::run(arguments, Arguments::command()),
    }
}

/// Reports a usage error; help and version are no errors and go to standard output. For `record`,
/// returns its own error status, which differs from those of traced commands.
fn report_usage_error(error: &clap::Error) -> ExitCode {
    if let Some(status) = print_page(error) {
        return status;
    }
    let words: Vec<OsString> = std::env::args_os().collect();
    let is_incomplete = matches!(
        error.kind(),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand
    );
    if is_incomplete && names_no_command(&Arguments::command(), &words) {
        let name = Target::Errors.paint(Style::Error, MESSAGE_PREFIX);
        trackway_console::write_lines(format_args!("{name} {FIRST_COMMANDS}"));
        return ExitCode::from(EXIT_FAILED);
    }
    print_usage_error(error);
    let is_record = std::env::args_os().nth(1).is_some_and(|verb| verb == "record");
    let is_page = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    ExitCode::from(if is_record && !is_page { record::EXIT_FAILED } else { EXIT_FAILED })
}

/// Replaces this process by trackway-bench; returns the exit status if that fails.
fn start_bench(words: &[OsString]) -> ExitCode {
    let error = bench::exec_program(words);
    print_error(MESSAGE_PREFIX, &error);
    if let Some(missing) = error.downcast_ref::<bench::BenchNotInstalled>() {
        print_hint(missing.hint());
    }
    ExitCode::from(EXIT_FAILED)
}

/// Returns true if the command failed because this user is not root.
fn needs_root(error: &anyhow::Error) -> bool {
    let is_for_rights =
        matches!(error.downcast_ref::<CatalogueError>(), Some(CatalogueError::PermissionDenied))
            || error
                .downcast_ref::<trackway_recorder::RecordError>()
                .is_some_and(trackway_recorder::RecordError::needs_root);
    is_for_rights && !trackway_recorder::is_root()
}

/// Prints an error about missing rights, and commands to try; returns the exit status for `record`.
fn report_missing_rights(error: &anyhow::Error, next: &NextCommands) -> u8 {
    print_error(MESSAGE_PREFIX, error);
    print_hint("try one of these commands:");
    for line in next.lines() {
        trackway_console::write_lines(format_args!("{line}"));
    }
    record::EXIT_FAILED
}

/// Prints an error and its hint; returns the exit status for `record`.
fn report_error(error: &anyhow::Error) -> u8 {
    print_error(MESSAGE_PREFIX, error);
    if let Some(hint) = error.downcast_ref::<CatalogueError>().and_then(CatalogueError::hint) {
        print_hint(&hint);
    }
    if let Some(hint) = error.downcast_ref::<OpenError>().and_then(OpenError::hint) {
        print_hint(&hint);
    }
    let Some(known) = error.downcast_ref::<trackway_recorder::RecordError>() else {
        return record::EXIT_FAILED;
    };
    if let Some(hint) = known.hint() {
        print_hint(&hint);
    }
    known.exit_status()
}
