//! Rare uses of spans that a trace must contain: values that come later, and in another order;
//! spans in the destructors of thread-local values; a text that is too long, from a formatter that
//! unwraps.
#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::fmt::{self, Display, Formatter};
use std::thread;

use tracing::field::Empty;
use tracing::{info, info_span};

fn record_late_values() {
    for number in 0..10_u64 {
        let span = info_span!("load", first = Empty, second = Empty);
        tracing::record_all!(span, second = number, first = "a value");
    }
}

/// Exists before its thread's first span, so it is dropped after the thread's span data.
struct SpanStore(Vec<tracing::Span>);

impl Drop for SpanStore {
    fn drop(&mut self) {
        self.0.clear();
        let _span = info_span!("late").entered();
        info!(name: "told", "in a destructor");
    }
}

thread_local! {
    static SPANS: RefCell<SpanStore> = const { RefCell::new(SpanStore(Vec::new())) };
}

fn hold_spans_until_thread_end() {
    let hold = || SPANS.with_borrow_mut(|held| held.0.push(info_span!("held")));
    for _ in 0..10 {
        thread::spawn(hold).join().expect("it ends");
    }
}

/// Unwraps results of its writer, because a `String` never fails.
struct LongText;

impl Display for LongText {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        for number in 0..2000 {
            formatter.write_fmt(format_args!("{number} ")).expect("a write to memory");
        }
        Ok(())
    }
}

fn main() {
    tracing::subscriber::set_global_default(trackway::subscriber()).expect("no other subscriber");
    record_late_values();
    hold_spans_until_thread_end();
    info!(name: "long", value = %LongText);
}
