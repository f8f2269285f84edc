//! Visits of every CPU that traced programs request before they overwrite filters' machine code,
//! because an earlier sequence may be about to enter it (docs/design/0008-filters.md).
//!
//! A recorder periodically checks for requests. Another thread visits the CPUs, as for returned
//! memory: a thread of higher priority may occupy a CPU forever, and records must not wait for it.

use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};

use trackway_abi::window::Header;

use crate::window::cpus;

/// Shortest time between the starts of two visits, in ns: programs that request visits constantly
/// must not keep a recorder busy.
const PERIOD_NS: u64 = 100_000_000;

/// Visits of one recorder in one window.
#[derive(Debug, Default)]
pub(crate) struct Visits {
    due_ns: u64,
    /// The visiting thread and the number of the request that it serves.
    visitor: Option<(JoinHandle<bool>, u32)>,
}

impl Visits {
    /// Begins a visit if one is requested and due; publishes a finished visit.
    pub(crate) fn poll(&mut self, header: &Header, now_ns: u64) {
        if self.visitor.as_ref().is_some_and(|(visitor, _)| visitor.is_finished()) {
            self.end(header);
        }
        // ORDERING: Acquire: the requester has removed the code that it will overwrite from its
        // table before (Release there), and the visit is after that.
        let asked = header.visits_asked.load(Ordering::Acquire);
        let is_asked = asked != header.visits_done.load(Ordering::Relaxed);
        if !is_asked || self.visitor.is_some() || now_ns < self.due_ns {
            return;
        }
        self.due_ns = now_ns.saturating_add(PERIOD_NS);
        let visitor = thread::Builder::new().name("visitor".into());
        self.visitor = visitor.spawn(cpus::visit_all).ok().map(|visitor| (visitor, asked));
    }

    /// Ends a visit and publishes it if the thread reached every CPU.
    fn end(&mut self, header: &Header) {
        let Some((visitor, asked)) = self.visitor.take() else { return };
        if visitor.join().unwrap_or(false) {
            // ORDERING: Release: a program that loads this value (Acquire) continues after the
            // visit.
            header.visits_done.store(asked, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::{Duration, Instant};

    use trackway_testkit::TemporaryFolder;

    use super::*;
    use crate::window::handle::WindowHandle;

    #[test]
    fn what_was_asked_before_a_visit_is_done_after_it_and_not_too_often() {
        let folder = TemporaryFolder::new_in(Path::new("/dev/shm"));
        let handle = WindowHandle::open_in(folder.path(), true).expect("a window");
        let header = handle.window().header();
        let done = || header.visits_done.load(Ordering::Relaxed);
        let mut visits = Visits::default();
        visits.poll(header, 1);
        assert!(visits.visitor.is_none(), "nobody asks");
        if !cpus::visit_all() {
            eprintln!("skipped, because not every CPU can be visited here");
            return;
        }
        let is_over = |visits: &Visits| {
            let begin = Instant::now();
            while visits.visitor.as_ref().is_some_and(|(visitor, _)| !visitor.is_finished()) {
                assert!(begin.elapsed() < Duration::from_secs(60), "the visit does not end");
                thread::yield_now();
            }
        };
        header.visits_asked.store(3, Ordering::Relaxed);
        visits.poll(header, 1);
        // The visit may have passed some CPU before this request, so it does not serve the request.
        header.visits_asked.store(4, Ordering::Relaxed);
        is_over(&visits);
        visits.poll(header, 2);
        assert_eq!((done(), visits.visitor.is_none()), (3, true));
        visits.poll(header, PERIOD_NS);
        assert!(visits.visitor.is_none(), "too soon");
        visits.poll(header, PERIOD_NS + 1);
        is_over(&visits);
        visits.poll(header, PERIOD_NS + 2);
        assert_eq!(done(), 4);
        visits.poll(header, 9 * PERIOD_NS);
        assert!(visits.visitor.is_none(), "nobody asks any more");
    }

    #[test]
    fn a_visit_that_did_not_come_everywhere_is_none() {
        let folder = TemporaryFolder::new_in(Path::new("/dev/shm"));
        let handle = WindowHandle::open_in(folder.path(), true).expect("a window");
        let header = handle.window().header();
        for is_whole in [false, true] {
            let visitor = thread::spawn(move || is_whole);
            let mut visits = Visits { due_ns: 0, visitor: Some((visitor, 7)) };
            visits.end(header);
            assert_eq!(header.visits_done.load(Ordering::Relaxed) == 7, is_whole);
        }
    }
}
