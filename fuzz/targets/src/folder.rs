//! Whole folders: several traces, each with its metadata and data files, read by `reader` and
//! printed. What it writes must not depend on threads, nor on the size of its pieces.
//!
//! An input is any number of files, one behind another:
//!
//! ```text
//! folder u8 | name u8, 0: the metadata | size u16, little endian | content
//! ```

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::num::NonZero;

use trackway_ctf::read::Trace;
use trackway_ctf::text::{Pretty, PrettyOptions, utc};
use trackway_reader::{DataFile, Index, Input, Selection, Settings, print};

use crate::Bound;

/// Folders and files that are told apart.
const FOLDERS: u8 = 4;
const FILES: u8 = 8;
/// The first name of an index.
const INDEXES: u8 = 5;
/// How much text is taken of an input. An event's line repeats its packet's context, so text may
/// be the square of its input.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// Each line has an end.
pub(crate) const LINES: Bound = Bound { per_byte: 0, base: TEXT_BYTES_MAX as u64 };
/// Buffers for each file, and lines.
pub(crate) const ALLOCATIONS: Bound = Bound { per_byte: 64, base: 64 << 10 };
/// Windows and batches of all files.
pub(crate) const MEMORY: Bound = Bound { per_byte: 256, base: 32 << 20 };

/// Prints all traces of a folder. The work: lines.
pub fn folder(bytes: &[u8]) -> u64 {
    let folders = folders(bytes);
    let alone = text(&folders, Settings { jobs: NonZero::<usize>::MIN, ..Settings::default() });
    let jobs = NonZero::new(2).unwrap_or(NonZero::<usize>::MIN);
    let small = text(&folders, Settings { jobs, batch_bytes: 64, progress: None });
    assert!(alone.output == small.output, "lines depend on threads or batches");
    // Where the text was cut, so were they, in other places.
    let is_cut = alone.output.len() == TEXT_BYTES_MAX;
    assert!(is_cut || alone.messages == small.messages, "messages depend on threads or batches");
    alone.output.iter().filter(|&&byte| byte == b'\n').count() as u64
}

/// Files of each folder, by name.
type Folders<'bytes> = BTreeMap<u8, BTreeMap<u8, &'bytes [u8]>>;

fn folders(mut bytes: &[u8]) -> Folders<'_> {
    let mut folders = Folders::new();
    while let Some(([folder, name, low, high], rest)) = bytes.split_first_chunk::<4>() {
        let size = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
        let (content, behind) = rest.split_at(size);
        folders.entry(folder % FOLDERS).or_default().insert(name % FILES, content);
        bytes = behind;
    }
    folders
}

fn text(folders: &Folders<'_>, settings: Settings) -> Text {
    let mut inputs = Vec::new();
    for (name, files) in folders {
        let Some(Ok(trace)) = files.get(&0).map(|metadata| Trace::parse(metadata)) else {
            continue;
        };
        // Names 1 to 4 are streams, 5 to 7 the indexes of the first three.
        let streams = files.iter().filter(|(name, _)| (1..INDEXES).contains(*name));
        let files = streams.map(|(name, bytes)| {
            let mut file = DataFile::new(name.to_string(), *bytes);
            let index = files.get(&(name + INDEXES - 1)).copied();
            file.index = index.and_then(|index| Index::open(index).ok());
            file
        });
        inputs.push(Input { trace, folder: name.to_string(), files: files.collect() });
    }
    let mut text = Text::default();
    let Text { output, messages } = &mut text;
    let mut messages = Taken(messages);
    // It may end early: then there was too much text.
    let _ = print(
        inputs,
        &Selection::default(),
        &Pretty::new(PrettyOptions::default(), utc),
        &settings,
        &mut Taken(output),
        &mut messages,
    );
    text
}

/// What was written.
#[derive(Debug, Default)]
struct Text {
    output: Vec<u8>,
    messages: Vec<u8>,
}

/// Takes text until there is too much of it.
struct Taken<'text>(&'text mut Vec<u8>);

impl Write for Taken<'_> {
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
