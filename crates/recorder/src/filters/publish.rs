//! The filters of a channel: compiled, and published in the window for writers.
//!
//! A *block* (`trackway_jit::block`) contains all filters of a channel. It is in one of two halves
//! of a memory area that the slot keeps while the window exists, so a late reader of a block still
//! reads block memory. The session's filter word names the active block. The next block goes to the
//! other half: a half is overwritten only after the generation was raised past its block, and a
//! process checks the generation again after it has copied a block.
//!
//! While the slot is free, the filter word has the location of the area
//! ([`Filters::publish_area`]).

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

/// Largest size of one filter for events that no program has registered yet, in bytes.
pub(crate) const GENERIC_BYTES_MAX: usize = 16 << 10;
/// Largest size of all such filters of a channel, in bytes.
const ALL_GENERIC_BYTES_MAX: usize = BLOCK_BYTES_MAX / 2;
/// Size of both halves, in bytes.
const AREA_BYTES: u64 = 2 * BLOCK_BYTES_MAX as u64;
const WORD_BYTES: usize = 8;

const _: () =
    assert!(AREA_BYTES.is_multiple_of(GRANULE_BYTES) && BLOCK_BYTES_MAX.is_multiple_of(8));

/// The active filters of a channel.
#[derive(Debug, Default)]
pub(crate) struct Filters {
    list: Vec<PublishedFilter>,
    /// Event rules of the channel, as `trackway_schema::Rules` reads them. Filters need not be
    /// compiled for other events.
    rules: String,
    /// Events that are expected but not registered in the window yet.
    expected: Vec<EventDescription>,
    /// Offset of the two halves in the window; `None` before the first filter.
    area: Option<u64>,
    /// Half for the next block, 0 or 1.
    next_half: u64,
}

/// A filter and its compiled form.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PublishedFilter {
    spec: FilterSpec,
    /// Unique id, never 0; a filter with the same id continues the state of the earlier one.
    id: u64,
    /// Rules that select the filter's events, in the form of `trackway_schema::Rules`.
    rules: String,
    object: Vec<u8>,
    /// Meanings of fields that the object requires, in the form of `trackway_jit::meaning`.
    meanings: Vec<u8>,
}

impl Filters {
    /// Returns the filters of a channel that begins in a slot. `word` is the slot's former filter
    /// word; `control` is the range of the control lines.
    pub(crate) fn of_slot(
        handle: &WindowHandle,
        slot: &Slot,
        word: u64,
        control: &Range<u64>,
    ) -> Self {
        let area = filters_place(word).map(|(offset, _)| offset / AREA_BYTES * AREA_BYTES);
        // Control lines of a different size may now use the memory after the old ones.
        let is_ours = |area: &u64| {
            let place = *area..*area + AREA_BYTES;
            let is_apart = place.end <= control.start || control.end <= place.start;
            is_apart && slot::is_control_area(handle, slot.index, &place)
        };
        Self { area: area.filter(is_ours), ..Self::default() }
    }

    /// Takes over the filter ids of the channel that this one replaces.
    pub(crate) fn inherit(&mut self, other: &Self) {
        self.list.clone_from(&other.list);
        self.expected.clone_from(&other.expected);
    }

    /// Adds events for which filters are compiled before the events are registered.
    pub(crate) fn add_expected_events(&mut self, events: &[EventDescription]) {
        self.expected.extend_from_slice(events);
    }

    /// Returns the registered and expected events that these rules select.
    fn events(&self, window: &Window, rules: &str) -> Vec<EventDescription> {
        let mut events = registered_events(window, rules);
        for event in self.expected.iter().filter(|event| rules_select(rules, event)) {
            if !events.contains(event) {
                events.push(event.clone());
            }
        }
        events
    }

    /// Replaces the active filters. Compiles the new ones for the events that `rules` selects.
    ///
    /// # Errors
    ///
    /// If a filter is invalid, or fits no event. The former filters stay active.
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

    /// Returns the channel's event rules.
    pub(crate) fn rules(&self) -> &str {
        &self.rules
    }

    /// Compiles the filters again for the events that are registered now and that `rules` selects.
    /// Afterwards, each such event has an alternative of each filter that applies.
    ///
    /// # Errors
    ///
    /// If a filter cannot serve all of its events. The active block stays.
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

