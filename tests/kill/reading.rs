//! Contents of a window, read by the readers' own code, and the invariants of a window.

use std::sync::atomic::Ordering;

use trackway_abi::record::context::{PROCNAME, PROCNAME_BYTES, VPID, VTID};
use trackway_ring::{Drained, Region, Snapshot};
use trackway_testkit::Records;
use trackway_window::{MappedMemory, SessionLayout, Window, WriterPath};

/// Number of bytes of a text's length, which precedes the text.
pub(crate) const TEXT_LENGTH_BYTES: usize = 4;

/// The events of writer.c.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventKind {
    /// Emitted before the event that is stepped through.
    Earlier,
    /// The event that is stepped through.
    Probe,
    /// Emitted by another process during the step.
    Other,
    /// Emitted by a signal handler during the step.
    Inner,
    /// The event that is stepped through, if it has no payload.
    Empty,
}

impl EventKind {
    /// All kinds, in the order of their numbers in orders.
    pub(crate) const ALL: [Self; 5] =
        [Self::Earlier, Self::Probe, Self::Other, Self::Inner, Self::Empty];

    /// Returns the name in the event's description.
    pub(crate) const fn name(self) -> &'static str {
        ["before", "probe", "other", "inner", "empty"][self as usize]
    }

    /// Returns true if the kind is the event that is stepped through.
    pub(crate) const fn is_probe(self) -> bool {
        matches!(self, Self::Probe | Self::Empty)
    }
}

/// Place of an event in the window, and its id in the session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventId {
    /// Index of the event in the table of events.
    pub(crate) index: usize,
    /// Id of the event in the session.
    pub(crate) id: u32,
}

/// Ids of all events, by [`Kind`].
pub(crate) type EventIds = [EventId; EventKind::ALL.len()];

/// A record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundRecord {
    /// Kind of the event.
    pub(crate) kind: EventKind,
    /// Bytes of the contexts in the record.
    pub(crate) contexts: Vec<u8>,
    /// The payload's text.
    pub(crate) text: Vec<u8>,
}

/// Contents of a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RegionState {
    /// CPU and writer path of the region.
    pub(crate) place: (u32, usize),
    /// End of the committed bytes.
    pub(crate) head: u64,
    /// Word of the process that claims the region.
    pub(crate) owner: u64,
    /// Number of overwritten records before the first readable record.
    pub(crate) overwritten: u64,
    /// Records that can be read.
    pub(crate) records: Vec<FoundRecord>,
    /// Number of records, including overwritten ones.
    pub(crate) events: u64,
    /// Number of records that did not fit.
    pub(crate) discarded: u64,
    /// Time of the last record.
    pub(crate) last_ts: u64,
}

/// Contents of a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WindowState {
    /// Regions of the window that were ever written or claimed.
    pub(crate) regions: Vec<RegionState>,
    /// Numbers of records that did not fit, by [`Kind`].
    pub(crate) discarded: [u64; EventKind::ALL.len()],
}

impl WindowState {
    /// Reads the contents of session `layout` in `window`.
    ///
    /// # Errors
    /// Returns the fault as an error: an incomplete record, a wrong count, a time that goes
    /// backward.
    pub(crate) fn read(
        window: &Window,
        layout: &SessionLayout,
        ids: &EventIds,
    ) -> Result<Self, String> {
        let mut regions = Vec::new();
        for cpu in 0..layout.cpus {
            for way in WriterPath::ALL {
                let Some(region) = layout.region(window, cpu, way) else { continue };
                let read = read_region(window, layout, &region, ids);
                let mut state = read.map_err(|wrong| format!("CPU {cpu}, {way:?}: {wrong}"))?;
                state.place = (cpu, way.index());
                regions.push(state);
            }
        }
        let count = |event: EventId| layout.discards(window, event.index).load(Ordering::Relaxed);
        Ok(Self { regions, discarded: ids.map(count) })
    }

    /// Returns the number of records that did not fit, by the counters of the regions.
    pub(crate) fn discarded_in_regions(&self) -> u64 {
        self.regions.iter().map(|region| region.discarded).sum()
    }
}

