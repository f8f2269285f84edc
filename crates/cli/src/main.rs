//! The `trackway` command: what is typed, turned into calls; errors printed once, here.
#![deny(unsafe_code)]

mod arguments;
mod bench;
mod completions;
mod contexts;
mod doctor;
mod export;
mod filter;
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
mod session;
mod stats;
mod time_range;

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::CommandFactory as _;
use trackway_kernel::catalogue::error::CatalogueError;

use arguments::{Arguments, Verb};

/// Exit status when the command itself failed, except for `record`.
const FAILED: u8 = 2;
/// Exit status for a negative answer, as of damage found.
const NEGATIVE: u8 = 1;

fn main() -> ExitCode {
    let arguments = match Arguments::read() {
        Ok(arguments) => arguments,
        Err(error) => return usage(&error),
    };
    let is_record = matches!(arguments.verb, Verb::Record(_));
    match run(arguments) {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let status = report(&error);
            ExitCode::from(if is_record { status } else { FAILED })
        }
    }
}

fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    match arguments.verb {
        Verb::Record(record) => record::run(&record),
        Verb::Session(arguments) => session::run(arguments),
        Verb::Channel(arguments) => session::run_channel(arguments),
        Verb::Event(arguments) => session::run_event(arguments),
        Verb::Recover(recover) => record::recover(&recover),
        Verb::List(list) if list.contexts => contexts::run(list.format, &mut io::stdout().lock()),
        Verb::List(list) if list.kernel => {
            kernel_events::run(&list.patterns, list.format, &mut io::stdout().lock())
        }
        Verb::List(list) => list::run(list.format, &mut io::stdout().lock()),
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
        Verb::Filter(arguments) => filter::run(arguments, &mut io::stdout().lock()),
        Verb::Doctor(arguments) => doctor::run(&arguments),
        Verb::Bench(arguments) => bench::run(&arguments, &mut io::stdout()),
        Verb::Completions(completions) => {
            io::stdout().write_all(&completions::script(completions.shell))?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::Man(man) => {
            std::fs::create_dir_all(&man.output)
                .and_then(|()| clap_mangen::generate_to(Arguments::command(), &man.output))
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
    // Nobody may be there to read it.
    let _ = error.print();
    let is_record = std::env::args_os().nth(1).is_some_and(|verb| verb == "record");
    match error.use_stderr() {
        false => ExitCode::SUCCESS,
        true if is_record => ExitCode::from(record::FAILED),
        true => ExitCode::from(FAILED),
    }
}

/// Prints an error and what to do about it; the exit status of `record` for it.
fn report(error: &anyhow::Error) -> u8 {
    let mut stderr = io::stderr().lock();
    let _ = writeln!(stderr, "trackway: {error:#}");
    if let Some(hint) = error.downcast_ref::<CatalogueError>().and_then(CatalogueError::hint) {
        let _ = writeln!(stderr, "hint: {hint}");
    }
    let Some(known) = error.downcast_ref::<trackway_recorder::RecordError>() else {
        return record::FAILED;
    };
    if let Some(hint) = known.hint() {
        let _ = writeln!(stderr, "hint: {hint}");
    }
    known.exit_status()
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    })
}
