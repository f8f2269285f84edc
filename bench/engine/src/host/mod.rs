//! The machine of the measurement: programs that run on it, folders, its kernel, disturbances.

pub mod affinity;
pub mod availability;
pub mod cargo_workload;
pub mod child;
pub mod cleanup_shell;
pub mod doctor;
pub mod local_time;
pub mod machine;
pub mod process_run;
pub mod ptrace;
pub mod requirements;
pub mod tracefs;
pub mod workload;
pub mod workspace;
