//! Traces cut to a range of time, or to some of their events.
//!
//! Packets within the range go over as they are; those that its ends cut, and all packets where
//! only some events are wanted, are rewritten. Counts of what the tracer lost stay what they were:
//! they are totals, so that those of packets that are left out are still in those that follow.

use std::io::Write;
use std::num::NonZero;
use std::path::PathBuf;

use trackway_ctf::read::Bytes;

use super::output::Folder;
use super::places::{Names, Origin, distinct, places};
use super::streams::{StreamWork, write_streams};
use super::{Export, ExportError, Exported};
use crate::folder::METADATA;
use crate::input::{Input, NamedTrace};
use crate::select::Selection;
use crate::stream::streams_of;

/// Writes the selected events of `inputs` to the folder of `export`, by `jobs`
/// threads; with each input is the folder that it was found in, and it keeps its place below the
/// one that was searched. A folder that is there twice is read once. Damage is reported to
/// `messages`, as it is found.
///
/// # Errors
///
/// If the folder is not empty, something cannot be written, nothing was kept, or the writing was
/// stopped; then nothing is left of it.
pub fn trim<B: Bytes + Sync>(
    inputs: Vec<(Input<B>, PathBuf)>,
    selection: &Selection<'_>,
    export: &Export<'_>,
    jobs: NonZero<usize>,
    messages: &mut dyn Write,
) -> Result<Exported, ExportError> {
    let folder = Folder::new(&export.folder)?;
    let inputs = distinct(inputs);
    let origins: Vec<_> = inputs.iter().map(|(input, path)| Origin::new(input, path)).collect();
    let mut traces = Vec::new();
    for ((input, path), place) in inputs.into_iter().zip(places(&origins)) {
        let to = folder.trace(&place, &path)?;
        let (trace, files) = NamedTrace::of(input);
        traces.push((trace, files, to));
    }
    let mut works = Vec::new();
    for (trace, files, to) in &traces {
        let mut names = Names::default();
        names.give(METADATA);
        for file in files {
            let to = to.join(names.give_as(&file.name));
            // Each file stays one, also where several are one stream.
            let streams = streams_of(trace, std::slice::from_ref(file), &[], selection.range);
            works.extend(streams.into_iter().map(|stream| StreamWork { stream, to: to.clone() }));
        }
    }
    let done = write_streams(&works, selection, export, jobs, messages)?;
    folder.done()?;
    Ok(Exported { traces: traces.len() as u64, ..done })
}
