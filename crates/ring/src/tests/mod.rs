//! Tests of the ring, one step at a time: a reader gets exactly what a writer commits.
//!
//! `tests/loom.rs` tests interleavings of threads. Here one simulated machine runs histories of
//! writers, recorder and kills against a sequential model, and damaged bytes against the reader;
//! some threads run freely. Everything runs without assembly, so that Miri can run it too.

mod boundaries;
mod histories;
mod hostile;
mod simulator;
mod threads;
