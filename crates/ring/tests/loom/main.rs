//! Models of the ring under loom: every interleaving (up to a few preemptions) and every value
//! that weakly ordered memory may return, of tiny histories.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p trackway-ring --test loom --profile models
//! ```
//!
//! Each model is run twice or more: as the ring is, which must hold, and with a seeded bug, which
//! the model must catch. A model that no bug can break proves nothing.
//!
//! What loom cannot see: reordering of a load behind a later store (load buffering), and a total
//! order of SeqCst accesses (it takes them for AcqRel); where the argument needs one, the models
//! use SeqCst fences, which loom does know. And its search remembers one access of an object, so
//! that a thread's own load hides another's before it: a reader is therefore spawned *last*. Loom
//! runs it last at first, and finds its way back from there.
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
