//! Recordings in one process: drained, grown, overwritten, killed, recovered, damaged.

mod changes;
mod filters;
mod hostile;
mod memory;
mod test_window;
mod tracefiles;

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};

use test_window::{TestWindow, Writer, channel_settings};
use trackway_abi::window::{DATA_OFFSET, GRANULE_MAP_OFFSET};
use trackway_recorder::{
    BufferOptions, Line, RecordError, Recording, Stranded, WindowHandle, recover_in, recover_in_as,
};
use trackway_testkit::{Random, TemporaryFolder, report_skipped};
use trackway_window::WriterPath;

const SMALL: BufferOptions =
    BufferOptions { size_bytes: Some(64 << 10), sub_buffers: Some(4), overwrite: false };
const DEFAULT: BufferOptions =
    BufferOptions { size_bytes: None, sub_buffers: None, overwrite: false };

#[test]
fn what_is_committed_is_drained_once_and_in_order() {
    let world = TestWindow::new();
    let mut recording = world.begin_recording(SMALL);
    let mut writer = Writer::new(&world.handle());
    for round in 0..100 {
        for _ in 0..round * 7 {
            assert!(writer.emit(WriterPath::Sequence));
        }
        recording.tick(&world.notices).unwrap();
    }
    let summary = recording.finish(&|| false).unwrap();
    let contents = world.read("channel0_0");
    assert_eq!(contents.values, (0..34_650).collect::<Vec<_>>());
    assert!(contents.sequences.iter().copied().eq(0..contents.packets() as u64));
    assert_eq!((summary.recorded, summary.lost, summary.damaged), (34_650, 0, 0));
    assert!(!world.stream("channel0_0_claim0").exists());
    let metadata = std::fs::read_to_string(world.stream("metadata")).unwrap();
    assert!(metadata.contains("name = \"app:value\""));
}

#[test]
fn what_finds_no_room_is_counted_also_at_the_very_start() {
    let world = TestWindow::new();
    let mut recording = world.begin_recording(SMALL);
    let mut writer = Writer::new(&world.handle());
    let emitted = 20_000;
    let accepted = (0..emitted).filter(|_| writer.emit(WriterPath::Sequence)).count();
    recording.tick(&world.notices).unwrap();
    let summary = recording.finish(&|| false).unwrap();
    let contents = world.read("channel0_0");
    assert_eq!(contents.values.len(), accepted);
    assert!(accepted > 4000, "four sub-buffers of 16 KiB hold more than {accepted}");
    assert_eq!(contents.discarded, (emitted - accepted) as u64);
    assert_eq!((summary.recorded, summary.lost), (accepted as u64, contents.discarded));
}

#[test]
fn a_clock_jump_begins_a_sub_buffer_in_every_region_in_use() {
    let world = TestWindow::new();
    let mut recording = world.begin_recording(SMALL);
    let mut writer = Writer::new(&world.handle());
    let ways = [WriterPath::Sequence, WriterPath::Claim(0)];
    for way in ways {
        assert!(writer.emit(way));
        assert_eq!(writer.open_sub_buffer(way), (0, 0));
    }
    let now = trackway_sys::clock::monotonic_ns();
    let tsc = trackway_sys::clock::read_tsc();
    recording.begin_epoch(Line { base_tsc: tsc, base_ns: now, multiplier: 1 << 31, span: 1 << 33 });
    for way in ways {
        assert_eq!(writer.open_sub_buffer(way), (1, 1));
        assert!(writer.emit(way));
    }
    let summary = recording.finish(&|| false).unwrap();
    assert_eq!((summary.recorded, summary.lost), (4, 0));
    // The stream has an empty first packet, and one packet for each epoch.
    assert_eq!(world.read("channel0_0").packets(), 3);
    assert_eq!(world.read("channel0_0").values, [0, 2]);
    assert_eq!(world.read("channel0_0_claim0").values, [1, 3]);
    let clock = std::fs::read_to_string(world.stream("trackway/clock.csv")).unwrap();
    assert!(clock.lines().any(|line| line.starts_with("1,")), "{clock}");
}

