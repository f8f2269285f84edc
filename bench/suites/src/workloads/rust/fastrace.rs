//! Events of fastrace, as its users write them: in spans, with the number as a text property.
//! fastrace's collector passes them to a reporter, which counts.

use std::hint::black_box;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use fastrace::collector::{Config, Reporter, SpanContext, SpanRecord};
use fastrace::local::LocalSpan;
use fastrace::{Event, Span};

/// Number of events of one span, as in a request.
const EVENTS_OF_SPAN: u64 = 100;

static EVENTS: AtomicU64 = AtomicU64::new(0);
static SUM: AtomicU64 = AtomicU64::new(0);

/// Counts the events that arrive, and adds up their numbers.
struct Counts;

impl Reporter for Counts {
    fn report(&mut self, spans: Vec<SpanRecord>) {
        for event in spans.iter().flat_map(|span| &span.events) {
            let number = event.properties.iter().find(|property| property.0 == "number");
            if let Some(number) = number.and_then(|property| property.1.parse().ok()) {
                EVENTS.fetch_add(1, Ordering::Relaxed);
                SUM.fetch_add(number, Ordering::Relaxed);
            }
        }
    }
}

/// Emits events.
#[unsafe(no_mangle)]
pub extern "C" fn peer_number(first: u64, count: u64) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| fastrace::set_reporter(Counts, Config::default()));
    let mut number = first;
    while number < first + count {
        let span = Span::root("request", SpanContext::random());
        let _parent = span.set_local_parent();
        let end = (number + EVENTS_OF_SPAN).min(first + count);
        for number in number..end {
            let event = Event::new("event");
            LocalSpan::add_event(event.with_property(|| ("number", black_box(number).to_string())));
        }
        number = end;
    }
}

/// Prints the events that have arrived.
#[unsafe(no_mangle)]
pub extern "C" fn peer_arrived(_emitted: u64) {
    fastrace::flush();
    let (events, sum) = (EVENTS.load(Ordering::Relaxed), SUM.load(Ordering::Relaxed));
    eprintln!("arrived {events} {sum}");
}
