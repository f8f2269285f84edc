//! Trackway's events in a Rust program: the loops of trackway.c.

use std::hint::black_box;

/// Emits events with one number.
#[unsafe(no_mangle)]
pub extern "C" fn rust_number(first: u64, count: u64) {
    for i in first..first + count {
        trackway::event!(lab, number, INFO, value = i as u32);
    }
}

/// Emits events with a string of 15 bytes, whose length is opaque to the compiler, and two numbers.
#[unsafe(no_mangle)]
pub extern "C" fn rust_record(first: u64, count: u64) {
    for i in first..first + count {
        let name = black_box("a name of 16 by");
        trackway::event!(lab, record, INFO, name = name, size = 42_u32, index = i);
    }
}
