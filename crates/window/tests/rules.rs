//! Tests of enable bits while rules change, sessions pause, and slots get successors.

#[path = "support/fixture.rs"]
mod fixture;
mod support;

use std::sync::atomic::{AtomicBool, Ordering};

use fixture::Fixture;
use support::encode_event;
use trackway_abi::session::{RULES_BYTES_MAX, flag, state};
use trackway_schema::Heading;
use trackway_testkit::Random;

#[test]
fn rules_that_change_set_and_clear_bits_and_ids_stay() {
    let fixture = Fixture::new("change");
    let layout = fixture.session(3, "app:*\n!app:noise");
    let (request, enabled) = fixture.describe(&layout, "request");
    assert!(enabled && fixture.bits(request) == 1 << 3);
    let id = fixture.id(&layout, request);
    let (noise, enabled) = fixture.describe(&layout, "noise");
    assert!(!enabled && fixture.bits(noise) == 0 && fixture.id(&layout, noise) == 0);

    assert!(fixture.window.set_rules(3, b"app:*\t<=5\napp:noise"));
    assert!(!fixture.window.apply_rules(&layout, request), "its level is 6");
    assert!(fixture.window.apply_rules(&layout, noise));
    assert_eq!((fixture.bits(request), fixture.bits(noise)), (0, 1 << 3));
    assert_eq!(fixture.id(&layout, request), id, "records of before have it");

    assert!(fixture.window.set_rules(3, b"app:*\t=6"));
    assert!(fixture.window.apply_rules(&layout, request));
    assert_eq!(fixture.id(&layout, request), id);
    assert!(!fixture.window.apply_rules(&layout, 4000), "no such event");
}

#[test]
fn rules_that_are_too_long_change_nothing() {
    let fixture = Fixture::new("long");
    let layout = fixture.session(0, "app:*");
    let (index, _) = fixture.describe(&layout, "request");
    assert!(!fixture.window.set_rules(0, &vec![b'x'; RULES_BYTES_MAX + 1]));
    assert!(fixture.window.apply_rules(&layout, index));
    assert!(fixture.window.set_rules(0, &vec![b'x'; RULES_BYTES_MAX]));
    assert!(!fixture.window.apply_rules(&layout, index));
}

#[test]
fn rules_that_are_being_rewritten_are_left_to_their_recorder() {
    let fixture = Fixture::new("odd");
    let layout = fixture.session(1, "app:*");
    let revision = &fixture.window.session(1).rules_revision;
    revision.fetch_add(1, Ordering::SeqCst);
    let (index, enabled) = fixture.describe(&layout, "request");
    assert!(!enabled && fixture.bits(index) == 0);
    // The recorder died while it wrote the rules; the next recorder writes them again.
    assert!(fixture.window.set_rules(1, b"app:*"));
    assert_eq!(revision.load(Ordering::SeqCst) % 2, 0);
    assert!(fixture.window.apply_rules(&layout, index));
}

#[test]
fn nobody_sets_a_bit_of_a_session_that_is_paused_or_ended() {
    let fixture = Fixture::new("paused");
    let layout = fixture.session(2, "app:*");
    let session = fixture.window.session(2);
    let (index, _) = fixture.describe(&layout, "request");
    session.flags.fetch_or(flag::PAUSED, Ordering::SeqCst);
    assert!(!fixture.window.apply_rules(&layout, index));
    assert_eq!(fixture.bits(index), 0);
    assert!(!fixture.describe(&layout, "request").1);
    session.flags.fetch_and(!flag::PAUSED, Ordering::SeqCst);
    assert!(fixture.window.apply_rules(&layout, index));
    session.state.store(state::ENDING, Ordering::SeqCst);
    assert!(!fixture.window.apply_rules(&layout, index));
    assert!(!fixture.describe(&layout, "request").1 && fixture.bits(index) == 0);
}

#[test]
fn a_successor_takes_over_events_one_by_one_and_new_ones_at_once() {
    let fixture = Fixture::new("successor");
    let old = fixture.session(4, "app:*\n!app:noise");
    let (moved, _) = fixture.describe(&old, "moved");
    let (noise, _) = fixture.describe(&old, "noise");
    fixture.window.event(moved).enabled.fetch_or(1 << 9, Ordering::SeqCst);
    let new = fixture.session(5, "");
    assert!(!fixture.describe(&new, "moved").1, "it has no rules yet");
    fixture.window.session(4).successor.store(5 + 1, Ordering::SeqCst);

    let (late, enabled) = fixture.describe(&old, "late");
    assert!(enabled && fixture.bits(late) == 1 << 5 && fixture.id(&new, late) != 0);
    assert!(!fixture.describe(&old, "noise").1);
    assert!(fixture.window.move_event(moved, 4, &new));
    assert_eq!(fixture.bits(moved), 1 << 5 | 1 << 9, "others' bits stay");
    assert_ne!(fixture.id(&new, moved), 0);
    assert!(!fixture.window.move_event(moved, 4, &new), "it is there");
    assert!(!fixture.window.move_event(noise, 4, &new));
    assert_eq!(fixture.bits(noise), 0);

    // Now the successor has ended, too.
    fixture.window.session(5).state.store(state::ENDING, Ordering::SeqCst);
    assert!(!fixture.describe(&old, "later").1);
}

