//! CPUs that are added while kernel events are recorded. Only CPUs that are present when recording
//! begins have buffers, even if they are offline. Events of later CPUs are not recorded; a notice
//! reports such CPUs once they come online.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use crate::notices::Notices;
use crate::window::cpus;

/// Period between two checks for new CPUs.
const PERIOD: Duration = Duration::from_millis(500);

/// CPUs without buffers that have come online so far.
#[derive(Debug)]
pub(super) struct NewCpus {
    /// Number of the first CPU without buffers; `usize::MAX` if CPUs were selected.
    with_buffers: usize,
    reported: RefCell<Vec<u32>>,
    looked: Cell<Instant>,
}

impl NewCpus {
    /// Creates an empty list of new CPUs; CPUs with numbers below `with_buffers` have buffers. With
    /// `is_of_cpus` the list stays empty: the selected CPUs had to be present.
    pub(super) fn new(with_buffers: usize, is_of_cpus: bool) -> Self {
        let with_buffers = if is_of_cpus { usize::MAX } else { with_buffers };
        let (reported, looked) = (RefCell::default(), Cell::new(Instant::now()));
        Self { with_buffers, reported, looked }
    }

    /// Reports CPUs that came online since the previous check, at most once per [`PERIOD`].
    pub(super) fn report(&self, notices: &Notices) {
        if self.looked.get().elapsed() >= PERIOD {
            self.looked.set(Instant::now());
            self.report_online(&cpus::online_cpus(), notices);
        }
    }

    /// Returns the number of `online` CPUs that have no buffers.
    pub(super) fn count(&self, online: &[u32]) -> usize {
        online.iter().filter(|&&cpu| cpu as usize >= self.with_buffers).count()
    }

    fn report_online(&self, online: &[u32], notices: &Notices) {
        let mut reported = self.reported.borrow_mut();
        let is_new = |cpu: &&u32| **cpu as usize >= self.with_buffers && !reported.contains(*cpu);
        let new: Vec<u32> = online.iter().filter(is_new).copied().collect();
        if new.is_empty() {
            return;
        }
        let names: Vec<String> = new.iter().map(u32::to_string).collect();
        let (plural, there) = if new.len() == 1 { ("", "there") } else { ("s", "on them") };
        notices.report(format_args!(
            "CPU{plural} {} came while the kernel's events are recorded: what happens {there} is \
             neither recorded nor counted",
            names.join(", ")
        ));
        notices.hint(format_args!("what begins to record now records that, too"));
        reported.extend(new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_that_come_are_said_once_each() {
        let new_cpus = NewCpus::new(2, false);
        let reported = |online: &[u32]| {
            let notices = Notices::in_memory();
            new_cpus.report_online(online, &notices);
            notices.lines().join("\n")
        };
        assert_eq!(reported(&[0, 1]), "");
        assert!(reported(&[0, 1, 2]).contains("CPU 2 came while"));
        assert_eq!(reported(&[0, 2]), "");
        // CPU 2 goes offline, and comes online again with others.
        assert_eq!(reported(&[0]), "");
        assert!(reported(&[0, 2, 3, 4]).contains("CPUs 3, 4 came while"));
        assert_eq!(new_cpus.count(&[0, 2, 3, 4]), 3);
        assert_eq!(new_cpus.count(&[0, 1]), 0);
        // CPUs that were not selected are no loss.
        let (new_cpus, notices) = (NewCpus::new(2, true), Notices::in_memory());
        new_cpus.report_online(&[0, 2, 3], &notices);
        assert_eq!((notices.lines().len(), new_cpus.count(&[0, 2, 3])), (0, 0));
    }
}
