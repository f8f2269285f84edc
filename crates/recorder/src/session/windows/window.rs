//! One session in one user's window.

use std::collections::BTreeMap;

use crate::control::origin_file::OriginFile;
use crate::error::RecordError;
use crate::notices::Notices;
use crate::recording::Recording;
use crate::session::crash_watch::CrashWatch;
use crate::session::write_stall::WriteStall;
use crate::summary::Summary;
use crate::window::settings::ChannelSettings;

/// State of a session in one window.
#[derive(Debug)]
pub(super) struct SessionWindow {
    pub(super) recording: Recording,
    /// Origin file for recovery; `None` if the window itself has the path of the trace.
    pub(super) kept: Option<OriginFile>,
    /// Channels that could not be replaced here, by the session's class of the new channel; the
    /// value is the class of the old channel, which continues.
    pub(super) stuck: BTreeMap<u32, u32>,
    pub(super) crashes: Option<CrashWatch>,
    /// Number of snapshot requests of programs at the latest check.
    pub(super) snapshot_requests: u32,
    /// Error that prevents writing of the window's trace, if any. Other windows do not wait for it.
    pub(super) stall: WriteStall,
}

impl SessionWindow {
    /// Serves the window once; returns the time until the next call, in ns. If the trace cannot be
    /// written, perhaps temporarily, the window is skipped for a while.
    pub(super) fn tick(&mut self, notices: &Notices) -> Result<u64, RecordError> {
        if self.stall.retry_in_ns() > 0 {
            self.recording.check_window()?;
            self.recording.keep_alive();
            return Ok(self.stall.retry_in_ns());
        }
        let (prefix, ticked) = (format!("user {}: ", self.uid()), self.recording.tick(notices));
        let bytes = self.recording.totals().bytes;
        match ticked {
            Ok(period_ns) => {
                self.stall.note_success(bytes, &prefix, notices);
                Ok(period_ns)
            }
            Err(error @ RecordError::Lost(_)) => Err(error),
            Err(error) => {
                self.recording.keep_alive();
                self.stall.note_error(&error, bytes, &prefix, notices);
                Ok(self.stall.retry_in_ns())
            }
        }
    }

    pub(super) fn uid(&self) -> u32 {
        self.recording.handle.uid()
    }

    /// Returns the class in this window of a channel with the session's class `class`.
    pub(super) fn class(&self, class: u32) -> u32 {
        self.stuck.get(&class).copied().unwrap_or(class)
    }

    pub(super) fn replace_channel(
        &mut self,
        old: u32,
        settings: &ChannelSettings,
        class: u32,
    ) -> Result<(), RecordError> {
        let own = self.class(old);
        if !self.recording.has_channel(own) {
            // There was no space for the previous channel.
            return self.recording.add_channel(settings, class);
        }
        let replaced = self.recording.replace_channel(own, settings, class);
        if replaced.is_err() && self.recording.has_channel(own) {
            // The previous channel continues with its settings.
            self.stuck.insert(class, own);
        }
        replaced
    }

    /// Ends the channel of class `class`, or the old channel that continues in its place in this
    /// window. Does nothing if a later class that could not replace the channel still uses its
    /// buffers.
    pub(super) fn end_channel(&mut self, class: u32) -> Result<(), RecordError> {
        let own = self.stuck.remove(&class).unwrap_or(class);
        if self.stuck.values().any(|kept| *kept == own) || !self.recording.has_channel(own) {
            return Ok(());
        }
        self.recording.end_channel(own)
    }
}

/// Ends a session in one window; returns its results. If that fails, the remaining events are left
/// to `trackway recover`.
pub(super) fn finish_window(
    window: SessionWindow,
    interrupted: &dyn Fn() -> bool,
) -> (Summary, Option<RecordError>) {
    let SessionWindow { recording, kept, .. } = window;
    recording.handle.limit_lock_wait();
    let before = recording.summary();
    match recording.finish(interrupted) {
        Ok(summary) => {
            if let Some(kept) = kept {
                kept.remove();
            }
            (summary, None)
        }
        Err(error) => (before, Some(error)),
    }
}
