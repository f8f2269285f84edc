//! Threads that share work, and their messages, which are written as they arrive.

use std::cell::RefCell;
use std::io::{self, Write};
use std::num::NonZero;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::Builder;

use crate::messages::write_message;

/// Maximum number of messages that wait to be written; a thread with another message blocks.
const MESSAGES_AHEAD: usize = 64;

/// The receiver of one thread's messages.
pub(crate) trait MessageSink {
    /// Sends a message; returns false if it cannot be written.
    fn send_message(&self, text: String) -> bool;
}

/// Sends messages to the thread that writes them.
impl MessageSink for SyncSender<String> {
    fn send_message(&self, text: String) -> bool {
        self.send(text).is_ok()
    }
}

/// A sink that writes the messages of a single thread; `Err` after a failed write.
struct DirectSink<'m>(RefCell<io::Result<&'m mut dyn Write>>);

impl MessageSink for DirectSink<'_> {
    fn send_message(&self, text: String) -> bool {
        let mut messages = self.0.borrow_mut();
        if let Ok(open) = messages.as_mut()
            && let Err(error) = write_message(*open, &text)
        {
            *messages = Err(error);
        }
        messages.is_ok()
    }
}

/// Calls `work` with the thread's number on each of `jobs` threads, or on as many as can be
/// started; returns the results. Meanwhile the calling thread writes the threads' messages to
/// `messages`, one per line. If no thread can be started, the calling thread does the work itself.
///
/// # Errors
///
/// Returns an error if `messages` cannot be written; then the remaining messages are dropped.
pub(crate) fn run<R: Send>(
    jobs: NonZero<usize>,
    messages: &mut dyn Write,
    work: impl Fn(usize, &dyn MessageSink) -> R + Sync,
) -> io::Result<Vec<R>> {
    let (sender, receiver) = sync_channel::<String>(MESSAGES_AHEAD);
    let done = std::thread::scope(|scope| {
        let work = &work;
        let start = |number| {
            let sink = sender.clone();
            Builder::new().spawn_scoped(scope, move || work(number, &sink)).ok()
        };
        let workers: Vec<_> = (0..jobs.get()).map_while(start).collect();
        drop(sender);
        if workers.is_empty() {
            return Ok(None);
        }
        let told = receiver.iter().try_for_each(|text| write_message(messages, &text));
        drop(receiver);
        // A thread that panicked, as in a test, has no result.
        let results = workers.into_iter().filter_map(|worker| worker.join().ok()).collect();
        told.map(|()| Some(results))
    });
    done?.map_or_else(|| run_here(messages, &work), Ok)
}

/// Does the work on the calling thread alone.
fn run_here<R>(
    messages: &mut dyn Write,
    work: impl Fn(usize, &dyn MessageSink) -> R,
) -> io::Result<Vec<R>> {
    let sink = DirectSink(RefCell::new(Ok(messages)));
    let result = work(0, &sink);
    sink.0.into_inner().map(|_| vec![result])
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// A writer that signals each write.
    struct Signal(std::sync::mpsc::Sender<()>);

    impl Write for Signal {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn messages_are_written_while_the_work_goes_on() {
        let (sender, receiver) = channel();
        let receiver = std::sync::Mutex::new(receiver);
        // The work ends only after its message was written.
        let results = run(NonZero::<usize>::MIN, &mut Signal(sender), |_, sink| {
            sink.send_message("damage".to_owned())
                && receiver.lock().is_ok_and(|it| it.recv().is_ok())
        });
        assert_eq!(results.expect("it is written"), [true]);
    }

    /// A writer whose writes fail.
    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn one_thread_alone_says_as_much_as_it_has_to_say() {
        let mut told = Vec::new();
        let say = |_, sink: &dyn MessageSink| {
            (0..3 * MESSAGES_AHEAD).filter(|number| sink.send_message(number.to_string())).count()
        };
        let results = run_here(&mut told, say).expect("it is written");
        assert_eq!(results, [3 * MESSAGES_AHEAD]);
        let told = String::from_utf8(told).expect("text");
        let expected: String =
            (0..3 * MESSAGES_AHEAD).map(|number| format!("trackway: {number}\n")).collect();
        assert_eq!(told, expected);
    }

    #[test]
    fn one_thread_alone_that_is_not_heard_learns_it() {
        let result =
            run_here(&mut Full, |_, sink| assert!(!sink.send_message("damage".to_owned())));
        assert_eq!(result.expect_err("it is not").kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn who_is_not_heard_learns_it() {
        let (sender, receiver) = channel();
        drop(receiver);
        let jobs = NonZero::new(3).expect("not zero");
        let result =
            run(jobs, &mut Signal(sender), |_, sink| while sink.send_message("x".into()) {});
        assert!(result.is_err());
    }
}