    /// Returns the offset of the halves. Allocates them with the slot's first filter.
    fn allocate_area(&mut self, handle: &WindowHandle, slot: &Slot) -> Result<u64, RecordError> {
        if let Some(area) = self.area {
            return Ok(area);
        }
        let owner = granule::CONTROL + slot.index as u8;
        let taken = handle.allocator.take(AREA_BYTES, owner);
        let area = taken.map_err(|error| slot::memory_error(handle, AREA_BYTES, error))?;
        Ok(*self.area.insert(area))
    }

    /// Publishes the location of the area for the next session in the slot, after writers were
    /// excluded.
    pub(crate) fn publish_area(&self, session: &Session) {
        if let Some(area) = self.area {
            session.filters.store(filters_word(area, 0), Ordering::Relaxed);
        }
    }
}

/// Compiles filters. Filters that are also in `before` keep their ids.
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

/// Returns the largest size, in bytes, of each expression's filter for events that no program has
/// registered yet. Filters given as objects reduce the space.
fn generic_bytes_max(specs: &[FilterSpec]) -> usize {
    let object_bytes = |spec: &FilterSpec| match &spec.source {
        FilterSource::Object(object) => object.bytes.len(),
        _ => 0,
    };
    let objects: usize = specs.iter().map(object_bytes).sum();
    let all = ALL_GENERIC_BYTES_MAX.min(BLOCK_BYTES_MAX.saturating_sub(objects) / 2);
    all / specs.len().max(1)
}

/// Returns a filter's object, and the meanings that the object requires.
fn compile_object(
    spec: &FilterSpec,
    events: &[EventDescription],
    generic_bytes: usize,
) -> Result<(Vec<u8>, Vec<u8>), RecordError> {
    let text = match &spec.source {
        FilterSource::Expression(text) => text,
        // The object was verified when it was specified, and each process that runs it verifies it
        // again.
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

/// Returns all registered events in the calling user's window; an empty list without a window.
pub(crate) fn own_registered_events() -> Result<Vec<EventDescription>, RecordError> {
    let Some(handle) = WindowHandle::open()? else { return Ok(Vec::new()) };
    let known = registered_events(handle.window(), "*");
    handle.close();
    Ok(known)
}

/// Makes a new, unique filter id.
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

/// Writes a block to `place`, an offset in the window where no active block is, and activates the
/// block.
fn publish_block(window: &Window, session: &Session, place: u64, block: &[u8]) {
    // ORDERING: Release: a reader that loads a byte of the new block (and loads again after an
    // Acquire fence) finds the generation that was raised when the previous block was replaced.
    fence(Ordering::Release);
    for (word, bytes) in words_at(window, place, block.len()).zip(block.chunks(WORD_BYTES)) {
        let mut whole = [0; WORD_BYTES];
        whole[..bytes.len()].copy_from_slice(bytes);
        word.store(u64::from_ne_bytes(whole), Ordering::Relaxed);
    }
    // ORDERING: Release: a writer that loads the word (Acquire) finds the block's bytes.
    session.filters.store(filters_word(place, block.len() as u32), Ordering::Release);
    sandboxes::mark_sandboxed_processes(window); // a filter may use the thread's name
    // ORDERING: SeqCst: the flag before the generation, so that no process decides again without
    // the flag.
    session.flags.fetch_or(flag::FILTERED, Ordering::SeqCst);
    slot::raise_generation(session);
}

/// Deactivates the last block; the filter word keeps the location of the area.
fn withdraw_block(session: &Session, area: Option<u64>) {
    // ORDERING: SeqCst, as in `publish_block`. First the flag: no process finds the flag without a
    // block.
    session.flags.fetch_and(!flag::FILTERED, Ordering::SeqCst);
    // ORDERING: Release, as in `publish_block`.
    session.filters.store(area.map_or(0, |area| filters_word(area, 0)), Ordering::Release);
    slot::raise_generation(session);
}

/// Returns the words of `bytes` bytes at `place`; none if they are not in the window.
fn words_at(window: &Window, place: u64, bytes: usize) -> impl Iterator<Item = &'static AtomicU64> {
    let count = bytes.div_ceil(WORD_BYTES);
    let end = place.saturating_add((count * WORD_BYTES) as u64);
    let is_there = end <= window.usable_bytes() && place.is_multiple_of(WORD_BYTES as u64);
    let base = window.base();
    (0..if is_there { count } else { 0 }).map(move |index| {
        // SAFETY: the place is permanently mapped and backed (checked above), and its offset from a
        // page boundary is a multiple of the word size; atomics are valid with any bytes, and
        // concurrent writes of other processes are defined.
        unsafe { &*base.add(place as usize).cast::<AtomicU64>().add(index) }
    })
}

#[cfg(test)]
#[path = "publish_tests.rs"]
mod tests;
