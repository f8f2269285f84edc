//! Tests of the recovery of traces that are in place, moved, removed, or replaced.

use trackway_ring::Drained;
use trackway_session::{BufferOptions, Tracefiles};
use trackway_testkit::TemporaryFolder;
use trackway_window::{ProcessSlot, WriterPath};

use super::*;
use crate::trace::layout::{CALIBRATIONS_FILE, streams_folder};
use crate::trace::stream::is_progress_in;
use crate::trace::stream::{Packet, Stream, StreamId};
use crate::window::settings::{ChannelSettings, SessionSettings};

fn open_window(folder: &TemporaryFolder) -> WindowHandle {
    WindowHandle::open_in(folder.path(), true).expect("a window")
}

/// Begins a recording to `trace` in `folder`; the window is in `folder`, too.
fn begin_recording(folder: &TemporaryFolder, uuid: u8) -> Recording {
    let buffers =
        BufferOptions { size_bytes: Some(64 << 10), sub_buffers: Some(4), overwrite: false };
    let settings = SessionSettings {
        name: String::new(),
        token: None,
        uuid: [uuid; 16],
        path: folder.join("trace"),
    };
    let channel =
        ChannelSettings { buffers: buffers.plan().expect("sizes"), ..ChannelSettings::default() };
    let built = Recording::build(open_window(folder), &settings, &[channel]);
    let mut recording = built.expect("a recording");
    recording.activate();
    recording
}

/// Leaves a recording whose recorder is dead.
fn leave_dead_recording(folder: &TemporaryFolder, uuid: u8) {
    abandon_recording(&begin_recording(folder, uuid));
}

fn abandon_recording(recording: &Recording) {
    recording.channels.iter().for_each(|channel| channel.slot.abandon());
}

/// Reads the completion mark of the trace `name`.
fn read_completion_mark(folder: &TemporaryFolder, name: &str) -> Option<String> {
    let channel = streams_folder(&folder.join(name), crate::common::user::effective_uid());
    fs::read_to_string(channel.join(FACTS_FOLDER).join("complete")).ok()
}

fn new_shm_folder() -> TemporaryFolder {
    TemporaryFolder::new_in(Path::new("/dev/shm"))
}

#[test]
fn what_was_recorded_is_written_only_into_its_own_trace() {
    let folder = new_shm_folder();
    leave_dead_recording(&folder, 1);
    fs::rename(folder.join("trace"), folder.join("moved")).expect("a folder");
    begin_recording(&folder, 2).finish(&|| false).expect("a trace");
    let theirs = read_completion_mark(&folder, "trace").expect("a mark");
    let notices = Notices::in_memory();
    let recovered = recover_in_as(folder.path(), &notices, None, Stranded::Keep).expect("a window");
    assert!(matches!(recovered[0].result, Err(RecordError::OtherTrace(_))));
    let recover_in = |name| recover_in(folder.path(), &notices, Some(&folder.join(name)));
    // The trace that is now at the path is another one, of which nothing is in memory.
    assert!(recover_in("trace").expect("a window").is_empty());
    assert_eq!(read_completion_mark(&folder, "trace").as_ref(), Some(&theirs));
    assert_eq!(read_completion_mark(&folder, "moved"), None);
    let recovered = recover_in("moved").expect("a window");
    assert!(recovered[0].result.is_ok(), "{recovered:?}");
    assert!(
        read_completion_mark(&folder, "moved")
            .is_some_and(|mark| mark.contains("by=recover events="))
    );
    assert_eq!(read_completion_mark(&folder, "trace"), Some(theirs));
}

