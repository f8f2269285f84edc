//! The filters of a channel: compiled, and published in the window for writers.
//!
//! A *block* (`trackway_jit::block`) has all filters of a channel. It lies in one of two halves of
//! memory that the slot keeps for as long as the window lives: so a process that reads a block,
//! however late, reads memory of blocks. The session's word names the block in force. Another block
//! goes into the other half: a half is overwritten only after the generation was raised past its
//! block, and a process that has copied bytes checks the generation again.
//!
//! While the slot is free, the word has the place of that memory ([`Filters::leave`]).

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use trackway_abi::session::{Session, filters_place, filters_word, flag};
use trackway_abi::window::{GRANULE_BYTES, granule};
use trackway_filter::applications::with_applications;
use trackway_filter::compile::compile_for_any;
use trackway_filter::layout::Layout;
use trackway_jit::block::{self, BLOCK_BYTES_MAX, Entry};
use trackway_schema::{EventDescription, Rules};
use trackway_session::{FilterSource, FilterSpec};
use trackway_window::Window;

use crate::error::RecordError;
use crate::window::handle::WindowHandle;
use crate::window::sandboxes;
use crate::window::slot::{self, Slot};

/// Most bytes of a filter for events that no program has registered yet.
pub(crate) const GENERIC_BYTES_MAX: usize = 16 << 10;
/// Most bytes of all filters of a channel for such events.
const ALL_GENERIC_BYTES_MAX: usize = BLOCK_BYTES_MAX / 2;
/// Both halves.
const AREA_BYTES: u64 = 2 * BLOCK_BYTES_MAX as u64;
const WORD_BYTES: usize = 8;

const _: () =
    assert!(AREA_BYTES.is_multiple_of(GRANULE_BYTES) && BLOCK_BYTES_MAX.is_multiple_of(8));

/// A channel's filters as they are in force.
#[derive(Debug, Default)]
pub(crate) struct Filters {
    list: Vec<Compiled>,
    /// The channel's rules, as `trackway_schema::Rules` reads them: no filter need be compiled for
    /// events that they do not select.
    rules: String,
    /// Events that are to come, in addition to those in the window.
    expected: Vec<EventDescription>,
    /// Offset of the two halves in the window; `None`: there was no filter yet.
    area: Option<u64>,
    /// The half that the next block goes into, 0 or 1.
    next_half: u64,
}

/// A filter, with its compiled form.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Compiled {
    spec: FilterSpec,
    /// Identity of the filter whose state it continues: never 0, and unique.
    id: u64,
    /// Rules for the events that it applies to, in the form of `trackway_schema::Rules`.
    rules: String,
    object: Vec<u8>,
    /// Requirements of the object in addition to kinds, in the form of `trackway_jit::meaning`.
    meanings: Vec<u8>,
}

impl Filters {
    /// Returns the filters of a channel that begins in a slot: with `word` as the slot had it
    /// before, and control lines in `control`.
    pub(crate) fn of_slot(
        handle: &WindowHandle,
        slot: &Slot,
        word: u64,
        control: &Range<u64>,
    ) -> Self {
        let area = filters_place(word).map(|(offset, _)| offset / AREA_BYTES * AREA_BYTES);
        // Control lines of another kind of session may have taken the memory after the old ones.
        let is_ours = |area: &u64| {
            let place = *area..*area + AREA_BYTES;
            let is_apart = place.end <= control.start || control.end <= place.start;
            is_apart && slot::is_control_area(handle, slot.index, &place)
        };
        Self { area: area.filter(is_ours), ..Self::default() }
    }

    /// Continues the ids of the channel that this one replaces.
    pub(crate) fn inherit(&mut self, other: &Self) {
        self.list.clone_from(&other.list);
        self.expected.clone_from(&other.expected);
    }

    /// Compiles filters for these events, too, before they are registered.
    pub(crate) fn expect(&mut self, events: &[EventDescription]) {
        self.expected.extend_from_slice(events);
    }

    /// Returns the events that these rules select: in the window, and to come.
    fn events(&self, window: &Window, rules: &str) -> Vec<EventDescription> {
        let mut events = known(window, rules);
        for event in self.expected.iter().filter(|event| selects(rules, event)) {
            if !events.contains(event) {
                events.push(event.clone());
            }
        }
        events
    }

    /// Puts these filters into force, instead of those that were; events are those that the
    /// channel's `rules` select.
    ///
    /// # Errors
    ///
    /// If one is invalid, or does not fit. The former filters stay in force.
    pub(crate) fn set(
        &mut self,
        handle: &WindowHandle,
        slot: &Slot,
        specs: &[FilterSpec],
        rules: &str,
    ) -> Result<(), RecordError> {
        let events = || self.events(handle.window(), rules);
        let list = compiled(&events, specs, &self.list)?;
        self.put_into_force(handle, slot, list)?;
        rules.clone_into(&mut self.rules);
        Ok(())
    }

