//! Results of a recording, as text.

pub(crate) mod shortfall;

use trackway_abi::window::EVENTS_MAX;

use crate::common::numbers::{Counted, Grouped};
use crate::notices::Notices;
use crate::summary::shortfall::{Shortfall, SizeSource};

/// Results of a recording.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Number of events that were written to the trace.
    pub recorded: u64,
    /// Number of events that found no space.
    pub lost: u64,
    /// Number of events that newer events overwrote.
    pub overwritten: u64,
    /// Number of recorded events whose files were deleted for newer files, as configured.
    pub deleted: u64,
    /// Number of records with a field that was cut to fit, including records overwritten later.
    pub cut: u64,
    /// Name of the event with the latest cut record, if the name can be read.
    pub cut_last: Option<String>,
    /// Number of sub-buffers that could not be read because a process overwrote them.
    pub damaged: u64,
    /// Number of sub-buffers in which a writer was killed between reserve and commit (`--reserve
    /// lockless`): their events are lost, and counted as lost.
    pub holes: u64,
    /// Number of processes that took part.
    pub processes: u64,
    /// Number of processes that became another user during the recording (setuid(2)), and are not
    /// recorded since then.
    pub departed: u64,
    /// Size of the trace in bytes.
    pub bytes: u64,
    /// Names of the events with the most losses, in descending order.
    pub lost_by_event: Vec<(String, u64)>,
    /// Settings that would have avoided the losses, by channel.
    pub shortfalls: Vec<Shortfall>,
}

/// Highest number of events whose losses the summary reports by name.
pub(crate) const LOST_SHOWN_MAX: usize = 5;

/// Reports the losses of the first [`LOST_SHOWN_MAX`] events in `by_event`.
pub(crate) fn report_lost(by_event: &[(String, u64)], notices: &Notices) {
    for (name, lost) in by_event.iter().take(LOST_SHOWN_MAX) {
        let loss = format!("lost {}", Grouped(*lost));
        notices.report_with_loss(format_args!("{loss} × {name}"), &loss);
    }
}

impl Summary {
    /// Adds the results of a session in another user's window, whose processes are different ones.
    pub(crate) fn add_window(&mut self, other: Self) {
        let processes = self.processes.saturating_add(other.processes);
        let departed = self.departed.saturating_add(other.departed);
        self.add(other);
        (self.processes, self.departed) = (processes, departed);
    }

    /// Reports one line that scripts may parse, then the losses.
    pub fn report(&self, notices: &Notices, folder: &std::path::Path, overwrite: bool) {
        let overwritten = match overwrite {
            true => format!(", {} overwritten", Grouped(self.overwritten)),
            false => String::new(),
        };
        let line = format!(
            "{} recorded, {} lost{overwritten}, {} process{}, {} bytes in {}",
            Counted(self.recorded, "event"),
            Grouped(self.lost),
            Grouped(self.processes),
            if self.processes == 1 { "" } else { "es" },
            Grouped(self.bytes),
            folder.display()
        );
        notices.report_with_loss(format_args!("{line}"), &self.shown_loss());
        report_lost(&self.lost_by_event, notices);
        self.report_deleted("events", notices);
        self.report_cut(notices);
        self.report_damage(notices);
        self.report_departed(notices);
    }

    /// Reports the settings that would have avoided the losses, as far as they are known.
    pub(crate) fn hint_what_keeps(&self, source: SizeSource, notices: &Notices) {
        for shortfall in &self.shortfalls {
            shortfall.report(self.lost, source, notices);
        }
    }

    /// Returns the part of the summary's line about losses, if there were any.
    fn shown_loss(&self) -> String {
        if self.lost == 0 { String::new() } else { format!("{} lost", Grouped(self.lost)) }
    }

    /// Returns true if no event occurred, as far as is known.
    pub(crate) fn is_nothing(&self) -> bool {
        *self
            == Self {
                processes: self.processes,
                departed: self.departed,
                bytes: self.bytes,
                ..Self::default()
            }
    }

