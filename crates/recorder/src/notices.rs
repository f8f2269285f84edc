//! Notices that a recorder reports while it runs, and the status line. All of it goes to stderr,
//! since stdout is the traced command's.

use core::fmt::Arguments;
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::Write;

use trackway_console::{
    Style, Target, can_show_progress, clear_progress, message, show_progress, write_line,
};
use trackway_session::protocol::Notice;

/// The destination of notices.
#[derive(Debug)]
pub struct Notices {
    quiet: bool,
    terminal: bool,
    status_shown: Cell<bool>,
    /// The notices that were reported: the newest, for status requests; in tests all.
    recent: RefCell<Vec<Notice>>,
    /// Number of notices, including those that are no longer kept.
    count: Cell<usize>,
    place: Destination,
}

/// The destination of notices, in addition to the list of newest ones.
#[derive(Debug)]
enum Destination {
    Terminal,
    /// The log of a background recorder.
    Log(RefCell<File>),
    Nowhere,
}

/// Most notices that are kept, if they have another destination.
const KEPT_NOTICES_MAX: usize = 50;

impl Notices {
    /// Makes notices on stderr; none at all if `quiet`.
    pub fn new(quiet: bool) -> Self {
        let terminal = can_show_progress();
        let (status_shown, recent, count) = (Cell::new(false), RefCell::default(), Cell::new(0));
        Self { quiet, terminal, status_shown, recent, count, place: Destination::Terminal }
    }

    /// Makes the notices of a background recorder: the newest are kept, all go to `log`.
    pub(crate) fn with_log(log: File) -> Self {
        Self { place: Destination::Log(RefCell::new(log)), ..Self::new(false) }
    }

    /// Makes notices that are only kept, all of them.
    pub fn in_memory() -> Self {
        Self { place: Destination::Nowhere, ..Self::new(false) }
    }

    /// Returns the notices so far, or the newest.
    pub fn all(&self) -> Vec<Notice> {
        self.recent.borrow().clone()
    }

    /// Returns the notices so far, or the newest, as lines.
    pub fn lines(&self) -> Vec<String> {
        self.recent.borrow().iter().map(Notice::to_string).collect()
    }

    /// Returns true if the user sees notices as they are reported.
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

    /// Returns how many notices there were.
    pub(crate) fn count(&self) -> usize {
        self.count.get()
    }

    /// Returns the notices that followed the first `count`, or the newest of them.
    pub(crate) fn since(&self, count: usize) -> Vec<Notice> {
        let recent = self.recent.borrow();
        let new = self.count.get().saturating_sub(count).min(recent.len());
        recent[recent.len() - new..].to_vec()
    }

    /// Reports one line.
    pub fn report(&self, text: Arguments<'_>) {
        self.report_with_loss(text, "");
    }

    /// Reports one line with a part about a loss, which terminals show in its colour.
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

    /// Returns true if a status line is to be shown.
    pub(crate) fn shows_status(&self) -> bool {
        self.terminal && !self.quiet && self.are_printed()
    }

    /// Shows the status line, in place of the one before.
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
