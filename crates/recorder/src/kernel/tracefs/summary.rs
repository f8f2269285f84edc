//! Results of a recording of kernel events by tracefs.

use std::path::Path;

use super::cgroup_members::ThreadMoves;
use super::packets::{CpuStream, PacketOutput};
use crate::common::numbers::{Counted, Grouped};
use crate::notices::Notices;

/// Counts of events and bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) recorded: u64,
    pub(super) lost: u64,
    pub(super) overwritten: u64,
    pub(super) deleted: u64,
    /// Damaged pages, and records of events that were not enabled.
    pub(super) damaged: u64,
    /// Size of the trace, in bytes.
    pub(super) bytes: u64,
    /// Memory of a flight recorder's contents that were read from the kernel's buffers, in bytes.
    pub(super) memory_bytes: u64,
}

impl Counts {
    pub(super) fn of(output: &PacketOutput) -> Self {
        let sum =
            |of: fn(&CpuStream) -> u64| output.streams.iter().map(of).fold(0, u64::saturating_add);
        Self {
            recorded: sum(|stream| stream.written),
            lost: sum(CpuStream::lost),
            overwritten: sum(CpuStream::overwritten),
            deleted: sum(CpuStream::deleted),
            damaged: sum(|stream| stream.damaged),
            bytes: output.bytes(),
            memory_bytes: 0,
        }
    }
}

/// Counts and losses of a recording by tracefs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Summary {
    pub(super) counts: Counts,
    /// True if filters applied: how many lost events would have passed is unknown.
    pub(super) is_filtered: bool,
    /// Reason why the trace is not complete, if it is not.
    pub(super) unwritten: Option<String>,
    /// Moves of threads between control groups, if groups were recorded.
    pub(super) moves: Option<ThreadMoves>,
}

/// Reports events that may be missing because control groups were scanned only periodically.
fn report_moves(moves: &ThreadMoves, notices: &Notices) {
    let apart_ms = Grouped(moves.apart.as_millis().max(1) as u64);
    notices.report(format_args!(
        "by tracefs control groups are looked at every now and then, {apart_ms} ms apart at most: \
         {} came in meanwhile, and what they did until they were seen is missing, as is all of who \
         came and went unseen",
        Counted(moves.came, "thread")
    ));
    if moves.kept > 0 {
        notices.report(format_args!(
            "{} left the control groups and were recorded all the same: that takes Linux 5.7",
            Counted(moves.kept, "thread")
        ));
    }
    if let Some(why) = &moves.failed {
        notices.report(format_args!("not all who came or went could be followed: {why}"));
    }
}

impl Counts {
    /// Returns the counts for the trace's completion mark.
    pub(super) fn as_summary(&self) -> crate::summary::Summary {
        crate::summary::Summary {
            recorded: self.recorded,
            lost: self.lost,
            overwritten: self.overwritten,
            damaged: self.damaged,
            deleted: self.deleted,
            bytes: self.bytes,
            ..crate::summary::Summary::default()
        }
    }
}

impl Summary {
    /// Returns the counts.
    pub(crate) fn as_summary(&self) -> crate::summary::Summary {
        self.counts.as_summary()
    }

    /// Returns true if all events were written.
    pub(crate) const fn is_whole(&self) -> bool {
        self.unwritten.is_none()
    }

    /// Reports the results, with the trace's folder unless another line names the folder.
    pub(crate) fn report(&self, folder: Option<&Path>, notices: &Notices) {
        let Counts { lost, overwritten, damaged, .. } = self.counts;
        let counts = self.counts.as_summary();
        counts.report_kernel(folder, notices);
        if let Some(why) = &self.unwritten {
            notices.report(format_args!("the trace has not all of the kernel's events: {why}"));
        }
        if let Some(moves) = &self.moves {
            report_moves(moves, notices);
        }
        if self.is_filtered && (lost, overwritten) != (0, 0) {
            notices.report(format_args!(
                "filters were not asked about those lost or overwritten: perhaps fewer were meant"
            ));
        }
        counts.report_deleted("kernel's events", notices);
        if damaged > 0 {
            notices.report(format_args!(
                "{} pages or records of the kernel's made no sense",
                Grouped(damaged)
            ));
        }
        if lost > 0 {
            notices.hint(format_args!("fewer events, or a larger --buffer-size, lose fewer"));
        }
    }
}
