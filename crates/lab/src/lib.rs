//! What tracing, and reading traces, cost on this machine: adapters, interleaved runs, results.
//!
//! ```text
//! tracer    the interface; tracers/ has one adapter each: baselines, Trackway, LTTng-UST
//! suite     what measures rows: tracers in cases; suites/ has them
//! rounds    all rows of a suite take turns, in random order, until their ratios are sure
//! readback  every event of every run is looked for in what the tracer itself wrote
//! rows      what was measured, as JSON; run writes it, after each round
//! control   what measuring the same thing twice says
//! text      the same as tables, for people
//! page      the same as a page, with figures
//! compare   two such reports: what changed, and how sure that is
//! doctor    what disturbs measurements here
//! ```
//!
//! Main invariant: a figure is only given beside the proof that the tracer did the work. After
//! each run the events recorded, lost and overwritten, from the tracer's own output, must add up
//! to the events emitted. Workloads are small C programs, compiled on the machine with its own
//! compiler, so that every tracer is measured through the headers that its users have.
//!
//! No figure is ever asserted: the lab reports, people judge.

mod bars;
mod by_round;
mod case;
mod child;
mod compare;
mod control;
mod doctor;
mod error;
mod guardian;
mod machine;
mod measured;
mod needs;
mod page;
mod pinned;
mod place;
mod progress;
mod readback;
mod results;
mod rounds;
mod rows;
mod run;
mod rust;
mod shuffle;
mod signals;
mod singles;
mod stats;
mod suite;
mod suites;
mod table;
mod text;
mod tracee;
mod tracefs;
mod tracer;
mod tracer_names;
mod tracers;
mod workload;

pub use case::{Case, Context, Payload};
pub use compare::{
    Changed, Comparison, Reach, RowChange, Shift, compare, print_comparison, read_report,
};
pub use doctor::{Disturbance, Quiet, disturbing, examine, print_doctor};
pub use error::Error;
pub use machine::Machine;
pub use page::page;
pub use results::{Account, Bar, Note, Verdict};
pub use rows::{Ended, Report, Row, RowStatus, SuiteRows, Unit};
pub use run::{Offer, Order, check, offers, run_suites, seconds_now, write_page, write_report};
pub use shuffle::drawn_seed;
pub use stats::{Ratio, Spread, Tail};
pub use suite::Settings;
pub use text::print_report;
pub use tracer_names::tracer_names;