#[test]
fn losses_without_any_record_have_a_stream() {
    let world = TestWindow::new();
    let recording = world.begin_recording(SMALL);
    let handle = world.handle();
    let layout_of = |handle: &WindowHandle| {
        let window = *handle.window();
        let index = window.active_sessions().next().unwrap();
        trackway_window::SessionLayout::read(&window, index).unwrap()
    };
    let region = layout_of(&handle).region(handle.window(), 0, WriterPath::Sequence).unwrap();
    region.control.count_discarded(trackway_ring::Discard::Full);
    recording.finish(&|| false).unwrap();
    let contents = world.read("channel0_0");
    assert_eq!((contents.discarded, contents.packets()), (1, 2));
}

#[test]
fn buffers_grow_while_writers_need_it() {
    let world = TestWindow::new();
    let mut recording = world.begin_recording(DEFAULT);
    let mut writer = Writer::new(&world.handle());
    let used = || world.handle().allocator.bytes_in_use();
    let before = used();
    let mut lost = 0;
    for _ in 0..40 {
        // A mebibyte holds about 80,000 of these records; claim regions begin with one sub-buffer.
        lost += (0..60_000).filter(|_| !writer.emit(WriterPath::Sequence)).count();
        recording.tick(&world.notices).unwrap();
    }
    assert_eq!(lost, 0);
    assert!(used() <= before + (4 << 20), "never more than SIZE");
    let before = used();
    let mut claimed = 0_u64;
    for _ in 0..100 {
        claimed += (0..10_000).filter(|_| writer.emit(WriterPath::Claim(0))).count() as u64;
        recording.tick(&world.notices).unwrap();
    }
    assert!(claimed > 50_000, "{claimed}");
    assert!(used() > before && used() <= before + (1 << 20), "{} of {before}", used());
    let summary = recording.finish(&|| false).unwrap();
    assert_eq!(summary.recorded, 40 * 60_000 + claimed);
    assert_eq!(world.read("channel0_0_claim0").values.len() as u64, claimed);
}

#[test]
fn a_flight_recorder_keeps_the_newest_and_counts_the_rest() {
    let world = TestWindow::new();
    let mut recording = world.begin_recording(BufferOptions { overwrite: true, ..SMALL });
    let mut writer = Writer::new(&world.handle());
    let emitted = 50_000_u64;
    for number in 0..emitted {
        assert!(writer.emit(WriterPath::Sequence));
        if number % 1000 == 0 {
            recording.tick(&world.notices).unwrap();
        }
    }
    let summary = recording.finish(&|| false).unwrap();
    let contents = world.read("channel0_0");
    let first = contents.values[0];
    assert_eq!(contents.values, (first..emitted).collect::<Vec<_>>());
    assert_eq!((summary.recorded, summary.overwritten), (emitted - first, first));
    assert_eq!(summary.lost, 0);
    assert!(contents.values.len() > 2000, "at least two of four sub-buffers");
    // The stream has an empty packet, then a gap for the overwritten records.
    assert_eq!(contents.sequences[0], 0);
    assert!(contents.sequences[1] > 1);
}

