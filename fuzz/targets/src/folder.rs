//! Whole folders: several traces, each with metadata and data files, which `reader` prints, counts,
//! trims and merges. The output must not depend on the number of threads or the batch size; the
//! counts must equal those of the printed events; and a trim or merge of whole traces must print
//! the same text.
//!
//! An input is any number of files, one after another:
//!
//! ```text
//! folder u8 | name u8, 0: the metadata | size u16, little endian | content
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::num::NonZero;
use std::sync::atomic::AtomicBool;

use trackway_ctf::read::{ByteSource, Trace};
use trackway_reader::{
    DataFile, ExportError, ExportSettings, Index, Input, Range, Selection, Settings, Statistics,
    Summary, collect_statistics, merge_traces, open_traces, print_events, trim_traces,
};
use trackway_render::{LineOutput, Pretty, PrettyOptions, utc_date_time};
use trackway_testkit::TemporaryFolder;

use crate::Bound;

/// Number of distinct folders and files.
const FOLDERS: u8 = 4;
const FILES: u8 = 8;
/// First file name of an index; lower names are streams.
const INDEXES: u8 = 5;
/// Maximum text output for one input, in bytes. The line of an event repeats its packet's context,
/// so the text may grow with the square of the input.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// Limit of lines: each line has at least one byte, its end.
pub(crate) const LINES: Bound = Bound { per_byte: 0, base: TEXT_BYTES_MAX as u64 };
/// Limit of allocations: buffers for each file, and lines.
pub(crate) const ALLOCATIONS: Bound = Bound { per_byte: 64, base: 64 << 10 };
/// Limit of memory: windows and batches of all files.
pub(crate) const MEMORY: Bound = Bound { per_byte: 256, base: 32 << 20 };

/// Reads all traces of a folder. The work is the number of lines.
pub fn read_folder(bytes: &[u8]) -> u64 {
    let folders = parse_folders(bytes);
    let all = Selection::default();
    let alone = print_traces(open_inputs(&folders), &all, ONE_JOB);
    let small = print_traces(
        open_inputs(&folders),
        &all,
        Settings { jobs: TWO_JOBS, batch_bytes: 64, ..ONE_JOB },
    );
    assert!(alone.output == small.output, "lines depend on threads or batches");
    // If the text was truncated, the second text was, too, but at another position.
    let is_cut = alone.summary.is_none();
    assert!(is_cut || alone.messages == small.messages, "messages depend on threads or batches");
    let counted = compute_statistics(&folders);
    if let Some(summary) = alone.summary {
        assert_eq!(summary.events, counted.count(), "events are counted as they are printed");
        assert_eq!(summary.is_whole, counted.is_whole, "damage is found as it is when printed");
        // Each input makes one of these checks, since one takes as long as all the others.
        let number = bytes.len() / 3;
        match bytes.len() % 3 {
            0 => check_export(&folders, &all, &alone, true),
            1 => check_export(&folders, &all, &alone, false),
            _ => {
                let some = partial_selection(&counted, number);
                check_export(
                    &folders,
                    &some,
                    &print_traces(open_inputs(&folders), &some, ONE_JOB),
                    false,
                );
            }
        }
    }
    alone.output.iter().filter(|&&byte| byte == b'\n').count() as u64
}

const ONE_JOB: Settings =
    Settings { jobs: NonZero::<usize>::MIN, batch_bytes: 128 << 10, progress: None };
const TWO_JOBS: NonZero<usize> = NonZero::new(2).expect("not zero");

/// Returns the statistics of all traces, which must not depend on threads.
fn compute_statistics(folders: &Folders<'_>) -> Statistics {
    let by = |jobs| {
        let mut messages = Vec::new();
        let all =
            collect_statistics(open_inputs(folders), &Selection::default(), jobs, &mut messages)
                .expect("memory takes all");
        (all, messages.iter().filter(|&&byte| byte == b'\n').count())
    };
    let (alone, two) = (by(ONE_JOB.jobs), by(TWO_JOBS));
    assert_eq!(alone, two, "counts depend on threads");
    alone.0
}

/// Returns a selection of the events, a different one for each number.
fn partial_selection(counted: &Statistics, number: usize) -> Selection<'static> {
    let (first, last) = (counted.first, counted.last);
    let middle = first.zip(last).map(|(first, last)| first.midpoint(last));
    let (begin, end) = match number % 5 {
        0 => return Selection { events: &|name| name.len() % 2 == 0, ..Selection::default() },
        1 => (middle, None),
        2 => (None, middle),
        // The range begins at an event, which it includes.
        3 => (last, None),
        _ => (None, first),
    };
    Selection { range: Range { begin, end }, ..Selection::default() }
}