    /// Returns the channel's rules.
    pub(crate) fn rules(&self) -> &str {
        &self.rules
    }

    /// Compiles filters for the events that are registered by now, for a channel with these rules:
    /// an event that no alternative of a filter serves has one afterwards.
    ///
    /// # Errors
    ///
    /// If a filter cannot serve them all. The block in force stays.
    pub(crate) fn refresh(
        &mut self,
        handle: &WindowHandle,
        slot: &Slot,
        rules: &str,
    ) -> Result<(), RecordError> {
        if !self.list.is_empty() {
            let specs: Vec<FilterSpec> = self.list.iter().map(|one| one.spec.clone()).collect();
            let events = || self.events(handle.window(), rules);
            let list = compiled(&events, &specs, &self.list)?;
            if list != self.list {
                self.put_into_force(handle, slot, list)?;
            }
        }
        rules.clone_into(&mut self.rules);
        Ok(())
    }

    fn put_into_force(
        &mut self,
        handle: &WindowHandle,
        slot: &Slot,
        list: Vec<Compiled>,
    ) -> Result<(), RecordError> {
        let session = slot.session();
        if list.is_empty() {
            if session.flags.load(Ordering::Relaxed) & flag::FILTERED != 0 {
                withdraw(session, self.area);
            }
        } else {
            let block = encoded(&list).ok_or_else(too_large)?;
            let area = self.area_in(handle, slot)?;
            let place = area + self.next_half * BLOCK_BYTES_MAX as u64;
            publish(handle.window(), session, place, &block);
            self.next_half ^= 1;
        }
        self.list = list;
        Ok(())
    }

    /// Returns the offset of the halves, which are allocated with the slot's first filter.
    fn area_in(&mut self, handle: &WindowHandle, slot: &Slot) -> Result<u64, RecordError> {
        if let Some(area) = self.area {
            return Ok(area);
        }
        let owner = granule::CONTROL + slot.index as u8;
        let taken = handle.allocator.take(AREA_BYTES, owner);
        let area = taken.map_err(|error| slot::memory_error(handle, AREA_BYTES, error))?;
        Ok(*self.area.insert(area))
    }

    /// Publishes the place of the memory for blocks, for the next session in the slot. No writer
    /// enters it any more.
    pub(crate) fn leave(&self, session: &Session) {
        if let Some(area) = self.area {
            session.filters.store(filters_word(area, 0), Ordering::Relaxed);
        }
    }
}

/// Compiles filters; those that were there `before` keep their ids.
fn compiled(
    events: &dyn Fn() -> Vec<EventDescription>,
    specs: &[FilterSpec],
    before: &[Compiled],
) -> Result<Vec<Compiled>, RecordError> {
    if specs.is_empty() {
        return Ok(Vec::new());
    }
    let events = events();
    let generic_bytes = generic_bytes(specs);
    let mut list: Vec<Compiled> = Vec::new();
    for spec in specs {
        if list.iter().any(|one| one.spec.is_same(spec)) {
            continue;
        }
        let (object, meanings) = object_of(spec, &events, generic_bytes)?;
        let own = before.iter().find(|one| one.spec.is_same(spec));
        let id = own.map_or_else(new_id, |own| Ok(own.id))?;
        list.push(Compiled { rules: spec.rules(), spec: spec.clone(), id, object, meanings });
    }
    Ok(list)
}

/// Returns the most bytes of each of these filters for events that no program has registered yet,
/// without filters that were given as objects.
fn generic_bytes(specs: &[FilterSpec]) -> usize {
    let object_bytes = |spec: &FilterSpec| match &spec.source {
        FilterSource::Object(object) => object.bytes.len(),
        _ => 0,
    };
    let objects: usize = specs.iter().map(object_bytes).sum();
    let all = ALL_GENERIC_BYTES_MAX.min(BLOCK_BYTES_MAX.saturating_sub(objects) / 2);
    all / specs.len().max(1)
}