#[test]
fn a_trace_that_was_removed_is_not_written_into_the_next_one() {
    let folder = new_shm_folder();
    let first = begin_recording(&folder, 1);
    fs::remove_dir_all(folder.join("trace")).expect("a folder");
    let second = begin_recording(&folder, 2);
    let slot = first.channels[0].slot.index;
    let refused = first.finish(&|| false).expect_err("its folder is gone");
    assert!(refused.to_string().ends_with("its folder was removed"), "{refused}");
    assert_eq!(read_completion_mark(&folder, "trace"), None);
    let session = open_window(&folder).window().session(slot).state.load(Ordering::Relaxed);
    assert_eq!(session, state::FREE, "nobody can use what it holds");
    second.finish(&|| false).expect("a trace");
    assert!(read_completion_mark(&folder, "trace").is_some_and(|mark| mark.contains("by=record")));
    // A new recording is not complete, even if the trace before it was.
    let third = begin_recording(&folder, 3);
    assert_eq!(read_completion_mark(&folder, "trace"), None);
    third.finish(&|| false).expect("a trace");
}

#[test]
fn progress_is_what_the_index_has_or_a_packet_less() {
    let folder = TemporaryFolder::new();
    fs::create_dir(folder.join("index")).expect("a folder");
    let progress = |file_bytes, packets| Drained { file_bytes, packets, ..Drained::default() };
    let is_there = |drained| is_progress_in(folder.path(), "channel0_0", &drained);
    assert!(is_there(progress(0, 0)) && !is_there(progress(4096, 1)), "no stream yet");
    let id = StreamId { uuid: [1; 16], class: 0, instance: 0, cpu: 0 };
    let place = std::sync::Arc::new(TraceFolder::open(folder.path()).expect("a folder"));
    let bounds = Tracefiles::default();
    let mut stream = Stream::create(&place, "channel0_0", bounds, id, 5).expect("a stream");
    let mut lengths = vec![0, stream.bytes()];
    // The first packet may not have been published yet.
    assert!(is_there(progress(0, 0)) && is_there(progress(stream.bytes(), 1)));
    for _ in 0..3 {
        let packet = Packet { begin_ts: 5, end_ts: 5, discarded: 0, missing: 0, events: 0 };
        stream.append(&mut vec![0; 256], &packet).expect("written");
        lengths.push(stream.bytes());
    }
    for (packets, &bytes) in lengths.iter().enumerate() {
        let is_last = packets >= 3;
        assert_eq!(is_there(progress(bytes, packets as u64)), is_last, "{packets}");
    }
    assert!(!is_there(progress(lengths[4] - 8, 4)) && !is_there(progress(lengths[4], 5)));
    assert!(!is_there(progress(lengths[3], 4)) && !is_there(progress(lengths[4], 3)));
    assert!(!is_there(progress(u64::MAX, u64::MAX)));
    // With several trace files, only the last one counts.
    assert!(!is_there(Drained { file: 1, ..progress(lengths[4], 4) }));
    for file in ["", "index/"] {
        let end = if file.is_empty() { "" } else { ".idx" };
        let path = |name: &str| folder.join(format!("{file}{name}{end}"));
        fs::copy(path("channel0_0"), path("channel0_0.7")).expect("a copy");
    }
    for (file, is_last) in [(0, false), (7, false), (8, true), (9, false)] {
        let drained = Drained { file, ..progress(lengths[4], 4) };
        assert_eq!(is_there(drained), is_last, "{file}");
    }
}

#[test]
fn a_slot_that_was_being_built_leaves_nothing_of_its_earlier_life_to_recover() {
    let folder = new_shm_folder();
    let first = begin_recording(&folder, 1);
    let index = first.channels[0].slot.index;
    first.finish(&|| false).expect("a trace");
    let complete = read_completion_mark(&folder, "trace");
    let handle = open_window(&folder);
    let session = handle.window().session(index);
    // The slot's lease expired long ago.
    session.lease_until_ns.store(0, Ordering::Relaxed);
    let taken = Slot::take(&handle).expect("a slot");
    assert_eq!(taken.index, index);
    // The recorder is killed, and so is its recovery, before the slot is free.
    taken.abandon();
    let taken = Slot::take_over(&handle, index).expect("a window").expect("it is left");
    let others = File::open(&handle.path).expect("the window");
    others.lock().expect("a lock");
    let refused = AbandonedChannel::of(&handle, taken, Stranded::Keep).map(|left| left.is_some());
    assert!(matches!(refused, Err(RecordError::Io("lock the window", ..))), "{refused:?}");
    others.unlock().expect("ours");
    session.recorder_pid.store(0, Ordering::Relaxed);
    session.recorder_since_ns.store(0, Ordering::Relaxed);

    let enabled = &handle.window().event(9).enabled;
    enabled.store(1 << index, Ordering::Relaxed);
    let recovered = recover_in(folder.path(), &Notices::in_memory(), None).expect("a window");
    assert!(recovered.is_empty(), "{recovered:?}");
    assert_eq!(session.state.load(Ordering::Relaxed), state::FREE);
    assert_eq!(read_completion_mark(&folder, "trace"), complete);
    assert_eq!(enabled.load(Ordering::Relaxed), 0);
}

