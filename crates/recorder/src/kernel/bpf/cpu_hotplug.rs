//! CPUs that come while the kernel's events are recorded. Buffers are made for those that are there
//! when it begins, online or not: nothing is recorded of the others, which is said once it is seen.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use crate::notices::Notices;
use crate::window::cpus;

/// Period between two checks for new CPUs.
const PERIOD: Duration = Duration::from_millis(500);

/// CPUs that have come online so far.
#[derive(Debug)]
pub(super) struct Newcomers {
    /// CPUs that have buffers, or are not wanted: those with lower numbers.
    with_buffers: usize,
    said: RefCell<Vec<u32>>,
    looked: Cell<Instant>,
}

impl Newcomers {
    /// None, where so many CPUs have buffers; none ever, where only some CPUs are wanted
    /// (`is_of_cpus`), since those had to be there.
    pub(super) fn new(with_buffers: usize, is_of_cpus: bool) -> Self {
        let with_buffers = if is_of_cpus { usize::MAX } else { with_buffers };
        let (said, looked) = (RefCell::default(), Cell::new(Instant::now()));
        Self { with_buffers, said, looked }
    }

    /// Says which have come since it was looked at last, if that is some time ago.
    pub(super) fn say(&self, notices: &Notices) {
        if self.looked.get().elapsed() >= PERIOD {
            self.looked.set(Instant::now());
            self.say_of(&cpus::online(), notices);
        }
    }

    /// Returns the number of `online` CPUs that have no buffers.
    pub(super) fn count(&self, online: &[u32]) -> usize {
        online.iter().filter(|&&cpu| cpu as usize >= self.with_buffers).count()
    }

    fn say_of(&self, online: &[u32], notices: &Notices) {
        let mut said = self.said.borrow_mut();
        let is_new = |cpu: &&u32| **cpu as usize >= self.with_buffers && !said.contains(*cpu);
        let new: Vec<u32> = online.iter().filter(is_new).copied().collect();
        if new.is_empty() {
            return;
        }
        let names: Vec<String> = new.iter().map(u32::to_string).collect();
        let (plural, there) = if new.len() == 1 { ("", "there") } else { ("s", "on them") };
        notices.say(format_args!(
            "CPU{plural} {} came while the kernel's events are recorded: what happens {there} is \
             neither recorded nor counted",
            names.join(", ")
        ));
        notices.hint(format_args!("what begins to record now records that, too"));
        said.extend(new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_that_come_are_said_once_each() {
        let newcomers = Newcomers::new(2, false);
        let said = |online: &[u32]| {
            let notices = Notices::kept();
            newcomers.say_of(online, &notices);
            notices.lines().join("\n")
        };
        assert_eq!(said(&[0, 1]), "");
        assert!(said(&[0, 1, 2]).contains("CPU 2 came while"));
        assert_eq!(said(&[0, 2]), "");
        // It goes, and comes again with others.
        assert_eq!(said(&[0]), "");
        assert!(said(&[0, 2, 3, 4]).contains("CPUs 3, 4 came while"));
        assert_eq!(newcomers.count(&[0, 2, 3, 4]), 3);
        assert_eq!(newcomers.count(&[0, 1]), 0);
        // Those that were not asked for are no loss.
        let (newcomers, notices) = (Newcomers::new(2, true), Notices::kept());
        newcomers.say_of(&[0, 2, 3], &notices);
        assert_eq!((notices.lines().len(), newcomers.count(&[0, 2, 3])), (0, 0));
    }
}
