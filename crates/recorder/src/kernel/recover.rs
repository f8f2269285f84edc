//! Recovery of kernel events after their recorder was killed.
//!
//! The kernel freed the recorder's buffers when the recorder was killed. So lost events cannot be
//! recovered, but the trace is made valid, and the loss is reported. The index of a stream lists
//! the packets that were written: it gets an entry after the packet.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use trackway_console::IoError;
use trackway_ctf::read::Trace;
use trackway_ctf::write::{INDEX_ENTRY_BYTES, INDEX_HEADER_BYTES};

use crate::notices::Notices;
use crate::trace::completion::{self, CompletedBy};
use crate::trace::folder::TraceFolder;
use crate::trace::layout::{FACTS_FOLDER, KERNEL_FOLDER};
use crate::trace::prepare;

/// Completes the kernel's part of the trace in `root` as far as possible, and reports the losses,
/// if its recorder was killed. Leaves a trace that is being recorded unchanged. Returns true if a
/// notice was reported.
pub(crate) fn complete_kernel_part(root: &Path, notices: &Notices) -> bool {
    if !is_incomplete(root) {
        return false;
    }
    // The process that holds the lock may be completing the trace.
    let Ok(Some(lock)) = prepare::lock_folder(root) else { return false };
    // From here on the path may lead to another folder.
    let Ok(open) = TraceFolder::of(lock, root).open_below(&[KERNEL_FOLDER]) else { return false };
    let Ok(kernel) = open.current_path() else { return false };
    let facts = kernel.join(FACTS_FOLDER);
    let is_for_others = open.metadata().map_or(true, |status| status.mode() & 0o022 != 0);
    if is_for_others || !is_private_folder(&facts) || completion::is_marked(&facts) {
        return false;
    }
    let place = root.display();
    match truncate_streams(&kernel).and_then(|end_ns| {
        completion::mark_complete(&facts, CompletedBy::Assumption).map(|()| end_ns)
    }) {
        Ok(last_ns) => {
            let until = match last_ns {
                0 => "nothing of them was written".to_owned(),
                end_ns => match format_trace_time(&kernel, end_ns) {
                    Some(time) => format!("they end at {time} (UTC)"),
                    None => "they end where their indices do".to_owned(),
                },
            };
            notices.report(format_args!(
                "the kernel's events in {place}: {until}; what was in buffers when the recorder \
                 was killed (half a second at most, of a flight recorder all) is lost, and nobody \
                 knows how much it was"
            ));
        }
        Err(error) => {
            let error = IoError::from(error);
            notices.report(format_args!("cannot complete the kernel's events in {place}: {error}"));
        }
    }
    true
}

/// Returns true if the trace in `root` has an incomplete kernel part. Unless the trace is being
/// recorded, its recorder was killed.
pub(crate) fn is_incomplete(root: &Path) -> bool {
    let kernel = root.join(KERNEL_FOLDER);
    let facts = kernel.join(FACTS_FOLDER);
    is_private_folder(&kernel) && is_private_folder(&facts) && !completion::is_marked(&facts)
}

/// Formats a time of the trace in `folder`; `ns` is the time on the trace's clock.
fn format_trace_time(folder: &Path, ns: u64) -> Option<String> {
    /// Most bytes of metadata to read. The clock is near the beginning, but the parser needs the
    /// whole metadata.
    const BYTES_MAX: u64 = 64 << 20;
    let mut text = Vec::new();
    open_own_file(&folder.join("metadata")).ok()?.take(BYTES_MAX).read_to_end(&mut text).ok()?;
    let trace = Trace::parse(&text).ok()?;
    let since_1970 = u64::try_from(trace.clocks().first()?.zero_ns()?).ok()?.checked_add(ns)?;
    Some(crate::common::date::format_utc(since_1970 / 1_000_000_000))
}

/// Returns true if `folder` belongs to this user and others cannot write to it.
fn is_private_folder(folder: &Path) -> bool {
    fs::symlink_metadata(folder).is_ok_and(|status| {
        status.is_dir()
            && status.uid() == crate::common::user::effective_uid()
            && status.mode() & 0o022 == 0
    })
}

/// Truncates streams to the end of their indices. Returns the latest time in them, in ns.
fn truncate_streams(folder: &Path) -> io::Result<u64> {
    let mut latest = 0;
    for entry in fs::read_dir(folder.join("index"))? {
        let name = entry?.file_name();
        let Some(stem) = name.to_str().and_then(|name| name.strip_suffix(".idx")) else { continue };
        let index = open_own_file(&folder.join("index").join(&name))?;
        let data = match open_own_file(&folder.join(stem)) {
            // The recorder was killed before it created the data file.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            data => data?,
        };
        latest = truncate_stream(&index, &data)?.max(latest);
    }
    Ok(latest)
}