#[test]
fn a_trace_is_locked_while_it_is_recovered() {
    let folder = new_shm_folder();
    leave_dead_recording(&folder, 1);
    let lock = File::open(folder.join("trace")).expect("a folder");
    let trace = folder.join("trace");
    let recover_it = |only| recover_in(folder.path(), &Notices::in_memory(), only);
    lock.lock().expect("a lock");
    let recovered = recover_it(None).expect("a window");
    assert!(matches!(recovered[0].result, Err(RecordError::TraceBusy(_))), "{recovered:?}");
    assert_eq!(read_completion_mark(&folder, "trace"), None);
    // The process that holds the lock may be completing the trace: nothing is discarded.
    let notices = Notices::in_memory();
    let recovered =
        recover_in_as(folder.path(), &notices, None, Stranded::Discard).expect("a window");
    assert!(matches!(recovered[0].result, Err(RecordError::TraceBusy(_))), "{recovered:?}");
    let hint = recovered[0].result.as_ref().expect_err("busy").hint().expect("a hint");
    assert!(!hint.contains("--discard"), "{hint}");
    lock.unlock().expect("ours");
    assert!(recover_it(None).expect("a window")[0].result.is_ok());

    // A busy trace without records in memory is refused, too.
    let facts = streams_folder(&folder.join("trace"), crate::common::user::effective_uid())
        .join(FACTS_FOLDER);
    completion::remove_mark(&facts).expect("a mark");
    lock.lock().expect("a lock");
    let refused = recover_it(Some(&trace)).expect_err("it is busy");
    assert!(matches!(refused, RecordError::TraceBusy(_)), "{refused}");
    assert_eq!(read_completion_mark(&folder, "trace"), None);
    lock.unlock().expect("ours");
    assert!(recover_it(Some(&trace)).expect("a window").is_empty());
    assert!(
        read_completion_mark(&folder, "trace").is_some_and(|mark| mark.contains("memory=gone"))
    );
}

#[test]
fn what_cannot_be_opened_is_said_and_what_is_no_recording_left_alone() {
    let folder = new_shm_folder();
    let notices = Notices::in_memory();
    let recover_in = |path: &Path| recover_in(folder.path(), &notices, Some(path));
    let refused = recover_in(&folder.join("nothing")).expect_err("it is not there");
    assert!(matches!(refused, RecordError::Io("open", ..)), "{refused}");
    fs::create_dir(folder.join("theirs")).expect("a folder");
    assert!(recover_in(&folder.join("theirs")).expect("a window").is_empty());
    begin_recording(&folder, 1).finish(&|| false).expect("a trace");
    let channel = streams_folder(&folder.join("trace"), crate::common::user::effective_uid());
    completion::remove_mark(&channel.join(FACTS_FOLDER)).expect("a mark");
    fs::write(channel.join("metadata"), "damaged").expect("a file");
    let refused = recover_in(&folder.join("trace")).expect_err("it may be in memory");
    assert!(matches!(refused, RecordError::Io("read", ..)), "{refused}");
    assert_eq!(read_completion_mark(&folder, "trace"), None);
    assert!(notices.lines().is_empty(), "{:?}", notices.lines());
}

