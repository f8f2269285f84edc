//! Spans that begin in one thread and end in another, with `trackway::layer()` or, with any
//! argument, `trackway::subscriber()`.
#![forbid(unsafe_code)]

use std::sync::mpsc::sync_channel;
use std::thread;

use tracing_subscriber::prelude::*;

const THREADS: u64 = 4;
const SPANS_OF_THREAD: u64 = 2000;

fn main() {
    if std::env::args().len() == 1 {
        tracing_subscriber::registry().with(trackway::layer()).init();
    } else {
        let subscriber = trackway::subscriber();
        tracing::subscriber::set_global_default(subscriber).expect("no other subscriber");
    }
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (begun, to_end) = sync_channel(100);
            scope.spawn(move || {
                let work = tracing::info_span!("thread", thread).entered();
                for number in 0..SPANS_OF_THREAD {
                    let number = thread * SPANS_OF_THREAD + number;
                    begun.send(tracing::info_span!("work", number)).expect("it is received");
                }
                drop(work);
            });
            scope.spawn(move || {
                for span in to_end {
                    // The span has two handles; the drop of the last one ends it.
                    let other = span.clone();
                    drop(span);
                    drop(other);
                }
            });
        }
    });
}
