//! The engine of `trackway-bench`: measures rows of suites in interleaved rounds, and reports the
//! results. It is independent of tracers and suites, which are in `trackway-bench-suites`.
//!
//! ```text
//! suite, tracer   the interfaces that suites and tracers implement
//! rounds          all rows of a suite take turns, in random order, until their ratios are sure
//! results         results as JSON; run writes them, after each round
//! ratios          figures relative to others of the same round; null_control: controls
//! report/         results as tables, as a page with figures, and two of them compared
//! host/           the machine: running programs, scratch folders, tracefs, disturbances
//! ```
//!
//! Main invariant: a figure is only reported together with the proof that the tracer did the work.
//! After each run, the tracer's own output gives the events recorded, lost and overwritten. Their
//! sum must equal the number of events emitted.
//!
//! No figure is ever asserted: the engine reports, people judge.

pub mod case;
pub mod error;
pub mod figures;
pub mod host;
pub mod null_control;
pub mod order;
pub mod progress;
pub mod ratios;
pub mod report;
pub mod results;
mod rounds;
pub mod run;
pub mod settings;
pub mod signals;
pub mod single_events;
pub mod stats;
pub mod suite;
pub mod tracer;
pub mod tracer_names;
