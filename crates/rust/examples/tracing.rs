//! A program that uses `tracing`, and the line that traces it: `trackway record --
//! target/debug/examples/tracing`.
#![forbid(unsafe_code)]

use tracing::{Instrument, debug, error, info, info_span, instrument};
use tracing_subscriber::prelude::*;

#[derive(Debug)]
#[expect(dead_code, reason = "shown by its Debug")]
struct Config {
    threads: u32,
}

#[instrument]
fn handle(path: &str, tries: u32) -> u16 {
    info!(bytes = 512_u64, ratio = 0.5, cached = true, delta = -3_i64, "served {path}");
    200
}

fn load_config(file: &str) {
    let span = info_span!("load", file, status = tracing::field::Empty);
    let _entered = span.enter();
    info_span!("parse").in_scope(|| debug!(config = ?Config { threads: 4 }, "loaded"));
    span.record("status", 7_u64);
}

/// Records values of different types at one callsite.
fn record_varying_types() {
    for number in 0..4_u32 {
        let even: &dyn tracing::Value = if number % 2 == 0 { &number } else { &"odd" };
        info!(name: "varies", number = even);
    }
}

/// Ends a span that is still entered, because its guard is forgotten: later events are in no span,
/// and not in the span that reuses the slot.
fn forget_span_guard() {
    let span = info_span!("forgotten");
    std::mem::forget(span.enter());
    drop(span);
    let _other = info_span!("other");
    info!(name: "afterwards", number = 1);
}

async fn fail_request() {
    error!(error = std::io::Error::other("no luck").to_string(), code = 5);
}

fn main() {
    // The default line suffices; the other lines are for programs with special needs.
    match std::env::args().nth(1).as_deref() {
        None => tracing_subscriber::registry().with(trackway::layer()).init(),
        Some("enters") => {
            let options = trackway::layer::Options::new().enters(true);
            tracing_subscriber::registry().with(options.layer()).init();
        }
        Some(_) => {
            let subscriber = trackway::subscriber();
            tracing::subscriber::set_global_default(subscriber).expect("no other subscriber");
        }
    }

    handle("/index.html", 1);
    handle("/logo.png", 2);
    load_config("myapp.conf");
    record_varying_types();
    let future =
        std::pin::pin!(fail_request().instrument(info_span!(parent: None, "request", id = 9_u64)));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let _ = future.poll(&mut context);
    std::thread::spawn(forget_span_guard).join().expect("it ends");
}
