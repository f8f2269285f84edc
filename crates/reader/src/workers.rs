//! Threads that share work, and what they have to say, which is written as it comes.

use std::io::{self, Write};
use std::num::NonZero;
use std::sync::mpsc::{SyncSender, sync_channel};

/// How many messages may wait to be written: who has more to say waits.
const MESSAGES_AHEAD: usize = 64;

/// Takes messages of one thread.
pub(crate) struct Teller(SyncSender<String>);

impl Teller {
    /// Says something; whether anybody listens.
    pub(crate) fn tell(&self, text: String) -> bool {
        self.0.send(text).is_ok()
    }
}

/// Calls `work` on each of `jobs` threads, with the thread's number; what they gave. What they say
/// is written to `messages` meanwhile, by the thread that calls, a line each.
///
/// # Errors
///
/// If `messages` cannot be written: then nobody listens to the threads any more.
pub(crate) fn run<R: Send>(
    jobs: NonZero<usize>,
    messages: &mut dyn Write,
    work: impl Fn(usize, &Teller) -> R + Sync,
) -> io::Result<Vec<R>> {
    let (sender, receiver) = sync_channel::<String>(MESSAGES_AHEAD);
    std::thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> = (0..jobs.get())
            .map(|number| {
                let teller = Teller(sender.clone());
                scope.spawn(move || work(number, &teller))
            })
            .collect();
        drop(sender);
        // In one piece: other threads may write to the same place.
        let told = receiver
            .iter()
            .try_for_each(|text| messages.write_all(format!("trackway: {text}\n").as_bytes()));
        drop(receiver);
        // One that panicked, as in a test, has nothing to give.
        let results = workers.into_iter().filter_map(|worker| worker.join().ok()).collect();
        told.map(|()| results)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// A writer that says when it was written to.
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
        // Only what was written lets the work end.
        let results = run(NonZero::<usize>::MIN, &mut Signal(sender), |_, teller| {
            teller.tell("damage".to_owned()) && receiver.lock().is_ok_and(|it| it.recv().is_ok())
        });
        assert_eq!(results.expect("it is written"), [true]);
    }

    #[test]
    fn who_is_not_heard_learns_it() {
        let (sender, receiver) = channel();
        drop(receiver);
        let jobs = NonZero::new(3).expect("not zero");
        let result = run(jobs, &mut Signal(sender), |_, teller| while teller.tell("x".into()) {});
        assert!(result.is_err());
    }
}
