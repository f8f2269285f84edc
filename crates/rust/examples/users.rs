//! A program that root starts, like a server, and that becomes another user: its earlier events are
//! in root's recordings, and later events of the same callsites in the other user's.

use tracing::{info, info_span};

fn record_as_user(as_user: u32) {
    for number in 0..10_u32 {
        let span = info_span!(target: "life", "work", as_user);
        let _entered = span.enter();
        // One callsite with two sets of types.
        let even: &dyn tracing::Value = if number % 2 == 0 { &number } else { &"odd" };
        info!(name: "said", target: "life", as_user, number = even);
        trackway::event!(life, counted, INFO, as_user = as_user, number = number);
    }
}

fn main() {
    const OTHER_USER: libc::uid_t = 65534;
    tracing::subscriber::set_global_default(trackway::subscriber()).expect("no other subscriber");
    // Starts a thread, so that the program has several threads.
    std::thread::spawn(|| record_as_user(0)).join().expect("a thread");
    // SAFETY: the call changes privileges, and no memory of this program.
    assert_eq!(unsafe { libc::setuid(OTHER_USER) }, 0, "only root can become another user");
    record_as_user(OTHER_USER);
}
