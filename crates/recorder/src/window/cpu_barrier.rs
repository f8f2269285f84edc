//! Visits to every CPU that traced programs ask for, before they write over machine code of filters
//! that a sequence of before might be on its way into (docs/design/0008-filters.md).
//!
//! Whoever records looks now and then whether somebody asks. As with memory that is given back,
//! another thread visits: a CPU may be busy for good with a thread that nothing gets past, and
//! nobody's records wait for that.

use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};

use trackway_abi::window::Header;

use crate::window::cpus;

/// Least time between the beginnings of two visits, in ns: programs that ask all the time must not
/// keep a recorder on its feet.
const PERIOD_NS: u64 = 100_000_000;

/// Visits of one recorder in one window.
#[derive(Debug, Default)]
pub(crate) struct Visits {
    due_ns: u64,
    /// Who is under way, and what was asked when it began.
    visitor: Option<(JoinHandle<bool>, u32)>,
}

impl Visits {
    /// Begins a visit, if somebody asks for one and it is time; says so when it is made.
    pub(crate) fn look(&mut self, header: &Header, now_ns: u64) {
        if self.visitor.as_ref().is_some_and(|(visitor, _)| visitor.is_finished()) {
            self.end(header);
        }
        // ORDERING: Acquire: who asks has taken out of its table before what it will write over
        // (Release there), and the visit is after that.
        let asked = header.visits_asked.load(Ordering::Acquire);
        let is_asked = asked != header.visits_done.load(Ordering::Relaxed);
        if !is_asked || self.visitor.is_some() || now_ns < self.due_ns {
            return;
        }
        self.due_ns = now_ns.saturating_add(PERIOD_NS);
        let visitor = thread::Builder::new().name("visitor".into());
        self.visitor = visitor.spawn(cpus::visit_all).ok().map(|visitor| (visitor, asked));
    }

    /// Takes note of a visit that is over. One that did not come everywhere is none.
    fn end(&mut self, header: &Header) {
        let Some((visitor, asked)) = self.visitor.take() else { return };
        if visitor.join().unwrap_or(false) {
            // ORDERING: Release: who sees it (Acquire) comes after the visit.
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
    use crate::window::handle::Home;

    #[test]
    fn what_was_asked_before_a_visit_is_done_after_it_and_not_too_often() {
        let folder = TemporaryFolder::new_in(Path::new("/dev/shm"));
        let home = Home::open_in(folder.path(), true).expect("a window");
        let header = home.window().header();
        let done = || header.visits_done.load(Ordering::Relaxed);
        let mut visits = Visits::default();
        visits.look(header, 1);
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
        visits.look(header, 1);
        // Who asks now may have come too late for some CPU.
        header.visits_asked.store(4, Ordering::Relaxed);
        is_over(&visits);
        visits.look(header, 2);
        assert_eq!((done(), visits.visitor.is_none()), (3, true));
        visits.look(header, PERIOD_NS);
        assert!(visits.visitor.is_none(), "too soon");
        visits.look(header, PERIOD_NS + 1);
        is_over(&visits);
        visits.look(header, PERIOD_NS + 2);
        assert_eq!(done(), 4);
        visits.look(header, 9 * PERIOD_NS);
        assert!(visits.visitor.is_none(), "nobody asks any more");
    }

    #[test]
    fn a_visit_that_did_not_come_everywhere_is_none() {
        let folder = TemporaryFolder::new_in(Path::new("/dev/shm"));
        let home = Home::open_in(folder.path(), true).expect("a window");
        let header = home.window().header();
        for is_whole in [false, true] {
            let visitor = thread::spawn(move || is_whole);
            let mut visits = Visits { due_ns: 0, visitor: Some((visitor, 7)) };
            visits.end(header);
            assert_eq!(header.visits_done.load(Ordering::Relaxed) == 7, is_whole);
        }
    }
}
