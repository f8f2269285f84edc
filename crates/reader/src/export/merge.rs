//! Traces put together: chunks and snapshots of one trace become one, different traces lie side
//! by side.
//!
//! A stream's packets, wherever they were, are written one after another in the order of time;
//! packets that two files both have (snapshots overlap) are written once.

use std::fs;
use std::io::Write;
use std::num::NonZero;
use std::path::{Path, PathBuf};

use trackway_ctf::read::{Bytes, SourceStream, StreamDecoder};

use super::output::{Folder, Names, PacketFile};
use super::packets::Target;
use super::trim::in_parallel;
use super::{Export, ExportError, Exported, Steps};
use crate::folder::METADATA;
use crate::input::{Input, NamedTrace, joined};
use crate::plan::{HEADER_WINDOW_BYTES, Planner};
use crate::select::Range;
use crate::stream::{Stream, streams_of};

/// Writes `inputs` to the folder of `export`, by `jobs` threads; with each input is the folder
/// that it was found in. Damage is told to `messages`.
///
/// # Errors
///
/// If the folder is not empty, something cannot be written, or the writing was stopped; then
/// nothing is left of it.
pub fn merge<B: Bytes + Sync>(
    inputs: Vec<(Input<B>, PathBuf)>,
    export: &Export<'_>,
    jobs: NonZero<usize>,
    messages: &mut dyn Write,
) -> Result<Exported, ExportError> {
    let folder = Folder::new(&export.folder)?;
    let groups = joined(inputs);
    let mut names = Names::default();
    let is_one = groups.len() == 1;
    let mut traces = Vec::new();
    for (input, path) in groups {
        let to = if is_one {
            folder.place().to_owned()
        } else {
            folder.place().join(names.give(&name_of(&input.folder, &path)))
        };
        let metadata = to.join(METADATA);
        fs::create_dir_all(&to).map_err(ExportError::write(&to))?;
        fs::copy(path.join(METADATA), &metadata).map_err(ExportError::write(&metadata))?;
        traces.push((NamedTrace::new(input.trace, &input.folder), input.files, to));
    }
    let mut works = Vec::new();
    for (trace, files, to) in &traces {
        let mut names = Names::default();
        names.give(METADATA);
        for stream in streams_of(trace, files, &[], Range::default()) {
            let name = Path::new(stream.name).file_name().unwrap_or_default().to_string_lossy();
            let to = to.join(names.give(&name));
            works.push((stream, to));
        }
    }
    let files = works.iter().flat_map(|(stream, _)| &stream.files);
    let total = files.map(|file| file.bytes.length()).sum();
    let steps = Steps::new(export, total);
    let results = in_parallel(&works, jobs, |(stream, to)| merge_stream(stream, to, &steps));
    let mut all = Exported { is_whole: true, traces: traces.len() as u64, ..Exported::default() };
    for result in results {
        let (exported, text) = result?;
        messages.write_all(text.as_bytes()).map_err(ExportError::Message)?;
        all.add(&exported);
    }
    steps.check()?;
    folder.done()?;
    Ok(all)
}

/// What a trace's folder among others is called: as it was where it was found.
fn name_of(folder: &str, path: &Path) -> String {
    if folder.is_empty() {
        path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    } else {
        folder.to_owned()
    }
}

/// Writes one stream's packets; what was done, and what is damaged.
fn merge_stream<B: Bytes>(
    stream: &Stream<'_, B>,
    to: &Path,
    steps: &Steps<'_>,
) -> Result<(Exported, String), ExportError> {
    let trace = &stream.trace.trace;
    let mut target = Target::new(steps, PacketFile::new(to.to_owned()));
    let mut planner = Planner::new(stream);
    let mut memory = Vec::new();
    let mut window = Vec::new();
    while let Some(planned) = planner.plan(&mut memory) {
        let (file, start, end) = planned.task.range();
        let mut source = SourceStream::new(&file.bytes).until(end);
        source = source.with_window(HEADER_WINDOW_BYTES, std::mem::take(&mut window));
        source.go_to(start.0, start.1);
        // Only sizes and what is cut off are of interest: each run of packets begins anew.
        let mut decoder = StreamDecoder::new(trace);
        while source.next().0 < end {
            let before = source.next().0;
            let Some(found) = target.begin(&file.name, &mut source, &mut decoder) else { break };
            if found.is_complete {
                target.copy(file, &found)?;
            } else {
                target.cut(trace, &file.name, &mut source, &mut decoder, |_| true)?;
            }
            steps.read(source.next().0 - before);
        }
        window = source.into_memory();
    }
    if target.file.finish()? {
        target.done.streams += 1;
    }
    Ok((target.done, target.messages))
}
