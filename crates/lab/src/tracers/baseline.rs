//! What tracers are measured against: nothing, the clock, and the lightest tracer there could be.

use std::process::Command;

use super::{batch_arguments, name};
use crate::case::{Case, Context, Payload, Plan};
use crate::child;
use crate::error::Result;
use crate::place::{Place, has};
use crate::results::Account;
use crate::tracer::{Availability, Starts, Tracer};
use crate::workload::{self, Batch};

/// The program of all baselines.
const PROGRAM: &str = "baseline";

/// One of the loops of baseline.c.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Baseline {
    /// The loop alone.
    Empty,
    /// The processor's clock.
    Rdtsc,
    /// The survey's "LW-UST": clock, and a copy to a ring of this CPU.
    LwUst,
}

impl Tracer for Baseline {
    fn name(&self) -> &'static str {
        match self {
            Self::Empty => name::EMPTY,
            Self::Rdtsc => name::RDTSC,
            Self::LwUst => name::LW_UST,
        }
    }

    fn availability(&self, _place: &Place) -> Availability {
        needs_compiler(has("cc"))
    }

    fn supports(&self, case: &Case) -> bool {
        case.context == Context::None
            && match self {
                Self::Empty | Self::Rdtsc => case.payload == Payload::Number,
                Self::LwUst => case.payload.is_in_table(),
            }
    }

    fn batch_events(&self) -> u64 {
        if *self == Self::Empty { 400_000 } else { 20_000 }
    }

    fn set_up(&mut self, place: &Place) -> Result<()> {
        place.compile(PROGRAM, &[]).map(|_| ())
    }

    fn run(&mut self, place: &Place, case: &Case, plan: &Plan) -> Result<Vec<Batch>> {
        let work = match self {
            Self::Empty => "empty",
            Self::Rdtsc => "rdtsc",
            Self::LwUst => case.payload.work(),
        };
        let mut command = Command::new(place.path(PROGRAM));
        command.args(batch_arguments(work, case, plan, self.batch_events()));
        workload::batches(&child::run(&mut command, self.name())?.stdout)
    }

    fn read_back(&mut self, _place: &Place) -> Result<Option<Account>> {
        Ok(None)
    }

    fn starts_programs(&self) -> bool {
        *self == Self::Empty
    }

    fn starts(&mut self, place: &Place, count: u32) -> Result<Option<Starts>> {
        if !self.starts_programs() {
            return Ok(None);
        }
        launch(place, PROGRAM, count, |_| ()).map(Some)
    }

    fn tear_down(&mut self) {}
}

/// Everything here needs a C compiler.
pub(super) fn needs_compiler(has_compiler: bool) -> Availability {
    if has_compiler {
        Availability::Ready
    } else {
        Availability::Missing("no C compiler (cc) is installed".to_owned())
    }
}

/// Starts `program` so many times, each command prepared by `prepare`.
pub(super) fn launch(
    place: &Place,
    program: &str,
    count: u32,
    prepare: impl Fn(&mut Command),
) -> Result<Starts> {
    let launcher = place.compile("launch", &[])?;
    let program = place.path(program);
    let mut command = Command::new(&program);
    prepare(command.arg("threads"));
    let threads = workload::threads(&child::run(&mut command, "counting threads")?.stdout)?;
    let mut command = Command::new(launcher);
    prepare(command.arg(&program).arg(count.to_string()));
    let us = workload::starts_us(&child::run(&mut command, "starting programs")?.stdout)?;
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
    }

    #[test]
    fn the_reason_names_the_compiler() {
        let missing = Availability::Missing("no C compiler (cc) is installed".to_owned());
        assert_eq!(needs_compiler(false), missing);
        assert_eq!(needs_compiler(true), Availability::Ready);
    }
}
