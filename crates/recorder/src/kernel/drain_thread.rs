//! The thread that drains the kernel's buffers, whichever way they are filled.
//!
//! The recorder sends work as a closure, and waits for the result: so everything about the buffers
//! happens in one thread. The thread survives errors: if writing fails, it reports that once and
//! retries, and events that find no space in between are counted.

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
/// Period between two attempts to write, once one has failed.
const RETRY_PERIOD: Duration = Duration::from_millis(500);

/// Most packets that are dropped at the end, one after the other, if a full disk has no space for
/// the packets that report losses.
const DROPPED_PACKETS_MAX: usize = 4;

/// The results at the end.
#[derive(Debug)]
pub(crate) struct DrainResult<C> {
    pub(crate) counts: C,
    /// Success if all packets could be written.
    pub(crate) written: io::Result<()>,
    /// Success if the streams report all losses.
    pub(crate) closed: io::Result<()>,
}

/// Buffers that the thread drains.
pub(crate) trait DrainSource: Send + Sized + 'static {
    /// Moves buffered events to the trace.
    ///
    /// # Errors
    ///
    /// If it cannot be written now.
    fn regular_turn(&mut self) -> io::Result<()>;

    /// Discards recorded events and counts of losses, while stopped.
    ///
    /// # Errors
    ///
    /// If files of the trace cannot be removed.
    fn clear(&mut self) -> io::Result<()>;

    /// Returns the trace, and the file of its written extent while a reader follows.
    fn trace_and_progress(&mut self) -> (&Trace, &mut Option<ProgressFile>);

    /// Writes the losses at the trace's end.
    ///
    /// # Errors
    ///
    /// If a stream cannot be written; all others are.
    fn close(&mut self) -> io::Result<()>;

    /// Removes the largest of the streams' last packets from the trace; its events are lost.
    /// Returns true if there was one.
    fn drop_largest_packet(&mut self) -> bool;

    /// Closes as [`Self::close`] does, on a disk that may have no space for that.
    ///
    /// # Errors
    ///
    /// If there is none, whatever is given up.
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

    /// Returns changes of the recorded processes that are to be reported.
    fn take_change_notices(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Writes events at once while a reader follows, or not any more.
    fn set_followed(&mut self, is_followed: bool) {
        let (trace, live) = self.trace_and_progress();
        if is_followed == live.is_some() {
            return;
        }
        // Without it the trace is followed all the same, a second later.
        *live = is_followed.then(|| ProgressFile::open(&trace.facts_folder().ok()?).ok()).flatten();
    }
}

/// Work for the thread between two turns.
type Task<D> = Box<dyn FnOnce(&mut D) + Send>;

/// The recorder's handle of the thread, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct DrainThread<D> {
    orders: Sender<Task<D>>,
    news: Receiver<String>,
    thread: JoinHandle<()>,
}

impl<D: DrainSource> DrainThread<D> {
    /// Starts it.
    ///
    /// # Errors
    ///
    /// If there can be no thread.
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
    /// If it has ended.
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

    /// Calls `end` in the thread to write the rest; if the thread has ended, its results are
    /// unknown.
    pub(crate) fn write_end<C: Default + Send + 'static>(
        &self,
        end: impl FnOnce(&mut D) -> DrainResult<C> + Send + 'static,
    ) -> DrainResult<C> {
        self.run(end).unwrap_or_else(|error| {
            let gone = || Err(io::Error::other(error.to_string()));
            DrainResult { counts: C::default(), written: gone(), closed: gone() }
        })
    }

    /// Marks the trace as complete. If that fails, readers report that it may not be.
    pub(crate) fn mark(&self, summary: Summary) {
        let _ = self.run(move |drainer| {
            let facts = drainer.trace_and_progress().0.facts_folder()?;
            completion::mark_complete(&facts, CompletedBy::Record(&summary))
        });
    }

    /// See [`DrainSource::set_followed`].
    pub(crate) fn set_followed(&self, is_followed: bool) {
        let order: Task<D> = Box::new(move |drainer| drainer.set_followed(is_followed));
        // A thread that has ended has written all events.
        let _ = self.orders.send(order);
    }

    /// See [`DrainSource::clear`].
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

    /// Ends the thread after its work.
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
