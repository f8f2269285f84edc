//! Tests that values are whole when a signal handler interrupts at each place where a value is
//! partly written.

extern crate std;

use std::string::{String, ToString as _};

use super::*;

const NUMBER: usize = NUMBERS_MAX - 1;

fn text_value(text: &str) -> Value {
    // SAFETY: the string has as many bytes.
    unsafe { Value::text(text.as_ptr(), text.len()) }
}

fn read_string(place: ContextIndex) -> Option<String> {
    read_value(place).map(|value| {
        let (bytes, length) = value.bytes();
        String::from_utf8_lossy(&bytes[..length]).to_string()
    })
}

#[test]
fn what_was_set_is_there_until_it_is_taken_away() {
    let number = ContextIndex::new(NUMBER).unwrap();
    assert_eq!(read_value(number), None);
    set_value(number, Value::number(7));
    set_value(number, Value::number(u64::MAX));
    assert_eq!(read_value(number).map(|value| value.bits()), Some(u64::MAX));
    std::thread::scope(|threads| {
        threads.spawn(|| assert_eq!(read_value(number), None, "another thread has its own"));
    });
    clear_value(number);
    assert_eq!(read_value(number), None);
}

#[test]
fn strings_are_cut_where_there_is_no_room() {
    let place = ContextIndex::new(NUMBERS_MAX).unwrap();
    let long = "0123456789012345678901234567890"; // 31
    for (given, kept) in [
        ("", ""),
        ("abc", "abc"),
        ("a\0b", "a"),
        (long, long),
        ("01234567890123456789012345678901", "0123456789012345678901234567…"),
        ("012345678901234567890123456é8901", "012345678901234567890123456…"),
        ("01234567890123456789012345é78901", "01234567890123456789012345é…"),
    ] {
        set_value(place, text_value(given));
        assert_eq!(read_string(place).as_deref(), Some(kept));
    }
    // SAFETY: null is allowed.
    set_value(place, unsafe { Value::text(core::ptr::null(), 5) });
    assert_eq!(read_string(place).as_deref(), Some("(null)"));
}

/// RUN a set that a handler interrupts after the set has read the state; the handler reads, sets,
/// clears, or sets and restores. EXPECT that the handler finds a whole value, that its result stays
/// until the interrupted set ends, and that the set's value is there then.
#[test]
fn a_handler_that_interrupts_a_set_finds_a_whole_value() {
    let place = ContextIndex::new(NUMBERS_MAX + 1).unwrap();
    let value = |word: u64| Value::from_words([word; TEXT_WORDS]);
    // SAFETY: a thread has at least two slots for strings.
    let slot = unsafe { (&raw mut (*thread_values()).texts).cast::<Slot<TEXT_WORDS>>().add(1) };
    for what in 0..4 {
        set_value(place, value(1));
        let mut calls = 0;
        let turn = |_| {
            calls += 1;
            if calls == 1 {
                assert_eq!(read_value(place), Some(value(1)));
                match what {
                    0 => {}
                    1 => set_value(place, value(3)),
                    2 => clear_value(place),
                    _ => {
                        set_value(place, value(4));
                        assert_eq!(read_value(place), Some(value(4)));
                        set_value(place, value(1));
                    }
                }
            } else {
                // The interrupted set has written all of its copy meanwhile.
                let left = [None, Some(value(3)), None, Some(value(1))];
                assert_eq!(read_value(place), left[what], "{what}");
            }
            ([2; TEXT_WORDS], SET)
        };
        // SAFETY: the slot is this thread's.
        assert!(unsafe { Slot::write_inactive_copy(slot, turn) });
        assert_eq!(calls, if what == 0 { 1 } else { 2 }, "{what}");
        assert_eq!(read_value(place), Some(value(2)));
    }
}

/// RUN handlers that set whenever a set has read the state. EXPECT that the set gives up, and that
/// the value is whole.
#[test]
fn a_set_that_is_always_interrupted_ends() {
    let place = ContextIndex::new(NUMBERS_MAX + 1).unwrap();
    let value = |word: u64| Value::from_words([word; TEXT_WORDS]);
    // SAFETY: a thread has at least two slots for strings.
    let slot = unsafe { (&raw mut (*thread_values()).texts).cast::<Slot<TEXT_WORDS>>().add(1) };
    let turn = |_| {
        set_value(place, value(5));
        ([2; TEXT_WORDS], SET)
    };
    // SAFETY: the slot is this thread's.
    assert!(!unsafe { Slot::write_inactive_copy(slot, turn) });
    assert_eq!(read_value(place), Some(value(5)));
}
