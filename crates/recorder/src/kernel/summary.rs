//! What became of the kernel's events.

use std::path::Path;

use crate::Summary;
use crate::report::{Grouped, Notices};

/// What was recorded.
#[derive(Debug, Clone, Default)]
pub(crate) struct KernelSummary {
    pub(super) recorded: u64,
    pub(super) lost: u64,
    pub(super) overwritten: u64,
    /// Of those recorded, in files that were deleted for newer ones.
    pub(super) deleted: u64,
    /// Programs that the kernel did not run because another one was under way: of all processes,
    /// where some alone are recorded.
    pub(super) missed: u64,
    /// Whether those are some of `lost`.
    pub(super) is_missed_lost: bool,
    /// Events whose filters asked for what was not in memory, and how many of each.
    pub(super) unread: Vec<(String, u64)>,
    /// The event that lost most, and how many.
    pub(super) worst: Option<(String, u64)>,
    /// Whether some found no room.
    pub(super) had_no_room: bool,
    /// System calls by numbers of 32 bits, which are not recorded.
    pub(super) narrow: u64,
    /// Sub-buffers that made no sense.
    pub(super) damaged: u64,
    /// Bytes of its files.
    pub(super) bytes: u64,
    /// CPUs that came when it was recorded.
    pub(super) cpus_later: usize,
    /// Why its trace is not whole, if it is not.
    pub(super) unwritten: Option<String>,
}

impl KernelSummary {
    /// Says what was recorded; in which folder, unless that was said.
    pub(crate) fn say(&self, folder: Option<&Path>, notices: &Notices) {
        let place = folder.map(|folder| format!(", {} bytes in {}", self.bytes, folder.display()));
        notices.say(format_args!(
            "kernel: {} events recorded, {} lost, {} overwritten{}",
            Grouped(self.recorded),
            Grouped(self.lost),
            Grouped(self.overwritten),
            place.unwrap_or_default()
        ));
        if let Some(why) = &self.unwritten {
            notices.say(format_args!(
                "the trace has not all of the kernel's events: {why}; what is missing is in no \
                 memory any more"
            ));
        }
        if self.missed > 0 {
            let whose = if self.is_missed_lost { "of those" } else { "up to, in all processes," };
            notices.say(format_args!(
                "{whose} {} that the kernel passed over while another of its events was recorded",
                Grouped(self.missed)
            ));
        }
        if self.deleted > 0 {
            notices.say(format_args!(
                "{} of the kernel's events made room for newer ones: of each stream only the \
                 newest trace files are kept",
                Grouped(self.deleted)
            ));
        }
        self.say_unread(notices);
        self.say_odd(notices);
        if let Some((event, lost)) = &self.worst {
            notices.say(format_args!("{event} lost most: {}", Grouped(*lost)));
        }
        if self.had_no_room {
            notices.hint(format_args!("fewer events, or a larger --buffer-size, lose fewer"));
        }
    }

    fn say_unread(&self, notices: &Notices) {
        /// Most events that are named.
        const NAMED_MAX: usize = 4;
        let all: u64 = self.unread.iter().map(|(_, unread)| unread).sum();
        if all == 0 {
            return;
        }
        let mut most: Vec<_> = self.unread.iter().collect();
        most.sort_by_key(|(_, unread)| std::cmp::Reverse(*unread));
        let named = most.iter().take(NAMED_MAX);
        let named: Vec<String> =
            named.map(|(event, unread)| format!("{event} {}", Grouped(*unread))).collect();
        let more = if most.len() > NAMED_MAX { ", …" } else { "" };
        notices.say(format_args!(
            "of {} events something that a filter asks for was not in memory ({}{more}): where \
             that was a text, the filter let them pass; numbers were 0, and lists empty",
            Grouped(all),
            named.join(", ")
        ));
    }

    fn say_odd(&self, notices: &Notices) {
        if self.damaged > 0 {
            notices.say(format_args!(
                "{} sub-buffers of the kernel's could not be read",
                Grouped(self.damaged)
            ));
        }
        if self.narrow > 0 {
            notices.say(format_args!(
                "system calls by the numbers of 32 bits (of programs of 32 bits, and by int $0x80 \
                 in any) are not recorded: {} of them",
                Grouped(self.narrow)
            ));
        }
        if self.cpus_later > 0 {
            let cpus = if self.cpus_later == 1 { "CPU" } else { "CPUs" };
            notices.say(format_args!(
                "{} {cpus} came while the kernel's events were recorded: what happened there is \
                 neither recorded nor counted",
                self.cpus_later
            ));
        }
    }

    /// As the mark of the trace has it.
    pub(super) fn as_summary(&self) -> Summary {
        Summary {
            recorded: self.recorded,
            lost: self.lost,
            overwritten: self.overwritten,
            damaged: self.damaged,
            ..Summary::default()
        }
    }
}
