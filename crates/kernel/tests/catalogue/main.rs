//! The catalogue of kernel events: formats as Linux 6.18 wrote them (and one that has what none of
//! those has), bytes that nobody should have written, and all that the running kernel says.

mod analyses;
mod formats;
mod here;
mod types;
