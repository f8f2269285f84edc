//! Baselines of tracers: the empty loop, the clock, the lightest possible tracer, and text, which
//! is the most common tracer.

use std::process::Command;

use trackway_bench_engine::case::{BufferState, Case, Context, Payload};
use trackway_bench_engine::error::Result;
use trackway_bench_engine::host::child;
use trackway_bench_engine::host::workload;
use trackway_bench_engine::host::workspace::{Workspace, has};
use trackway_bench_engine::results::Account;
use trackway_bench_engine::tracer::{Availability, Starts, Tracer};

use super::name;

/// The program of all baselines except `printf`.
pub(crate) const PROGRAM: &str = "baseline";
/// The program of the baseline `printf`.
const PRINTF_PROGRAM: &str = "printf";

/// A loop of baseline.c or printf.c.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Baseline {
    /// The loop alone.
    Empty,
    /// The processor's clock.
    Rdtsc,
    /// The survey's "LW-UST": reads the clock, and copies to a ring of this CPU.
    LwUst,
    /// Formatting by `snprintf` of the time and the fields into a ring of the thread.
    Printf,
}

impl Baseline {
    const fn program(self) -> &'static str {
        match self {
            Self::Empty | Self::Rdtsc | Self::LwUst => PROGRAM,
            Self::Printf => PRINTF_PROGRAM,
        }
    }
}

impl Tracer for Baseline {
    fn name(&self) -> &'static str {
        match self {
            Self::Empty => name::EMPTY,
            Self::Rdtsc => name::RDTSC,
            Self::LwUst => name::LW_UST,
            Self::Printf => name::PRINTF,
        }
    }

    fn availability(&self, _place: &Workspace) -> Availability {
        check_compiler(has("cc"))
    }

    fn supports(&self, case: &Case) -> bool {
        case.context == Context::None
            && match self {
                Self::Empty | Self::Rdtsc => case.payload == Payload::Number,
                Self::LwUst => case.payload.is_in_table(),
                Self::Printf => case.payload.is_in_table() || case.payload == Payload::Printf,
            }
    }

    fn batch_events(&self) -> u64 {
        match self {
            Self::Empty => 400_000,
            Self::Rdtsc | Self::LwUst => 20_000,
            Self::Printf => 4_000,
        }
    }

    fn set_up(&mut self, workspace: &Workspace) -> Result<()> {
        workspace.compile(self.program(), &[]).map(|_| ())
    }

    fn read_back(&mut self, _place: &Workspace) -> Result<Option<Account>> {
        Ok(None)
    }

    fn records(&self) -> bool {
        false
    }

    fn modes(&self) -> &'static [BufferState] {
        &[BufferState::Overwrite]
    }

    fn work(&self, case: &Case) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Rdtsc => "rdtsc",
            Self::LwUst | Self::Printf => case.payload.work(),
        }
    }

    fn emit(
        &mut self,
        workspace: &Workspace,
        _: &Case,
        _: BufferState,
        arguments: &[String],
    ) -> Result<String> {
        let mut command = Command::new(workspace.path(self.program()));
        Ok(child::run(command.args(arguments), self.name())?.stdout)
    }

    fn starts_programs(&self) -> bool {
        *self == Self::Empty
    }

    fn starts(&mut self, workspace: &Workspace, count: u32) -> Result<Option<Starts>> {
        if !self.starts_programs() {
            return Ok(None);
        }
        measure_program_starts(workspace, PROGRAM, count, |_| ()).map(Some)
    }

    fn tear_down(&mut self) {}
}

/// Checks that there is a C compiler, which every tracer needs.
pub(super) fn check_compiler(has_compiler: bool) -> Availability {
    if has_compiler {
        Availability::Ready
    } else {
        Availability::Missing("no C compiler (cc) is installed".to_owned())
    }
}

/// Starts `program` `count` times; `prepare` prepares each command.
pub(super) fn measure_program_starts(
    workspace: &Workspace,
    program: &str,
    count: u32,
    prepare: impl Fn(&mut Command),
) -> Result<Starts> {
    let launcher = workspace.compile("launch", &[])?;
    let program = workspace.path(program);
    let mut command = Command::new(&program);
    prepare(command.arg("threads"));
    let threads =
        workload::parse_thread_count(&child::run(&mut command, "counting threads")?.stdout)?;
    let mut command = Command::new(launcher);
    prepare(command.arg(&program).arg(count.to_string()));
    let us = workload::parse_starts_us(&child::run(&mut command, "starting programs")?.stdout)?;
    Ok(Starts { us, threads })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_that_mean_something() {
        let record = Case { payload: Payload::Record, ..Case::SIMPLEST };
        assert!(Baseline::Rdtsc.supports(&Case::SIMPLEST) && !Baseline::Rdtsc.supports(&record));
        assert!(Baseline::LwUst.supports(&record) && !Baseline::LwUst.supports(&Case::PRINTF));
        let vtid = Case { context: Context::Vtid, ..Case::SIMPLEST };
        assert!(!Baseline::LwUst.supports(&vtid));
        assert_eq!(Baseline::Rdtsc.work(&Case::SIMPLEST), "rdtsc");
        assert!(Baseline::Printf.supports(&Case::PRINTF) && Baseline::Printf.supports(&record));
    }

    #[test]
    fn the_reason_names_the_compiler() {
        let missing = Availability::Missing("no C compiler (cc) is installed".to_owned());
        assert_eq!(check_compiler(false), missing);
        assert_eq!(check_compiler(true), Availability::Ready);
    }
}
