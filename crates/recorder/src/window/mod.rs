//! A recorder's access to a user's window: opening it, session slots, memory, CPUs, processes.

pub(crate) mod clock_epoch;
pub(crate) mod clock_line;
pub(crate) mod cpu_barrier;
pub(crate) mod cpus;
pub(crate) mod given_up;
pub(crate) mod handle;
pub(crate) mod lease;
pub(crate) mod memory_limit;
pub(crate) mod memory_pool;
pub(crate) mod processes;
pub(crate) mod rseq_self_test;
pub(crate) mod sandboxes;
pub(crate) mod settings;
pub(crate) mod shared_text;
pub(crate) mod slot;
