//! Tests of the ring, one step at a time: what a writer commits, a reader gets, and nothing else.
//!
//! Interleavings of threads are the business of `tests/loom.rs`. Here one simulated machine runs
//! histories of writers, recorder and kills against a sequential model, damaged bytes against the
//! reader, and some threads run as they like. Everything runs without assembly, so that Miri can
//! run it too.

mod boundaries;
mod histories;
mod hostile;
mod simulator;
mod threads;
