//! Merging of traces (`trackway merge`): chunks and snapshots of one trace become one trace;
//! different traces are put side by side.
//!
//! The packets of a stream, from all of its files, are written in the order of time. If several
//! files have the same packet (snapshots overlap), the longest copy is written.

use std::io::Write;
use std::num::NonZero;
use std::path::PathBuf;

use trackway_ctf::read::ByteSource;

use super::output::OutputFolder;
use super::places::{Origin, UniqueNames, output_paths, remove_duplicate_folders};
use super::streams::{StreamWork, write_streams};
use super::{ExportError, ExportSettings, ExportSummary};
use crate::folder::METADATA;
use crate::input::{Input, JoinedTrace, NamedTrace, join_trace_pieces};
use crate::select::{Range, Selection};
use crate::stream::collect_trace_streams;

/// Writes `inputs` to the folder of `export`, by `jobs` threads. Each input is paired with its
/// folder, and duplicate folders are read once. Traces keep their places, as in
/// [`trim()`](super::trim_traces()); a trace of several parts keeps the place of the first part.
/// Damage is reported to `messages` as it is found.
///
/// # Errors
///
/// Returns an error if the folder is not empty, a write fails, there is no packet to write, or the
/// export was stopped. Then no output remains.
pub fn merge_traces<B: ByteSource + Sync>(
    inputs: Vec<(Input<B>, PathBuf)>,
    export: &ExportSettings<'_>,
    jobs: NonZero<usize>,
    messages: &mut dyn Write,
) -> Result<ExportSummary, ExportError> {
    let folder = OutputFolder::new(&export.folder)?;
    let inputs = remove_duplicate_folders(inputs);
    let found: Vec<_> = inputs.iter().map(|(input, path)| Origin::new(input, path)).collect();
    let groups = join_trace_pieces(inputs);
    // A trace has the place of its first part, whichever part has its metadata.
    let origins: Vec<_> =
        groups.iter().filter_map(|group| found.get(group.first).cloned()).collect();
    let mut traces = Vec::new();
    for (JoinedTrace { input, with: path, .. }, place) in
        groups.into_iter().zip(output_paths(&origins))
    {
        let to = folder.make_trace_folder(&place, &path)?;
        let (trace, files) = NamedTrace::of(input);
        traces.push((trace, files, to));
    }
    let mut works = Vec::new();
    for (trace, files, to) in &traces {
        let mut names = UniqueNames::default();
        names.claim(METADATA);
        for stream in collect_trace_streams(trace, files, &[], Range::default()) {
            let name = stream.name;
            works.push(StreamWork { to: to.join(names.claim_like(name)), stream });
        }
    }
    let done = write_streams(&works, &Selection::default(), export, jobs, messages)?;
    folder.keep_contents()?;
    Ok(ExportSummary { traces: traces.len() as u64, ..done })
}
