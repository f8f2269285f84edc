//! The `trackway` command: what is typed, turned into calls; errors printed once, here.
#![deny(unsafe_code)]

mod arguments;
mod bench;
mod common;
mod completions;
mod contexts;
mod doctor;
mod export;
mod filter;
mod help;
mod inside;
mod kernel_events;
mod list;
#[expect(unsafe_code, reason = "the C library's time zone has no safe interface")]
mod local_time;
mod named;
mod patterns;
mod print;
mod progress;
mod record;
mod rights;
mod session;
mod stats;
mod time_range;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::error::ErrorKind;
use clap::{CommandFactory as _, ValueEnum as _};
use trackway_console::{IoError, Style, Target, message, stdout};
use trackway_kernel::catalogue::error::CatalogueError;
use trackway_reader::OpenError;

use arguments::{Arguments, Verb};
use rights::NextCommands;

/// Exit status when the command itself failed, except for `record`.
const FAILED: u8 = 2;
/// What `trackway` alone prints.
const FIRST_COMMANDS: &str = "\
no command given. The first commands to try:
  trackway record -- ./app    # records ./app and its children into a new folder
  trackway print DIR          # prints the events in that folder
  trackway list               # lists the events of running programs
trackway --help lists all commands; trackway help COMMAND shows options and examples of one.";
/// Exit status for a negative answer, as of damage found.
const NEGATIVE: u8 = 1;

fn main() -> ExitCode {
    let arguments = match Arguments::read() {
        Ok(arguments) => arguments,
        Err(error) => {
            trackway_console::set_colour_choice(colour_choice(std::env::args_os()));
            return usage(&error);
        }
    };
    trackway_console::set_colour_choice(arguments.colour.into());
    let is_record = matches!(arguments.verb, Verb::Record(_));
    let words: Vec<OsString> = std::env::args_os().collect();
    let next = NextCommands::of(&arguments.verb, &words);
    match run(arguments) {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let status = match next.filter(|_| needs_root(&error)) {
                Some(next) => report_rights(&error, &next),
                None => report(&error),
            };
            ExitCode::from(if is_record { status } else { FAILED })
        }
    }
}

fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    // `record` does this by itself: its command is to find the signal as it was.
    if !matches!(arguments.verb, Verb::Record(_)) {
        trackway_sys::signal::ignore_size_limit();
    }
    match arguments.verb {
        Verb::Record(record) => record::run(&record),
        Verb::Session(arguments) => session::run(arguments),
        Verb::Channel(arguments) => session::run_channel(arguments),
        Verb::Event(arguments) => session::run_event(arguments),
        Verb::Recover(recover) => record::recover(&recover),
        Verb::List(list) if list.contexts => contexts::run(list.format, &mut stdout()),
        Verb::List(list) if list.kernel => {
            kernel_events::run(&list.patterns, list.format, &mut stdout())
        }
        Verb::List(list) => list::run(list.format, &mut stdout()),
        Verb::Print(mut print) => {
            if !print.follow {
                named::find(&mut print.traces);
            }
            let printed = print::run(&print, &mut progress::Messages);
            progress::clear();
            let whole = printed?;
            Ok(if whole { ExitCode::SUCCESS } else { ExitCode::from(NEGATIVE) })
        }
        Verb::Trim(mut arguments) => {
            named::find(&mut arguments.traces);
            export::trim(&arguments)
        }
        Verb::Merge(mut arguments) => {
            named::find(&mut arguments.traces);
            export::merge(&arguments)
        }
        Verb::Filter(arguments) => filter::run(arguments, &mut stdout()),
        Verb::Doctor(arguments) => doctor::run(&arguments),
        Verb::Bench(arguments) => bench::run(&arguments, &mut stdout()),
        Verb::Completions(completions) => {
            stdout().write_all(&completions::script(completions.shell))?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::Man(man) => {
            std::fs::create_dir_all(&man.output)
                .and_then(|()| {
                    clap_mangen::generate_to(help::for_manual(Arguments::command()), &man.output)
                })
                .with_context(|| {
                    format!("cannot write manual pages to {}", man.output.display())
                })?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Help and version are data; wrong usage of `record` ends as its own errors do, so that nobody
/// takes its status for the traced command's.
fn usage(error: &clap::Error) -> ExitCode {
    let shown = error.render();
    if !error.use_stderr() {
        let text = match Target::Output.has_colours() {
            true => shown.ansi().to_string(),
            false => shown.to_string(),
        };
        // Nobody may be there to read it.
        let _ = trackway_console::write_own(Target::Output, &text);
        return ExitCode::SUCCESS;
    }
    let words: Vec<OsString> = std::env::args_os().collect();
    let is_incomplete = matches!(
        error.kind(),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand
    );
    if is_incomplete && help::names_no_command(&Arguments::command(), &words) {
        let name = Target::Errors.paint(Style::Error, "trackway:");
        trackway_console::write_lines(format_args!("{name} {FIRST_COMMANDS}"));
        return ExitCode::from(FAILED);
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        trackway_console::write_lines(format_args!("{}", shown.to_string().trim_end()));
        return ExitCode::from(FAILED);
    }
    // What was typed is in it.
    let text = shown.to_string();
    let (head, rest) = text.split_once(' ').unwrap_or((&text, ""));
    let head = Target::Errors.paint(Style::Error, head);
    trackway_console::write_lines(format_args!("{head} {}", rest.trim_end_matches('\n')));
    let is_record = std::env::args_os().nth(1).is_some_and(|verb| verb == "record");
    ExitCode::from(if is_record { record::FAILED } else { FAILED })
}

/// What `--color` says on a command line that cannot be read: before `--`, as there may be another
/// program's options behind.
fn colour_choice(words: impl Iterator<Item = OsString>) -> trackway_console::ColourChoice {
    let words: Vec<String> = words
        .map_while(|word| Some(word.to_string_lossy().into_owned()).filter(|word| word != "--"))
        .collect();
    let values = words.iter().enumerate().filter_map(|(index, word)| match word.as_str() {
        "--color" => words.get(index + 1).map(String::as_str),
        word => word.strip_prefix("--color="),
    });
    let mut choices =
        values.filter_map(|value| arguments::ColourChoice::from_str(value, false).ok());
    choices.next_back().unwrap_or_default().into()
}

/// Whether root may do what failed, and this user is not root.
fn needs_root(error: &anyhow::Error) -> bool {
    let is_for_rights =
        matches!(error.downcast_ref::<CatalogueError>(), Some(CatalogueError::PermissionDenied))
            || error
                .downcast_ref::<trackway_recorder::RecordError>()
                .is_some_and(trackway_recorder::RecordError::needs_root);
    is_for_rights && !trackway_recorder::is_root()
}

/// Prints an error for want of rights and the commands to try; the exit status of `record` for it.
fn report_rights(error: &anyhow::Error, next: &NextCommands) -> u8 {
    let name = Target::Errors.paint(Style::Error, "trackway:");
    trackway_console::write_lines(format_args!("{name} {}", text_of(error)));
    write_hint("try one of these commands:");
    for line in next.lines() {
        trackway_console::write_lines(format_args!("{line}"));
    }
    record::FAILED
}

/// Prints an error and what to do about it; the exit status of `record` for it.
fn report(error: &anyhow::Error) -> u8 {
    let name = Target::Errors.paint(Style::Error, "trackway:");
    trackway_console::write_lines(format_args!("{name} {}", text_of(error)));
    if let Some(hint) = error.downcast_ref::<CatalogueError>().and_then(CatalogueError::hint) {
        write_hint(&hint);
    }
    if let Some(hint) = error.downcast_ref::<OpenError>().and_then(OpenError::hint) {
        write_hint(&hint);
    }
    let Some(known) = error.downcast_ref::<trackway_recorder::RecordError>() else {
        return record::FAILED;
    };
    if let Some(hint) = known.hint() {
        write_hint(&hint);
    }
    known.exit_status()
}

/// An error with what caused it, as people read it.
fn text_of(error: &anyhow::Error) -> String {
    // A name in it may have line ends: what follows one must not look like a message of its own.
    let text = IoError::chain(error.as_ref());
    if Target::Errors.is_escaped() { text.replace('\n', "\n  ") } else { text }
}

/// Writes what to do about what was said before.
fn write_hint(hint: &str) {
    message!("hint: {hint}");
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        IoError::system_error(cause).is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    })
}