#[test]
fn a_copy_is_not_taken_for_the_trace() {
    let folder = new_shm_folder();
    leave_dead_recording(&folder, 1);
    let (trace, copy) = (folder.join("trace"), folder.join("copy"));
    let from = streams_folder(&trace, crate::common::user::effective_uid());
    let to = streams_folder(&copy, crate::common::user::effective_uid());
    fs::create_dir_all(to.join(FACTS_FOLDER)).expect("a folder");
    for file in [Path::new("metadata"), &Path::new(FACTS_FOLDER).join(CALIBRATIONS_FILE)] {
        fs::copy(from.join(file), to.join(file)).expect("a copy");
    }
    let notices = Notices::in_memory();
    let recover_in = |path: &Path| recover_in(folder.path(), &notices, Some(path));
    let refused = recover_in(&copy).expect_err("a copy");
    assert!(matches!(&refused, RecordError::Copy(.., original) if *original == trace));
    assert_eq!(read_completion_mark(&folder, "copy"), None);
    // After the trace itself was removed, the copy's remains are recovered as well.
    fs::rename(&trace, folder.join("elsewhere")).expect("a folder");
    assert!(recover_in(&copy).expect("a window")[0].result.is_ok());
    assert!(read_completion_mark(&folder, "copy").is_some());
}

/// Tests records of a removed trace: they stay in memory in passing, go into a new trace beside it
/// on request, and are discarded on request.
#[test]
fn records_of_a_trace_that_is_gone_go_beside_it_or_are_given_up() {
    let folder = new_shm_folder();
    let notices = Notices::in_memory();
    let recover =
        |stranded| recover_in_as(folder.path(), &notices, None, stranded).expect("a window");
    leave_dead_recording(&folder, 7);
    fs::rename(folder.join("trace"), folder.join("disk")).expect("a folder");
    assert!(recover(Stranded::Keep)[0].result.is_err());
    fs::rename(folder.join("disk"), folder.join("trace")).expect("a folder");
    assert!(recover(Stranded::Keep)[0].result.is_ok());

    // Another folder is at the trace's path.
    for (number, name) in ["trace.recovered", "trace.recovered-2"].into_iter().enumerate() {
        leave_dead_recording(&folder, 8 + number as u8);
        fs::remove_dir_all(folder.join("trace")).expect("a folder");
        fs::create_dir(folder.join("trace")).expect("a folder");
        assert!(recover(Stranded::Keep)[0].result.is_err());
        let recovered = recover(Stranded::NewTrace);
        assert_eq!(recovered[0].end, RecoveryEnd::NewTrace(folder.join(name)));
        assert!(recovered[0].result.is_ok(), "{:?}", recovered[0]);
        assert!(read_completion_mark(&folder, name).is_some(), "it is complete");
        assert!(recover(Stranded::NewTrace).is_empty());
        fs::remove_dir(folder.join("trace")).expect("nobody wrote there");
    }

    let recording = begin_recording(&folder, 10);
    abandon_recording(&recording);
    let regions = &recording.channels[0].regions;
    let held = regions.iter().find(|work| work.way != WriterPath::Sequence).expect("one");
    let control = held.region.0.control;
    control.owner.store(ProcessSlot::NONE.owner_word(1), Ordering::Relaxed);
    drop(recording);
    fs::remove_dir_all(folder.join("trace")).expect("a folder");
    let used = || open_window(&folder).allocator.bytes_in_use();
    let before = used();
    assert_eq!(recover(Stranded::Discard)[0].end, RecoveryEnd::Discarded);
    assert_eq!(used(), before, "a claimer may write there");
    control.owner.store(0, Ordering::Relaxed);
    assert!(recover(Stranded::Keep).is_empty());
    assert!(used() < before);
    assert!(notices.lines().is_empty(), "{:?}", notices.lines());
}

