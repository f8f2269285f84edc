//! `trackway print` against oracles: traces that other programs write, read by babeltrace2 and by
//! us, must print the same to the byte.
//!
//! The writers: babeltrace2's own CTF sink ([`bt2`]), barectf's C tracers ([`barectf`]),
//! lttng-tools ([`lttng`]), and real traces that lie beside the checkout ([`real`]).

mod barectf;
mod bt2;
mod lttng;
mod options;
mod real;
mod support;