#[test]
fn a_bit_that_stays_after_all_is_what_the_rules_say_by_then() {
    let fixture = Fixture::new("stays");
    let layout = fixture.session(7, "app:*");
    let (index, _) = fixture.describe(&layout, "request");
    fixture.window.clear_bit_unless(7, index, || fixture.bits(index) == 0);
    assert_eq!(fixture.bits(index), 1 << 7);
    // Now the bit belongs to a successor, whose recorder found no bit to move.
    let heir = fixture.session(8, "");
    let pass_on = || {
        fixture.window.session(7).successor.store(8 + 1, Ordering::SeqCst);
        !fixture.window.move_event(index, 7, &heir)
    };
    fixture.window.clear_bit_unless(7, index, pass_on);
    assert_eq!(fixture.bits(index), 1 << 8);
    fixture.window.session(7).successor.store(0, Ordering::SeqCst);
    assert!(fixture.window.apply_rules(&layout, index));
    fixture.window.clear_bit_unless(7, index, || fixture.window.set_rules(7, b""));
    assert_eq!(fixture.bits(index), 1 << 8);
    fixture.window.clear_bit_unless(7, index, || true);
    assert_eq!(fixture.bits(index), 1 << 8, "it was not set");
}

/// Libraries register the same events repeatedly, while a recorder changes the rules.
#[test]
fn after_any_number_of_changes_bits_are_what_the_last_rules_say() {
    const EVENTS: usize = 8;
    const ROUNDS: usize = 300;
    const CHANGES: u64 = 40;
    let fixture = Fixture::new("torture");
    let layout = fixture.session(6, "");
    let names: Vec<String> = (0..EVENTS).map(|number| format!("e{number}")).collect();
    let encoded: Vec<Vec<u8>> = names.iter().map(|name| encode_event(name)).collect();
    let mut random = Random::new(7);
    let (mut wanted, mut seen) = (0_u64, EVENTS as u32);
    for round in 0..ROUNDS {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        for encoded in &encoded {
                            let index = fixture.window.intern_event(encoded).unwrap() as usize;
                            let heading = Heading::read(encoded).unwrap();
                            fixture.window.enable_if_selected(&layout, index, &heading);
                        }
                    }
                });
            }
            for _ in 0..1 + random.next_below(CHANGES) {
                let indices = || {
                    encoded
                        .iter()
                        .map(|encoded| fixture.window.intern_event(encoded).unwrap() as usize)
                };
                if random.next_below(4) == 0 {
                    let flags = &fixture.window.session(layout.index).flags;
                    flags.fetch_xor(flag::PAUSED, Ordering::SeqCst);
                } else {
                    wanted = random.next_below(1 << EVENTS);
                    let rules: Vec<String> = (0..EVENTS)
                        .filter(|number| wanted >> number & 1 != 0)
                        .map(|number| format!("app:{}", names[number]))
                        .collect();
                    assert!(fixture.window.set_rules(layout.index, rules.join("\n").as_bytes()));
                }
                indices().for_each(|index| {
                    fixture.window.apply_rules(&layout, index);
                });
            }
            is_over.store(true, Ordering::Relaxed);
        });
        // The recorder corrects bits that libraries have left to it, after a notification.
        let news = fixture.window.header().events_revision.load(Ordering::Relaxed);
        if std::mem::replace(&mut seen, news) != news {
            for encoded in &encoded {
                let index = fixture.window.intern_event(encoded).unwrap() as usize;
                fixture.window.apply_rules(&layout, index);
            }
        }
        let session = fixture.window.session(layout.index);
        let is_paused = session.flags.load(Ordering::Relaxed) & flag::PAUSED != 0;
        let expected = if is_paused { 0 } else { wanted };
        let found: u64 = (0..EVENTS)
            .map(|number| {
                let index = fixture.window.intern_event(&encoded[number]).unwrap() as usize;
                u64::from(fixture.bits(index) >> layout.index & 1) << number
            })
            .sum();
        assert_eq!(found, expected, "round {round}");
    }
}
