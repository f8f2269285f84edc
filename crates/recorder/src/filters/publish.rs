//! The filters of a channel: compiled, and published in the window for writers.
//!
//! A *block* (`trackway_jit::block`) has all filters of a channel. It lies in one of two halves of
//! memory that the slot keeps for as long as the window lives: so a process that reads a block,
//! however late, reads memory of blocks. The session's word names the block in force. Another block
//! goes into the other half: a half is overwritten only after the generation was raised past its
//! block, and a process that has copied bytes checks the generation again.
//!
//! While the slot is free, the word has the place of that memory ([`Filters::publish_area`]).

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use trackway_abi::session::{Session, filters_place, filters_word, flag};
use trackway_abi::window::{GRANULE_BYTES, granule};
use trackway_filter::applications::add_application_contexts;
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
    list: Vec<PublishedFilter>,
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
struct PublishedFilter {
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
    pub(crate) fn add_expected_events(&mut self, events: &[EventDescription]) {
        self.expected.extend_from_slice(events);
    }

    /// Returns the events that these rules select: in the window, and to come.
    fn events(&self, window: &Window, rules: &str) -> Vec<EventDescription> {
        let mut events = registered_events(window, rules);
        for event in self.expected.iter().filter(|event| rules_select(rules, event)) {
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
        let list = compile_filters(&events, specs, &self.list)?;
        self.activate_filters(handle, slot, list)?;
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
            let list = compile_filters(&events, &specs, &self.list)?;
            if list != self.list {
                self.activate_filters(handle, slot, list)?;
            }
        }
        rules.clone_into(&mut self.rules);
        Ok(())
    }

    fn activate_filters(
        &mut self,
        handle: &WindowHandle,
        slot: &Slot,
        list: Vec<PublishedFilter>,
    ) -> Result<(), RecordError> {
        let session = slot.session();
        if list.is_empty() {
            if session.flags.load(Ordering::Relaxed) & flag::FILTERED != 0 {
                withdraw_block(session, self.area);
            }
        } else {
            let block = encode_block(&list).ok_or_else(size_error)?;
            let area = self.allocate_area(handle, slot)?;
            let place = area + self.next_half * BLOCK_BYTES_MAX as u64;
            publish_block(handle.window(), session, place, &block);
            self.next_half ^= 1;
        }
        self.list = list;
        Ok(())
    }

    /// Returns the offset of the halves, which are allocated with the slot's first filter.
    fn allocate_area(&mut self, handle: &WindowHandle, slot: &Slot) -> Result<u64, RecordError> {
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
    pub(crate) fn publish_area(&self, session: &Session) {
        if let Some(area) = self.area {
            session.filters.store(filters_word(area, 0), Ordering::Relaxed);
        }
    }
}

/// Compiles filters; those that were there `before` keep their ids.
fn compile_filters(
    events: &dyn Fn() -> Vec<EventDescription>,
    specs: &[FilterSpec],
    before: &[PublishedFilter],
) -> Result<Vec<PublishedFilter>, RecordError> {
    if specs.is_empty() {
        return Ok(Vec::new());
    }
    let events = events();
    let generic_bytes = generic_bytes_max(specs);
    let mut list: Vec<PublishedFilter> = Vec::new();
    for spec in specs {
        if list.iter().any(|one| one.spec.is_same(spec)) {
            continue;
        }
        let (object, meanings) = compile_object(spec, &events, generic_bytes)?;
        let own = before.iter().find(|one| one.spec.is_same(spec));
        let id = own.map_or_else(new_id, |own| Ok(own.id))?;
        list.push(PublishedFilter {
            rules: spec.rules(),
            spec: spec.clone(),
            id,
            object,
            meanings,
        });
    }
    Ok(list)
}

/// Returns the most bytes of each of these filters for events that no program has registered yet,
/// without filters that were given as objects.
fn generic_bytes_max(specs: &[FilterSpec]) -> usize {
    let object_bytes = |spec: &FilterSpec| match &spec.source {
        FilterSource::Object(object) => object.bytes.len(),
        _ => 0,
    };
    let objects: usize = specs.iter().map(object_bytes).sum();
    let all = ALL_GENERIC_BYTES_MAX.min(BLOCK_BYTES_MAX.saturating_sub(objects) / 2);
    all / specs.len().max(1)
}

/// Returns a filter's object, and its meanings.
fn compile_object(
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
    let is_meant = |event: &&EventDescription| rules_select(&rules, event);
    let layouts = events.iter().filter(is_meant).map(Layout::of_event).collect();
    match &spec.source {
        FilterSource::Expression(text) => add_application_contexts(text, layouts),
        _ => layouts,
    }
}

pub(crate) fn rules_select(rules: &str, event: &EventDescription) -> bool {
    let (provider, name) = (event.provider.as_bytes(), event.name.as_bytes());
    Rules::new(rules.as_bytes()).selects(provider, name, event.level)
}

/// Returns the events in the window that these rules select.
pub(crate) fn registered_events(window: &Window, rules: &str) -> Vec<EventDescription> {
    let described = (0..trackway_abi::window::EVENTS_MAX).filter_map(|index| {
        let bytes = window.description(index)?;
        EventDescription::decode(bytes.as_slice()).ok()
    });
    described.filter(|event| rules_select(rules, event)).collect()
}

/// Returns all events that are known in the calling user's window; none, if there is no window.
pub(crate) fn own_registered_events() -> Result<Vec<EventDescription>, RecordError> {
    let Some(handle) = WindowHandle::open()? else { return Ok(Vec::new()) };
    let known = registered_events(handle.window(), "*");
    handle.close();
    Ok(known)
}

/// Makes an id that no filter had.
fn new_id() -> Result<u64, RecordError> {
    Ok(u64::from_le_bytes(crate::random::random_bytes()?).max(1))
}

fn encode_block(list: &[PublishedFilter]) -> Option<Vec<u8>> {
    let mut entries = Vec::new();
    for PublishedFilter { id, rules, object, meanings, .. } in list {
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

fn size_error() -> RecordError {
    let most = trackway_session::ByteCount(BLOCK_BYTES_MAX as u64);
    RecordError::Filter(format!("compiled, they are larger than {most} together"))
}

/// Writes a block to `place`, in bytes of the window, where no block that is in force is, and puts
/// it into force.
fn publish_block(window: &Window, session: &Session, place: u64, block: &[u8]) {
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
    sandboxes::mark_sandboxed_processes(window); // a filter may ask for a name
    // ORDERING: SeqCst: the flag before the generation, so that no process decides again without
    // it.
    session.flags.fetch_or(flag::FILTERED, Ordering::SeqCst);
    slot::raise_generation(session);
}

/// Takes the last block out of force; the word keeps the place of the memory.
fn withdraw_block(session: &Session, area: Option<u64>) {
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
#[path = "publish_tests.rs"]
mod tests;