/// Truncates one stream to the end of its index. Returns the latest time in it, in ns.
fn truncate_stream(index: &File, data: &File) -> io::Result<u64> {
    let mut header = [0; INDEX_HEADER_BYTES];
    let mut reader = index;
    if reader.read_exact(&mut header).is_err() {
        return Ok(0);
    }
    let data_bytes = data.metadata()?.len();
    let entries = index.metadata()?.len().saturating_sub(INDEX_HEADER_BYTES as u64);
    // Search from the end: at most the last index entry lacks its packet.
    for entry in (0..entries / INDEX_ENTRY_BYTES as u64).rev() {
        let at = INDEX_HEADER_BYTES as u64 + entry * INDEX_ENTRY_BYTES as u64;
        let mut words = [0; INDEX_ENTRY_BYTES];
        index.read_exact_at(&mut words, at)?;
        // Layout of `index_entry`: offset, bits of the packet, …, time of the packet's end.
        let [begin, bits, end_ts] = [0, 8, 32].map(|at| {
            let mut word = [0; 8];
            word.copy_from_slice(&words[at..at + 8]);
            u64::from_be_bytes(word)
        });
        if let Some(end) = begin.checked_add(bits / 8).filter(|&end| end <= data_bytes) {
            data.set_len(end)?;
            index.set_len(at + INDEX_ENTRY_BYTES as u64)?;
            return Ok(end_ts);
        }
    }
    data.set_len(0)?;
    index.set_len(INDEX_HEADER_BYTES as u64)?;
    Ok(0)
}

fn open_own_file(path: &Path) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
    let status = file.metadata()?;
    if !status.is_file() || status.uid() != crate::common::user::effective_uid() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use trackway_session::Tracefiles;
    use trackway_testkit::TemporaryFolder;

    use super::*;
    use crate::trace::stream::{Packet, Stream, StreamId};
    use trackway_ctf::write::PACKET_HEADER_BYTES;

    /// Creates a trace whose recorder was killed after it had written three packets.
    fn create_killed_trace(folder: &TemporaryFolder) -> PathBuf {
        let place = TraceFolder::open(folder.path()).expect("a folder");
        let trace =
            crate::trace::layout::Trace::create_kernel(&place, [7; 16], 0, Vec::new(), Vec::new())
                .expect("a trace");
        let id = StreamId { uuid: [7; 16], class: 0, instance: 0, cpu: 0 };
        let place = Arc::clone(&trace.channel);
        let mut stream =
            Stream::create(&place, "kernel_0", Tracefiles::default(), id, 10).expect("a stream");
        for end_ts in [20, 30] {
            let packet =
                Packet { begin_ts: end_ts - 5, end_ts, discarded: 0, missing: 0, events: 0 };
            stream.append(&mut vec![0; PACKET_HEADER_BYTES], &packet).expect("room");
        }
        folder.path().join(KERNEL_FOLDER)
    }

    fn notices_of(folder: &TemporaryFolder) -> String {
        let notices = Notices::in_memory();
        complete_kernel_part(folder.path(), &notices);
        notices.lines().join("\n")
    }

    #[test]
    fn what_a_killed_recorder_wrote_of_the_kernel_is_whole_and_the_rest_is_said_to_be_lost() {
        let folder = TemporaryFolder::new();
        let kernel = create_killed_trace(&folder);
        let data = kernel.join("kernel_0");
        let whole = fs::read(&data).expect("a stream");
        // The recorder was writing the next packet.
        let more = [&whole[..], &[1, 2, 3]].concat();
        fs::write(&data, more).expect("room");
        let told = notices_of(&folder);
        assert!(
            told.contains("they end at 19700101T000000 (UTC)") && told.contains("is lost"),
            "{told}"
        );
        assert_eq!(fs::read(&data).expect("a stream"), whole);
        assert!(completion::is_marked(&kernel.join(FACTS_FOLDER)));
        assert_eq!(notices_of(&folder), "", "once");
    }

    #[test]
    fn an_entry_without_its_packet_goes() {
        let folder = TemporaryFolder::new();
        let kernel = create_killed_trace(&folder);
        let (data, index) = (kernel.join("kernel_0"), kernel.join("index/kernel_0.idx"));
        let bytes = fs::metadata(&data).expect("a stream").len();
        let open = |path| OpenOptions::new().write(true).open(path).expect("a file");
        open(&data).set_len(bytes - 1).expect("shorter");
        assert!(notices_of(&folder).contains("they end at"));
        assert_eq!(fs::metadata(&data).expect("a stream").len(), bytes / 3 * 2);
        let entries = fs::metadata(&index).expect("an index").len() - INDEX_HEADER_BYTES as u64;
        assert_eq!(entries, 2 * INDEX_ENTRY_BYTES as u64);
        open(&data).set_len(0).expect("shorter");
        fs::remove_file(kernel.join(FACTS_FOLDER).join("complete")).expect("a mark");
        assert!(notices_of(&folder).contains("nothing of them was written"));
    }

    #[test]
    fn what_is_being_recorded_is_left_alone() {
        let folder = TemporaryFolder::new();
        let kernel = create_killed_trace(&folder);
        let lock = prepare::lock_folder(folder.path()).expect("a folder").expect("it is there");
        assert_eq!(notices_of(&folder), "");
        drop(lock);
        assert!(!completion::is_marked(&kernel.join(FACTS_FOLDER)));
        assert_ne!(notices_of(&folder), "");
    }
}