#[test]
fn a_killed_recorder_s_trace_is_completed_exactly_once() {
    for cut in 0..4 {
        let world = TestWindow::new();
        let mut recording = world.begin_recording(SMALL);
        let mut writer = Writer::new(&world.handle());
        let mut emitted = 0;
        for _ in 0..10 {
            emitted += (0..1500).filter(|_| writer.emit(WriterPath::Sequence)).count() as u64;
            recording.tick(&world.notices).unwrap();
        }
        emitted += (0..700).filter(|_| writer.emit(WriterPath::Sequence)).count() as u64;
        world.kill(recording);
        // The recorder was killed after it wrote a packet (or a part), before it published that.
        let append = |path: &Path, bytes: &[u8]| {
            std::fs::OpenOptions::new().append(true).open(path).unwrap().write_all(bytes).unwrap();
        };
        let stream = std::fs::read(world.stream("channel0_0")).unwrap();
        let index = std::fs::read(world.index("channel0_0")).unwrap();
        if cut > 0 {
            append(&world.stream("channel0_0"), &stream[88..][..cut * 3000]);
        }
        if cut > 1 {
            append(&world.index("channel0_0"), &index[16..][..cut * 30]);
        }
        let recovered = recover_in(world.folder.path(), &world.notices, None).unwrap();
        assert_eq!(recovered.len(), 1);
        let contents = world.read("channel0_0");
        assert_eq!(contents.values, (0..emitted).collect::<Vec<_>>(), "cut {cut}");
        assert!(contents.sequences.iter().copied().eq(0..contents.packets() as u64));
        let index_bytes = std::fs::metadata(world.index("channel0_0")).unwrap().len();
        assert_eq!(index_bytes, 16 + 72 * contents.packets() as u64);
        assert!(recover_in(world.folder.path(), &world.notices, None).unwrap().is_empty());
        assert_eq!(world.handle().window().active_sessions().count(), 0);
    }
}

#[test]
fn only_the_named_trace_is_recovered_and_a_live_one_never() {
    let world = TestWindow::new();
    let recording = world.begin_recording(SMALL);
    let recover = |only: Option<&Path>| {
        recover_in(world.folder.path(), &world.notices, only).map(|recovered| recovered.len())
    };
    assert_eq!(recover(None).unwrap(), 0, "its recorder lives");
    world.kill(recording);
    let elsewhere = TemporaryFolder::new();
    assert_eq!(recover(Some(elsewhere.path())).unwrap(), 0);
    let nowhere = elsewhere.join("nothing");
    assert!(
        matches!(recover(Some(&nowhere)), Err(RecordError::Io("open", path, _)) if path == nowhere)
    );
    assert_eq!(recover(Some(&world.trace())).unwrap(), 1);
}

#[test]
fn a_trace_is_marked_once_nothing_is_left_in_memory() {
    let world = TestWindow::new();
    let mark = |world: &TestWindow| std::fs::read_to_string(world.stream("trackway/complete")).ok();
    let recover = |only: &Path| recover_in(world.folder.path(), &world.notices, Some(only));
    let mut recording = world.begin_recording(SMALL);
    let mut writer = Writer::new(&world.handle());
    assert!(writer.emit(WriterPath::Sequence) && writer.emit(WriterPath::Sequence));
    recording.tick(&world.notices).unwrap();
    assert_eq!(mark(&world), None, "it is being recorded");
    recording.finish(&|| false).unwrap();
    let said = mark(&world).expect("a mark");
    assert!(said.ends_with(" by=record events=2 lost=0 overwritten=0 damaged=0\n"), "{said}");

    std::fs::remove_dir_all(world.trace()).unwrap();
    let recording = world.begin_recording(SMALL);
    assert!(Writer::new(&world.handle()).emit(WriterPath::Sequence));
    recording.finish(&|| true).unwrap();
    assert_eq!(mark(&world), None, "its end was interrupted");
    // The trace is recovered by another path, through a link.
    let link = world.folder.join("link");
    std::os::unix::fs::symlink(world.trace(), &link).unwrap();
    assert_eq!(recover(&link).unwrap().len(), 1);
    let said = mark(&world).expect("a mark");
    assert!(said.contains(" by=recover events=1 "), "{said}");
}

