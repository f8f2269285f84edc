//! What tracing, and reading traces, cost on this machine: adapters, interleaved runs, results.
//!
//! ```text
//! tracer    the interface; tracers/ has one adapter each: baselines, Trackway, LTTng-UST
//! bench     all tracers, case by case and round by round, interleaved
//! readback  every event of every run is looked for in what the tracer itself wrote
//! results   what was measured, as JSON; table, bars and report show it to people
//! reader    the same for readers of traces: ours beside babeltrace2
//! reserve   what keeping writers apart costs: the 2012 paper's buffer beside ours, and others
//! filter    what filters cost by themselves, beside the same test in C, and rbpf
//! sessions  what sessions cost: several on one event, changes, recorders, short-lived processes
//! kernel    what tracing the kernel costs: ours beside ftrace, perf, bpftrace and strace
//! preload   what the preload helper costs programs that allocate, made here or installed
//! ```
//!
//! Main invariant: a figure is only given beside the proof that the tracer did the work. After
//! each run the events recorded, lost and overwritten, from the tracer's own output, must add up
//! to the events emitted. Workloads are small C programs, compiled on the machine with its own
//! compiler, so that every tracer is measured through the headers that its users have.
//!
//! No figure is ever asserted: the lab reports, people judge.

mod bars;
mod bench;
mod case;
mod chart;
mod child;
mod error;
mod filter;
mod kernel;
mod machine;
mod place;
mod preload;
mod progress;
mod readback;
mod reader;
mod report;
mod reserve;
mod results;
mod rounds;
mod rows;
mod rust;
mod sections;
mod sessions;
mod shuffle;
mod signals;
mod spans;
mod stats;
mod suite;
mod table;
mod tracer;
mod tracers;
mod workload;

pub use bench::{Options, run};
pub use case::{Case, Context, Payload};
pub use error::Error;
pub use filter::{
    Chain, FilterCost, FilterOptions, FilterResults, FilterTracer, Operands, Preparation, Runner,
    TracedCost, print_filter, run_filter,
};
pub use kernel::{
    CallCost, Drain, KernelAccount, KernelEvents, KernelOptions, KernelResults, KernelTracer,
    LoadCost, Participant, Status, Traced, print_kernel, run_kernel,
};
pub use machine::Machine;
pub use preload::{
    PreloadCost, PreloadOptions, PreloadResults, Program, RealCost, Way, print_preload, run_preload,
};
pub use reader::{
    Agreement, ReadingOptions, ReadingResults, Size, Speed, Tool, TraceKind, TraceMeasured, Work,
    print_reading, run_reading,
};
pub use report::print;
pub use reserve::{
    ClockKind, EventCost, Path, PathCost, ProductCost, ReserveOptions, ReserveResults, SizeCost,
    Steps, StepsOnPath, Tally, ThreadsCost, Way as ReserveWay, print_reserve, run_reserve,
};
pub use results::{Account, Bar, Cell, Flow, Memory, Note, Results, Startup, Verdict};
pub use rows::{Ended, Report, Row, RowStatus, SuiteRows, Unit};
pub use sessions::{
    By, Change, Crowd, Grace, IdleSession, Left, Live, Load, SessionCost, SessionKind,
    SessionsOptions, SessionsResults, Slope, Starts, SwitchOn, Who, print_sessions, run_sessions,
};
pub use spans::{SpanCell, SpansOptions, SpansResults, print_spans, run_spans};
pub use stats::{Ratio, Spread, Tail};
pub use suite::Settings;
