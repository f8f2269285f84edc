//! The lease of a session's recorder: the recorder renews it; other processes check it to detect
//! the recorder's death.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use trackway_abi::session::Session;
use trackway_sys::process::{Identity, Life, current_identity, life_of, pid_namespace};
use trackway_window::lease_is_over;

/// Duration of a lease, in ns.
const LEASE_NS: u64 = 5_000_000_000;
/// Number of renewals in the duration of a lease.
const RENEWALS: u64 = 10;
/// Environment variable with which tests shorten the lease, in ms.
const TEST_VARIABLE: &str = "TRACKWAY_TEST_LEASE_MS";

/// Returns the duration of a lease, in ns. Only the recorder uses it: writers compare the clock
/// with the end time that the recorder has written.
pub(crate) fn lease_ns() -> u64 {
    static DURATION_NS: OnceLock<u64> = OnceLock::new();
    *DURATION_NS.get_or_init(|| {
        let tested = std::env::var(TEST_VARIABLE).ok().and_then(|text| text.parse::<u64>().ok());
        tested.map_or(LEASE_NS, |ms| ms.clamp(1, LEASE_NS / 1_000_000) * 1_000_000)
    })
}

/// Returns the period of lease renewals, in ns.
pub(crate) fn renewal_period_ns() -> u64 {
    lease_ns() / RENEWALS
}

/// Registers this process as the session's recorder. Returns the time of the registration.
pub(crate) fn register_recorder(session: &Session) -> u64 {
    let who = current_identity();
    session.recorder_pid.store(who.pid, Ordering::Relaxed);
    session.recorder_pid_namespace.store(who.pid_namespace, Ordering::Relaxed);
    session.recorder_since_ns.store(who.since_ns, Ordering::Relaxed);
    renew_lease(session);
    who.since_ns
}

/// Renews the lease. Returns true if it had expired.
pub(crate) fn renew_lease(session: &Session) -> bool {
    let now = trackway_sys::clock::monotonic_ns();
    // ORDERING: SeqCst: first the lease, then the enable bits, which the caller sets; a writer that
    // clears a bit reads the lease afterwards.
    session.lease_until_ns.swap(now + lease_ns(), Ordering::SeqCst) < now
}

/// Returns true if a slot is in use and its recorder is dead. A stopped recorder is not dead. For a
/// recorder in another pid namespace, only the lease counts.
pub(crate) fn recorder_is_dead(session: &Session) -> bool {
    let who = Identity {
        image: 0,
        pid: session.recorder_pid.load(Ordering::Relaxed),
        pid_namespace: session.recorder_pid_namespace.load(Ordering::Relaxed),
        since_ns: session.recorder_since_ns.load(Ordering::Relaxed),
    };
    let lease = session.lease_until_ns.load(Ordering::Relaxed);
    match life_of(&who, 0) {
        _ if who.pid == 0 => true,
        Life::Dead => true,
        Life::Alive => false,
        // A recorder outside this process's view may be alive: only its lease counts. If the system
        // refuses the check, for example without a free file descriptor, the recorder counts as
        // alive.
        Life::Unknown => {
            let here = pid_namespace();
            let elsewhere = who.pid_namespace == 0 || here != 0 && here != who.pid_namespace;
            let now = trackway_sys::clock::monotonic_ns();
            // A recorder that died while it updated the clock line leaves an odd sequence number
            // forever.
            let is_drawing = session.clock.sequence.load(Ordering::Relaxed) & 1 != 0;
            let is_over = is_drawing || lease_is_over(lease, now, &session.clock);
            elsewhere && lease < now && is_over
        }
    }
}

#[cfg(test)]
mod tests {
    use trackway_testkit::TemporaryFolder;

    use super::*;
    use crate::window::handle::WindowHandle;

    #[test]
    fn a_recorder_in_other_namespaces_is_known_by_its_lease_and_the_counter() {
        let folder = TemporaryFolder::new_in(std::path::Path::new("/dev/shm"));
        let handle = WindowHandle::open_in(folder.path(), true).expect("a window");
        let session = handle.window().session(3);
        session.recorder_pid.store(std::process::id(), Ordering::Relaxed);
        session.recorder_pid_namespace.store(pid_namespace() ^ 1, Ordering::Relaxed);
        let now = trackway_sys::clock::monotonic_ns();
        session.lease_until_ns.store(now + lease_ns(), Ordering::Relaxed);
        assert!(!recorder_is_dead(session));
        session.lease_until_ns.store(now - 1, Ordering::Relaxed);
        assert!(recorder_is_dead(session));
        if !trackway_sys::clock::HAS_COUNTER {
            return;
        }
        // On the recorder's clock it is one hour earlier.
        let earlier = trackway_session::Line {
            base_tsc: trackway_sys::clock::read_tsc(),
            multiplier: 1 << 31,
            base_ns: now.saturating_sub(3_600_000_000_000),
            span: 1,
        };
        crate::window::clock_line::publish_line(&session.clock, Some(earlier), 0);
        assert!(!recorder_is_dead(session));
        session.clock.sequence.fetch_or(1, Ordering::Relaxed);
        assert!(recorder_is_dead(session));
    }
}
