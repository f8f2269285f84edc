//! Tests of sessions that change while they record: channels added, ended and replaced; stops,
//! clears and starts; snapshots.

use std::path::Path;

use trackway_recorder::{
    BufferOptions, ChannelSettings, Notices, Recording, parse_contexts, recover_in,
};
use trackway_session::machine::Reason;
use trackway_window::WriterPath;

use crate::test_window::{TestWindow, Writer, channel_settings};

const SMALL: BufferOptions =
    BufferOptions { size_bytes: Some(64 << 10), sub_buffers: Some(4), overwrite: false };
const FLIGHT_RECORDER: BufferOptions = BufferOptions { overwrite: true, ..SMALL };

fn emit_records(writer: &mut Writer, count: usize) {
    for _ in 0..count {
        assert!(writer.emit(WriterPath::Sequence));
    }
}

fn begin_recording(world: &TestWindow, channels: &[ChannelSettings]) -> Recording {
    let built = Recording::build(world.handle(), &world.session(), channels);
    let mut recording = built.expect("a recording");
    recording.activate();
    recording
}

fn read_metadata(world: &TestWindow) -> String {
    std::fs::read_to_string(world.stream("metadata")).expect("a file")
}

#[test]
fn each_channel_has_streams_and_ids_of_its_own() {
    let world = TestWindow::new();
    let mut recording = begin_recording(
        &world,
        &[channel_settings("some", SMALL), channel_settings("more", SMALL)],
    );
    let mut first = Writer::in_channel(&world.handle(), 0);
    let mut second = Writer::in_channel(&world.handle(), 1);
    emit_records(&mut first, 7);
    emit_records(&mut second, 9);
    recording.tick(&world.notices).expect("a look");
    emit_records(&mut first, 2);
    let summary = recording.finish(&|| false).expect("a trace");
    assert_eq!(summary.recorded, 18);
    assert_eq!(world.read("some_0").values, (0..9).collect::<Vec<_>>());
    assert_eq!(world.read("more-1_0").values, (0..9).collect::<Vec<_>>());
    let text = read_metadata(&world);
    for class in ["\tstream_id = 0;", "\tstream_id = 1;", "\tid = 1;"] {
        assert!(text.contains(class), "{class} in {text}");
    }
}

#[test]
fn channels_come_and_go_while_others_record() {
    let world = TestWindow::new();
    let mut recording = begin_recording(&world, &[channel_settings("channel0", SMALL)]);
    let mut first = Writer::new(&world.handle());
    emit_records(&mut first, 5);
    recording.add_channel(&channel_settings("late", SMALL), 1).expect("a channel");
    let mut second = Writer::in_channel(&world.handle(), 1);
    assert!(second.is_on() && first.is_on());
    emit_records(&mut second, 4);
    recording.end_channel(0).expect("its end");
    assert!(second.is_on() && !first.is_on());
    emit_records(&mut second, 4);
    assert_eq!(recording.totals().events, 5, "of the channel that has ended, so far");
    let summary = recording.finish(&|| false).expect("a trace");
    assert_eq!((summary.recorded, summary.lost), (13, 0));
    assert_eq!(world.read("channel0_0").values.len(), 5);
    assert_eq!(world.read("late-1_0").values.len(), 8);
    assert_eq!(world.handle().window().active_sessions().count(), 0);
}

#[test]
fn a_channel_is_replaced_bit_by_bit() {
    let world = TestWindow::new();
    let mut recording = begin_recording(&world, &[channel_settings("channel0", SMALL)]);
    let mut before = Writer::new(&world.handle());
    emit_records(&mut before, 5);
    let contexts = parse_contexts("vpid,procname,$app.a:b").expect("contexts");
    let settings = ChannelSettings { contexts, ..channel_settings("channel0", SMALL) };
    recording.replace_channel(0, &settings, 1).expect("another channel");
    assert_eq!(before.enabled().count_ones(), 1, "in one of the two");
    assert!(!before.is_on());
    // A late record is kept, because the old channel has not ended yet.
    emit_records(&mut before, 1);
    recording.end_channel(0).expect("its end");
    let after = Writer::new(&world.handle());
    assert!(after.is_on());
    let summary = recording.finish(&|| false).expect("a trace");
    assert_eq!(summary.recorded, 6);
    let text = read_metadata(&world);
    let (_, second) = text.split_once("stream {\n\tid = 1;").expect("a second class");
    assert!(
        second.contains("_vpid") && second.contains("_procname") && second.contains("__app_a_b;"),
        "{second}"
    );
}

