//! The content of a trace of kernel events by Trackway, and the bytes that LTTng would need for the
//! same events.
//!
//! LTTng's kernel tracer packs fields like Trackway, under the same names. The header differs
//! (lttng-modules, `lttng-events.c`, `lttng-ring-buffer-client.h`): *compact*, 5 bits of id and 27
//! of time, in channels with fewer than 31 events; otherwise *large*, 16 bits of id and 32 of time.
//! Larger values follow the 5 or 16 bits as an id of 32 bits and a time of 64. The number of events
//! at the session's start decides between the two headers.

use std::fs;
use std::path::Path;

use trackway_bench_engine::error::{Error, Result};
use trackway_ctf::read::Trace;

use super::FoundEvents;
use crate::trace_check;
use crate::trace_check::marks::FoundMarks;

/// Most events in an LTTng channel with compact headers.
const COMPACT_EVENTS_MAX: usize = 30;
/// Bits of the time in a compact header, and in a large header.
const COMPACT_TIME_BITS: u32 = 27;
const LARGE_TIME_BITS: u32 = 32;
/// Sizes of headers, in bits.
const COMPACT_BITS: u64 = 32;
const COMPACT_LONG_BITS: u64 = 8 + 32 + 64;
const LARGE_BITS: u64 = 48;
const LARGE_LONG_BITS: u64 = 16 + 32 + 64;

/// Counts the trace in `folder`, with a separate count of events whose names end with `call`,
/// unless `call` is empty; `None` if there is no trace.
pub(super) fn count_trace(folder: &Path, call: &str) -> Result<Option<(FoundEvents, FoundMarks)>> {
    if !folder.join("metadata").is_file() {
        return Ok(None);
    }
    let trace = trace_check::read_metadata(folder)?;
    let mut found = EventCounts::default();
    for path in trace_check::list_stream_files(folder)? {
        let what = path.display().to_string();
        let bytes = fs::read(&path).map_err(Error::io(&what))?;
        count_stream((&trace, &what), &bytes, call, &mut found)?;
    }
    let to_bytes = |bits: u64| bits.div_ceil(8);
    let counts = FoundEvents {
        events: found.events,
        of_call: (!call.is_empty()).then_some(found.of_call),
        lost: found.lost,
        overwritten: 0,
        bytes: to_bytes(found.bits),
        lttng_bytes: Some(to_bytes(found.lttng_bits)),
    };
    Ok(Some((counts, found.marks)))
}

#[derive(Debug, Default)]
struct EventCounts {
    events: u64,
    of_call: u64,
    lost: u64,
    bits: u64,
    lttng_bits: u64,
    marks: FoundMarks,
}

fn count_stream(
    of: (&Trace, &str),
    bytes: &[u8],
    call: &str,
    found: &mut EventCounts,
) -> Result<()> {
    let (mut lost, mut last) = (0, 0);
    trace_check::for_each_packet(of, bytes, |packet, decoder, window| {
        lost = packet.events_discarded.unwrap_or(lost);
        last = packet.timestamp_begin.unwrap_or(last);
        let classes = decoder.class().map_or(0, |class| class.events().len());
        let mut begin = decoder.position_bits();
        while let Some(mut event) = decoder.begin_event(window)? {
            let header = event.position_bits() - begin;
            let clock = event.header.clock;
            found.events += 1;
            if let Some(name) = event.header.class.name() {
                found.of_call += u64::from(name.ends_with(call));
                found.marks.add_event(name, &mut event)?;
            }
            event.skip()?;
            let end = decoder.position_bits();
            found.bits += end - begin;
            let theirs = lttng_header_bits(classes, clock.saturating_sub(last));
            found.lttng_bits += end - begin - header + theirs;
            (begin, last) = (end, clock);
        }
        Ok(())
    })?;
    found.lost += lost;
    Ok(())
}

/// Returns the bits of LTTng's header for an event, given the time since the previous event, in a
/// channel with this number of events.
const fn lttng_header_bits(events: usize, passed_ns: u64) -> u64 {
    if events <= COMPACT_EVENTS_MAX {
        if passed_ns >> COMPACT_TIME_BITS == 0 { COMPACT_BITS } else { COMPACT_LONG_BITS }
    } else if passed_ns >> LARGE_TIME_BITS == 0 {
        LARGE_BITS
    } else {
        LARGE_LONG_BITS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_lttng_are_as_long_as_its_sources_say() {
        assert_eq!(lttng_header_bits(2, 1000), 32);
        assert_eq!(lttng_header_bits(30, 1 << 27), 104);
        assert_eq!(lttng_header_bits(31, 1 << 27), 48);
        assert_eq!(lttng_header_bits(700, 1 << 32), 112);
    }
}
