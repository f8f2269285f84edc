//! Watch for a command that runs on without an event: `record` reports the reason once.

use std::time::{Duration, Instant};

use trackway_session::ChannelSpec;
use trackway_window::Window;

use crate::command::descendants;
use crate::diagnosis::{Scope, Selection, diagnose_in};
use crate::notices::Notices;
use crate::recording::totals::Totals;

/// Longest time that a command may run without an event before the reasons are reported.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// Watch for a command's first event.
pub(crate) struct SilenceWatch {
    /// Start of the watch; `None` once there was an event, or the reasons were reported.
    since: Option<Instant>,
    window: Option<Window>,
}

impl SilenceWatch {
    /// Creates a watch that begins now.
    pub(crate) fn new(window: Option<Window>) -> Self {
        Self { since: Some(Instant::now()), window }
    }

    /// Disables the watch unless `condition` holds.
    pub(crate) fn enabled_if(mut self, condition: bool) -> Self {
        self.since = self.since.filter(|_| condition);
        self
    }

    /// Reports the reasons if these channels have had no event of the command for [`SILENCE_MAX`].
    pub(crate) fn report_silence(
        &mut self,
        (totals, channels): (&Totals, &[ChannelSpec]),
        command: u32,
        notices: &Notices,
    ) {
        let Some(since) = self.since else { return };
        if totals.events > 0 || totals.lost > 0 {
            self.since = None;
        } else if since.elapsed() >= SILENCE_MAX {
            self.since = None;
            let scope = Scope::Only(descendants::find_process_tree(command));
            // Find the reasons first: a user who reads the message may end the command.
            let selection = Selection::of(channels.iter());
            let reasons = diagnose_in(&selection, self.window.as_ref(), &scope);
            notices.report(format_args!("no event for {} seconds", SILENCE_MAX.as_secs()));
            for reason in reasons {
                reason.report(notices);
            }
        }
    }
}
