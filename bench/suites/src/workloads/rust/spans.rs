//! Successive spans, each with a number, as the users of each tracer write them.
//!
//! A tracer's set-up happens when its loop is entered for the first time, in the batches that are
//! not counted.

use std::fs::File;
use std::hint::black_box;
use std::io::BufWriter;
use std::sync::{Mutex, Once};

use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::prelude::*;

fn once(set_up: fn()) {
    static ONCE: Once = Once::new();
    ONCE.call_once(set_up);
}

fn tracing_spans(first: u64, count: u64) {
    for number in first..first + count {
        let _span = tracing::info_span!("work", number).entered();
        black_box(number);
    }
}

/// Emits spans to the registry alone: the cost of `tracing` before any layer records.
#[unsafe(no_mangle)]
pub extern "C" fn spans_registry(first: u64, count: u64) {
    once(|| tracing_subscriber::registry().init());
    tracing_spans(first, count);
}

/// Emits spans to Trackway's layer.
#[unsafe(no_mangle)]
pub extern "C" fn spans_layer(first: u64, count: u64) {
    once(|| tracing_subscriber::registry().with(trackway::layer()).init());
    tracing_spans(first, count);
}

/// Emits spans to Trackway's subscriber.
#[unsafe(no_mangle)]
pub extern "C" fn spans_subscriber(first: u64, count: u64) {
    once(|| tracing::subscriber::set_global_default(trackway::subscriber()).expect("the first"));
    tracing_spans(first, count);
}

/// Emits spans as text to the file `spans.log`: a line when a span begins, and one when it ends.
#[unsafe(no_mangle)]
pub extern "C" fn spans_file(first: u64, count: u64) {
    once(|| {
        let file = File::create("spans.log").expect("a file in the scratch folder");
        let layer = tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .with_writer(Mutex::new(BufWriter::new(file)))
            .with_span_events(FmtSpan::NEW | FmtSpan::CLOSE);
        tracing_subscriber::registry().with(layer).init();
    });
    tracing_spans(first, count);
}

/// Emits Trackway's own spans.
#[unsafe(no_mangle)]
pub extern "C" fn spans_macro(first: u64, count: u64) {
    for number in first..first + count {
        let _span = trackway::span!(lab, work, INFO, number = number);
        black_box(number);
    }
}

#[cfg(feature = "fastrace")]
mod fastrace_spans {
    use std::hint::black_box;

    use fastrace::Span;
    use fastrace::collector::{Config, Reporter, SpanContext, SpanRecord};
    use fastrace::local::LocalSpan;

    /// Number of spans of one trace, as in a request.
    const SPANS_OF_TRACE: u64 = 100;

    /// A reporter that discards the spans.
    struct Nowhere;

    impl Reporter for Nowhere {
        fn report(&mut self, spans: Vec<SpanRecord>) {
            black_box(spans);
        }
    }

    fn in_traces(first: u64, count: u64, span: impl Fn(u64)) {
        super::once(|| fastrace::set_reporter(Nowhere, Config::default()));
        let mut number = first;
        while number < first + count {
            let root = Span::root("request", SpanContext::random());
            let _parent = root.set_local_parent();
            let end = (number + SPANS_OF_TRACE).min(first + count);
            (number..end).for_each(&span);
            number = end;
        }
    }

    /// Emits fastrace's spans, with the number as a text property.
    #[unsafe(no_mangle)]
    pub extern "C" fn spans_fastrace(first: u64, count: u64) {
        in_traces(first, count, |number| {
            let _span = LocalSpan::enter_with_local_parent("work")
                .with_property(|| ("number", number.to_string()));
            black_box(number);
        });
    }

    /// Emits fastrace's spans without the number.
    #[unsafe(no_mangle)]
    pub extern "C" fn spans_fastrace_bare(first: u64, count: u64) {
        in_traces(first, count, |number| {
            let _span = LocalSpan::enter_with_local_parent("work");
            black_box(number);
        });
    }
}

#[cfg(feature = "tracy")]
mod tracy_spans {
    use std::hint::black_box;

    /// Emits Tracy's spans, without a connected profiler; the number is the zone's value.
    #[unsafe(no_mangle)]
    pub extern "C" fn spans_tracy(first: u64, count: u64) {
        super::once(|| drop(tracy_client::Client::start()));
        for number in first..first + count {
            let span = tracy_client::span!("work");
            span.emit_value(number);
            black_box(number);
        }
    }
}