/// Returns a filter's object, and its meanings.
fn object_of(
    spec: &FilterSpec,
    events: &[EventDescription],
    generic_bytes: usize,
) -> Result<(Vec<u8>, Vec<u8>), RecordError> {
    let text = match &spec.source {
        FilterSource::Expression(text) => text,
        // It was verified when it was specified, and each process that runs it verifies it again.
        FilterSource::Object(object) => return Ok((object.bytes.to_vec(), Vec::new())),
        _ => return Err(RecordError::Filter(format!("{spec}: of a kind not known here"))),
    };
    let layouts = layouts_of(spec, events);
    let compiled = compile_for_any(text, &layouts, generic_bytes.min(GENERIC_BYTES_MAX))
        .map_err(|error| RecordError::Filter(error.render(text)))?;
    let object = compiled.encode();
    let object = object.map_err(|error| RecordError::Filter(format!("{text}\n{error}")))?;
    Ok((object, compiled.meanings))
}

/// Returns the layouts of the events that a filter applies to.
pub(crate) fn layouts_of(spec: &FilterSpec, events: &[EventDescription]) -> Vec<Layout> {
    let rules = spec.rules();
    let is_meant = |event: &&EventDescription| selects(&rules, event);
    let layouts = events.iter().filter(is_meant).map(Layout::of_event).collect();
    match &spec.source {
        FilterSource::Expression(text) => with_applications(text, layouts),
        _ => layouts,
    }
}

pub(crate) fn selects(rules: &str, event: &EventDescription) -> bool {
    let (provider, name) = (event.provider.as_bytes(), event.name.as_bytes());
    Rules::new(rules.as_bytes()).selects(provider, name, event.level)
}

/// Returns the events in the window that these rules select.
pub(crate) fn known(window: &Window, rules: &str) -> Vec<EventDescription> {
    let described = (0..trackway_abi::window::EVENTS_MAX).filter_map(|index| {
        let bytes = window.description(index)?;
        EventDescription::decode(bytes.as_slice()).ok()
    });
    described.filter(|event| selects(rules, event)).collect()
}

/// Returns all events that are known in the calling user's window; none, if there is no window.
pub(crate) fn known_here() -> Result<Vec<EventDescription>, RecordError> {
    let Some(handle) = WindowHandle::open()? else { return Ok(Vec::new()) };
    let known = known(handle.window(), "*");
    handle.close();
    Ok(known)
}

/// Makes an id that no filter had.
fn new_id() -> Result<u64, RecordError> {
    Ok(u64::from_le_bytes(crate::random::random()?).max(1))
}

fn encoded(list: &[Compiled]) -> Option<Vec<u8>> {
    let mut entries = Vec::new();
    for Compiled { id, rules, object, meanings, .. } in list {
        entries.push(Entry { id: *id, rules: rules.as_bytes(), object });
        if !meanings.is_empty() {
            entries.push(Entry::of_meanings(*id, meanings));
        }
    }
    let mut bytes = vec![0; BLOCK_BYTES_MAX];
    let size = block::encode(entries.into_iter(), &mut bytes)?;
    bytes.truncate(size);
    Some(bytes)
}

fn too_large() -> RecordError {
    let most = trackway_session::ByteCount(BLOCK_BYTES_MAX as u64);
    RecordError::Filter(format!("compiled, they are larger than {most} together"))
}

/// Writes a block to `place`, in bytes of the window, where no block that is in force is, and puts
/// it into force.
fn publish(window: &Window, session: &Session, place: u64, block: &[u8]) {
    // ORDERING: Release: a reader that loads a byte of the new block (and loads again after an
    // Acquire fence) finds the generation that was raised when the previous block went out of
    // force.
    fence(Ordering::Release);
    for (word, bytes) in words_at(window, place, block.len()).zip(block.chunks(WORD_BYTES)) {
        let mut whole = [0; WORD_BYTES];
        whole[..bytes.len()].copy_from_slice(bytes);
        word.store(u64::from_ne_bytes(whole), Ordering::Relaxed);
    }
    // ORDERING: Release: a writer that loads the word (Acquire) finds the bytes.
    session.filters.store(filters_word(place, block.len() as u32), Ordering::Release);
    sandboxes::note(window); // a filter may ask for a name
    // ORDERING: SeqCst: the flag before the generation, so that no process decides again without
    // it.
    session.flags.fetch_or(flag::FILTERED, Ordering::SeqCst);
    slot::raise_generation(session);
}

/// Takes the last block out of force; the word keeps the place of the memory.
fn withdraw(session: &Session, area: Option<u64>) {
    // ORDERING: SeqCst, as in `publish`. First the flag: no process finds it without a block.
    session.flags.fetch_and(!flag::FILTERED, Ordering::SeqCst);
    // ORDERING: Release, as in `publish`.
    session.filters.store(area.map_or(0, |area| filters_word(area, 0)), Ordering::Release);
    slot::raise_generation(session);
}

