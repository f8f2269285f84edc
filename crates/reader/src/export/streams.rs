//! Export of streams, one thread each: their packets are copied, cut, or left out.

use std::io::Write;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use trackway_ctf::read::{ByteSource, EventHeader, SourceStream, StreamClass, StreamDecoder};

use super::output::PacketFile;
use super::packets::{PacketNumbers, PacketPlace, PacketTarget};
use super::{ExportError, ExportProgress, ExportSettings, ExportSummary};
use crate::input::DataFile;
use crate::plan::Planner;
use crate::select::Selection;
use crate::stream::Stream;
use crate::{WINDOW_BYTES, workers};

/// A stream and its output file.
pub(super) struct StreamWork<'t, B> {
    pub(super) stream: Stream<'t, B>,
    pub(super) to: PathBuf,
}

/// Writes the selected parts of all `works`, by `jobs` threads; returns the counts, except the
/// number of traces. Damage is reported to `messages` as it is found.
pub(super) fn write_streams<B: ByteSource + Sync>(
    works: &[StreamWork<'_, B>],
    selection: &Selection<'_>,
    export: &ExportSettings<'_>,
    jobs: NonZero<usize>,
    messages: &mut dyn Write,
) -> Result<ExportSummary, ExportError> {
    let files = works.iter().flat_map(|work| &work.stream.files);
    let steps = ExportProgress::new(export, files.map(|file| file.bytes.length()).sum());
    let next = AtomicUsize::new(0);
    let jobs = jobs.min(NonZero::new(works.len()).unwrap_or(NonZero::<usize>::MIN));
    let results = workers::run(jobs, messages, |_, sink| {
        let mut all = ExportSummary { is_whole: true, ..ExportSummary::default() };
        while let Some(work) = works.get(next.fetch_add(1, Ordering::Relaxed)) {
            let file = PacketFile::new(work.to.clone());
            all.add(&write_stream(&work.stream, selection, PacketTarget::new(&steps, file, sink))?);
        }
        Ok(all)
    });
    let mut all = ExportSummary { is_whole: true, ..ExportSummary::default() };
    for result in results.map_err(|error| ExportError::Message(error.into()))? {
        all.add(&result?);
    }
    steps.check_stop()?;
    if all.packets == 0 { Err(ExportError::Nothing) } else { Ok(all) }
}

/// Writes the selected part of one stream.
fn write_stream<'t, B: ByteSource>(
    stream: &'t Stream<'t, B>,
    selection: &Selection<'_>,
    mut target: PacketTarget<'_>,
) -> Result<ExportSummary, ExportError> {
    let is_every_name = selection.wants_all_names(&stream.trace.trace);
    // Packets left out within a stream must not look like lost packets.
    target.numbers = (!is_every_name).then(PacketNumbers::default);
    let is_all = selection.range.is_everything() && is_every_name;
    let mut planner = Planner::new(stream);
    let (mut memory, mut window) = (Vec::new(), Vec::new());
    while let Some(planned) = planner.plan(&mut memory) {
        let stands_alone = planned.stands_alone;
        let task = planned.task.with_window(WINDOW_BYTES, std::mem::take(&mut window));
        let (file, mut source, end, mut decoder) = task.into_parts();
        if !is_all && !stands_alone {
            let why = "nothing can be cut out: its packets do not say in full when they begin";
            target.report_damage(&file.name, why)?;
            break;
        }
        while source.next().0 < end {
            let before = source.next().0;
            if let Some(place) = target.begin_packet(&file.name, &mut source, &mut decoder)? {
                let work = PacketWork { stream, file, selection, is_every_name };
                work.write(&mut target, &mut source, &mut decoder, &place)?;
                let damage = place.ends_first.map(|damage| source.damaged(damage));
                target.check_order(&file.name, damage)?;
            }
            target.steps.read(source.next().0.saturating_sub(before));
        }
        window = source.into_memory();
        if !stands_alone {
            planner.resume(decoder);
        }
    }
    if target.file.finish()? {
        target.done.streams += 1;
    }
    Ok(target.done)
}

/// The work on one packet.
struct PacketWork<'w, 't, B> {
    stream: &'w Stream<'t, B>,
    file: &'w DataFile<B>,
    selection: &'w Selection<'w>,
    /// True if the time alone decides which events are kept.
    is_every_name: bool,
}

impl<B: ByteSource> PacketWork<'_, '_, B> {
    /// Writes the packet just begun, or its selected events.
    fn write(
        &self,
        target: &mut PacketTarget<'_>,
        source: &mut SourceStream<&B>,
        decoder: &mut StreamDecoder<'_>,
        place: &PacketPlace,
    ) -> Result<(), ExportError> {
        let Self { stream, file, selection, is_every_name } = *self;
        let (range, clock) = (selection.range, decoder.class().and_then(StreamClass::clock));
        if range.is_after(&place.packet, clock) || range.is_before(&place.packet, clock) {
            return Ok(());
        }
        if is_every_name && place.is_complete && range.contains(&place.packet, clock) {
            let is_in = |event: &EventHeader<'_>| range.has(event.time);
            if target.check_events(&file.name, source, decoder, is_in)? {
                return target.copy_packet(file, place);
            }
            // The packet's events exceed the times in its header: it is cut, from its beginning.
            if !target.restart_packet(&file.name, source, decoder)? {
                return Ok(());
            }
        }
        target.cut_packet(&stream.trace.trace, &file.name, source, decoder, |event| {
            range.has(event.time) && selection.wants(event.class)
        })
    }
}
