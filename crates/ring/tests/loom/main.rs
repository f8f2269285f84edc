//! Models of the ring under loom: every interleaving (up to a few preemptions) and every value
//! that weakly ordered memory may return, of tiny histories.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p trackway-ring --test loom --profile models
//! ```
//!
//! Each model runs at least twice: like the ring, which must hold, and with a seeded bug, which the
//! model must catch. A model that no bug can break proves nothing.
//!
//! Loom does not model reordering of a load after a later store (load buffering), nor a total order
//! of SeqCst accesses (it treats them as AcqRel). If the argument needs that order, the models use
//! SeqCst fences, which loom supports. Also, loom's search remembers one access of an object, so
//! that a thread's own load hides another's before it. So a reader is spawned *last*: loom runs it
//! last at first, and backtracks from there.
#![cfg(loom)]

mod claims;
mod events;
mod fixture;
mod flight;
mod inside;
mod limits;
mod lockless;
mod progress;
mod rules;
mod sequences;
