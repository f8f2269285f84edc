//! The adapters of all tracers.

mod absent;
pub(crate) mod baseline;
mod bpftrace;
pub(crate) mod command_tracer;
pub(crate) mod daemon;
pub(crate) mod external;
mod flow;
pub(crate) mod ftrace;
pub(crate) mod kernel;
pub(crate) mod lttng;
mod peer;
pub(crate) mod perf;
mod probe;
pub(crate) mod probed;
pub(crate) mod trackway;
pub(crate) mod uftrace;
pub(crate) mod ust_session;

use trackway_bench_engine::case::BatchPlan;
use trackway_bench_engine::case::Case;
use trackway_bench_engine::tracer::{Tracer, batch_arguments};

pub(crate) use baseline::Baseline;
pub(crate) use external::is_external;
pub(crate) use lttng::Lttng;
pub(crate) use trackway::Trackway;

/// Names of the rows, to which goals and ratios refer. Names of Trackway's variants begin with
/// `trackway`.
pub(crate) mod name {
    /// The processor's clock.
    pub(crate) const RDTSC: &str = "rdtsc";
    /// The lightest possible tracer.
    pub(crate) const LW_UST: &str = "lw-ust";
    /// Text that is formatted into memory.
    pub(crate) const PRINTF: &str = "printf";
    /// Trackway with the library and without a session.
    pub(crate) const TRACKWAY_OFF: &str = "trackway-off";
    /// Trackway from Rust with the library and without a session.
    pub(crate) const RUST_OFF: &str = "trackway-rust-off";
    /// Trackway from Rust.
    pub(crate) const RUST: &str = "trackway-rust";
    /// Trackway from C++ with the library and without a session.
    pub(crate) const CXX_OFF: &str = "trackway-c++-off";
    /// Trackway from C++.
    pub(crate) const CXX: &str = "trackway-c++";
    /// Trackway without restartable sequences.
    pub(crate) const TRACKWAY_CLAIM: &str = "trackway-claim";
    /// Trackway with the 2012 paper's buffers.
    pub(crate) const TRACKWAY_LOCKLESS: &str = "trackway-lockless";
    /// Trackway with text.
    pub(crate) const TRACKWAY_PRINTF: &str = "trackway-printf";
    /// LTTng-UST with its daemon and without a session.
    pub(crate) const LTTNG_OFF: &str = "lttng-ust-off";
    /// LTTng-UST.
    pub(crate) const LTTNG: &str = "lttng-ust";
    /// LTTng-UST with text.
    pub(crate) const TRACEF: &str = "lttng-tracef";
    pub(crate) use super::external::name::*;
    pub(crate) use trackway_bench_engine::results::{EMPTY_LOOP as EMPTY, TRACKWAY};
}

/// Size of the per-CPU ring in the table's runs, in bytes: it fits the second-level cache, for all
/// tracers.
pub(crate) const RING_BYTES: u64 = 1 << 20;
/// Size of the per-CPU buffer when recording at full speed, in bytes: Trackway's default.
pub(crate) const FLOW_BYTES: u64 = 4 << 20;

/// Size of a per-CPU buffer that takes all events of a run, in bytes, and its number of
/// sub-buffers: as few as possible, so that no sub-buffer is ever full, and no consumer has a
/// reason to read.
pub(crate) const PRODUCER_BYTES: u64 = 16 << 20;
pub(crate) const PRODUCER_SUB_BUFFERS: u64 = 2;

/// Returns all tracers, in the order of their rows.
pub(crate) fn all_tracers() -> Vec<Box<dyn Tracer>> {
    let daemon = lttng::shared_daemon();
    let mut all: Vec<Box<dyn Tracer>> = vec![
        Box::new(Baseline::Empty),
        Box::new(Baseline::Rdtsc),
        Box::new(Trackway::without_session()),
        Box::new(Trackway::cxx_without_session()),
        Box::new(Trackway::rust_without_session()),
        Box::new(Lttng::without_session(&daemon)),
        Box::new(Baseline::LwUst),
        Box::new(Trackway::by_sequence()),
        Box::new(Trackway::cxx()),
        Box::new(Trackway::rust()),
        Box::new(Trackway::by_claim()),
        Box::new(Trackway::by_lockless()),
        Box::new(Lttng::with_tracepoints(&daemon)),
        Box::new(Baseline::Printf),
        Box::new(Trackway::printf()),
        Box::new(Lttng::with_tracef(&daemon)),
    ];
    all.extend(external::external_tracers());
    all
}

/// Returns the arguments of batches with a pause before each, in µs.
pub(crate) fn paced_arguments(
    work: &str,
    case: &Case,
    plan: &BatchPlan,
    (events, pause_us): (u64, u64),
) -> Vec<String> {
    let mut arguments = batch_arguments(work, case, plan, events).to_vec();
    arguments.push(format_number(pause_us));
    arguments
}

fn format_number(number: u64) -> String {
    number.to_string()
}
