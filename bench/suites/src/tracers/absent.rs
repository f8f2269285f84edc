//! Tracers that cannot be measured by events of a program on this machine, each with the reason.
//! The survey measured them, or users expect them.

use std::path::Path;

use trackway_bench_engine::case::{BatchPlan, Case};
use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::workload::Batch;
use trackway_bench_engine::host::workspace::{Workspace, has};
use trackway_bench_engine::results::Account;
use trackway_bench_engine::tracer::{Availability, Tracer};

use super::name;

/// A tracer that cannot be measured on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Absent {
    /// Records no user events.
    Strace,
    /// Needs a kernel module.
    SystemTap,
    /// A library around programs that use MPI; Debian has no package of it.
    Extrae,
    /// A library around programs that use MPI; Debian has no package of it.
    VampirTrace,
    /// Needs a kernel module.
    SysDig,
}

impl Absent {
    /// All of these tracers.
    pub(crate) const ALL: [Self; 5] =
        [Self::Strace, Self::SystemTap, Self::Extrae, Self::VampirTrace, Self::SysDig];

    /// Returns the reason for the tracer's absence.
    fn reason(self, has: impl Fn(&str) -> bool, takes_modules: bool) -> String {
        let missing =
            |program: &str| (!has(program)).then(|| format!("{program} is not installed"));
        let module =
            (!takes_modules).then(|| "it needs a module, and this kernel takes none".to_owned());
        let untried = "what it does could not be tried where this was written, so that there is \
                       no adapter";
        let reasons = match self {
            Self::Strace => vec![Some(
                "it traces system calls, and an event of a program is none: see suite syscall"
                    .to_owned(),
            )],
            Self::SystemTap => vec![missing("stap"), module],
            // Extrae and VampirTrace are libraries around MPI, with which programs are started.
            Self::Extrae => vec![missing("extrae-cmd")],
            Self::VampirTrace => vec![missing("vtcc")],
            // Programs make sysdig's marks by writing lines to /dev/null; its kernel module
            // observes these system calls. (Debian's version has no probe that works without the
            // module; newer versions do.)
            Self::SysDig => vec![missing("sysdig"), module],
        };
        let reasons: Vec<String> = reasons.into_iter().flatten().collect();
        if reasons.is_empty() { untried.to_owned() } else { reasons.join("; ") }
    }
}

impl Tracer for Absent {
    fn name(&self) -> &'static str {
        match self {
            Self::Strace => name::STRACE,
            Self::SystemTap => name::SYSTEMTAP,
            Self::Extrae => name::EXTRAE,
            Self::VampirTrace => name::VAMPIRTRACE,
            Self::SysDig => name::SYSDIG,
        }
    }

    fn availability(&self, _place: &Workspace) -> Availability {
        // A kernel without modules has no list of them: proc(5).
        Availability::Missing(self.reason(has, Path::new("/proc/modules").exists()))
    }

    fn supports(&self, case: &Case) -> bool {
        *case == Case::SIMPLEST
    }

    fn batch_events(&self) -> u64 {
        1
    }

    fn set_up(&mut self, _place: &Workspace) -> Result<()> {
        Err(Error::output(self.name(), "it is absent"))
    }

    fn run(&mut self, _place: &Workspace, _case: &Case, _plan: &BatchPlan) -> Result<Vec<Batch>> {
        Err(Error::output(self.name(), "it is absent"))
    }

    fn read_back(&mut self, _place: &Workspace) -> Result<Option<Account>> {
        Ok(None)
    }

    fn tear_down(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_those_of_the_machine() {
        let none = |_: &str| false;
        let all = |_: &str| true;
        let of = |tracer: Absent| tracer.reason(none, false);
        let module = "it needs a module, and this kernel takes none";
        assert_eq!(of(Absent::SystemTap), format!("stap is not installed; {module}"));
        assert_eq!(Absent::SystemTap.reason(all, false), module);
        assert!(Absent::SystemTap.reason(all, true).ends_with("there is no adapter"));
        assert!(Absent::Strace.reason(all, true).contains("see suite syscall"));
        assert_eq!(of(Absent::Extrae), "extrae-cmd is not installed");
        assert_eq!(of(Absent::VampirTrace), "vtcc is not installed");
        assert_eq!(of(Absent::SysDig), format!("sysdig is not installed; {module}"));
    }
}
