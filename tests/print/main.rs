//! `trackway print` and other readers of traces: oracles that must agree, damage, following a
//! recording, filters, exports.

mod agreement;
mod barectf;
mod bt2;
mod ctf2;
mod damage;
mod export;
mod filter;
mod follow;
mod lttng;
mod made;
mod options;
mod random_options;
mod real;
mod support;