#[test]
fn what_is_stopped_is_in_the_trace_and_nothing_more_until_it_is_started() {
    let world = TestWindow::new();
    let mut recording = world.begin_recording(SMALL);
    let mut writer = Writer::new(&world.handle());
    emit_records(&mut writer, 5);
    recording.stop().expect("stopped");
    assert_eq!(world.read("channel0_0").values.len(), 5);
    assert!(!writer.is_on());
    recording.tick(&world.notices).expect("a look");
    assert!(!writer.is_on(), "nor does the lease's renewal switch it on");
    recording.start();
    assert!(writer.is_on());
    emit_records(&mut writer, 3);
    assert_eq!(recording.finish(&|| false).expect("a trace").recorded, 8);
    assert_eq!(world.read("channel0_0").values.len(), 8);
}

#[test]
fn what_was_cleared_is_nowhere() {
    for buffers in [SMALL, FLIGHT_RECORDER] {
        let world = TestWindow::new();
        let mut recording = world.begin_recording(buffers);
        let mut writer = Writer::new(&world.handle());
        emit_records(&mut writer, 700);
        recording.tick(&world.notices).expect("a look");
        emit_records(&mut writer, 300);
        recording.clear(true).expect("cleared");
        assert_eq!(recording.totals().events, 0);
        assert!(!world.stream("channel0_0").exists());
        assert!(writer.is_on());
        emit_records(&mut writer, 500);
        recording.tick(&world.notices).expect("a look");
        assert_eq!(recording.totals().events, 500);
        let summary = recording.finish(&|| false).expect("a trace");
        assert_eq!((summary.recorded, summary.overwritten, summary.lost), (500, 0, 0));
        assert_eq!(world.read("channel0_0").values, (1000..1500).collect::<Vec<_>>());
    }
}

#[test]
fn losses_of_before_are_forgotten_when_it_is_cleared() {
    let world = TestWindow::new();
    let mut recording = world.begin_recording(SMALL);
    let mut writer = Writer::new(&world.handle());
    while writer.emit(WriterPath::Sequence) {}
    recording.tick(&world.notices).expect("a look");
    assert_eq!(recording.totals().lost, 1);
    recording.clear(true).expect("cleared");
    assert_eq!(recording.totals().lost, 0);
    recording.tick(&world.notices).expect("a look");
    emit_records(&mut writer, 5);
    let summary = recording.finish(&|| false).expect("a trace");
    assert_eq!((summary.recorded, summary.lost), (5, 0));
    assert_eq!(world.read("channel0_0").discarded, 0);
}

#[test]
fn losses_of_each_event_and_what_was_cut_are_forgotten_when_it_is_cleared() {
    let world = TestWindow::new();
    let mut recording = world.begin_recording(SMALL);
    let mut writer = Writer::new(&world.handle());
    while writer.emit(WriterPath::Sequence) {}
    assert!(!writer.emit(WriterPath::Sequence));
    writer.count_cut();
    recording.clear(true).expect("cleared");
    recording.tick(&world.notices).expect("a look");
    while writer.emit(WriterPath::Sequence) {}
    writer.count_cut();
    let summary = recording.finish(&|| false).expect("a trace");
    assert_eq!((summary.lost, summary.cut), (1, 1));
    assert_eq!(summary.lost_by_event, [("app:value".to_owned(), 1)]);
}