/// Returns the words of so many bytes at `place`; none if they are not in the window.
fn words_at(window: &Window, place: u64, bytes: usize) -> impl Iterator<Item = &'static AtomicU64> {
    let count = bytes.div_ceil(WORD_BYTES);
    let end = place.saturating_add((count * WORD_BYTES) as u64);
    let is_there = end <= window.usable_bytes() && place.is_multiple_of(WORD_BYTES as u64);
    let base = window.base();
    (0..if is_there { count } else { 0 }).map(move |index| {
        // SAFETY: the place is mapped for good and backed (checked above), and its offset a
        // multiple of a word's size from a page boundary; atomics are valid with any bytes, and
        // concurrent writes of other processes are defined.
        unsafe { &*base.add(place as usize).cast::<AtomicU64>().add(index) }
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use trackway_jit::block::Block;
    use trackway_jit::meaning::Meanings;
    use trackway_jit::object::Object;
    use trackway_schema::{Encoder, FieldViews, Scalar, Shape};
    use trackway_session::FilterObject;
    use trackway_testkit::TemporaryFolder;

    use super::*;

    /// A slot that is ours, and the block in force there.
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

        /// Describes an event with a sequence of these.
        fn describe(&self, name: &str, field: &str, scalar: Scalar) {
            let mut buffer = [0; 64];
            let mut encoder = Encoder::new(&mut buffer, b"app", name.as_bytes(), 6).expect("room");
            let added = encoder.field(field.as_bytes(), Shape::Sequence, Some(scalar), 0, 0);
            added.expect("room");
            self.handle.window().intern_event(encoder.finish()).expect("room");
        }

        fn generation(&self) -> u64 {
            self.slot.session().generation.load(Ordering::Relaxed)
        }

        fn is_flagged(&self) -> bool {
            self.slot.session().flags.load(Ordering::Relaxed) & flag::FILTERED != 0
        }

        /// Copies the block as an agent does; returns its place and its bytes.
        fn block(&self) -> Option<(u64, Vec<u8>)> {
            let word = self.slot.session().filters.load(Ordering::Acquire);
            let (place, size) = filters_place(word).filter(|(_, size)| *size > 0)?;
            let words = words_at(self.handle.window(), place, size);
            let bytes = words.flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
            Some((place, bytes.take(size).collect()))
        }

        /// Its entries: id, rules, and number of alternatives.
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
        // Another expression is another filter; the same one is the same at any place in the list.
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
        // Under both names, while it changes, it is one filter.
        assert_eq!(ids(&[named("a.o", &ten), named("b.o", &ten)]), before);
        let then = ids(&[named("b.o", &ten), named("a.o", &eleven)]);
        assert_eq!(then[0], before[0]);
        assert!(then.len() == 2 && then[1] != before[0]);
        // An expression of the same bytes is another filter.
        let expression = FilterSpec::new("count() % 10 == 0");
        assert!(!then.contains(&ids(&[expression, named("c.o", &ten)])[0]));
    }

    #[test]
    fn expressions_leave_room_for_objects() {
        let large = FilterObject { file: "large.o".into(), bytes: vec![0; 64 << 10].into() };
        let large = FilterSpec { pattern: None, source: FilterSource::Object(large) };
        let few = FilterSpec::new("size > 5");
        assert_eq!(generic_bytes(&[]), ALL_GENERIC_BYTES_MAX);
        assert_eq!(generic_bytes(&[few.clone(), few.clone()]), ALL_GENERIC_BYTES_MAX / 2);
        let beside = generic_bytes(&[few.clone(), large.clone()]);
        assert!(beside > 0 && 2 * beside + (64 << 10) < BLOCK_BYTES_MAX);
        assert_eq!(generic_bytes(&[few, large.clone(), large]), 0);
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
        // A field with another meaning gets an alternative, and each serves only its own events.
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
        channel.filters.leave(session);
        let word = session.filters.load(Ordering::Relaxed);
        assert_eq!(again(word, &nowhere), Some(place));
        let mut next = Filters::of_slot(&channel.handle, &channel.slot, word, &nowhere);
        let specs = [FilterSpec::new("size > 7")];
        next.set(&channel.handle, &channel.slot, &specs, "*").expect("filters");
        assert_eq!(channel.handle.allocator.bytes_in_use(), taken);
        // A hostile process may write anything there.
        for forged in [0, u64::MAX, filters_word(0, 8), filters_word(place + AREA_BYTES, 8)] {
            assert_eq!(again(forged, &nowhere), None, "{forged:#x}");
        }
        assert_eq!(again(word, &(place..place + AREA_BYTES)), None, "control lines");
    }
}