    /// Reports the first line of a summary of kernel events.
    pub(crate) fn report_kernel(&self, folder: Option<&std::path::Path>, notices: &Notices) {
        let bytes = Grouped(self.bytes);
        let place = folder.map(|folder| format!(", {bytes} bytes in {}", folder.display()));
        let line = format!(
            "kernel: {} recorded, {} lost, {} overwritten{}",
            Counted(self.recorded, "event"),
            Grouped(self.lost),
            Grouped(self.overwritten),
            place.unwrap_or_default()
        );
        notices.report_with_loss(format_args!("{line}"), &self.shown_loss());
    }

    /// Reports how many of the `events` were deleted on disk for newer events, if any.
    pub fn report_deleted(&self, events: &str, notices: &Notices) {
        if self.deleted > 0 {
            notices.report(format_args!(
                "{} of the {events} made room for newer ones: of each stream only the newest trace \
                 files are kept",
                Grouped(self.deleted)
            ));
        }
    }

    /// Reports the number of processes that left the recorded window, if any.
    pub fn report_departed(&self, notices: &Notices) {
        if self.departed > 0 {
            notices.report(format_args!(
                "{} process{} became another user and {} not recorded from then on",
                self.departed,
                if self.departed == 1 { "" } else { "es" },
                if self.departed == 1 { "was" } else { "were" },
            ));
        }
    }

    /// Reports the number of records that were cut, if any: a cut sequence does not show the cut.
    pub fn report_cut(&self, notices: &Notices) {
        if self.cut == 0 {
            return;
        }
        let last = self.cut_last.as_ref().map(|event| format!(", the last of {event}"));
        notices.report(format_args!(
            "{} record{} cut to fit{}{}",
            Grouped(self.cut),
            if self.cut == 1 { " was" } else { "s were" },
            if self.overwritten > 0 { " (overwritten ones included)" } else { "" },
            last.unwrap_or_default(),
        ));
    }

    /// Reports damaged data, if there is any.
    pub fn report_damage(&self, notices: &Notices) {
        if self.damaged > 0 {
            notices.report(format_args!(
                "{} could not be read: a process wrote over {}",
                Counted(self.damaged, "sub-buffer"),
                if self.damaged == 1 { "it" } else { "them" }
            ));
        }
        if self.holes > 0 {
            notices.report(format_args!(
                "{} sub-buffer{} a hole, where a writer ended between reserve and commit: what \
                 else was there is lost",
                Grouped(self.holes),
                if self.holes == 1 { " has" } else { "s have" },
            ));
        }
    }
}

/// Reports the number of events that found no entry in the window's event table, if any.
pub(crate) fn report_refused(notices: &Notices, refused: u32, window: &std::path::Path) {
    if refused == 0 {
        return;
    }
    notices.report(format_args!(
        "{} events could not be registered: the table of {EVENTS_MAX} events of this user is full",
        Grouped(refused.into()),
    ));
    notices.hint(format_args!(
        "remove {} when none of the user's programs with events runs; it is made anew",
        window.display()
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_is_one_line() {
        let notices = Notices::in_memory();
        let summary =
            Summary { recorded: 1_234_567, processes: 1, bytes: 2048, ..Summary::default() };
        summary.report(&notices, std::path::Path::new("t"), false);
        let one = Summary { recorded: 1, processes: 2, damaged: 1, ..Summary::default() };
        one.report(&notices, std::path::Path::new("t"), true);
        assert_eq!(
            notices.lines(),
            [
                "1,234,567 events recorded, 0 lost, 1 process, 2,048 bytes in t",
                "1 event recorded, 0 lost, 0 overwritten, 2 processes, 0 bytes in t",
                "1 sub-buffer could not be read: a process wrote over it",
            ]
        );
    }

    #[test]
    fn cut_records_are_told_of() {
        let said = |cut, overwritten, last: Option<&str>| {
            let notices = Notices::in_memory();
            let cut_last = last.map(str::to_owned);
            Summary { cut, overwritten, cut_last, ..Summary::default() }.report_cut(&notices);
            notices.lines().join("|")
        };
        assert_eq!(said(0, 7, Some("app:request")), "");
        assert_eq!(said(1, 0, None), "1 record was cut to fit");
        assert_eq!(
            said(2000, 3, Some("app:request")),
            "2,000 records were cut to fit (overwritten ones included), the last of app:request"
        );
    }
}
