//! The buffer: per-CPU regions to which one writer at a time appends, and which any process may
//! read.
//!
//! **Invariant.** Everything below `head` is committed and whole; readers use nothing beyond it.
//! One store, of the commit word, moves `head`, and it is the last store of a record. A writer
//! killed, preempted or interrupted before that store has changed nothing that a reader uses.
//!
//! A writer works in three moves, and only the third has effects:
//!
//! 1. read the commit word (`expected`);
//! 2. [`Region::plan_record`] or [`Region::plan_switch`]: decide where the bytes go, at what time,
//!    and what the next commit word is, as a function of `expected` and values that belong to it;
//! 3. *commit*: with exclusive access, check that the commit word is still `expected`, copy the
//!    bytes beyond `head`, fill the slot that `expected` does not use, store the next commit word.
//!
//! Exclusive access comes as a restartable sequence ([`rseq`], the same CPU, aborted by the kernel
//! on preemption, migration and signals) or as a [`claim`] (an owner word taken by
//! compare-and-swap). The commit word never repeats (`head` only grows), so "still `expected`"
//! means that no record was committed since move 1: time read after move 1 is not older than the
//! last record, and the slot read in move 2 was stable. This is why the clock may be read and the
//! header be made outside the sequence, in ordinary code.
//!
//! **Writers.** `commit` and the slots: the writer with exclusive access. `limit`, `drain`, the
//! table: the recorder. `owner`: claimers by compare-and-swap, and the recorder for dead claimers.
//! `discarded`: any thread, by atomic addition. Orderings: the commit store is Release and pairs
//! with the Acquire loads of readers (record bytes, slots, sub-buffer headers) and of the next
//! writer; `limit` is stored with Release after the table entry and its memory are ready, and pairs
//! with the Acquire load in `plan_switch`.
//!
//! This crate makes no system call and gets memory, CPU and time from its caller, so that models
//! (loom), Miri and tests can own all three. After Desnoyers and Dagenais, "Lockless multi-core
//! high-throughput buffering scheme for kernel tracing" (2012), section 3, for packets, sub-buffer
//! switch and flight recorder; the committing store replaces its reserve and commit counters. The
//! paper's own algorithm is in [`lockless`]. Similar sequences count the threads inside of code
//! that will be overwritten: [`inside`].
#![cfg_attr(not(test), no_std)]

pub mod claim;
mod control;
mod geometry;
pub mod inside;
pub mod lockless;
mod primitive;
mod reader;
pub mod rseq;
mod words;
mod writer;

pub use control::{Control, Discard, Drained, Slot};
pub use geometry::{Geometry, GeometryError};
pub use reader::{Damage, Piece, Snapshot};
pub use words::copy_by_words;
pub use writer::{Plan, Refusal, SubHeader, write_header};

use primitive::AtomicU32;

/// A region: control lines and the table that says where its sub-buffers are.
#[derive(Clone, Copy)]
pub struct Region<'window> {
    /// The control lines.
    pub control: &'window Control,
    /// The place of each sub-buffer, in pages; 0: none.
    pub table: &'window [AtomicU32],
    /// Sizes of the region.
    pub geometry: Geometry,
}

/// The memory that sub-buffers lie in, addressed in bytes from the window's start.
///
/// Implementations are raw copies: other processes may write the same bytes at any time, so no
/// reference to them may exist.
pub trait Memory {
    /// Copies `into.len()` bytes from `at`.
    fn load(&self, at: u64, into: &mut [u8]) -> Result<(), Damage>;
}

#[cfg(all(test, not(loom)))]
mod tests;
