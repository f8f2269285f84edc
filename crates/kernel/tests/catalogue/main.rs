//! The catalogue of kernel events: formats of Linux 6.18 and an invented one, invalid bytes, and
//! the running kernel.

mod analyses;
mod formats;
mod running_kernel;
mod types;
