//! Tests of `filters::publish`.

use std::path::Path;
use std::sync::Arc;

use trackway_jit::block::Block;
use trackway_jit::meaning::Meanings;
use trackway_jit::object::Object;
use trackway_schema::{Encoder, FieldViews, Scalar, Shape};
use trackway_session::FilterObject;
use trackway_testkit::TemporaryFolder;

use super::*;

/// A slot that this process owns, with the channel's filters.
struct TestChannel {
    _folder: TemporaryFolder,
    handle: WindowHandle,
    slot: Slot,
    filters: Filters,
}

impl TestChannel {
    fn new() -> Self {
        let folder = TemporaryFolder::new_in(Path::new("/dev/shm"));
        let handle = WindowHandle::open_in(folder.path(), true).expect("a window");
        let slot = Slot::take(&handle).expect("a slot");
        Self { _folder: folder, handle, slot, filters: Filters::default() }
    }

    fn set(&mut self, texts: &[&str]) -> Result<(), RecordError> {
        let specs: Vec<FilterSpec> = texts.iter().map(|text| FilterSpec::new(text)).collect();
        self.filters.set(&self.handle, &self.slot, &specs, "*")
    }

    /// Registers an event with one field, a sequence of `scalar`.
    fn describe(&self, name: &str, field: &str, scalar: Scalar) {
        let mut buffer = [0; 64];
        let mut encoder = Encoder::new(&mut buffer, b"app", name.as_bytes(), 6).expect("room");
        let added = encoder.add_field(field.as_bytes(), Shape::Sequence, Some(scalar), 0, 0);
        added.expect("room");
        self.handle.window().intern_event(encoder.finish()).expect("room");
    }

    fn generation(&self) -> u64 {
        self.slot.session().generation.load(Ordering::Relaxed)
    }

    fn is_flagged(&self) -> bool {
        self.slot.session().flags.load(Ordering::Relaxed) & flag::FILTERED != 0
    }

    /// Copies the active block like an agent. Returns its offset and its bytes.
    fn block(&self) -> Option<(u64, Vec<u8>)> {
        let word = self.slot.session().filters.load(Ordering::Acquire);
        let (place, size) = filters_place(word).filter(|(_, size)| *size > 0)?;
        let words = words_at(self.handle.window(), place, size);
        let bytes = words.flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
        Some((place, bytes.take(size).collect()))
    }

    /// Returns the entries of the active block: id, rules, and number of alternatives.
    fn entries(&self) -> Vec<(u64, String, usize)> {
        let (_, bytes) = self.block().expect("a block");
        let block = Block::decode(&bytes).expect("what was encoded");
        let entry = |entry: Entry<'_>| {
            let object = Object::decode(entry.object).expect("an object");
            let rules = String::from_utf8(entry.rules.to_vec()).expect("a text");
            (entry.id, rules, object.alternatives().count())
        };
        block.entries().filter(|entry| !entry.rules.is_empty()).map(entry).collect()
    }
}

#[test]
fn a_block_that_is_published_is_read_back() {
    let mut channel = TestChannel::new();
    let before = channel.generation();
    channel.set(&["web:*: size > 5", "name == \"a*\""]).expect("filters");
    assert!(channel.is_flagged() && channel.generation() > before);
    let entries = channel.entries();
    let of = |number: usize| (entries[number].1.as_str(), entries[number].2);
    assert_eq!([of(0), of(1)], [("web:*", 3), ("*", 1)]);
    assert!(entries[0].0 != 0 && entries[1].0 != 0 && entries[0].0 != entries[1].0);
    let (place, _) = channel.block().expect("a block");
    let owner = channel.handle.allocator.owner_at(place);
    assert_eq!(owner, granule::CONTROL + channel.slot.index as u8);
}

