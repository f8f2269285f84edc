//! Export of traces cut to a range of time, or to some of their events.
//!
//! Packets within the range are copied. Packets at the ends of the range are rewritten; all packets
//! are if only some events are selected. Counts of lost events remain unchanged: they are totals,
//! so the losses of omitted packets are included in later packets.

use std::io::Write;
use std::num::NonZero;
use std::path::PathBuf;

use trackway_ctf::read::ByteSource;

use super::output::OutputFolder;
use super::places::{Origin, UniqueNames, output_paths, remove_duplicate_folders};
use super::streams::{StreamWork, write_streams};
use super::{ExportError, ExportSettings, ExportSummary};
use crate::folder::METADATA;
use crate::input::{Input, NamedTrace};
use crate::select::Selection;
use crate::stream::collect_trace_streams;

/// Writes the selected events of `inputs` to the folder of `export`, by `jobs` threads. Each input
/// is paired with its folder, and keeps its path relative to the searched folder. Duplicate folders
/// are read once. Damage is reported to `messages` as it is found.
///
/// # Errors
///
/// Returns an error if the folder is not empty, a write fails, no event was kept, or the export was
/// stopped. Then no output remains.
pub fn trim_traces<B: ByteSource + Sync>(
    inputs: Vec<(Input<B>, PathBuf)>,
    selection: &Selection<'_>,
    export: &ExportSettings<'_>,
    jobs: NonZero<usize>,
    messages: &mut dyn Write,
) -> Result<ExportSummary, ExportError> {
    let folder = OutputFolder::new(&export.folder)?;
    let inputs = remove_duplicate_folders(inputs);
    let origins: Vec<_> = inputs.iter().map(|(input, path)| Origin::new(input, path)).collect();
    let mut traces = Vec::new();
    for ((input, path), place) in inputs.into_iter().zip(output_paths(&origins)) {
        let to = folder.make_trace_folder(&place, &path)?;
        let (trace, files) = NamedTrace::of(input);
        traces.push((trace, files, to));
    }
    let mut works = Vec::new();
    for (trace, files, to) in &traces {
        let mut names = UniqueNames::default();
        names.claim(METADATA);
        for file in files {
            let to = to.join(names.claim_like(&file.name));
            // Each file remains one file, even if several files are one stream.
            let streams =
                collect_trace_streams(trace, std::slice::from_ref(file), &[], selection.range);
            works.extend(streams.into_iter().map(|stream| StreamWork { stream, to: to.clone() }));
        }
    }
    let done = write_streams(&works, selection, export, jobs, messages)?;
    folder.keep_contents()?;
    Ok(ExportSummary { traces: traces.len() as u64, ..done })
}
