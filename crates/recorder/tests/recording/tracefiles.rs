//! Tests of streams cut into files, of which the oldest are removed: always bounded, and readable
//! from their begin, even after a recorder was killed.

use std::fs;
use std::sync::atomic::Ordering;

use trackway_recorder::{
    BufferOptions, ChannelSettings, Notices, Recording, Summary, Tracefiles, recover_in,
};
use trackway_testkit::Random;
use trackway_window::{SessionLayout, WriterPath};

use crate::test_window::{StreamContents, TestWindow, Writer, channel_settings};

/// Buffers with sub-buffers of 4 KiB.
const SMALL: BufferOptions =
    BufferOptions { size_bytes: Some(64 << 10), sub_buffers: Some(16), overwrite: false };
const SUB_BYTES: u64 = 4 << 10;

fn channel_with_tracefiles(name: &str, size_bytes: u64, count: u64) -> ChannelSettings {
    let tracefiles = Tracefiles { size_bytes, count };
    ChannelSettings { tracefiles, ..channel_settings(name, SMALL) }
}

fn begin_recording(world: &TestWindow, channels: &[ChannelSettings]) -> Recording {
    let built = Recording::build(world.handle(), &world.session(), channels);
    let mut recording = built.expect("a recording");
    recording.activate();
    recording
}

/// Returns the numbers of a stream's files, in order. Checks that exactly these files have an
/// index.
fn file_numbers(world: &TestWindow, stem: &str) -> Vec<u64> {
    let numbers = |folder, end: &str| {
        let entries = fs::read_dir(folder).expect("a folder").flatten();
        let names = entries.map(|entry| entry.file_name().into_string().expect("a name"));
        let number = |name: String| {
            name.strip_prefix(stem)?.strip_prefix('.')?.strip_suffix(end)?.parse().ok()
        };
        let mut numbers: Vec<u64> = names.filter_map(number).collect();
        numbers.sort_unstable();
        numbers
    };
    let files = numbers(world.streams(), "");
    assert_eq!(numbers(world.streams().join("index"), ".idx"), files);
    files
}