#[test]
fn a_named_trace_is_recovered_where_it_is_now() {
    let world = TestWindow::new();
    let recover = |only: &Path| recover_in(world.folder.path(), &world.notices, Some(only));
    let recording = world.begin_recording(SMALL);
    assert!(Writer::new(&world.handle()).emit(WriterPath::Sequence));
    world.kill(recording);
    let moved = world.folder.join("moved");
    std::fs::rename(world.trace(), &moved).unwrap();
    let recovered = recover(&moved).unwrap();
    assert_eq!(recovered[0].folder, moved);
    assert_eq!(recovered[0].result.as_ref().unwrap().recorded, 1);
    std::fs::rename(&moved, world.trace()).unwrap();
    assert_eq!(world.read("channel0_0").values, [0]);
    assert!(world.stream("trackway/complete").exists());
}

#[test]
fn a_named_trace_whose_memory_is_gone_is_all_there_is() {
    let world = TestWindow::new();
    let recover = |only: &Path| recover_in(world.folder.path(), &world.notices, Some(only));
    let recording = world.begin_recording(SMALL);
    let other = TemporaryFolder::new();
    assert!(recover_in(other.path(), &world.notices, None).unwrap().is_empty());
    let mark = world.stream("trackway/complete");
    assert!(recover(&world.trace()).unwrap().is_empty());
    assert!(!mark.exists(), "its recorder lives");
    // A recorder in another window has the trace locked.
    let lock = std::fs::File::open(world.trace()).unwrap();
    lock.lock().unwrap();
    let busy = recover_in(other.path(), &world.notices, Some(&world.trace()));
    assert!(matches!(busy, Err(RecordError::TraceBusy(path)) if path == world.trace()));
    assert!(!mark.exists(), "somebody writes to it");
    drop(lock);
    world.kill(recording);
    assert!(recover_in(other.path(), &world.notices, Some(&world.trace())).unwrap().is_empty());
    assert!(std::fs::read_to_string(&mark).unwrap().ends_with(" by=recover memory=gone\n"));
    assert!(world.notices.lines().iter().any(|said| said.contains("all there is")));
    // Recovery ignores a folder that never was a trace of Trackway.
    assert!(recover(other.path()).unwrap().is_empty());
    assert_eq!(std::fs::read_dir(other.path()).unwrap().count(), 0);
}

#[test]
fn a_trace_folder_of_another_user_is_not_written_to() {
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        return report_skipped("only root can give a folder away");
    }
    let world = TestWindow::new();
    let recording = world.begin_recording(SMALL);
    assert!(Writer::new(&world.handle()).emit(WriterPath::Sequence));
    world.kill(recording);
    let streams = world.stream("metadata").parent().unwrap().to_owned();
    std::os::unix::fs::chown(&streams, Some(65534), None).unwrap();
    let keep = || recover_in_as(world.folder.path(), &world.notices, None, Stranded::Keep).unwrap();
    let recovered = keep();
    assert!(matches!(recovered[0].result, Err(RecordError::Io(..))), "{:?}", recovered[0].result);
    assert!(!world.stream("channel0_0").exists());
    std::os::unix::fs::chown(&streams, Some(0), None).unwrap();
    let recovered = recover_in(world.folder.path(), &world.notices, None).unwrap();
    assert_eq!(recovered[0].result.as_ref().unwrap().recorded, 1, "it was kept in memory");
    assert_eq!(world.read("channel0_0").values, [0]);
}

#[test]
fn a_slot_is_used_again_with_nothing_of_before() {
    let world = TestWindow::new();
    for _ in 0..40 {
        let _ = std::fs::remove_dir_all(world.trace());
        let mut recording = world.begin_recording(SMALL);
        let mut writer = Writer::new(&world.handle());
        for _ in 0..1000 {
            assert!(writer.emit(WriterPath::Sequence) && writer.emit(WriterPath::Claim(1)));
        }
        recording.tick(&world.notices).unwrap();
        assert_eq!(recording.finish(&|| false).unwrap().recorded, 2000);
    }
    // Control lines of a few slots that take turns stay; sub-buffers do not.
    assert!(world.handle().allocator.bytes_in_use() <= 1 << 20);
}

