//! Recording of kernel events by BPF (`bpf`) or tracefs (`tracefs`), which `backend` chooses.

pub(crate) mod backend;
pub(crate) mod bpf;
pub(crate) mod clock_check;
pub(crate) mod contexts;
pub(crate) mod drain_thread;
pub(crate) mod error;
pub(crate) mod filters;
pub(crate) mod omitted_fields;
pub(crate) mod processes;
pub(crate) mod recover;
pub(crate) mod request;
pub(crate) mod selection;
pub(crate) mod tracefs;
pub(crate) mod value_names;
