//! Notices and the status line that a recorder shows while it runs. They go to stderr, since stdout
//! belongs to the traced command.

use core::fmt::Arguments;
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::Write;

use trackway_console::{
    Style, Target, can_show_progress, clear_progress, message, show_progress, write_line,
};
use trackway_session::protocol::Notice;

/// Destination and memory of a recorder's notices.
#[derive(Debug)]
pub struct Notices {
    quiet: bool,
    terminal: bool,
    status_shown: Cell<bool>,
    /// Reported notices: the newest, for status requests; all of them in tests.
    recent: RefCell<Vec<Notice>>,
    /// Number of reported notices, including those that are no longer kept.
    count: Cell<usize>,
    place: Destination,
}

/// Destination of notices, in addition to the list of recent ones.
#[derive(Debug)]
enum Destination {
    Terminal,
    /// The log of a background recorder.
    Log(RefCell<File>),
    Nowhere,
}

/// Most notices that are kept if they also go to another destination.
const KEPT_NOTICES_MAX: usize = 50;

impl Notices {
    /// Makes notices on stderr; with `quiet`, prints nothing.
    pub fn new(quiet: bool) -> Self {
        let terminal = can_show_progress();
        let (status_shown, recent, count) = (Cell::new(false), RefCell::default(), Cell::new(0));
        Self { quiet, terminal, status_shown, recent, count, place: Destination::Terminal }
    }

    /// Makes the notices of a background recorder: keeps the newest, and writes all to `log`.
    pub(crate) fn with_log(log: File) -> Self {
        Self { place: Destination::Log(RefCell::new(log)), ..Self::new(false) }
    }

    /// Makes notices that are all kept and not printed.
    pub fn in_memory() -> Self {
        Self { place: Destination::Nowhere, ..Self::new(false) }
    }

    /// Returns all kept notices.
    pub fn all(&self) -> Vec<Notice> {
        self.recent.borrow().clone()
    }

    /// Returns all kept notices as lines.
    pub fn lines(&self) -> Vec<String> {
        self.recent.borrow().iter().map(Notice::to_string).collect()
    }

    /// Returns true if the user sees notices immediately.
    pub(crate) fn are_printed(&self) -> bool {
        matches!(self.place, Destination::Terminal)
    }

    fn keep(&self, notice: Notice) {
        if let Destination::Log(log) = &self.place {
            // A log that cannot be written must not prevent recording.
            let _ = writeln!(log.borrow_mut(), "{notice}");
        }
        let mut recent = self.recent.borrow_mut();
        if recent.len() == KEPT_NOTICES_MAX && !matches!(self.place, Destination::Nowhere) {
            recent.remove(0);
        }
        recent.push(notice);
        self.count.set(self.count.get() + 1);
    }

    /// Returns the number of reported notices.
    pub(crate) fn count(&self) -> usize {
        self.count.get()
    }

    /// Returns the notices after the first `count`, as far as they are kept.
    pub(crate) fn since(&self, count: usize) -> Vec<Notice> {
        let recent = self.recent.borrow();
        let new = self.count.get().saturating_sub(count).min(recent.len());
        recent[recent.len() - new..].to_vec()
    }

    /// Reports one line.
    pub fn report(&self, text: Arguments<'_>) {
        self.report_with_loss(text, "");
    }

    /// Reports one line with a part about a loss, which terminals show in the colour of losses.
    pub(crate) fn report_with_loss(&self, text: Arguments<'_>, loss: &str) {
        let text = text.to_string();
        if self.are_printed() && !self.quiet {
            self.clear_status();
            match text.split_once(loss).filter(|_| !loss.is_empty()) {
                Some((before, behind)) => {
                    let loss = Target::Errors.paint(Style::Loss, loss);
                    write_line(format_args!("trackway: {before}{loss}{behind}"));
                }
                None => message!("trackway: {text}"),
            }
        }
        self.keep(Notice::Info(text));
    }

    /// Adds a hint to the latest notice.
    pub fn hint(&self, text: Arguments<'_>) {
        let notice = Notice::hint(text.to_string());
        if self.are_printed() && !self.quiet {
            message!("{notice}");
        }
        self.keep(notice);
    }

    /// Returns true if a status line must be shown.
    pub(crate) fn shows_status(&self) -> bool {
        self.terminal && !self.quiet && self.are_printed()
    }

    /// Shows the status line, replacing the previous one.
    pub(crate) fn show_status_line(&self, text: Arguments<'_>) {
        if self.shows_status() {
            show_progress(format_args!("trackway: {text}"));
            self.status_shown.set(true);
        }
    }

    /// Removes the status line.
    pub(crate) fn clear_status(&self) {
        if self.status_shown.replace(false) {
            clear_progress();
        }
    }
}
