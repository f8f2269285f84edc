//! `trackway print`: traces as text, byte for byte as babeltrace2 prints them by default.
//!
//! What lines look like and in which order they come is `trackway_ctf::text`'s; here is only
//! what needs the system: folders searched, files read piece by piece, the local time zone.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use trackway_ctf::read::{Bytes, Trace};
use trackway_ctf::text::{self, Input};

use crate::local_time;

/// Name of the file that makes a folder a trace.
const METADATA: &str = "metadata";
/// Largest metadata that is read, in bytes.
const METADATA_BYTES_MAX: u64 = 256 << 20;
/// Deepest folder that is searched for traces, counted from the one given.
const DEPTH_MAX: usize = 64;
/// Most files that are kept open at once, which is how many streams a trace may have here.
const STREAMS_MAX: usize = 16_384;

/// Prints all traces in the folders `paths`, at any depth, to `output`, and what tracers lost and
/// what is damaged to `warnings`. Whether everything was read: `false` if damage was told of.
///
/// # Errors
///
/// If a folder has no trace, or cannot be read; if `output` or `warnings` cannot be written.
pub(crate) fn run(
    paths: &[PathBuf],
    output: &mut dyn Write,
    warnings: &mut dyn Write,
) -> anyhow::Result<bool> {
    let mut inputs = Vec::new();
    let mut whole = true;
    for path in paths {
        // As babeltrace2, whose warnings name streams by their absolute path.
        let path = fs::canonicalize(path).with_context(|| format!("cannot open {path:?}"))?;
        let mut folders = Vec::new();
        find_traces(&path, 0, &mut folders)?;
        anyhow::ensure!(!folders.is_empty(), "no trace in {path:?}");
        for folder in folders {
            match open_trace(&folder, &path) {
                Ok(input) => inputs.push(input),
                Err(error) => {
                    whole = false;
                    writeln!(warnings, "trackway: {}: {error:#}", folder.display())?;
                }
            }
        }
    }
    whole &= text::print(inputs, local_time::of_day, output, warnings)?;
    Ok(whole)
}

/// Adds the trace folders at and below `folder`, in the order of their names.
fn find_traces(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    if folder.join(METADATA).is_file() {
        found.push(folder.to_owned());
    }
    if depth == DEPTH_MAX {
        return Ok(());
    }
    let context = || format!("cannot list {folder:?}");
    let mut folders = Vec::new();
    for entry in fs::read_dir(folder).with_context(context)? {
        let entry = entry.with_context(context)?;
        // Not through links: they may lead in circles.
        if entry.file_type().with_context(context)?.is_dir() {
            folders.push(entry.path());
        }
    }
    folders.sort();
    folders.iter().try_for_each(|folder| find_traces(folder, depth + 1, found))
}

fn open_trace(folder: &Path, root: &Path) -> anyhow::Result<Input<OpenFile>> {
    let metadata = folder.join(METADATA);
    let size = fs::metadata(&metadata)?.len();
    anyhow::ensure!(size <= METADATA_BYTES_MAX, "metadata of {size} bytes is too large");
    let trace = Trace::parse(&fs::read(&metadata)?)?;
    let mut streams = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (name, path) = (entry.file_name(), entry.path());
        let ignored = name == METADATA || name.as_encoded_bytes().starts_with(b".");
        if ignored || !path.is_file() {
            continue;
        }
        anyhow::ensure!(streams.len() < STREAMS_MAX, "more than {STREAMS_MAX} streams");
        let file = File::open(&path).with_context(|| format!("cannot open {path:?}"))?;
        let length = file.metadata()?.len();
        streams.push((path.display().to_string(), OpenFile { file, length }));
    }
    let relative = folder.strip_prefix(root).unwrap_or(folder).display().to_string();
    Ok(Input { trace, folder: relative, streams })
}

/// A data stream's file, as long as it was when it was opened.
struct OpenFile {
    file: File,
    length: u64,
}

impl Bytes for OpenFile {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }
}
