//! Tracers that are Rust crates: fastrace and Tracy. Each has a separate package, which cargo
//! builds in the scratch folder, so that the crates are no dependency of Trackway. At its end, each
//! program reports the events that have arrived at their destination.

use std::net::{Ipv4Addr, TcpListener};
use std::process::Command;

use trackway_bench_engine::case::{BatchPlan, Case};
use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::cargo_workload::Package;
use trackway_bench_engine::host::child;
use trackway_bench_engine::host::workload::{self, Batch};
use trackway_bench_engine::host::workspace::{Workspace, has};
use trackway_bench_engine::results::Account;
use trackway_bench_engine::tracer::{Availability, Tracer};

use super::{batch_arguments, name};
use crate::workloads;

/// Name of the harness around either crate.
const SOURCE: &str = "rust-peer";

/// The compared crate, by its event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Crate {
    /// An event with a property, in a span.
    Fastrace,
    /// A point of a plot.
    Tracy,
}

/// The adapter.
#[derive(Debug)]
pub(crate) struct Peer {
    which: Crate,
    emitted: u64,
    messages: String,
}

impl Peer {
    const fn new(which: Crate) -> Self {
        Self { which, emitted: 0, messages: String::new() }
    }

    /// Makes the adapter of fastrace.
    pub(crate) const fn fastrace() -> Self {
        Self::new(Crate::Fastrace)
    }

    /// Makes the adapter of Tracy.
    pub(crate) const fn tracy() -> Self {
        Self::new(Crate::Tracy)
    }

    const fn package(&self) -> &'static Package {
        match self.which {
            Crate::Fastrace => &workloads::FASTRACE,
            Crate::Tracy => &workloads::TRACY,
        }
    }

    /// Returns the name of the executable.
    const fn program(&self) -> &'static str {
        match self.which {
            Crate::Fastrace => "rust-peer-fastrace",
            Crate::Tracy => "rust-peer-tracy",
        }
    }
}

impl Tracer for Peer {
    fn name(&self) -> &'static str {
        match self.which {
            Crate::Fastrace => name::FASTRACE,
            Crate::Tracy => name::TRACY,
        }
    }

    fn availability(&self, workspace: &Workspace) -> Availability {
        for (program, what) in [("cc", "C"), ("c++", "C++")] {
            if (program == "cc" || self.which == Crate::Tracy) && !has(program) {
                return Availability::Missing(format!(
                    "no {what} compiler ({program}) is installed"
                ));
            }
        }
        if !has("cargo") {
            return Availability::Missing("cargo is not installed".to_owned());
        }
        match self.package().fetch(workspace) {
            Ok(()) => Availability::Ready,
            Err(error) => Availability::Missing(format!("its crate cannot be had ({error})")),
        }
    }

    fn supports(&self, case: &Case) -> bool {
        *case == Case::SIMPLEST
    }

    fn batch_events(&self) -> u64 {
        2_000
    }

    fn is_slow_to_set_up(&self) -> bool {
        true
    }

    fn set_up(&mut self, workspace: &Workspace) -> Result<()> {
        let library = self.package().build(workspace, "")?.display().to_string();
        let mut flags = vec![library.as_str(), "-ldl", "-lm"];
        flags.extend((self.which == Crate::Tracy).then_some("-lstdc++"));
        workspace.compile_as(SOURCE, self.program(), &flags).map(|_| ())
    }

    fn run(&mut self, workspace: &Workspace, case: &Case, plan: &BatchPlan) -> Result<Vec<Batch>> {
        let arguments = batch_arguments(case.payload.work(), case, plan, self.batch_events());
        let mut command = Command::new(workspace.path(self.program()));
        if self.which == Crate::Tracy {
            command.env("TRACY_PORT", find_free_port()?.to_string());
        }
        let finished = child::run(command.args(arguments), self.name())?;
        let batches = workload::parse_batches(&finished.stdout)?;
        self.emitted = batches.iter().map(|batch| batch.events).sum();
        self.messages = finished.stderr;
        Ok(batches)
    }

    fn read_back(&mut self, _place: &Workspace) -> Result<Option<Account>> {
        account_of_arrivals(self.name(), &self.messages, self.emitted).map(Some)
    }

    fn tear_down(&mut self) {}
}

/// Returns a free port, which the kernel had assigned to this process until now.
fn find_free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let address = listener.and_then(|listener| listener.local_addr());
    Ok(address.map_err(Error::io("cannot find a port for Tracy"))?.port())
}

/// Computes the account of events that are numbered from 0, from the line `arrived EVENTS SUM`.
fn account_of_arrivals(tracer: &str, messages: &str, emitted: u64) -> Result<Account> {
    let line = messages.lines().rfind(|line| line.starts_with("arrived "));
    let line = line.ok_or_else(|| Error::output(tracer, "it does not say what has arrived"))?;
    let [recorded, sum] = workload::parse_numbers(line, "arrived")?;
    let expected = u128::from(emitted) * u128::from(emitted.saturating_sub(1)) / 2;
    if recorded != emitted || u128::from(sum) != expected {
        let message = format!(
            "of {emitted} events {recorded} have arrived, whose numbers' sum is {sum}, not \
             {expected}\n{}",
            messages.trim_end()
        );
        return Err(Error::output(tracer, message));
    }
    Ok(Account { emitted, recorded, ..Account::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_must_have_arrived_once() {
        let all = account_of_arrivals("it", "a message\narrived 4 6\n", 4).expect("all");
        assert!(all.recorded == 4 && all.is_complete());
        for wrong in ["arrived 3 6\n", "arrived 4 7\n", "arrived 0 0\n", "arrived 4\n", ""] {
            assert!(account_of_arrivals("it", wrong, 4).is_err(), "{wrong}");
        }
    }
}