#[test]
fn what_changes_is_written_beside_what_is_in_force() {
    let mut channel = TestChannel::new();
    channel.set(&["size > 5", "sample(1/10)"]).expect("filters");
    let (first, bytes) = channel.block().expect("a block");
    let ids: Vec<u64> = channel.entries().into_iter().map(|(id, ..)| id).collect();
    channel.set(&["sample(1/10)", "size > 6"]).expect("filters");
    let (second, _) = channel.block().expect("a block");
    assert_eq!(first.abs_diff(second), BLOCK_BYTES_MAX as u64);
    // A writer that still copies the former block finds it unchanged.
    let words = words_at(channel.handle.window(), first, bytes.len());
    let still: Vec<u8> =
        words.flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
    assert_eq!(still, bytes);
    // A new expression is a new filter; an unchanged expression keeps its id at any place in the
    // list.
    let then: Vec<u64> = channel.entries().into_iter().map(|(id, ..)| id).collect();
    assert_eq!(then[0], ids[1]);
    assert!(!ids.contains(&then[1]));
    let generation = channel.generation();
    channel.set(&[]).expect("no filters");
    assert!(
        !channel.is_flagged() && channel.block().is_none() && channel.generation() > generation
    );
    channel.set(&["size > 5"]).expect("filters");
    assert_eq!(channel.block().expect("a block").0, first);
    assert!(!ids.contains(&channel.entries()[0].0), "it has been away");
}

