//! The `trackway-bench` command: the cost of tracing and reading on this machine, next to other
//! programs. `trackway bench` starts it.
//!
//! `trackway_bench_engine` and `trackway_bench_suites` measure; this program has the command line,
//! and writes the results.
#![deny(unsafe_code)]

mod arguments;
mod compare;
mod doctor;
mod suites;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::CommandFactory as _;
use trackway_command_line::{
    EXIT_FAILED, completions, is_broken_pipe, manual, print_error, print_page, print_usage_error,
    typed_colour_choice,
};
use trackway_console::stdout;

use arguments::{Arguments, Other};

/// The beginning of messages about errors.
const ERROR_PREFIX: &str = "trackway:";

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    let arguments = match Arguments::parse_words(words.clone()) {
        Ok(arguments) => arguments,
        Err(error) => {
            trackway_console::set_colour_choice(typed_colour_choice(words.into_iter()));
            return print_page(&error).unwrap_or_else(|| {
                print_usage_error(&error);
                ExitCode::from(EXIT_FAILED)
            });
        }
    };
    trackway_console::set_colour_choice(arguments.common.colour.into());
    trackway_sys::signal::ignore_size_limit();
    match run(&arguments) {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(ERROR_PREFIX, &error);
            ExitCode::from(EXIT_FAILED)
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let output = &mut stdout();
    match &arguments.other {
        Some(Other::Compare(arguments)) => compare::run(arguments, output),
        Some(Other::Doctor(arguments)) => doctor::run(arguments, output),
        Some(Other::Page(page)) => suites::redraw_page(page, output).map(|()| ExitCode::SUCCESS),
        Some(Other::Completions(wanted)) => {
            let command = arguments::with_tracer_names();
            output.write_all(&completions::generate_script(
                command,
                "trackway-bench",
                wanted.shell,
            ))?;
            Ok(ExitCode::SUCCESS)
        }
        Some(Other::Man(man)) => {
            manual::write_pages(Arguments::command(), &man.output, &[]).with_context(|| {
                format!("cannot write manual pages to {}", man.output.display())
            })?;
            Ok(ExitCode::SUCCESS)
        }
        None if arguments.list => {
            suites::list_suites(arguments, output).map(|()| ExitCode::SUCCESS)
        }
        None => suites::measure_suites(arguments, output),
    }
}

fn exit_code_for_failures(has_failures: bool) -> ExitCode {
    if has_failures { ExitCode::from(1) } else { ExitCode::SUCCESS }
}
