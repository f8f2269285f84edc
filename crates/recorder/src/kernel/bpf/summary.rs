//! Results of a recording of kernel events by BPF.

use std::path::Path;

use trackway_kernel::bpf_program::plan::VARIABLE_BYTES_MAX;

use crate::common::numbers::{Counted, Grouped};
use crate::notices::Notices;
use crate::summary::{Summary, report_lost};

/// Counts and losses of a recording by BPF.
#[derive(Debug, Clone, Default)]
pub(crate) struct KernelSummary {
    pub(super) recorded: u64,
    pub(super) lost: u64,
    /// Number of recorded events that could not be written from memory at the end.
    pub(super) lost_at_end: u64,
    pub(super) overwritten: u64,
    /// Number of recorded events in files that were deleted for newer files.
    pub(super) deleted: u64,
    /// Number of program runs that the kernel skipped because another program ran. Counts all
    /// processes, even if only some are recorded.
    pub(super) missed: u64,
    /// Number of missed events that are part of `lost`.
    pub(super) missed_lost: u64,
    /// Number of events that interrupted so many others that their filters could not be evaluated.
    pub(super) unasked: u64,
    /// Names of events whose filters read data that was not in memory, with their counts.
    pub(super) unread: Vec<(String, u64)>,
    /// Names of events with kernel strings or sequences that were cut, with the counts of these.
    pub(super) cut: Vec<(String, u64)>,
    /// Names of the events with the most losses, in descending order.
    pub(super) lost_by_event: Vec<(String, u64)>,
    /// Number of lost events that interrupted so many others that no buffer was left for them.
    pub(super) too_deep: u64,
    /// True if some events were lost for lack of buffer space.
    pub(super) had_no_room: bool,
    /// Unrecorded system calls by unknown numbers: by 64-bit numbers, and by 32-bit numbers.
    pub(super) unknown_calls: [u64; 2],
    /// True if some calls in `unknown_calls` are recorded at their own tracepoints after all.
    pub(super) has_calls_without_number: bool,
    /// Number of damaged sub-buffers.
    pub(super) damaged: u64,
    /// Bytes of the kernel events' files.
    pub(super) bytes: u64,
    /// Number of CPUs that were added while kernel events were recorded.
    pub(super) cpus_later: usize,
    /// Reason why the trace is not complete, if it is not.
    pub(crate) unwritten: Option<String>,
}

impl KernelSummary {
    /// Reports the results, with the trace's folder unless another line names the folder.
    pub(crate) fn report(&self, folder: Option<&Path>, notices: &Notices) {
        let counts = self.as_summary();
        counts.report_kernel(folder, notices);
        report_lost(&self.lost_by_event, notices);
        if let Some(why) = &self.unwritten {
            notices.report(format_args!(
                "the trace has not all of the kernel's events: {why}; of those lost, {} were still \
                 to be written",
                Grouped(self.lost_at_end)
            ));
        }
        if self.missed > 0 {
            self.report_missed(notices);
        }
        if self.too_deep > 0 {
            notices.report(format_args!(
                "{} of those lost interrupted too many others",
                Grouped(self.too_deep)
            ));
        }
        if self.unasked > 0 {
            notices.report(format_args!(
                "up to {} more may be lost: they interrupted too many others for their filters to \
                 be asked",
                Grouped(self.unasked)
            ));
        }
        counts.report_deleted("kernel's events", notices);
        self.report_unread(notices);
        self.report_cut(notices);
        self.report_unusual(notices);
        if self.had_no_room {
            notices.hint(format_args!("fewer events, or a larger --buffer-size, lose fewer"));
        }
    }

    fn report_missed(&self, notices: &Notices) {
        let while_ = "while another of its events was recorded";
        let maybe = self.missed.saturating_sub(self.missed_lost);
        if self.missed_lost > 0 {
            let missed = Grouped(self.missed_lost);
            notices.report(format_args!("{missed} of those lost the kernel passed over {while_}"));
        }
        if maybe > 0 {
            notices.report(format_args!(
                "up to {} more may be lost: so many, of all processes, the kernel passed over \
                 {while_}",
                Grouped(maybe)
            ));
        }
    }

    fn report_unread(&self, notices: &Notices) {
        let Some((all, named)) = format_highest_counts(&self.unread) else { return };
        notices.report(format_args!(
            "of {} something that a filter asks for was not in memory ({named}): where that \
             was a text, the filter let them pass; numbers were 0, and lists empty",
            Counted(all, "event"),
        ));
    }

    fn report_cut(&self, notices: &Notices) {
        let Some((all, named)) = format_highest_counts(&self.cut) else { return };
        let texts = if all == 1 { "text or list" } else { "texts and lists" };
        notices.report(format_args!(
            "of {} {texts} of the kernel's only the first {VARIABLE_BYTES_MAX} bytes are recorded \
             ({named})",
            Grouped(all)
        ));
    }