/// Returns CPU 0's region of the active session.
fn region_of(handle: &WindowHandle, way: WriterPath) -> trackway_ring::Region<'static> {
    let window = *handle.window();
    let index = window.active_sessions().next().unwrap();
    let layout = trackway_window::SessionLayout::read(&window, index).unwrap();
    layout.region(&window, 0, way).unwrap()
}

/// Returns an owner that cannot be proved dead: it has no entry in the table of processes.
fn unprovable_owner() -> u64 {
    trackway_window::ProcessSlot::NONE.owner_word(1)
}

#[test]
fn a_region_held_since_before_is_left_alone_and_taken_in_when_it_is_free() {
    let world = TestWindow::new();
    let handle = world.handle();
    let mut recording = world.begin_recording(SMALL);
    let mut writer = Writer::new(&handle);
    for _ in 0..3000 {
        writer.emit(WriterPath::Claim(0));
    }
    let control = region_of(&handle, WriterPath::Claim(0)).control;
    recording.tick(&world.notices).unwrap();
    assert!(recording.finish(&|| false).unwrap().recorded > 1000);
    // A late claimer took the region after the session's end, and was then stopped.
    control.owner.store(unprovable_owner(), Ordering::Relaxed);
    assert_ne!(control.commit.load(Ordering::Relaxed), 0);

    let record_again = |free: bool| {
        std::fs::remove_dir_all(world.trace()).unwrap();
        world.let_slots_rest();
        let mut recording = world.begin_recording(SMALL);
        let mut writer = Writer::new(&handle);
        assert!(writer.emit(WriterPath::Claim(1)));
        control.count_discarded(trackway_ring::Discard::Full);
        recording.tick(&world.notices).unwrap();
        if free {
            control.owner.store(0, Ordering::Release);
            while control.limit.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
                recording.tick(&world.notices).unwrap();
            }
            assert!(writer.emit(WriterPath::Claim(0)));
        }
        recording
    };
    let summary = record_again(false).finish(&|| false).unwrap();
    assert_eq!((summary.recorded, summary.lost, summary.damaged), (1, 1, 0));
    assert_eq!(world.read("channel0_0_claim0").discarded, 1);
    world.kill(record_again(false));
    let recovered = recover_in(world.folder.path(), &world.notices, None).unwrap();
    let summary = recovered[0].result.as_ref().unwrap();
    assert_eq!((summary.recorded, summary.lost, summary.damaged), (1, 1, 0));
    assert_eq!(world.read("channel0_0_claim1").values, [0]);
    assert!(recover_in(world.folder.path(), &world.notices, None).unwrap().is_empty());
    let summary = record_again(true).finish(&|| false).unwrap();
    assert_eq!((summary.recorded, summary.lost, summary.damaged), (2, 1, 0));
    assert_eq!(world.read("channel0_0_claim0").values, [1]);
}

#[test]
fn a_session_that_only_waits_for_a_claimer_is_not_spoken_of_again() {
    let world = TestWindow::new();
    let handle = world.handle();
    let recording = world.begin_recording(SMALL);
    let mut writer = Writer::new(&handle);
    assert!(writer.emit(WriterPath::Claim(0)));
    let control = region_of(&handle, WriterPath::Claim(0)).control;
    control.owner.store(unprovable_owner(), Ordering::Relaxed);
    world.kill(recording);
    let recover = || recover_in(world.folder.path(), &world.notices, None).unwrap();
    let used = || handle.allocator.bytes_in_use();
    let before = used();
    assert_eq!(recover().len(), 1);
    std::fs::remove_dir_all(world.trace()).unwrap();
    assert!(recover().is_empty() && recover().is_empty());
    assert_eq!(used(), before, "the claimer may wake up and write");
    control.owner.store(0, Ordering::Release);
    assert!(recover().is_empty());
    assert!(used() < before);
    assert_eq!(world.notices.lines(), [""; 0]);
}