fn read_region(
    window: &Window,
    layout: &SessionLayout,
    region: &Region<'_>,
    ids: &EventIds,
) -> Result<RegionState, String> {
    let snapshot = region.snapshot().map_err(|damage| damage.to_string())?;
    let (Some(last_ts), Some(events)) = (snapshot.last_ts, snapshot.events) else {
        return Err("nobody writes, and there is no snapshot".into());
    };
    let mut state = RegionState {
        place: (0, 0),
        head: snapshot.head,
        owner: region.control.owner.load(Ordering::Relaxed),
        overwritten: 0,
        records: Vec::new(),
        events,
        discarded: snapshot.discarded,
        last_ts,
    };
    if snapshot.head > 0 {
        read_pieces(window, layout, region, &snapshot, ids, &mut state)?;
    }
    if state.overwritten + state.records.len() as u64 != events {
        let (overwritten, there) = (state.overwritten, state.records.len());
        return Err(format!("{events} records, {overwritten} overwritten, {there} there"));
    }
    Ok(state)
}

fn read_pieces(
    window: &Window,
    layout: &SessionLayout,
    region: &Region<'_>,
    snapshot: &Snapshot,
    ids: &EventIds,
    state: &mut RegionState,
) -> Result<(), String> {
    let memory = MappedMemory(*window);
    let geometry = region.geometry;
    let mut from = Drained::default();
    if layout.flags & trackway_abi::session::flag::OVERWRITE != 0 {
        from.position = region.oldest_index(snapshot.head) << geometry.sub_shift();
    }
    let mut is_first = true;
    for _ in 0..=geometry.sub_count() {
        let piece = region.next_piece(&memory, &from, snapshot, true);
        let Some(piece) = piece.map_err(|damage| damage.to_string())? else { return Ok(()) };
        if is_first {
            state.overwritten = piece.events_before;
        } else if (piece.events_before, true) != (from.events, piece.begin_ts >= from.last_ts) {
            return Err(format!("{piece:?} does not follow {from:?}"));
        }
        is_first = false;
        let mut bytes = vec![0; (piece.end - piece.start) as usize];
        region.copy(&memory, &piece, &mut bytes).map_err(|damage| damage.to_string())?;
        let before = state.records.len();
        let end_ts = read_records(&bytes, piece.begin_ts, layout.contexts, ids, state)?;
        let read = (state.records.len() - before) as u64;
        if read != piece.events - piece.events_before || end_ts != piece.end_ts {
            return Err(format!("{read} records to {end_ts}, but {piece:?}"));
        }
        from.position = piece.resume;
        (from.events, from.last_ts) = (piece.events, piece.end_ts);
    }
    Err("its pieces have no end".into())
}

/// Reads the records of a piece; returns the time of the last record.
fn read_records(
    bytes: &[u8],
    begin_ts: u64,
    contexts: u32,
    ids: &EventIds,
    state: &mut RegionState,
) -> Result<u64, String> {
    let context_bytes = context_bytes(contexts);
    let kind_of = |id: u32| EventKind::ALL.into_iter().find(|kind| ids[*kind as usize].id == id);
    let body_bytes = |id: u32, behind: &[u8]| match kind_of(id)? {
        EventKind::Empty => Some(context_bytes),
        _ => {
            let length = behind.get(context_bytes..context_bytes + TEXT_LENGTH_BYTES)?;
            let length = u32::from_le_bytes(length.try_into().ok()?);
            Some(context_bytes + TEXT_LENGTH_BYTES + usize::try_from(length).ok()?)
        }
    };
    let mut last_ts = begin_ts;
    let mut records = Records::new(bytes, begin_ts, body_bytes);
    for record in records.by_ref() {
        if record.header.timestamp_ns < last_ts {
            return Err(format!("{} comes after {last_ts}", record.header.timestamp_ns));
        }
        last_ts = record.header.timestamp_ns;
        let (contexts, payload) = record.body.split_at(context_bytes);
        state.records.push(FoundRecord {
            kind: kind_of(record.header.id).ok_or("no such event")?,
            contexts: contexts.to_owned(),
            text: payload.get(TEXT_LENGTH_BYTES..).unwrap_or(payload).to_owned(),
        });
    }
    if records.is_whole() { Ok(last_ts) } else { Err("a record is not whole".into()) }
}

/// Returns the bytes of a record's contexts.
pub(crate) fn context_bytes(contexts: u32) -> usize {
    let sizes = [(VPID, 4), (VTID, 4), (PROCNAME, PROCNAME_BYTES)];
    sizes.iter().filter(|(bit, _)| contexts & bit != 0).map(|(_, bytes)| bytes).sum()
}

