//! Thread that drains the kernel's buffers, for both kernel backends.
//!
//! The recorder sends work as a closure, and waits for the result: so one thread does everything
//! with the buffers. The thread survives errors: if writing fails, it reports that once and
//! retries. Events that find no space meanwhile are counted.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use trackway_console::IoError;

use crate::error::RecordError;
use crate::kernel::error::{kernel_error, kernel_io_error};
use crate::notices::Notices;
use crate::summary::Summary;
use crate::trace::completion::{self, CompletedBy};
use crate::trace::layout::Trace;
use crate::trace::progress_file::ProgressFile;

/// Period between two turns of draining.
const PERIOD: Duration = Duration::from_millis(20);
/// Period between two attempts to write after a failure.
const RETRY_PERIOD: Duration = Duration::from_millis(500);

/// Most packets that are dropped at the end, one after the other, if a full disk has no space for
/// the packets that report losses.
const DROPPED_PACKETS_MAX: usize = 4;

/// Results at the end of draining.
#[derive(Debug)]
pub(crate) struct DrainResult<C> {
    pub(crate) counts: C,
    /// `Ok` if all packets could be written.
    pub(crate) written: io::Result<()>,
    /// `Ok` if the streams report all losses.
    pub(crate) closed: io::Result<()>,
}

/// Source of kernel events that the thread drains: the buffers of a backend.
pub(crate) trait DrainSource: Send + Sized + 'static {
    /// Moves buffered events to the trace.
    ///
    /// # Errors
    ///
    /// If the events cannot be written now.
    fn regular_turn(&mut self) -> io::Result<()>;

    /// Discards recorded events and counts of losses, while stopped.
    ///
    /// # Errors
    ///
    /// If files of the trace cannot be removed.
    fn clear(&mut self) -> io::Result<()>;

    /// Returns the trace, and its progress file while a reader follows the trace.
    fn trace_and_progress(&mut self) -> (&Trace, &mut Option<ProgressFile>);

    /// Writes the loss counts at the end of the trace.
    ///
    /// # Errors
    ///
    /// If a stream cannot be written; all other streams are written.
    fn close(&mut self) -> io::Result<()>;

    /// Removes the largest of the streams' last packets from the trace; its events are lost.
    /// Returns true if there was a packet.
    fn drop_largest_packet(&mut self) -> bool;

    /// Writes the loss counts like [`Self::close`], on a disk that may have no space for them.
    ///
    /// # Errors
    ///
    /// If there is no space, even after packets were dropped.
    fn close_at_end(&mut self) -> io::Result<()> {
        let mut closed = self.close();
        for _ in 0..DROPPED_PACKETS_MAX {
            if closed.is_ok() || !self.drop_largest_packet() {
                break;
            }
            closed = self.close();
        }
        closed
    }

    /// Returns notices about changes of the recorded processes.
    fn take_change_notices(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Enables undelayed writing while a reader follows the trace, and disables it otherwise.
    fn set_followed(&mut self, is_followed: bool) {
        let (trace, live) = self.trace_and_progress();
        if is_followed == live.is_some() {
            return;
        }
        // Without the progress file, readers still follow the trace, a second later.
        *live = is_followed.then(|| ProgressFile::open(&trace.facts_folder().ok()?).ok()).flatten();
    }
}

/// Work that the thread runs between two turns.
type Task<D> = Box<dyn FnOnce(&mut D) + Send>;

/// Handle of the thread; dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct DrainThread<D> {
    orders: Sender<Task<D>>,
    news: Receiver<String>,
    thread: JoinHandle<()>,
}

impl<D: DrainSource> DrainThread<D> {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// If no thread can be created.
    pub(crate) fn start(mut drainer: D) -> Result<Self, RecordError> {
        let (orders, ordered) = mpsc::channel();
        let (teller, news) = mpsc::channel();
        let run = move || drain_until_dropped(&mut drainer, &ordered, &teller);
        let thread = std::thread::Builder::new().name("trackway-kernel".into()).spawn(run);
        let thread = thread.map_err(|error| kernel_io_error("cannot start a thread", error))?;
        Ok(Self { orders, news, thread })
    }

    /// Runs `act` in the thread, and waits for its result.
    ///
    /// # Errors
    ///
    /// If the thread has ended.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut D) -> T + Send + 'static,
    ) -> Result<T, RecordError> {
        let (teller, answer) = mpsc::channel();
        let order: Task<D> = Box::new(move |drainer| drop(teller.send(act(drainer))));
        let gone = || kernel_error("cannot write kernel events", "the thread has ended");
        self.orders.send(order).map_err(|_| gone())?;
        answer.recv().map_err(|_| gone())
    }

    /// Calls `end` in the thread to write the remaining events. If the thread has ended, the
    /// results are unknown.
    pub(crate) fn write_end<C: Default + Send + 'static>(
        &self,
        end: impl FnOnce(&mut D) -> DrainResult<C> + Send + 'static,
    ) -> DrainResult<C> {
        self.run(end).unwrap_or_else(|error| {
            let gone = || Err(io::Error::other(error.to_string()));
            DrainResult { counts: C::default(), written: gone(), closed: gone() }
        })
    }

    /// Marks the trace as complete. On failure, readers report that the trace may be incomplete.
    pub(crate) fn mark(&self, summary: Summary) {
        let _ = self.run(move |drainer| {
            let facts = drainer.trace_and_progress().0.facts_folder()?;
            completion::mark_complete(&facts, CompletedBy::Record(&summary))
        });
    }

    /// Calls [`DrainSource::set_followed`] in the thread.
    pub(crate) fn set_followed(&self, is_followed: bool) {
        let order: Task<D> = Box::new(move |drainer| drainer.set_followed(is_followed));
        // A thread that has ended has written all events already.
        let _ = self.orders.send(order);
    }

    /// Calls [`DrainSource::clear`] in the thread.
    pub(crate) fn clear(&self) -> Result<(), RecordError> {
        let cleared = self.run(DrainSource::clear)?;
        cleared.map_err(|error| {
            kernel_io_error("cannot remove what was recorded of the kernel", error)
        })
    }

    /// Reports changes since the previous call.
    pub(crate) fn report_changes(&self, notices: &Notices) {
        self.news.try_iter().for_each(|news| notices.report(format_args!("{news}")));
    }

    /// Ends the thread after its queued work.
    pub(crate) fn end(self) {
        drop(self.orders);
        let _ = self.thread.join();
    }
}

/// Drains until the handle of the thread is dropped.
fn drain_until_dropped<D: DrainSource>(
    drainer: &mut D,
    orders: &Receiver<Task<D>>,
    teller: &Sender<String>,
) {
    let mut is_failing = false;
    let mut due = Instant::now();
    loop {
        match orders.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Ok(order) => order(drainer),
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                drainer.take_change_notices().into_iter().for_each(|news| drop(teller.send(news)));
                let turned = drainer.regular_turn();
                match (&turned, is_failing) {
                    (Err(error), false) => drop(teller.send(format!(
                        "cannot write kernel events: {}; what finds no room until it can be is \
                         counted",
                        IoError::text(error)
                    ))),
                    (Ok(()), true) => {
                        drop(teller.send("kernel events are written again".to_owned()));
                    }
                    _ => {}
                }
                is_failing = turned.is_err();
                due = Instant::now() + if is_failing { RETRY_PERIOD } else { PERIOD };
            }
        }
    }
}

/// Returns the error for events that could not be written.
pub(crate) fn unwritten_events_error(error: io::Error) -> RecordError {
    kernel_io_error("cannot write kernel events", error)
}
