//! A program that uses `log`, and the line that traces it: `trackway record --
//! target/debug/examples/log`.
#![forbid(unsafe_code)]

use log::{debug, error, info, trace, warn};

fn main() {
    trackway::log::init().expect("no other logger");

    error!("cannot open {:?}", "myapp.conf");
    warn!("using defaults");
    info!(target: "myapp::net", "listening on port {}", 8080);
    debug!("{} modules", 12);
    trace!("idle");
}
