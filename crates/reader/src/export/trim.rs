//! Traces cut to a range of time, or to some of their events.
//!
//! Packets within the range go over as they are; those that its ends cut, and all packets where
//! only some events are wanted, are rewritten. Counts of what the tracer lost stay what they were:
//! they are totals, so that those of packets that are left out are still in those that follow.

use std::fs;
use std::io::Write;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use trackway_ctf::read::{
    Bytes, SourceStream, StreamClass, StreamDecoder, Trace, packets_stand_alone,
};

use super::output::{Folder, Names, PacketFile};
use super::packets::{Found, Numbers, Target};
use super::{Export, ExportError, Exported, Steps};
use crate::folder::METADATA;
use crate::input::{DataFile, Input};
use crate::select::Selection;

/// Writes those events of `inputs` that are asked for to the folder of `export`, by `jobs`
/// threads; with each input is the folder that it was found in, and it keeps its place below the
/// one that was searched. Damage is told to `messages`.
///
/// # Errors
///
/// If the folder is not empty, something cannot be written, or the writing was stopped; then
/// nothing is left of it.
pub fn trim<B: Bytes + Sync>(
    inputs: &[(Input<B>, PathBuf)],
    selection: &Selection<'_>,
    export: &Export<'_>,
    jobs: NonZero<usize>,
    messages: &mut dyn Write,
) -> Result<Exported, ExportError> {
    let folder = Folder::new(&export.folder)?;
    let mut works = Vec::new();
    for (index, (place, (input, source))) in places(inputs).into_iter().zip(inputs).enumerate() {
        let to = folder.place().join(place);
        let metadata = to.join(METADATA);
        fs::create_dir_all(&to).map_err(ExportError::write(&to))?;
        fs::copy(source.join(METADATA), &metadata).map_err(ExportError::write(&metadata))?;
        let mut names = Names::default();
        names.give(METADATA);
        for file in &input.files {
            let name = Path::new(&file.name).file_name().unwrap_or_default().to_string_lossy();
            works.push((index, file, to.join(names.give(&name))));
        }
    }
    let total = works.iter().map(|(_, file, _)| file.bytes.length()).sum();
    let steps = Steps::new(export, total);
    let results = in_parallel(&works, jobs, |(index, file, to)| {
        let (input, _) = inputs.get(*index)?;
        let trim = Trim {
            trace: &input.trace,
            file,
            selection,
            is_every_name: selection.wants_all_names(&input.trace),
        };
        Some(trim.write(to, &steps))
    });
    let mut all = Exported { is_whole: true, traces: inputs.len() as u64, ..Exported::default() };
    for result in results.into_iter().flatten() {
        let (exported, text) = result?;
        messages.write_all(text.as_bytes()).map_err(ExportError::Message)?;
        all.add(&exported);
    }
    steps.check()?;
    folder.done()?;
    Ok(all)
}

/// Where each trace goes: where it is below the folder that was searched, and if several were,
/// below that one's name.
fn places<B>(inputs: &[(Input<B>, PathBuf)]) -> Vec<PathBuf> {
    let root = |(input, path): &(Input<B>, PathBuf)| -> PathBuf {
        let depth = Path::new(&input.folder).components().count();
        path.ancestors().nth(depth).unwrap_or(path).to_owned()
    };
    let mut roots: Vec<PathBuf> = inputs.iter().map(root).collect();
    roots.dedup();
    let mut names = Names::default();
    let named: Vec<(PathBuf, String)> = roots
        .into_iter()
        .map(|root| {
            let name = root.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let name = names.give(&name);
            (root, name)
        })
        .collect();
    let place = |input: &(Input<B>, PathBuf)| {
        let root = root(input);
        let name = named.iter().find(|(known, _)| *known == root).map(|(_, name)| name);
        let name = name.filter(|_| named.len() > 1);
        PathBuf::from(name.map_or("", String::as_str)).join(&input.0.folder)
    };
    inputs.iter().map(place).collect()
}

/// What `work` makes of each of `works`, in their order, by `jobs` threads.
pub(super) fn in_parallel<W: Sync, R: Send>(
    works: &[W],
    jobs: NonZero<usize>,
    work: impl Fn(&W) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(works.len()));
    std::thread::scope(|scope| {
        for _ in 0..jobs.get().min(works.len()) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(one) = works.get(index) else { return };
                    let result = work(one);
                    let mut results = results.lock().unwrap_or_else(|locked| locked.into_inner());
                    results.push((index, result));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(|locked| locked.into_inner());
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

/// What is done with one file.
struct Trim<'a, B> {
    trace: &'a Trace,
    file: &'a DataFile<B>,
    selection: &'a Selection<'a>,
    /// Whether the time alone says what is kept.
    is_every_name: bool,
}

impl<B: Bytes> Trim<'_, B> {
    /// Writes the file's packets; what was done, and what is damaged.
    fn write(&self, to: &Path, steps: &Steps<'_>) -> Result<(Exported, String), ExportError> {
        let Self { trace, file, selection, is_every_name } = *self;
        let mut target = Target::new(steps, PacketFile::new(to.to_owned()));
        // Packets that are left out within a stream must not look like lost ones.
        target.numbers = (!is_every_name).then(Numbers::default);
        let mut source = SourceStream::new(&file.bytes);
        let mut decoder = StreamDecoder::new(trace);
        while !source.is_at_end() {
            let before = source.next().0;
            let Some(found) = target.begin(&file.name, &mut source, &mut decoder) else { continue };
            let Some(class) = decoder.class() else { continue };
            let is_all = selection.range.is_everything() && is_every_name;
            if !is_all && !packets_stand_alone(class) {
                let why = "nothing can be cut out: its packets do not say in full when they begin";
                target.damaged(&file.name, why);
                break;
            }
            self.packet(&mut target, &mut source, &mut decoder, &found)?;
            steps.read(source.next().0 - before);
        }
        if target.file.finish()? {
            target.done.streams += 1;
        }
        Ok((target.done, target.messages))
    }

    /// Writes the packet that was just begun, or what is kept of it.
    fn packet(
        &self,
        target: &mut Target<'_>,
        source: &mut SourceStream<&B>,
        decoder: &mut StreamDecoder<'_>,
        found: &Found,
    ) -> Result<(), ExportError> {
        let Self { trace, file, selection, is_every_name } = *self;
        let (range, clock) = (selection.range, decoder.class().and_then(StreamClass::clock));
        if range.is_after(&found.packet, clock) || range.is_before(&found.packet, clock) {
            return Ok(());
        }
        if is_every_name && found.is_complete && range.contains(&found.packet, clock) {
            return target.copy(file, found);
        }
        target.cut(trace, &file.name, source, decoder, |event| {
            range.has(event.time) && selection.wants(event.class)
        })
    }
}