#[test]
fn a_trace_that_cannot_be_opened_keeps_its_events_until_it_can() {
    for of_metadata in [true, false] {
        let world = TestWindow::new();
        let mut recording = world.begin_recording(SMALL);
        let mut writer = Writer::new(&world.handle());
        assert!((0..100).all(|_| writer.emit(WriterPath::Sequence)));
        recording.tick(&world.notices).unwrap();
        while !world.stream("channel0_0").exists() {
            writer.emit(WriterPath::Sequence);
            recording.tick(&world.notices).unwrap();
        }
        let emitted = (0..100).filter(|_| writer.emit(WriterPath::Sequence)).count();
        assert_eq!(emitted, 100);
        world.kill(recording);
        let file = world.stream(if of_metadata { "metadata" } else { "channel0_0" });
        let aside = world.folder.join("aside");
        std::fs::rename(&file, &aside).unwrap();
        // This causes an error other than absence, also for root, who may open every file.
        std::fs::create_dir(&file).unwrap();
        let recover =
            || recover_in_as(world.folder.path(), &world.notices, None, Stranded::Keep).unwrap();
        for _ in 0..2 {
            assert!(matches!(recover()[0].result, Err(RecordError::Io(..))));
        }
        std::fs::remove_dir(&file).unwrap();
        std::fs::rename(&aside, &file).unwrap();
        assert!(recover()[0].result.as_ref().unwrap().recorded >= 100);
        let values = world.read("channel0_0").values;
        assert!(values.len() > 200 && values.iter().copied().eq(0..values.len() as u64));
    }
}

#[test]
fn a_path_that_recovery_could_not_read_is_refused() {
    let world = TestWindow::new();
    let session = trackway_recorder::SessionSettings {
        path: world.folder.join("x/".repeat(1024)),
        ..world.session()
    };
    let refused =
        Recording::build(world.handle(), &session, &[channel_settings("channel0", SMALL)]);
    assert!(refused.is_err_and(|error| error.to_string().contains("longer than 2048 bytes")));
}

#[test]
fn a_recorder_never_waits_for_good_for_the_window_s_lock() {
    let world = TestWindow::new();
    let handle = world.handle();
    let other = world.handle();
    assert_eq!(other.allocator.file().try_lock(), Ok(true));
    let refused = world.build_recording(world.handle(), SMALL);
    assert!(refused.is_err_and(|error| error.to_string().contains("locked")));
    other.allocator.file().unlock();

    let mut recording = world.begin_recording(DEFAULT);
    let mut writer = Writer::new(&handle);
    assert_eq!(other.allocator.file().try_lock(), Ok(true));
    let mut emitted = 0;
    for _ in 0..100 {
        emitted += (0..10_000).filter(|_| writer.emit(WriterPath::Claim(0))).count() as u64;
        recording.tick(&world.notices).unwrap();
    }
    assert_eq!(world.notices.lines(), [""; 0], "buffers may still grow later");
    let used = handle.allocator.bytes_in_use();
    assert_eq!(recording.finish(&|| false).unwrap().recorded, emitted);
    assert_eq!(handle.allocator.bytes_in_use(), used);
    assert!(recover_in(world.folder.path(), &world.notices, None).is_err());
    other.allocator.file().unlock();
    assert!(recover_in(world.folder.path(), &world.notices, None).unwrap().is_empty());
    assert!(handle.allocator.bytes_in_use() < used);
}

/// Writes random bytes over the window, like a faulty process.
fn write_random_bytes(handle: &WindowHandle, random: &mut Random, from: usize, to: usize) {
    for _ in 0..64 {
        let at = from + random.next_below((to - from) as u64) as usize;
        // SAFETY: the caller's range is mapped and backed; all processes use its bytes atomically.
        let byte = unsafe { &*handle.window().base().add(at).cast::<AtomicU8>() };
        byte.store(random.next() as u8, Ordering::Relaxed);
    }
}