/// Trims or merges traces, and checks that the result prints as `expected`.
fn check_export(folders: &Folders<'_>, selection: &Selection<'_>, expected: &Text, is_merge: bool) {
    let place = TemporaryFolder::new();
    let inputs = open_inputs(folders);
    let mut found = Vec::new();
    for input in inputs {
        // Trim and merge read only the metadata from these folders.
        let folder = place.join("from").join(&input.folder);
        let metadata = input.folder.parse().ok().and_then(|name| folders.get(&name)?.get(&0));
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join("metadata"), metadata.expect("it was read")).expect("a file");
        found.push((input, folder));
    }
    let stop = AtomicBool::new(false);
    let export = ExportSettings { folder: place.join("to"), stop: &stop, progress: &|_, _| {} };
    let mut messages = Vec::new();
    let done = match is_merge {
        true => merge_traces(found, &export, TWO_JOBS, &mut messages),
        false => trim_traces(found, selection, &export, TWO_JOBS, &mut messages),
    };
    let summary = expected.summary.as_ref();
    let is_whole = summary.is_some_and(|summary| summary.is_whole);
    match done {
        Err(ExportError::Nothing) => {
            assert!(!place.join("to").exists(), "nothing is left");
            assert!(!is_whole || !messages.is_empty() || expected.output.is_empty());
        }
        Err(error) => panic!("{error}: {error:?}"),
        Ok(done) => {
            assert_eq!(done.is_whole, messages.is_empty(), "damage is told");
            assert!(is_whole || !done.is_whole || !selection.range.eq(&Range::default()));
            let written = open_traces(&[place.join("to")], &mut io::sink()).expect("traces");
            let again = print_traces(written.inputs, &Selection::default(), ONE_JOB);
            if done.is_whole && is_whole {
                assert!(again.output == expected.output, "what was written is what was read");
            }
        }
    }
}

/// Files of each folder, by folder and file name.
type Folders<'bytes> = BTreeMap<u8, BTreeMap<u8, &'bytes [u8]>>;

fn parse_folders(mut bytes: &[u8]) -> Folders<'_> {
    let mut folders = Folders::new();
    while let Some(([folder, name, low, high], rest)) = bytes.split_first_chunk::<4>() {
        let size = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
        let (content, behind) = rest.split_at(size);
        folders.entry(folder % FOLDERS).or_default().insert(name % FILES, content);
        bytes = behind;
    }
    folders
}

/// Returns the traces that can be opened.
fn open_inputs<'bytes>(folders: &Folders<'bytes>) -> Vec<Input<&'bytes [u8]>> {
    let mut inputs = Vec::new();
    for (name, files) in folders {
        let Some(Ok(trace)) = files.get(&0).map(|metadata| Trace::parse(metadata)) else {
            continue;
        };
        // Names 1 to 4 are streams, 5 to 7 the indexes of the first three streams.
        let streams = files.iter().filter(|(name, _)| (1..INDEXES).contains(*name));
        let files = streams.map(|(name, bytes)| {
            let mut file = DataFile::new(name.to_string(), *bytes);
            let index = files.get(&(name + INDEXES - 1)).copied();
            file.index = index.and_then(|index| Index::open(index).ok());
            file
        });
        inputs.push(Input { trace, folder: name.to_string(), files: files.collect() });
    }
    inputs
}

fn print_traces<B: ByteSource + Sync>(
    inputs: Vec<Input<B>>,
    selection: &Selection<'_>,
    settings: Settings,
) -> Text {
    let mut text = Text::default();
    let Text { output, messages, .. } = &mut text;
    let format = Pretty::new(PrettyOptions::default(), utc_date_time);
    let (mut output, mut messages) = (BoundedText(output), BoundedText(messages));
    let summary = print_events(
        inputs,
        selection,
        &mut LineOutput::new(format, &mut output),
        &settings,
        &mut messages,
    );
    // Printing may end early if there is too much text.
    text.summary = summary.ok();
    text
}

/// Output of `trackway print` and its messages.
#[derive(Debug, Default)]
struct Text {
    output: Vec<u8>,
    messages: Vec<u8>,
    /// Summary of the output; `None` if there was too much text.
    summary: Option<Summary>,
}

/// A writer that fails at the text limit.
struct BoundedText<'text>(&'text mut Vec<u8>);

impl Write for BoundedText<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let most = TEXT_BYTES_MAX - self.0.len();
        if most == 0 {
            return Err(io::Error::other("enough"));
        }
        let taken = bytes.get(..most).unwrap_or(bytes);
        self.0.extend_from_slice(taken);
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
