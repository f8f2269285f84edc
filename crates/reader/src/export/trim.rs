//! Traces cut to a range of time, or to some of their events.
//!
//! Packets within the range go over as they are; those that its ends cut, and all packets where
//! only some events are wanted, are rewritten. Counts of what the tracer lost stay what they were:
//! they are totals, so that those of packets that are left out are still in those that follow.

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

/// Writes the selected events of `inputs` to the folder of `export`, by `jobs`
/// threads; with each input is the folder that it was found in, and it keeps its place below the
/// one that was searched. A folder that is there twice is read once. Damage is reported to
/// `messages`, as it is found.
///
/// # Errors
///
/// If the folder is not empty, something cannot be written, nothing was kept, or the writing was
/// stopped; then nothing is left of it.
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
            // Each file stays one, also where several are one stream.
            let streams =
                collect_trace_streams(trace, std::slice::from_ref(file), &[], selection.range);
            works.extend(streams.into_iter().map(|stream| StreamWork { stream, to: to.clone() }));
        }
    }
    let done = write_streams(&works, selection, export, jobs, messages)?;
    folder.keep_contents()?;
    Ok(ExportSummary { traces: traces.len() as u64, ..done })
}