#[test]
fn losses_of_before_a_clear_are_in_no_trace_that_is_recovered() {
    let world = TestWindow::new();
    let mut recording = world.begin_recording(SMALL);
    let mut writer = Writer::new(&world.handle());
    while writer.emit(WriterPath::Sequence) {}
    writer.count_cut();
    recording.clear(true).expect("cleared");
    recording.tick(&world.notices).expect("a look");
    emit_records(&mut writer, 5);
    world.kill(recording);
    let recovered = recover_in(world.folder.path(), &Notices::in_memory(), None).expect("a window");
    let summary = recovered[0].result.as_ref().expect("a trace");
    assert_eq!((summary.recorded, summary.lost, summary.cut), (5, 0, 0));
    assert_eq!(world.read("channel0_0").discarded, 0);
}

#[test]
fn losses_where_an_earlier_claimer_still_is_are_forgotten_when_it_is_cleared() {
    let world = TestWindow::new();
    let first = world.begin_recording(SMALL);
    let claimer = Writer::new(&world.handle());
    first.finish(&|| false).expect("a trace");
    // The claimer searched for space before the end, and will find that its session has ended.
    let claim = claimer.hold_claim(WriterPath::Claim(0));
    world.let_slots_rest();
    std::fs::rename(world.trace(), world.folder.join("first")).expect("another place");
    let mut recording = world.begin_recording(SMALL);
    let writer = Writer::new(&world.handle());
    assert_eq!(claimer.index(), writer.index(), "the same slot");
    writer.count_lost(WriterPath::Claim(0));
    assert_eq!(recording.totals().lost, 1);
    recording.clear(true).expect("cleared");
    assert_eq!(recording.totals().lost, 0);
    writer.count_lost(WriterPath::Claim(0));
    assert_eq!(recording.totals().lost, 1);
    drop(claim);
    recording.finish(&|| false).expect("a trace");
}

#[test]
fn a_snapshot_has_the_newest_and_changes_nothing() {
    let world = TestWindow::new();
    let mut recording = world.begin_recording(FLIGHT_RECORDER);
    let mut writer = Writer::new(&world.handle());
    let (one, two) = (world.folder.join("one"), world.folder.join("two"));
    emit_records(&mut writer, 10_000);
    let facts = recording.snapshot(&one, None, &Reason::Requested).expect("a snapshot");
    let first = world.read_snapshot(&one, "channel0_0").values;
    assert_eq!((facts.events, &facts.folder), (first.len() as u64, &one));
    assert!(first.iter().copied().eq(10_000 - facts.events..10_000), "the newest, in order");
    emit_records(&mut writer, 10);
    recording.snapshot(&two, None, &Reason::Requested).expect("another");
    let second = world.read_snapshot(&two, "channel0_0").values;
    assert_eq!(second.last(), Some(&10_009));
    // The final results are as without snapshots.
    let summary = recording.finish(&|| false).expect("a trace");
    assert_eq!(world.read("channel0_0").values, second);
    assert_eq!(summary.recorded + summary.overwritten, 10_010);
}

#[test]
fn the_same_sub_buffer_has_the_same_number_in_all_snapshots() {
    let world = TestWindow::new();
    let mut recording = world.begin_recording(FLIGHT_RECORDER);
    let mut writer = Writer::new(&world.handle());
    let mut numbers = |writer: &mut Writer, name: &str| {
        emit_records(writer, 2500);
        let folder = world.folder.join(name);
        recording.snapshot(&folder, None, &Reason::Requested).expect("a snapshot");
        let contents = world.read_snapshot(&folder, "channel0_0");
        (contents.sequences, contents.values)
    };
    let (first, _) = numbers(&mut writer, "one");
    let (second, _) = numbers(&mut writer, "two");
    assert_eq!((first[0], second[0]), (0, 0), "an empty packet, to count losses from");
    assert!(
        first[1] < second[1] && second[1] <= *first.last().expect("some"),
        "{first:?} {second:?}"
    );
    recording.finish(&|| false).expect("a trace");
}

