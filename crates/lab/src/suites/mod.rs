//! The suites: what each measures, with which tracers, and by which method.

pub(crate) mod breakdown;
pub(crate) mod cases;
pub(crate) mod events;
pub(crate) mod filter;
mod latency;
pub(crate) mod paths;
pub(crate) mod payload;
pub(crate) mod preload;
mod programs;
pub(crate) mod reading;
mod scaling;
pub(crate) mod sessions;
pub(crate) mod sharing;
pub(crate) mod size;
pub(crate) mod spans;
pub(crate) mod syscall;
mod together;
mod workload;

use crate::suite::Suite;

/// All of them, in the order in which they are measured.
pub(crate) fn all() -> Vec<Box<dyn Suite>> {
    vec![
        Box::new(events::Events::tracepoint()),
        Box::new(cases::Cases::default()),
        Box::new(scaling::Scaling::new()),
        Box::new(paths::Paths::new()),
        Box::new(breakdown::Breakdown::new()),
        Box::<syscall::Syscall>::default(),
        Box::new(filter::Filter::default()),
        Box::new(sharing::Sharing::default()),
        Box::new(payload::Payloads::default()),
        Box::new(size::Size::default()),
        Box::new(events::Events::drain()),
        Box::<workload::Workload>::default(),
        Box::<latency::Latency>::default(),
        Box::new(events::Events::startup()),
        Box::new(reading::Reading::default()),
        Box::new(spans::Spans::default()),
        Box::new(preload::Preload::default()),
        Box::<sessions::Sessions>::default(),
    ]
}
