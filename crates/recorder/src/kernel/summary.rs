//! What became of the kernel's events.

use crate::report::{Grouped, Notices};

/// What was recorded.
#[derive(Debug, Clone, Default)]
pub(crate) struct KernelSummary {
    pub(super) recorded: u64,
    pub(super) lost: u64,
    pub(super) overwritten: u64,
    /// Programs that the kernel did not run because another one was under way: of all processes,
    /// where a command alone is recorded.
    pub(super) missed: u64,
    /// Whether those are some of `lost`.
    pub(super) is_missed_lost: bool,
    /// The event that lost most, and how many.
    pub(super) worst: Option<(String, u64)>,
    /// Whether some found no room.
    pub(super) had_no_room: bool,
    /// Sub-buffers that made no sense.
    pub(super) damaged: u64,
}

impl KernelSummary {
    /// Says what was recorded.
    pub(crate) fn say(&self, notices: &Notices) {
        notices.say(format_args!(
            "kernel: {} events recorded, {} lost, {} overwritten",
            Grouped(self.recorded),
            Grouped(self.lost),
            Grouped(self.overwritten)
        ));
        if self.missed > 0 {
            let whose = if self.is_missed_lost { "of those" } else { "up to, in all processes," };
            notices.say(format_args!(
                "{whose} {} that the kernel passed over while another of its events was recorded",
                Grouped(self.missed)
            ));
        }
        if self.damaged > 0 {
            notices.say(format_args!(
                "{} sub-buffers of the kernel's could not be read",
                Grouped(self.damaged)
            ));
        }
        if let Some((event, lost)) = &self.worst {
            notices.say(format_args!("{event} lost most: {}", Grouped(*lost)));
        }
        if self.had_no_room {
            notices.hint(format_args!("fewer events, or a larger --buffer-size, lose fewer"));
        }
    }
}
