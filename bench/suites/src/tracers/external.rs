//! Tracers that are other projects' programs or crates, measured with one number per event: tracers
//! that the survey and the slides compare, and tracers that users expect.

use trackway_bench_engine::tracer::Tracer;

use super::absent::Absent;
use super::bpftrace::Bpftrace;
use super::ftrace::Ftrace;
use super::peer::Peer;
use super::perf::Perf;
use super::uftrace::Uftrace;

/// Names of the rows of external tracers.
pub(crate) mod name {
    /// ftrace, by a uprobe event on a probe.
    pub(crate) const FTRACE_UPROBE: &str = "ftrace-uprobe";
    /// ftrace, by its marker.
    pub(crate) const FTRACE_MARKER: &str = "ftrace-marker";
    /// perf, by a uprobe event on a probe.
    pub(crate) const PERF: &str = "perf";
    /// bpftrace on a probe, which counts events.
    pub(crate) const BPFTRACE: &str = "bpftrace";
    /// uftrace: a function's entry, argument and exit.
    pub(crate) const UFTRACE: &str = "uftrace";
    /// Tracy: a point of a plot.
    pub(crate) const TRACY: &str = "tracy";
    /// fastrace: an event in a span.
    pub(crate) const FASTRACE: &str = "fastrace";
    /// strace.
    pub(crate) const STRACE: &str = "strace";
    /// SystemTap.
    pub(crate) const SYSTEMTAP: &str = "systemtap";
    /// Extrae.
    pub(crate) const EXTRAE: &str = "extrae";
    /// VampirTrace.
    pub(crate) const VAMPIRTRACE: &str = "vampirtrace";
    /// SysDig.
    pub(crate) const SYSDIG: &str = "sysdig";
}

/// Returns all external tracers, in the order of their rows.
pub(super) fn external_tracers() -> Vec<Box<dyn Tracer>> {
    let mut all: Vec<Box<dyn Tracer>> = vec![
        Box::new(Uftrace::default()),
        Box::new(Peer::tracy()),
        Box::new(Peer::fastrace()),
        Box::new(Ftrace::marker()),
        Box::new(Ftrace::uprobe()),
        Box::new(Perf::default()),
        Box::new(Bpftrace::default()),
    ];
    all.extend(Absent::ALL.map(|absent| Box::new(absent) as Box<dyn Tracer>));
    all
}

/// Returns true if the tracer of this name is external.
pub(crate) fn is_external(name: &str) -> bool {
    external_tracers().iter().any(|tracer| tracer.name() == name)
}