/// Events that may have been emitted since a state was read.
#[derive(Debug, Clone)]
pub(crate) struct ExpectedEvents {
    /// The event that is stepped through.
    pub(crate) probe: FoundRecord,
    /// True if the probe was emitted exactly once; false if it may not have been emitted.
    pub(crate) probe_is_certain: bool,
    /// True if the probe comes before all other events of its region, false if after them; `None`
    /// if the order is unknown.
    pub(crate) probe_is_first: Option<bool>,
    /// The other events, in the order of each process.
    pub(crate) other_events: Vec<FoundRecord>,
}

/// Outcome of the event that is stepped through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventFate {
    /// The event is not present.
    Absent,
    /// The event was recorded.
    Recorded,
    /// The event was counted as discarded.
    Discarded,
}

/// Compares the state before the event with the state now.
///
/// # Errors
/// If an event is missing, doubled, torn, out of order or not counted.
pub(crate) fn compare_states(
    before: &WindowState,
    now: &WindowState,
    expected: &ExpectedEvents,
) -> Result<EventFate, String> {
    let mut events = Vec::new();
    for (was, is) in before.regions.iter().zip(&now.regions) {
        let new =
            added_records(was, is).map_err(|wrong| format!("region {:?}: {wrong}", is.place))?;
        check_probe_order(new, expected)
            .map_err(|wrong| format!("region {:?}: {wrong}", is.place))?;
        events.extend(new.iter().cloned());
    }
    let discarded: Vec<u64> =
        now.discarded.iter().zip(before.discarded).map(|(now, before)| now - before).collect();
    let by_event: u64 = discarded.iter().sum();
    let by_region = now.discarded_in_regions() - before.discarded_in_regions();
    let open = u64::from(!expected.probe_is_certain);
    if !(by_event..=by_event + open).contains(&by_region) {
        return Err(format!("{by_event} discarded by event, {by_region} by region"));
    }
    let least = expected.other_events.len() as u64 + 1 - open;
    let total = events.len() as u64 + by_region;
    if !(least..=expected.other_events.len() as u64 + 1).contains(&total) {
        return Err(format!("{total} recorded or discarded, of {expected:?}: {events:?}"));
    }
    for kind in [EventKind::Other, EventKind::Inner] {
        check_event_kind(kind, &events, discarded[kind as usize], expected)?;
    }
    let probes: Vec<_> = events.iter().filter(|found| found.kind.is_probe()).collect();
    match probes[..] {
        [] if by_region > 0 && total > expected.other_events.len() as u64 => {
            Ok(EventFate::Discarded)
        }
        [] if open > 0 => Ok(EventFate::Absent),
        [probe] if *probe == expected.probe => Ok(EventFate::Recorded),
        _ => Err(format!("{:?} expected, found {probes:?}", expected.probe)),
    }
}

/// Returns the records of a region that were added to the remaining older records.
fn added_records<'now>(
    was: &RegionState,
    is: &'now RegionState,
) -> Result<&'now [FoundRecord], String> {
    let overwritten = is.overwritten.checked_sub(was.overwritten).ok_or("overwritten came back")?;
    let kept = usize::try_from(overwritten).ok().and_then(|gone| was.records.get(gone..));
    let kept = kept.ok_or("more was overwritten than was there")?;
    if is.last_ts < was.last_ts || is.head < was.head {
        return Err(format!("went backward, from {} to {}", was.last_ts, is.last_ts));
    }
    is.records.strip_prefix(kept).ok_or_else(|| "what was committed is not there".into())
}

/// Checks the place of the probe among the events of its region, which the other writer's commits
/// determine.
fn check_probe_order(new: &[FoundRecord], expected: &ExpectedEvents) -> Result<(), String> {
    let Some(at) = new.iter().position(|found| found.kind.is_probe()) else { return Ok(()) };
    let right = match expected.probe_is_first {
        Some(true) => at == 0,
        Some(false) => at + 1 == new.len(),
        None => true,
    };
    if right { Ok(()) } else { Err(format!("the record is at {at} of {}", new.len())) }
}

/// Checks that all events of a kind are present or counted, each once and undamaged.
fn check_event_kind(
    kind: EventKind,
    events: &[FoundRecord],
    discarded: u64,
    expected: &ExpectedEvents,
) -> Result<(), String> {
    let mut missing: Vec<_> =
        expected.other_events.iter().filter(|found| found.kind == kind).collect();
    for found in events.iter().filter(|found| found.kind == kind) {
        let at = missing.iter().position(|expected| *expected == found);
        missing.remove(at.ok_or_else(|| format!("{found:?} is none of {missing:?}"))?);
    }
    if missing.len() as u64 == discarded {
        Ok(())
    } else {
        Err(format!("{discarded} discarded, missing: {missing:?}"))
    }
}
