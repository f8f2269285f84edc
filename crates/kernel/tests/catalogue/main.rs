//! Tests the catalogue of kernel events with formats of Linux 6.18, an invented format, invalid
//! bytes, and the running kernel.

mod analyses;
mod formats;
mod running_kernel;
mod types;