    fn report_unusual(&self, notices: &Notices) {
        if self.damaged > 0 {
            notices.report(format_args!(
                "{} of the kernel's could not be read",
                Counted(self.damaged, "sub-buffer")
            ));
        }
        let at_most = if self.has_calls_without_number { "up to " } else { "" };
        let kinds = [("numbers", at_most), ("numbers of 32 bits", "")];
        for (count, (kind, at_most)) in self.unknown_calls.into_iter().zip(kinds) {
            if count > 0 {
                notices.report(format_args!(
                    "system calls by unknown {kind} are not recorded: {at_most}{} of them",
                    Grouped(count)
                ));
            }
        }
        if self.cpus_later > 0 {
            let cpus = if self.cpus_later == 1 { "CPU" } else { "CPUs" };
            notices.report(format_args!(
                "{} {cpus} came while the kernel's events were recorded: what happened there is \
                 neither recorded nor counted",
                self.cpus_later
            ));
        }
    }

    /// Returns the counts for the trace's completion mark.
    pub(crate) fn as_summary(&self) -> Summary {
        let lost_by_event = self.lost_by_event.clone();
        Summary {
            recorded: self.recorded,
            lost: self.lost,
            overwritten: self.overwritten,
            damaged: self.damaged,
            deleted: self.deleted,
            bytes: self.bytes,
            lost_by_event,
            ..Summary::default()
        }
    }
}

/// Returns the sum of all counts, and the names of the events with the highest counts; `None` if
/// there is no event.
fn format_highest_counts(of_each: &[(String, u64)]) -> Option<(u64, String)> {
    /// Highest number of events that are named.
    const NAMED_MAX: usize = 4;
    let all: u64 = of_each.iter().map(|(_, count)| count).sum();
    let mut most: Vec<_> = of_each.iter().collect();
    most.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let named = most.iter().take(NAMED_MAX);
    let named: Vec<String> =
        named.map(|(event, count)| format!("{event} {}", Grouped(*count))).collect();
    let more = if most.len() > NAMED_MAX { ", …" } else { "" };
    (all > 0).then(|| (all, named.join(", ") + more))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_became_of_events_is_said_in_sentences() {
        let said = |summary: &KernelSummary| {
            let notices = Notices::in_memory();
            summary.report(None, &notices);
            notices.lines().join("|")
        };
        let mut summary = KernelSummary { recorded: 1, missed: 1333, ..KernelSummary::default() };
        assert_eq!(
            said(&summary),
            "kernel: 1 event recorded, 0 lost, 0 overwritten|up to 1,333 more may be lost: so \
             many, of all processes, the kernel passed over while another of its events was \
             recorded"
        );
        (summary.lost, summary.missed_lost, summary.damaged) = (2000, 1333, 1);
        summary.unwritten = Some("No space left on device".into());
        summary.lost_at_end = 667;
        assert_eq!(
            said(&summary),
            "kernel: 1 event recorded, 2,000 lost, 0 overwritten|the trace has not all of the \
             kernel's events: No space left on device; of those lost, 667 were still to be \
             written|1,333 of those lost the kernel passed over while another of its events was \
             recorded|1 sub-buffer of the kernel's could not be read"
        );
        let lost_by_event = vec![("sched_switch".to_owned(), 3000), ("kfree".to_owned(), 1)];
        let too_deep = 2;
        let summary =
            KernelSummary { lost: 3003, lost_by_event, too_deep, ..KernelSummary::default() };
        assert_eq!(
            said(&summary),
            "kernel: 0 events recorded, 3,003 lost, 0 overwritten|lost 3,000 × sched_switch|lost \
             1 × kfree|2 of those lost interrupted too many others"
        );
        let mut summary = KernelSummary { unknown_calls: [7, 1], ..KernelSummary::default() };
        let calls = "kernel: 0 events recorded, 0 lost, 0 overwritten|system calls by unknown \
                     numbers are not recorded: 7 of them|system calls by unknown numbers of 32 \
                     bits are not recorded: 1 of them";
        assert_eq!(said(&summary), calls);
        summary.has_calls_without_number = true;
        assert_eq!(said(&summary), calls.replace("7", "up to 7"));
        let cut = |name: &str, count| (name.to_owned(), count);
        let mut cuts = vec![cut("a", 1), cut("b", 1000)];
        let summary = KernelSummary { cut: cuts.clone(), ..KernelSummary::default() };
        let of = "kernel: 0 events recorded, 0 lost, 0 overwritten|of 1,001 texts and lists of the \
                  kernel's only the first 256 bytes are recorded (b 1,000, a 1)";
        assert_eq!(said(&summary), of);
        cuts.extend(["c", "d", "e"].map(|name| cut(name, 1)));
        let summary = KernelSummary { cut: cuts, ..KernelSummary::default() };
        assert!(said(&summary).contains("of 1,004 texts"), "{}", said(&summary));
        assert!(said(&summary).ends_with("(b 1,000, a 1, c 1, d 1, …)"), "{}", said(&summary));
        let summary = KernelSummary { unasked: 1234, ..KernelSummary::default() };
        assert_eq!(
            said(&summary),
            "kernel: 0 events recorded, 0 lost, 0 overwritten|up to 1,234 more may be lost: they \
             interrupted too many others for their filters to be asked"
        );
    }
}
