//! Fields of every type, and sites in difficult places. `tests/instrument/rust.rs` compares the
//! records.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

trackway::enumeration! {
    /// The phases of a loader.
    #[derive(Debug)]
    enum Phase: u8 {
        /// Nothing.
        Idle,
        /// It reads.
        Loading = 3,
    }
}

trackway::enumeration! {
    /// A distance, with negative and extreme values.
    #[derive(Debug)]
    enum Distance: i64 {
        /// Far.
        Far = i64::MIN,
        /// Here.
        Here = 0,
    }
}

fn record_numbers() {
    trackway::event!(
        values,
        integers,
        INFO,
        a = -1_i8,
        b = -2_i16,
        c = -3_i32,
        d = i64::MIN,
        e = u8::MAX,
        f = u16::MAX,
        g = u32::MAX,
        h = u64::MAX,
        i = -5_isize,
        j = 6_usize,
    );
    trackway::event!(
        values,
        others,
        DEBUG,
        yes = true,
        no = false,
        single = 1.5_f32,
        double = -0.25_f64,
        letter = 'ü',
        flags = trackway::hex(0x81_u8),
        word = trackway::hex(0xdead_usize),
        null = std::ptr::null::<u32>(),
    );
    trackway::event!(
        values,
        enumerations,
        INFO,
        to = Phase::Loading,
        from = &Phase::Idle,
        far = Distance::Far,
        near = Distance::Here,
        named = Named::number
    );
}

trackway::enumeration! {
    /// An enumeration whose variants have names that the macros' assembly might use.
    #[derive(Debug)]
    #[allow(non_camel_case_types, dead_code)]
    enum Named: u8 {
        number,
        event,
        options,
        out = 7,
    }
}

fn record_strings() {
    let owned = String::from("owned");
    trackway::event!(
        values,
        strings,
        INFO,
        plain = "plain",
        owned = owned,
        boxed = Box::<str>::from("boxed"),
        shared = Arc::<str>::from("shared"),
        cow = Cow::Borrowed("cow"),
        empty = "",
        c = c"c",
        made = format!("{owned} {}", 1),
        ends = "here\0not there",
        path = Path::new("/etc"),
        raw = trackway::bytes(b"not\xffutf8"),
    );
    // The macro only borrowed the value, so it still exists.
    drop(owned);
}

fn record_sequences() {
    let mut vector = vec![1_u16, 2, 3];
    trackway::event!(
        values,
        sequences,
        INFO,
        slice = &vector[1..],
        vector = vector,
        none = <&[u64]>::default(),
        array = [1_i32, -2],
        floats = [0.5_f64]
    );
    vector.clear();
}

/// Records values that do not fit: short values are whole, long ones are cut at a character.
fn record_too_long() {
    let long = "ä".repeat(3000);
    trackway::event!(values, cut, INFO, first = long, short = "short", second = [7_u32; 600][..]);
}

/// Records values whose types only the caller knows.
fn record_generic<T: trackway::Value, const N: usize>(value: T) {
    trackway::event!(values, generic, INFO, value = value, n = N);
}

#[inline(always)]
fn record_inlined(place: &str) {
    trackway::event!(values, inlined, INFO, place = place);
}

fn record_fallible(number: Option<u32>) -> Option<u32> {
    trackway::event!(values, fallible, INFO, number = number?);
    Some(1)
}

/// Borrows a value while it awaits the next one: the future is still `Send`.
async fn record_after_await(what: &str, number: u32) {
    trackway::event!(values, waits, INFO, what = what, number = async { number + 1 }.await);
}

fn require_send<F: Future + Send>(future: F) -> F {
    future
}

fn main() {
    record_numbers();
    record_strings();
    record_sequences();
    record_too_long();
    record_generic::<_, 3>(1_u8);
    record_generic::<_, 4>("text");
    record_inlined("here");
    record_inlined("there");
    let _ = (record_fallible(Some(5)), record_fallible(None));
    let mut context = Context::from_waker(Waker::noop());
    let _ = pin!(require_send(record_after_await("all", 8))).poll(&mut context);
    let closure = |number: u32| trackway::event!(values, closure, WARNING, number = number);
    closure(9);
    {
        let _outer = trackway::span!(values, outer, INFO, depth = 0_u8);
        let _inner = trackway::span!(values, inner, INFO);
    }
    // Names that the macro itself uses are available to programs.
    let (event, values) = (1_u8, 2_u8);
    trackway::event!(
        values,
        names,
        INFO,
        event = event,
        values = values,
        u8 = event,
        record = 3_u8
    );
}
