//! Traces put together (`trackway merge`): chunks and snapshots of one trace become one, different
//! traces lie side by side.
//!
//! A stream's packets, wherever they were, are written one after another in the order of time;
//! of a packet that several files have (snapshots overlap), the longest is written.

use std::io::Write;
use std::num::NonZero;
use std::path::PathBuf;

use trackway_ctf::read::Bytes;

use super::output::Folder;
use super::places::{Names, Origin, distinct, places};
use super::streams::{StreamWork, write_streams};
use super::{Export, ExportError, Exported};
use crate::folder::METADATA;
use crate::input::{Input, Joined, NamedTrace, joined};
use crate::select::{Range, Selection};
use crate::stream::streams_of;

/// Writes `inputs` to the folder of `export`, by `jobs` threads; with each input is the folder
/// that it was found in, and a folder that is there twice is read once. Traces keep their places
/// as by [`trim()`](super::trim()); a trace of several pieces has that of the first. Damage is
/// reported to `messages`, as it is found.
///
/// # Errors
///
/// If the folder is not empty, something cannot be written, there is no packet to be written, or
/// the writing was stopped; then nothing is left of it.
pub fn join<B: Bytes + Sync>(
    inputs: Vec<(Input<B>, PathBuf)>,
    export: &Export<'_>,
    jobs: NonZero<usize>,
    messages: &mut dyn Write,
) -> Result<Exported, ExportError> {
    let folder = Folder::new(&export.folder)?;
    let inputs = distinct(inputs);
    let found: Vec<_> = inputs.iter().map(|(input, path)| Origin::new(input, path)).collect();
    let groups = joined(inputs);
    // A trace's place is its first piece's, whichever piece has its metadata.
    let origins: Vec<_> =
        groups.iter().filter_map(|group| found.get(group.first).cloned()).collect();
    let mut traces = Vec::new();
    for (Joined { input, with: path, .. }, place) in groups.into_iter().zip(places(&origins)) {
        let to = folder.trace(&place, &path)?;
        let (trace, files) = NamedTrace::of(input);
        traces.push((trace, files, to));
    }
    let mut works = Vec::new();
    for (trace, files, to) in &traces {
        let mut names = Names::default();
        names.give(METADATA);
        for stream in streams_of(trace, files, &[], Range::default()) {
            let name = stream.name;
            works.push(StreamWork { to: to.join(names.give_as(name)), stream });
        }
    }
    let done = write_streams(&works, &Selection::default(), export, jobs, messages)?;
    folder.done()?;
    Ok(Exported { traces: traces.len() as u64, ..done })
}
