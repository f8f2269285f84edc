//! Users that a recording covers, and the contents of their windows.

use std::collections::{BTreeMap, BTreeSet};

use trackway_abi::window::EVENTS_MAX;
use trackway_schema::EventDescription;
use trackway_session::ALL_USERS;
use trackway_window::Window;

use crate::common::user::uid_of;
use crate::window::handle::WindowHandle;
use crate::window::processes;

/// Users whose programs a recording covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CoveredUsers {
    /// All users.
    All,
    /// Only these users.
    These(BTreeSet<u32>),
}

impl CoveredUsers {
    /// Returns coverage of the calling user only.
    pub(super) fn own() -> Self {
        Self::These([crate::common::user::effective_uid()].into())
    }

    /// Returns coverage of the users that a session specifies; without users, the calling user.
    pub(super) fn of(users: &[String]) -> Self {
        if users.is_empty() {
            return Self::own();
        }
        if users.iter().any(|user| user == ALL_USERS) {
            return Self::All;
        }
        Self::These(users.iter().filter_map(|user| uid_of(user)).collect())
    }

    pub(super) fn has(&self, uid: u32) -> bool {
        match self {
            Self::All => true,
            Self::These(users) => users.contains(&uid),
        }
    }
}

/// Processes and events in the windows of users.
#[derive(Debug, Default)]
pub(super) struct UserWindows {
    /// Ids of the processes in each user's window, by user id.
    processes: BTreeMap<u32, BTreeSet<u32>>,
    /// Full names of the events that programs have registered.
    names: BTreeSet<String>,
}

impl UserWindows {
    /// Reads the windows of those `users` that `is_wanted` accepts. If a window cannot be opened,
    /// only /proc gives reasons.
    pub(super) fn open_and_read(
        users: impl IntoIterator<Item = u32>,
        is_wanted: impl Fn(&Window, u32) -> bool,
    ) -> Self {
        let mut windows = Self::default();
        for uid in users {
            let _ = WindowHandle::inspect_user(uid, |window| {
                if is_wanted(window, uid) {
                    windows.read(uid, window);
                }
            });
        }
        windows
    }

    /// Adds the processes and events of the window of user `uid`.
    pub(super) fn read(&mut self, uid: u32, window: &Window) {
        self.processes.insert(uid, processes::live_pids_in_window(window));
        self.names.extend(registered_names(window));
    }

    /// Returns the users whose windows were read.
    pub(super) fn users(&self) -> impl Iterator<Item = u32> {
        self.processes.keys().copied()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.names.iter()
    }

    /// Returns true if a process of user `uid` that is in no window is certainly not recorded.
    pub(super) fn can_decide_for(&self, uid: u32) -> bool {
        self.processes.contains_key(&uid)
    }

    pub(super) fn has_process(&self, pid: u32) -> bool {
        self.processes.values().any(|pids| pids.contains(&pid))
    }
}

/// Returns the full names of the events that programs have registered in this window.
pub(super) fn registered_names(window: &Window) -> Vec<String> {
    let events = (0..EVENTS_MAX).filter_map(|index| {
        let bytes = window.description(index)?;
        EventDescription::decode(bytes.as_slice()).ok()
    });
    events.map(|event| event.full_name()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_covers_the_users_that_it_names() {
        let own = crate::common::user::effective_uid();
        let users = |names: &[&str]| {
            CoveredUsers::of(&names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(users(&[]), CoveredUsers::These([own].into()));
        assert_eq!(users(&["7", "root"]), CoveredUsers::These([0, 7].into()));
        assert_eq!(users(&["7", "all"]), CoveredUsers::All);
        assert!(CoveredUsers::All.has(7) && !users(&["8"]).has(7));
    }
}