#[test]
fn no_byte_in_the_window_crashes_or_hangs_the_recorder() {
    for seed in 0..60 {
        let world = TestWindow::new();
        let mut random = Random::new(seed);
        let overwrite = seed % 3 == 0;
        let mut recording = world.begin_recording(BufferOptions { overwrite, ..SMALL });
        let handle = world.handle();
        let mut writer = Writer::new(&handle);
        let end = handle.window().usable_bytes() as usize;
        // Everything, or a part, but not the writer's own tables: the writer would panic.
        let (from, to) = match seed % 4 {
            0 => (DATA_OFFSET, end),
            1 => (DATA_OFFSET + (48 << 10), DATA_OFFSET + (56 << 10)),
            2 => (GRANULE_MAP_OFFSET, DATA_OFFSET),
            _ => (64, end),
        };
        for _ in 0..200 {
            writer.emit(WriterPath::Sequence);
        }
        for _ in 0..20 {
            write_random_bytes(&handle, &mut random, from, to);
            if recording.tick(&world.notices).is_err() {
                break;
            }
        }
        // The calls may fail with an error, but they must return.
        let _ = recording.finish(&|| false);
        let _ = recover_in(world.folder.path(), &world.notices, None);
    }
}

#[test]
fn a_truncated_window_ends_the_recording_with_an_error() {
    let world = TestWindow::new();
    let mut recording = world.begin_recording(SMALL);
    recording.tick(&world.notices).unwrap();
    let handle = world.handle();
    std::fs::OpenOptions::new()
        .write(true)
        .open(&handle.path)
        .unwrap()
        .set_len(DATA_OFFSET as u64)
        .unwrap();
    assert!(matches!(recording.tick(&world.notices), Err(RecordError::Lost(_))));
    assert!(matches!(recording.finish(&|| false), Err(RecordError::Lost(_))));
    // The next recorder makes a new window in place of the damaged one.
    assert!(matches!(
        WindowHandle::open_in(world.folder.path(), true),
        Err(RecordError::Window(_, trackway_window::OpenError::Truncated))
    ));
}

/// A small tmpfs, which is unmounted on drop.
struct SmallFileSystem(TemporaryFolder);

impl SmallFileSystem {
    fn mount(size: &str) -> Option<Self> {
        let folder = TemporaryFolder::new();
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "trackway-test"])
            .arg(folder.path())
            .output()
            .is_ok_and(|output| output.status.success());
        mounted.then_some(Self(folder))
    }
}

impl Drop for SmallFileSystem {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.0.path()).output();
    }
}

#[test]
fn a_small_file_system_is_respected() {
    let Some(small) = SmallFileSystem::mount("16m") else {
        return report_skipped("a tmpfs cannot be mounted here");
    };
    let world = TestWindow::new();
    let handle = || WindowHandle::open_in(small.0.path(), true).unwrap();
    let huge = BufferOptions { size_bytes: Some(256 << 20), ..DEFAULT };
    let refused = world.build_recording(handle(), huge);
    assert!(matches!(refused, Err(RecordError::Memory(bytes, ..)) if bytes >= 256 << 20));
    assert!(handle().allocator.bytes_in_use() <= 1 << 20, "what was taken is given back");

    let mut recording = world.build_recording(handle(), DEFAULT).unwrap();
    recording.activate();
    let mut writer = Writer::new(&handle());
    for _ in 0..40 {
        for _ in 0..60_000 {
            writer.emit(WriterPath::Sequence);
        }
        recording.tick(&world.notices).unwrap();
    }
    let free = trackway_sys::file::free_bytes(handle().allocator.file()).unwrap();
    assert!(free >= 2 << 20, "{free} bytes are left to others");
    let summary = recording.finish(&|| false).unwrap();
    assert_eq!(summary.recorded + summary.lost, 40 * 60_000);
}