/// Tests a trace in place whose streams cannot be opened or whose mark cannot be written. Its
/// records stay in memory, and are discarded on request.
#[test]
fn records_of_a_trace_that_cannot_be_completed_in_place_are_given_up() {
    for is_opened in [false, true] {
        let folder = new_shm_folder();
        let recording = begin_recording(&folder, 11);
        let (slot, channel) = (recording.channels[0].slot.index, &recording.trace.channel);
        let obstacle = match is_opened {
            true => channel.path().join(FACTS_FOLDER).join("complete"),
            false => {
                let regions = &recording.channels[0].regions;
                let work =
                    regions.iter().find(|work| work.way == WriterPath::Sequence).expect("one");
                let drained = Drained { file_bytes: 4096, packets: 1, ..Drained::default() };
                work.region.0.control.set_drained(drained);
                channel.path().join(work.name())
            }
        };
        fs::create_dir(obstacle).expect("a folder");
        abandon_recording(&recording);
        drop(recording);
        let recover = |stranded| {
            let notices = Notices::in_memory();
            let recovered = recover_in_as(folder.path(), &notices, None, stranded);
            (recovered.expect("a window"), notices.lines())
        };
        for _ in 0..2 {
            let (recovered, _) = recover(Stranded::Keep);
            assert!(matches!(recovered[0].result, Err(RecordError::Io(..))), "{recovered:?}");
        }
        let (recovered, told) = recover(Stranded::Discard);
        assert_eq!(recovered[0].end, RecoveryEnd::Discarded);
        assert!(recovered[0].result.is_ok(), "{recovered:?}");
        assert!(told[0].contains("trace cannot be completed: cannot "), "{told:?}");
        let state = open_window(&folder).window().session(slot).state.load(Ordering::Relaxed);
        assert_eq!(state, state::FREE);
        assert!(recover(Stranded::Keep).0.is_empty());
        if !is_opened {
            assert!(
                read_completion_mark(&folder, "trace")
                    .is_some_and(|mark| mark.contains("memory=gone"))
            );
        }
    }
}

/// Tests that an unwritable new trace is removed and its name is used again. The progress in the
/// window stays that of the original trace.
#[test]
fn a_trace_beside_that_cannot_be_written_is_removed() {
    let folder = new_shm_folder();
    let recording = begin_recording(&folder, 12);
    let (index, work) = (recording.channels[0].slot.index, &recording.channels[0].regions[0]);
    let control = work.region.0.control;
    let drained = Drained { file_bytes: 4096, packets: 1, ..Drained::default() };
    control.set_drained(drained);
    // Count a loss, so that there is a stream.
    control.discarded.store(5, Ordering::Relaxed);
    abandon_recording(&recording);
    drop(recording);
    fs::remove_dir_all(folder.join("trace")).expect("a folder");
    let notices = Notices::in_memory();
    let stranded = Stranded::NewTrace;
    let recovery =
        Recoverer { folder: folder.path(), notices: &notices, stranded, may_be_here: false };
    let origin = Origin { uuid: [12; 16], folder: WindowFolder::own(), root: folder.join("trace") };
    for _ in 0..2 {
        let handle = open_window(&folder);
        let slot = Slot::take_over(&handle, index).expect("a window").expect("it is left");
        let left =
            AbandonedChannel::of(&handle, slot, stranded).expect("a window").expect("a channel");
        let channels = assemble_channels(&handle, vec![left]);
        let made =
            recovered_trace::create_beside_original(&origin, &channels, false).expect("a trace");
        fs::create_dir(made.trace.channel.path().join(FACTS_FOLDER).join("complete"))
            .expect("a folder");
        let recovered = recovery.write_recovered_trace(handle, channels, made, &origin);
        let error = recovered.result.expect_err("it has no mark").to_string();
        assert!(error.contains("trace.recovered"), "{error}");
        assert_eq!(recovered.end, RecoveryEnd::InPlace);
        assert!(!folder.join("trace.recovered").exists());
        assert_eq!(control.drained(), drained);
    }
    let recovered = recover_in(folder.path(), &notices, None).expect("a window");
    assert_eq!(recovered[0].end, RecoveryEnd::NewTrace(folder.join("trace.recovered")));
    assert_eq!(recovered[0].result.as_ref().expect("a trace").lost, 5);
    assert!(
        read_completion_mark(&folder, "trace.recovered").is_some() && notices.lines().is_empty()
    );
}
