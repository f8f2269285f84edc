//! Growing traces followed: what has come is written in time order, as soon as that is known.
//!
//! Ten times a second the traces are looked at. Each look finds the packets that are new and
//! whole, and says up to which time no more events are to come ([`growth`]); events up to there are
//! written through the same pipeline as those of a trace that has ended. What comes later than it
//! should (a tracer that lags) is written when it comes.
//!
//! A trace that `trackway record` writes has ended when nobody holds its folder's lock any more;
//! of others' that cannot be known.

mod growth;
#[cfg(test)]
mod tests;
mod told;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use trackway_ctf::read::Trace;
use trackway_ctf::text::{LineFormat, Shown};

use crate::folder::{self, Found, OpenError};
use crate::{Before, Selection, Settings, print_on};
use growth::Growth;
use told::Told;

/// How often traces are looked at.
const PERIOD: Duration = Duration::from_millis(100);
/// What a trace's environment has if `trackway record` wrote it.
const TRACKWAY: &str = "trackway_version";

/// Writes the events of the traces in `paths` as [`crate::print`] does, and those that come, until
/// the traces have ended, if that can be known, or the program is. `prepare` changes each trace
/// that was read before it is used, mostly its clocks. Whether nothing was damaged.
///
/// # Errors
///
/// If one of `paths` cannot be read, or `output` or `messages` cannot be written. A folder that has
/// no trace yet is waited for.
pub fn follow(
    paths: &[PathBuf],
    prepare: &dyn Fn(&mut Trace),
    selection: &Selection<'_>,
    format: &(impl LineFormat + Sync),
    settings: &Settings,
    output: &mut dyn Write,
    messages: &mut dyn Write,
) -> Result<bool, OpenError> {
    let begin = Instant::now();
    let mut growth = Growth::default();
    let mut told = Told::default();
    let mut shown = Shown::default();
    let mut preamble = format.preamble();
    let mut before = None;
    loop {
        let sizes = Some(folder::sizes(paths));
        let is_same = sizes == before;
        before = sizes;
        // In this order: what was written before the end is seen by the look after it.
        let ended = is_same && has_ended(paths);
        if is_same && !ended && !growth.is_waiting() && !told.is_doubtful() {
            std::thread::sleep(PERIOD);
            continue;
        }
        let mut said = Vec::new();
        let mut found = look(paths, &mut said)?;
        let now = begin.elapsed();
        let saying = match ended {
            true => told.say(&said, messages),
            // What is wrong now may be half written.
            false => told.doubt(&said, now, messages),
        };
        saying.map_err(OpenError::Message)?;
        found.inputs.iter_mut().for_each(|input| prepare(&mut input.trace));
        if growth.look(&mut found.inputs, now, ended) {
            let mut said = Vec::new();
            let before = Before { shown, preamble: std::mem::take(&mut preamble) };
            let streams: (&mut dyn Write, &mut dyn Write) = (&mut *output, &mut said);
            let printed = print_on(found.inputs, selection, format, settings, before, streams);
            (_, shown) = printed.map_err(OpenError::Message)?;
            told.say(&said, messages).map_err(OpenError::Message)?;
        }
        if ended {
            return Ok(!told.damage());
        }
        std::thread::sleep(PERIOD);
    }
}

/// The traces that are there.
fn look(paths: &[PathBuf], said: &mut Vec<u8>) -> Result<Found, OpenError> {
    match folder::open(paths, said) {
        Err(OpenError::NoTrace(_)) => {
            Ok(Found { inputs: Vec::new(), folders: Vec::new(), is_whole: true })
        }
        found => found,
    }
}

/// Whether all traces in `paths` are known to have ended.
fn has_ended(paths: &[PathBuf]) -> bool {
    let Ok(found) = folder::open(paths, &mut std::io::sink()) else { return false };
    let is_ours = |trace: &Trace| trace.environment(TRACKWAY).is_some();
    found.is_whole
        && !found.inputs.is_empty()
        && found.inputs.iter().all(|input| is_ours(&input.trace))
        && !paths.iter().any(|path| is_recorded(path, 0))
}

/// Whether the folder `path`, or one below, is locked by a recorder.
fn is_recorded(path: &Path, depth: usize) -> bool {
    let Ok(folder) = File::open(path) else { return false };
    if matches!(folder.try_lock_shared(), Err(std::fs::TryLockError::WouldBlock)) {
        return true;
    }
    drop(folder);
    let below = if depth < folder::DEPTH_MAX { folder::subfolders(path) } else { return false };
    below.unwrap_or_default().iter().any(|folder| is_recorded(folder, depth + 1))
}