#[test]
fn the_last_seconds_are_what_is_newer() {
    let world = TestWindow::new();
    let mut recording = world.begin_recording(FLIGHT_RECORDER);
    let mut writer = Writer::new(&world.handle());
    // These records take less than a ring: nothing is overwritten.
    emit_records(&mut writer, 1500);
    std::thread::sleep(std::time::Duration::from_millis(300));
    emit_records(&mut writer, 1500);
    let folder = world.folder.join("last");
    // The sub-buffer that was open during the pause also has some earlier records.
    recording.snapshot(&folder, Some(250_000_000), &Reason::Requested).expect("a snapshot");
    let values = world.read_snapshot(&folder, "channel0_0").values;
    let all = world.folder.join("all");
    recording.snapshot(&all, None, &Reason::Requested).expect("a snapshot");
    let whole = world.read_snapshot(&all, "channel0_0").values;
    assert!(values.len() < whole.len(), "{} of {}", values.len(), whole.len());
    assert!(values[0] <= 1500 && values.last() == Some(&2999));
    recording.finish(&|| false).expect("a trace");
}

#[test]
fn a_cleared_flight_recorder_has_nothing_of_before_in_its_snapshots() {
    let world = TestWindow::new();
    let mut recording = world.begin_recording(FLIGHT_RECORDER);
    let mut writer = Writer::new(&world.handle());
    emit_records(&mut writer, 3000);
    recording.clear(true).expect("cleared");
    emit_records(&mut writer, 30);
    let folder = world.folder.join("one");
    let facts = recording.snapshot(&folder, None, &Reason::Requested).expect("a snapshot");
    assert_eq!(facts.events, 30);
    let values = world.read_snapshot(&folder, "channel0_0").values;
    assert_eq!(values, (3000..3030).collect::<Vec<_>>());
    recording.finish(&|| false).expect("a trace");
}

#[test]
fn all_channels_of_a_dead_recorder_are_recovered_into_one_trace() {
    let world = TestWindow::new();
    let mut recording = begin_recording(
        &world,
        &[channel_settings("some", SMALL), channel_settings("flight", FLIGHT_RECORDER)],
    );
    let mut first = Writer::in_channel(&world.handle(), 0);
    let mut second = Writer::in_channel(&world.handle(), 1);
    emit_records(&mut first, 5);
    emit_records(&mut second, 5);
    recording.tick(&world.notices).expect("a look");
    recording.replace_channel(0, &channel_settings("some", SMALL), 2).expect("another channel");
    // These records come while both channels exist.
    emit_records(&mut first, 5);
    world.kill(recording);
    let recovered = recover_in(world.folder.path(), &Notices::in_memory(), None).expect("a window");
    assert_eq!(recovered.len(), 1, "one session");
    let summary = recovered[0].result.as_ref().expect("a trace");
    assert_eq!(summary.recorded, 15);
    assert_eq!(world.read("some_0").values.len(), 10);
    assert_eq!(world.read("flight-1_0").values.len(), 5);
    assert!(Path::new(&world.trace()).join("ust").exists());
}

#[test]
fn an_idle_session_takes_little_and_what_a_cpu_needs_when_it_is_used() {
    let world = TestWindow::new();
    let usual = BufferOptions { size_bytes: None, sub_buffers: None, overwrite: false };
    let settings = ChannelSettings { starts_small: true, ..channel_settings("channel0", usual) };
    let mut recording = begin_recording(&world, &[settings]);
    let handle = world.handle();
    let slot = handle.window().active_sessions().next().expect("a session");
    assert!(handle.allocator.bytes_of(slot) < 4 << 20, "{}", handle.allocator.bytes_of(slot));
    let mut writer = Writer::new(&handle);
    // All records find space at the pace of the recorder's polls.
    for _ in 0..200 {
        emit_records(&mut writer, 5_000);
        recording.tick(&world.notices).expect("a look");
    }
    let summary = recording.finish(&|| false).expect("a trace");
    assert_eq!((summary.recorded, summary.lost), (1_000_000, 0));
}
