//! The suites of `trackway-bench`: the cost of tracing, and of reading traces, on this machine.
//!
//! ```text
//! tracers/      an adapter for each tracer: baselines, Trackway, LTTng-UST, others
//! trace_check/  searches the tracer's own output for every event of every run
//! suites/       the measurements of each suite: tracers in cases
//! workloads/    measured programs, compiled with the compilers of the machine
//! goals         Trackway's goals, judged by the figures of a report
//! requirements  programs and headers that suites need
//! ```
//!
//! Main invariant: a figure is only reported together with the proof, from the tracer's own output,
//! that the tracer did the work.

mod goals;
mod requirements;
mod suites;
mod trace_check;
mod tracers;
mod workloads;

use trackway_bench_engine::run::Catalogue;

/// All suites, goals and requirements, for the engine.
pub const CATALOGUE: Catalogue = Catalogue {
    suites: suites::all_suites,
    goals: goals::judge_goals,
    requirements: requirements::REQUIREMENTS,
    sources: &workloads::SOURCES,
};
