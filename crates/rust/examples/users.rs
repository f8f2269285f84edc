//! A program that is started by root, as servers are, and becomes another user: what it says before
//! is in root's recordings, and what the same callsites say afterwards in the other user's.

use tracing::{info, info_span};

fn record_as_user(as_user: u32) {
    for number in 0..10_u32 {
        let span = info_span!(target: "life", "work", as_user);
        let _entered = span.enter();
        // Two sets of types at one callsite.
        let even: &dyn tracing::Value = if number % 2 == 0 { &number } else { &"odd" };
        info!(name: "said", target: "life", as_user, number = even);
        trackway::event!(life, counted, INFO, as_user = as_user, number = number);
    }
}

fn main() {
    const OTHER_USER: libc::uid_t = 65534;
    tracing::subscriber::set_global_default(trackway::subscriber()).expect("no other subscriber");
    // A thread, so that this is a program with threads.
    std::thread::spawn(|| record_as_user(0)).join().expect("a thread");
    // SAFETY: it changes who may do what, and no memory of ours.
    assert_eq!(unsafe { libc::setuid(OTHER_USER) }, 0, "only root can become another user");
    record_as_user(OTHER_USER);
}
