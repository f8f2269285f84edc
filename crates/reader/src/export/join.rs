//! Traces put together (`trackway merge`): chunks and snapshots of one trace become one, different
//! traces lie side by side.
//!
//! A stream's packets, wherever they were, are written one after another in the order of time;
//! of a packet that several files have (snapshots overlap), the longest is written.

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

/// Writes `inputs` to the folder of `export`, by `jobs` threads; with each input is the folder
/// that it was found in, and a folder that is there twice is read once. Traces keep their places
/// as by [`trim()`](super::trim_traces()); a trace of several pieces has that of the first. Damage
/// is reported to `messages`, as it is found.
///
/// # Errors
///
/// If the folder is not empty, something cannot be written, there is no packet to be written, or
/// the writing was stopped; then nothing is left of it.
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
    // A trace's place is its first piece's, whichever piece has its metadata.
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