/// Returns the contents of all files of a stream, in order. Checks that the size and number of
/// files are within bounds, that packet numbers have no gap, and that packets begin one after the
/// other.
fn read_stream_files(world: &TestWindow, stem: &str, bounds: Tracefiles) -> StreamContents {
    let mut all = StreamContents::default();
    let files = file_numbers(world, stem);
    assert!(bounds.count == 0 || files.len() as u64 <= bounds.count, "{files:?}");
    for pair in files.windows(2) {
        assert_eq!(pair[0] + 1, pair[1], "{files:?}");
    }
    for number in files {
        let name = format!("{stem}.{number}");
        let bytes = fs::metadata(world.stream(&name)).expect("a file").len();
        assert!(bytes <= bounds.size_bytes, "{name} has {bytes}");
        let index = fs::metadata(world.index(&name)).expect("an index").len();
        let contents = world.read(&name);
        assert_eq!(index, 16 + 72 * contents.packets() as u64, "{name}");
        all.values.extend(contents.values);
        all.sequences.extend(contents.sequences);
        all.begins.extend(contents.begins);
        all.discarded = contents.discarded;
    }
    assert!(all.sequences.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{:?}", all.sequences);
    assert!(all.begins.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", all.begins);
    all
}

/// Checks that the stream has the newest values without a gap, and that missing values are counted.
fn assert_newest(contents: &StreamContents, emitted: u64, summary: &Summary) {
    let kept = contents.values.len() as u64;
    assert!(contents.values.iter().copied().eq(emitted - kept..emitted), "{:?}", contents.values);
    assert_eq!((summary.recorded, summary.deleted), (emitted, emitted - kept));
}

#[test]
fn what_is_on_the_disk_is_bounded_at_any_time() {
    for (size, count) in [(SUB_BYTES, 1), (SUB_BYTES, 3), (10_000, 2), (3 * SUB_BYTES, 5)] {
        let bounds = Tracefiles { size_bytes: size, count };
        let world = TestWindow::new();
        let mut recording =
            begin_recording(&world, &[channel_with_tracefiles("channel0", size, count)]);
        let mut writer = Writer::new(&world.handle());
        let mut random = Random::new(size + count);
        let mut emitted = 0;
        for _ in 0..60 {
            for _ in 0..random.next_below(1500) {
                assert!(writer.emit(WriterPath::Sequence));
                emitted += 1;
            }
            recording.tick(&world.notices).expect("a look");
            read_stream_files(&world, "channel0_0", bounds);
        }
        let bytes = recording.totals().bytes;
        assert!(bytes < (64 << 10) + size * count, "{bytes} of {size} × {count}");
        let summary = recording.finish(&|| false).expect("a trace");
        assert_newest(&read_stream_files(&world, "channel0_0", bounds), emitted, &summary);
        assert!(summary.deleted > 0 && file_numbers(&world, "channel0_0")[0] > 5);
    }
}

#[test]
fn files_without_a_number_are_all_kept() {
    let bounds = Tracefiles { size_bytes: 2 * SUB_BYTES, count: 0 };
    let world = TestWindow::new();
    let mut recording =
        begin_recording(&world, &[channel_with_tracefiles("channel0", bounds.size_bytes, 0)]);
    let mut writer = Writer::new(&world.handle());
    for _ in 0..20 {
        (0..2000).for_each(|_| assert!(writer.emit(WriterPath::Sequence)));
        recording.tick(&world.notices).expect("a look");
    }
    let summary = recording.finish(&|| false).expect("a trace");
    assert_newest(&read_stream_files(&world, "channel0_0", bounds), 40_000, &summary);
    assert!(file_numbers(&world, "channel0_0").len() > 20 && summary.deleted == 0);
}

#[test]
fn a_slow_stream_is_in_the_order_of_its_packets() {
    let bounds = Tracefiles { size_bytes: SUB_BYTES, count: 4 };
    let world = TestWindow::new();
    let mut recording =
        begin_recording(&world, &[channel_with_tracefiles("channel0", SUB_BYTES, 4)]);
    let mut writer = Writer::new(&world.handle());
    // Each record becomes a packet, many of them without duration.
    for _ in 0..300 {
        assert!(writer.emit(WriterPath::Sequence));
        recording.stop().expect("stopped");
        recording.start();
    }
    let summary = recording.finish(&|| false).expect("a trace");
    assert_newest(&read_stream_files(&world, "channel0_0", bounds), 300, &summary);
    assert!(summary.deleted > 0);
}

#[test]
fn losses_are_counted_across_files() {
    let bounds = Tracefiles { size_bytes: 2 * SUB_BYTES, count: 2 };
    let world = TestWindow::new();
    let mut recording = begin_recording(
        &world,
        &[channel_with_tracefiles("channel0", bounds.size_bytes, bounds.count)],
    );
    let mut writer = Writer::new(&world.handle());
    let mut lost = 0;
    for _ in 0..5 {
        // These are more records than the buffer holds.
        lost += (0..10_000).filter(|_| !writer.emit(WriterPath::Sequence)).count() as u64;
        recording.tick(&world.notices).expect("a look");
    }
    let summary = recording.finish(&|| false).expect("a trace");
    let contents = read_stream_files(&world, "channel0_0", bounds);
    assert!(lost > 1000);
    assert_eq!((summary.lost, contents.discarded), (lost, lost));
    assert_eq!(summary.recorded + lost, 50_000);
    assert_eq!(summary.recorded - summary.deleted, contents.values.len() as u64);
}

#[test]
fn channels_are_cut_each_as_it_was_asked_for() {
    let world = TestWindow::new();
    let channels = [
        channel_with_tracefiles("some", SUB_BYTES, 2),
        channel_settings("whole", SMALL),
        channel_with_tracefiles("more", 3 * SUB_BYTES, 0),
    ];
    let mut recording = begin_recording(&world, &channels);
    let handle = world.handle();
    let mut writers: Vec<_> = (0..3).map(|place| Writer::in_channel(&handle, place)).collect();
    for _ in 0..10 {
        for writer in &mut writers {
            (0..1000).for_each(|_| assert!(writer.emit(WriterPath::Sequence)));
        }
        recording.tick(&world.notices).expect("a look");
    }
    recording.finish(&|| false).expect("a trace");
    let some = read_stream_files(&world, "some_0", Tracefiles { size_bytes: SUB_BYTES, count: 2 });
    assert!(some.values.len() < 1000 && some.values.last() == Some(&9999));
    assert_eq!(world.read("whole-1_0").values.len(), 10_000);
    assert!(file_numbers(&world, "whole-1_0").is_empty());
    let more =
        read_stream_files(&world, "more-2_0", Tracefiles { size_bytes: 3 * SUB_BYTES, count: 0 });
    assert_eq!(more.values.len(), 10_000);
}

#[test]
fn what_is_cleared_begins_anew() {
    let bounds = Tracefiles { size_bytes: SUB_BYTES, count: 3 };
    let world = TestWindow::new();
    let mut recording =
        begin_recording(&world, &[channel_with_tracefiles("channel0", SUB_BYTES, 3)]);
    let mut writer = Writer::new(&world.handle());
    (0..3000).for_each(|_| assert!(writer.emit(WriterPath::Sequence)));
    recording.tick(&world.notices).expect("a look");
    recording.clear(true).expect("cleared");
    assert!(file_numbers(&world, "channel0_0").is_empty());
    (0..50).for_each(|_| assert!(writer.emit(WriterPath::Sequence)));
    let summary = recording.finish(&|| false).expect("a trace");
    assert_eq!(file_numbers(&world, "channel0_0"), [0]);
    assert_eq!((summary.recorded, summary.deleted), (50, 0));
    assert_eq!(
        read_stream_files(&world, "channel0_0", bounds).values,
        (3000..3050).collect::<Vec<_>>()
    );
}

/// Kills a recorder after so many ticks, calls `after`, and recovers the trace. Returns the
/// results.
fn kill_and_recover(
    bounds: Tracefiles,
    ticks: usize,
    after: impl Fn(&TestWindow),
) -> (StreamContents, Summary) {
    let world = TestWindow::new();
    let mut recording = begin_recording(
        &world,
        &[channel_with_tracefiles("channel0", bounds.size_bytes, bounds.count)],
    );
    let mut writer = Writer::new(&world.handle());
    for _ in 0..ticks {
        (0..1000).for_each(|_| assert!(writer.emit(WriterPath::Sequence)));
        recording.tick(&world.notices).expect("a look");
    }
    // These records are only in memory, and exceed one file.
    (0..2000).for_each(|_| assert!(writer.emit(WriterPath::Sequence)));
    world.kill(recording);
    after(&world);
    let recovered = recover_in(world.folder.path(), &Notices::in_memory(), None).expect("a window");
    let [recovered] = &recovered[..] else { panic!("one session: {recovered:?}") };
    let summary = recovered.result.as_ref().expect("a trace").clone();
    assert_eq!(summary.damaged, 0, "{summary:?}");
    let contents = read_stream_files(&world, "channel0_0", bounds);
    let (kept, emitted) = (contents.values.len() as u64, (ticks as u64 + 2) * 1000);
    assert!(contents.values.iter().copied().eq(emitted - kept..emitted), "{:?}", contents.values);
    (contents, summary)
}

#[test]
fn what_a_killed_recorder_left_is_recovered_within_the_same_bounds() {
    let bounds = Tracefiles { size_bytes: 2 * SUB_BYTES, count: 3 };
    for ticks in 0..8 {
        let (contents, summary) = kill_and_recover(bounds, ticks, |_| {});
        assert!(summary.recorded >= 2000 && !contents.values.is_empty());
    }
    // The files keep as many records as fit.
    assert!(kill_and_recover(bounds, 5, |_| {}).0.values.len() > 1000);
}

#[test]
fn a_packet_that_was_half_written_is_cut_off() {
    use std::io::Write as _;
    let bounds = Tracefiles { size_bytes: 2 * SUB_BYTES, count: 3 };
    kill_and_recover(bounds, 4, |world| {
        let current = *file_numbers(world, "channel0_0").last().expect("a file");
        let path = world.stream(&format!("channel0_0.{current}"));
        let mut file = fs::OpenOptions::new().append(true).open(path).expect("a file");
        file.write_all(&[0xc1; 1000]).expect("a file");
    });
}

#[test]
fn a_rotation_that_was_cut_short_is_repaired() {
    let bounds = Tracefiles { size_bytes: 2 * SUB_BYTES, count: 3 };
    // A rotation made the next file: empty, without an index, with half a packet, or with a whole
    // packet.
    for (data, index) in [(0, Some(0)), (0, None), (100, Some(16)), (88, Some(16 + 72))] {
        kill_and_recover(bounds, 4, |world| {
            let files = file_numbers(world, "channel0_0");
            let next = format!("channel0_0.{}", files.last().expect("a file") + 1);
            let whole = fs::read(world.stream(&format!("channel0_0.{}", files[0])));
            let whole = whole.expect("a file");
            fs::write(world.stream(&next), &whole[..data]).expect("a file");
            if let Some(bytes) = index {
                let entries = fs::read(world.index(&format!("channel0_0.{}", files[0])));
                let entries = entries.expect("a file");
                fs::write(world.index(&next), &entries[..bytes]).expect("a file");
            }
            // The rotation had removed the oldest file before that, but not its index.
            let oldest = format!("channel0_0.{}", files[0]);
            fs::remove_file(world.stream(&oldest)).expect("a file");
        });
    }
}

#[test]
fn a_stream_of_one_file_that_had_gone_for_the_next_begins_anew() {
    let bounds = Tracefiles { size_bytes: 2 * SUB_BYTES, count: 1 };
    for has_next in [false, true] {
        let (contents, _) = kill_and_recover(bounds, 3, |world| {
            let [current] = file_numbers(world, "channel0_0")[..] else { panic!("one file") };
            fs::remove_file(world.stream(&format!("channel0_0.{current}"))).expect("a file");
            fs::remove_file(world.index(&format!("channel0_0.{current}"))).expect("a file");
            if has_next {
                let next = format!("channel0_0.{}", current + 1);
                fs::write(world.stream(&next), [7; 50]).expect("a file");
            }
        });
        assert!(!contents.values.is_empty());
    }
}

#[test]
fn bounds_that_somebody_wrote_over_delete_no_more_than_what_comes_takes() {
    let bounds = Tracefiles { size_bytes: 2 * SUB_BYTES, count: 6 };
    let world = TestWindow::new();
    let mut recording = begin_recording(
        &world,
        &[channel_with_tracefiles("channel0", bounds.size_bytes, bounds.count)],
    );
    let handle = world.handle();
    let mut writer = Writer::new(&handle);
    for _ in 0..10 {
        (0..1000).for_each(|_| assert!(writer.emit(WriterPath::Sequence)));
        recording.tick(&world.notices).expect("a look");
    }
    assert_eq!(file_numbers(&world, "channel0_0").len(), 6);
    // These records fill one more packet.
    (0..10).for_each(|_| assert!(writer.emit(WriterPath::Sequence)));
    let window = *handle.window();
    let index = window.active_sessions().next().expect("the session");
    let layout = SessionLayout::read(&window, index).expect("its layout");
    let region = layout.region(&window, 0, WriterPath::Sequence).expect("CPU 0");
    region.control.tracefile_bytes.store(1, Ordering::Relaxed);
    region.control.tracefile_count.store(1, Ordering::Relaxed);
    world.kill(recording);
    let recovered = recover_in(world.folder.path(), &Notices::in_memory(), None).expect("a window");
    assert!(recovered[0].result.is_ok(), "{recovered:?}");
    let contents = read_stream_files(&world, "channel0_0", bounds);
    assert!(contents.values.len() > 2000 && contents.values.last() == Some(&10_009));
}

#[test]
fn a_file_that_cannot_be_begun_is_tried_again() {
    let bounds = Tracefiles { size_bytes: 2 * SUB_BYTES, count: 2 };
    let world = TestWindow::new();
    let mut recording = begin_recording(
        &world,
        &[channel_with_tracefiles("channel0", bounds.size_bytes, bounds.count)],
    );
    let mut writer = Writer::new(&world.handle());
    let mut emit = |count| (0..count).for_each(|_| assert!(writer.emit(WriterPath::Sequence)));
    emit(100);
    recording.tick(&world.notices).expect("a look");
    // A folder with this name prevents the next file.
    let next = world.stream("channel0_0.1");
    fs::create_dir(&next).expect("a folder");
    emit(2000);
    for _ in 0..3 {
        let error = recording.tick(&world.notices).expect_err("there is a folder");
        assert!(error.to_string().contains("channel0_0"), "{error}");
    }
    fs::remove_dir(&next).expect("it is empty");
    recording.tick(&world.notices).expect("a look");
    emit(1000);
    let summary = recording.finish(&|| false).expect("a trace");
    assert_newest(&read_stream_files(&world, "channel0_0", bounds), 3100, &summary);
}