#[test]
fn what_makes_no_sense_changes_nothing() {
    let mut channel = TestChannel::new();
    channel.set(&["size > 5"]).expect("filters");
    let (before, generation) = (channel.block(), channel.generation());
    let error = channel.set(&["size > 5", "size >"]).expect_err("no expression");
    assert!(error.to_string().starts_with("filter:\nsize >\n"), "{error}");
    let long = format!("name in (\"{}\")", "a".repeat(4000));
    let many: Vec<String> = (0..40).map(|number| format!("{long} || x == {number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let error = channel.set(&many).expect_err("too much");
    assert!(error.to_string().contains("128.0 KiB"), "{error}");
    assert_eq!((channel.block(), channel.generation()), (before, generation));
}

#[test]
fn objects_stand_in_blocks_as_they_are_and_the_same_bytes_go_on() {
    let mut channel = TestChannel::new();
    let object = |text: &str| -> Arc<[u8]> {
        let compiled = trackway_filter::compile::compile(text, &Layout::default());
        compiled.expect("a filter").into_object().encode().expect("an object").into()
    };
    let (ten, eleven) = (object("count() % 10 == 0"), object("count() % 11 == 0"));
    let named = |file: &str, bytes: &Arc<[u8]>| {
        let source = FilterObject { file: file.into(), bytes: bytes.clone() };
        FilterSpec { pattern: None, source: FilterSource::Object(source) }
    };
    let mut ids = |specs: &[FilterSpec]| -> Vec<u64> {
        channel.filters.set(&channel.handle, &channel.slot, specs, "*").expect("filters");
        let (_, bytes) = channel.block().expect("a block");
        assert!(bytes.windows(ten.len()).any(|part| *part == *ten), "not as it is");
        channel.entries().into_iter().map(|(id, ..)| id).collect()
    };
    let before = ids(&[named("a.o", &ten)]);
    // The same object under two names is one filter, also while one of the files changes.
    assert_eq!(ids(&[named("a.o", &ten), named("b.o", &ten)]), before);
    let then = ids(&[named("b.o", &ten), named("a.o", &eleven)]);
    assert_eq!(then[0], before[0]);
    assert!(then.len() == 2 && then[1] != before[0]);
    // An expression that compiles to the same bytes is another filter.
    let expression = FilterSpec::new("count() % 10 == 0");
    assert!(!then.contains(&ids(&[expression, named("c.o", &ten)])[0]));
}

#[test]
fn expressions_leave_room_for_objects() {
    let large = FilterObject { file: "large.o".into(), bytes: vec![0; 64 << 10].into() };
    let large = FilterSpec { pattern: None, source: FilterSource::Object(large) };
    let few = FilterSpec::new("size > 5");
    assert_eq!(generic_bytes_max(&[]), ALL_GENERIC_BYTES_MAX);
    assert_eq!(generic_bytes_max(&[few.clone(), few.clone()]), ALL_GENERIC_BYTES_MAX / 2);
    let beside = generic_bytes_max(&[few.clone(), large.clone()]);
    assert!(beside > 0 && 2 * beside + (64 << 10) < BLOCK_BYTES_MAX);
    assert_eq!(generic_bytes_max(&[few, large.clone(), large]), 0);
}

#[test]
fn events_that_come_later_get_alternatives_of_their_own() {
    let mut channel = TestChannel::new();
    let text = "app:*: any(sizes > 3)";
    channel.set(&[text]).expect("a filter for nobody yet");
    let before = channel.entries();
    let (place, nobody) = channel.block().expect("a block");
    channel.filters.refresh(&channel.handle, &channel.slot, "*").expect("nothing new");
    assert_eq!(channel.block(), Some((place, nobody.clone())), "nothing is published anew");
    channel.describe("read", "sizes", Scalar::U16);
    channel.filters.refresh(&channel.handle, &channel.slot, "*").expect("one more");
    let (_, somebody) = channel.block().expect("a block");
    assert!(somebody != nobody);
    assert_eq!(channel.entries()[0].0, before[0].0, "its state goes on");
    // A field with another meaning gets an alternative, and each alternative serves only its own
    // events.
    channel.describe("write", "sizes", Scalar::I8);
    channel.filters.refresh(&channel.handle, &channel.slot, "*").expect("both");
    assert_eq!(channel.entries()[0].2, 2);
    let (_, both) = channel.block().expect("a block");
    let block = Block::decode(&both).expect("what was encoded");
    let [filter, meanings] = block.entries().collect::<Vec<_>>()[..] else {
        panic!("a filter, and what it relies on")
    };
    assert!(meanings.is_of_meanings(&filter));
    let meanings = Meanings::decode(meanings.object).expect("meanings");
    let object = Object::decode(filter.object).expect("an object");
    let window = channel.handle.window();
    let own = |name: &str| -> Vec<usize> {
        let bytes = (0..trackway_abi::window::EVENTS_MAX)
            .filter_map(|index| window.description(index))
            .find(|bytes| {
                let event = EventDescription::decode(bytes.as_slice());
                event.is_ok_and(|event| event.name == name)
            });
        let bytes = bytes.expect("a description");
        let fields = FieldViews::new(bytes.as_slice()).expect("fields");
        let alternatives = object.alternatives().enumerate();
        let own = alternatives.filter(|(number, one)| meanings.are_of(&fields, *number, one));
        own.map(|(number, _)| number).collect()
    };
    let all = [own("read"), own("write")];
    assert!(all == [[0], [1]] || all == [[1], [0]], "{all:?}");
}

#[test]
fn the_memory_of_blocks_is_found_again_and_never_taken_twice() {
    let mut channel = TestChannel::new();
    channel.set(&["size > 5"]).expect("filters");
    let (place, _) = channel.block().expect("a block");
    let session = channel.slot.session();
    let taken = channel.handle.allocator.bytes_in_use();
    let nowhere = 0..0;
    let again = |word: u64, control: &Range<u64>| {
        Filters::of_slot(&channel.handle, &channel.slot, word, control).area
    };
    assert_eq!(again(session.filters.load(Ordering::Relaxed), &nowhere), Some(place));
    channel.filters.set(&channel.handle, &channel.slot, &[], "*").expect("no filters");
    channel.filters.publish_area(session);
    let word = session.filters.load(Ordering::Relaxed);
    assert_eq!(again(word, &nowhere), Some(place));
    let mut next = Filters::of_slot(&channel.handle, &channel.slot, word, &nowhere);
    let specs = [FilterSpec::new("size > 7")];
    next.set(&channel.handle, &channel.slot, &specs, "*").expect("filters");
    assert_eq!(channel.handle.allocator.bytes_in_use(), taken);
    // A hostile process may write any value to the filter word.
    for forged in [0, u64::MAX, filters_word(0, 8), filters_word(place + AREA_BYTES, 8)] {
        assert_eq!(again(forged, &nowhere), None, "{forged:#x}");
    }
    assert_eq!(again(word, &(place..place + AREA_BYTES)), None, "control lines");
}
