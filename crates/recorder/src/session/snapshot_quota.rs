//! Snapshots that users' processes cause, by a request or by a crash.
//!
//! Such a snapshot takes space on the recorder's disk. So another user's processes can cause one
//! snapshot every ten seconds, and a hundred in total. Main invariant: each user has separate
//! limits. A snapshot that is requested too soon is written later, once.

use std::collections::BTreeMap;

use crate::session::crash_watch::Crash;

/// Shortest time between two snapshots that processes of another user cause, in ns.
const PERIOD_NS: u64 = 10_000_000_000;
/// Most snapshots that processes of another user cause.
const OTHER_USER_SNAPSHOTS_MAX: u32 = 100;

/// Causes of a snapshot.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SnapshotTriggers {
    /// True if a program requested a snapshot.
    pub(crate) is_asked: bool,
    /// Processes that crashed.
    pub(crate) crashes: Vec<Crash>,
}

impl SnapshotTriggers {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn add(&mut self, other: Self) {
        self.is_asked |= other.is_asked;
        self.crashes.extend(other.crashes);
    }
}

/// Pending snapshots and limits of each user, by user id.
#[derive(Debug, Default)]
pub(crate) struct SnapshotQuota(BTreeMap<u32, UserQuota>);

#[derive(Debug, Default)]
struct UserQuota {
    waiting: SnapshotTriggers,
    /// Number of snapshots so far.
    count: u32,
    /// Earliest time of the next snapshot, in ns.
    due_ns: u64,
}

impl SnapshotQuota {
    /// Adds triggers from this user's processes; of several crashes only the first is kept.
    pub(crate) fn request(&mut self, uid: u32, reasons: SnapshotTriggers) {
        if reasons.is_empty() {
            return;
        }
        let waiting = &mut self.0.entry(uid).or_default().waiting;
        waiting.add(reasons);
        if uid != crate::common::user::effective_uid() {
            waiting.crashes.truncate(1);
        }
    }

    /// Returns the triggers of all users that are due at `now_ns`: one snapshot serves all of them.
    pub(crate) fn due(&mut self, now_ns: u64) -> SnapshotTriggers {
        let mut due = SnapshotTriggers::default();
        for (&uid, user) in self.0.iter_mut().filter(|(_, user)| !user.waiting.is_empty()) {
            if uid != crate::common::user::effective_uid() {
                if user.count == OTHER_USER_SNAPSHOTS_MAX {
                    user.waiting = SnapshotTriggers::default();
                }
                if user.waiting.is_empty() || now_ns < user.due_ns {
                    continue;
                }
                user.count += 1;
                user.due_ns = now_ns + PERIOD_NS;
            }
            due.add(std::mem::take(&mut user.waiting));
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn program_request() -> SnapshotTriggers {
        SnapshotTriggers { is_asked: true, ..SnapshotTriggers::default() }
    }

    #[test]
    fn what_comes_too_soon_is_made_later_once_and_no_user_waits_for_another() {
        let (ann, bob) =
            (crate::common::user::effective_uid() + 1, crate::common::user::effective_uid() + 2);
        let mut snapshot_quota = SnapshotQuota::default();
        let died =
            |pid| SnapshotTriggers { crashes: vec![Crash { pid, signal: 11 }], is_asked: false };
        snapshot_quota.request(ann, program_request());
        assert_eq!(snapshot_quota.due(SECOND), program_request());
        for pid in 1..=3 {
            snapshot_quota.request(ann, died(pid));
        }
        assert_eq!(snapshot_quota.due(2 * SECOND), SnapshotTriggers::default());
        snapshot_quota.request(bob, program_request());
        assert_eq!(snapshot_quota.due(3 * SECOND), program_request());
        assert_eq!(snapshot_quota.due(10 * SECOND), SnapshotTriggers::default());
        assert_eq!(snapshot_quota.due(11 * SECOND), died(1));
        assert_eq!(snapshot_quota.due(40 * SECOND), SnapshotTriggers::default(), "once");
    }

    #[test]
    fn another_user_is_the_reason_for_so_many_and_the_own_for_all() {
        let mut snapshot_quota = SnapshotQuota::default();
        let mut made = |uid: u32| {
            (0..2 * OTHER_USER_SNAPSHOTS_MAX)
                .filter(|number| {
                    snapshot_quota.request(uid, program_request());
                    snapshot_quota.due(u64::from(*number) * PERIOD_NS).is_asked
                })
                .count()
        };
        assert_eq!(
            made(crate::common::user::effective_uid() + 1),
            OTHER_USER_SNAPSHOTS_MAX as usize
        );
        assert_eq!(
            made(crate::common::user::effective_uid()),
            2 * OTHER_USER_SNAPSHOTS_MAX as usize
        );
    }
}
