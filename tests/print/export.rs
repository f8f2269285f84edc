//! `trackway print --stats`, `--details` and `--format`, `trackway trim` and `trackway merge`, as
//! users run them.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use serde_json::Value;
use trackway_ctf::write::{PacketFields, packet_header};
use trackway_tests::Fixture;
use trackway_tests::steps::{send_signal, wait_for};

const PROGRAM: &str = r#"
#include <trackway/trackway.h>
TRACKWAY_EVENT(myapp, request, TRACKWAY_INFO, (str, path), (u32, status));
TRACKWAY_EVENT(myapp, tick, TRACKWAY_DEBUG);
int main(void) {
    for (unsigned i = 0; i < 5000; i++) {
        trackway(myapp, request, "/a,\"b\"", i);
        trackway(myapp, tick);
    }
    return 0;
}
"#;

fn record_program(fixture: &Fixture) -> PathBuf {
    let program = fixture.compile("program", PROGRAM, true, &[]);
    let recording = fixture.record(&[], &[program.to_str().unwrap()]);
    assert_eq!(recording.summary.recorded, 10_000, "{}", recording.messages());
    find_folder_with(&recording.trace, "metadata").expect("a trace")
}

/// Returns the folder at or below `folder` that has a file of this name.
fn find_folder_with(folder: &Path, name: &str) -> Option<PathBuf> {
    if folder.join(name).is_file() {
        return Some(folder.to_owned());
    }
    let below = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    below.filter(|path| path.is_dir()).find_map(|path| find_folder_with(&path, name))
}

fn run_trackway(fixture: &Fixture, arguments: &[&str], trace: &Path) -> Output {
    fixture.trackway(arguments).arg(trace).output().expect("trackway runs")
}

/// Runs `trackway`, which must succeed; returns its standard output.
fn run_for_stdout(fixture: &Fixture, arguments: &[&str], trace: &Path) -> String {
    let output = run_trackway(fixture, arguments, trace);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Runs `trackway` without additional threads; returns its output.
fn run_single_threaded(fixture: &Fixture, arguments: &[&str], trace: &Path) -> Output {
    let command = fixture.trackway(arguments);
    let text = include_str!("no_threads.c");
    let mut single_threaded = fixture.command(fixture.compile("no_threads", text, false, &[]));
    single_threaded.arg(command.get_program()).args(command.get_args()).arg(trace);
    single_threaded.output().expect("it runs")
}

#[test]
fn where_there_can_be_no_threads_one_does_it_all() {
    let fixture = Fixture::new("alone");
    let trace = record_program(&fixture);
    for arguments in [&["print"][..], &["print", "--stats"], &["print", "--jobs", "7", "--count"]] {
        let output = run_single_threaded(&fixture, arguments, &trace);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            run_for_stdout(&fixture, arguments, &trace)
        );
    }
    // A process that ignores Ctrl-C would leave its unfinished output.
    let out = fixture.path("out");
    let output = run_single_threaded(&fixture, &["trim", "-o", out.to_str().unwrap()], &trace);
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.starts_with("trackway: cannot wait for signals: "), "{message}");
    assert!(!out.exists());
}

#[test]
fn a_trimmed_trace_prints_as_the_range_does() {
    let fixture = Fixture::new("trim");
    let trace = record_program(&fixture);
    let lines = run_for_stdout(&fixture, &["print", "--clock-seconds", "--no-delta"], &trace);
    let time = |line: &str| line[1..line.find(']').expect("a time")].to_owned();
    let times: Vec<String> = lines.lines().map(time).collect();
    let (begin, end) = (&times[2_345], &times[7_654]);
    let range = ["--begin", begin, "--end", end];
    for on in [&[][..], &["--event", "myapp:request"], &["--event", "myapp", "--event", "!*:tick"]]
    {
        let out = fixture.path("out");
        let mut arguments = vec!["trim", "-o", out.to_str().unwrap()];
        arguments.extend(range.iter().chain(on));
        run_for_stdout(&fixture, &arguments, &trace);
        let mut arguments = vec!["print", "--no-delta"];
        arguments.extend(range.iter().chain(on));
        let expected = run_for_stdout(&fixture, &arguments, &trace);
        assert!(expected.lines().count() > 2000);
        assert_eq!(run_for_stdout(&fixture, &["print", "--no-delta"], &out), expected);
        if let Some(theirs) = fixture.babeltrace(&out) {
            let ours = run_for_stdout(&fixture, &["print"], &out);
            assert_eq!(String::from_utf8_lossy(&theirs.stdout), ours);
        }
        fs::remove_dir_all(&out).expect("it was written");
    }
}

#[test]
fn statuses_and_messages_tell_what_happened() {
    let fixture = Fixture::new("export-status");
    let trace = record_program(&fixture);
    let out = fixture.path("out");
    let to = ["-o", out.to_str().unwrap()];
    // Nothing is written if the destination exists, or the source does not.
    fs::create_dir(&out).unwrap();
    fs::write(out.join("file"), "mine").unwrap();
    for verb in ["trim", "merge"] {
        let output = run_trackway(&fixture, &[&[verb], &to[..]].concat(), &trace);
        let messages = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2));
        assert!(messages.contains("is not empty"), "{messages}");
        assert_eq!(fs::read(out.join("file")).unwrap(), b"mine");
    }
    fs::remove_dir_all(&out).unwrap();
    fs::create_dir(fixture.path("empty")).unwrap();
    for verb in ["trim", "merge"] {
        let output = run_trackway(&fixture, &[&[verb], &to[..]].concat(), &fixture.path("empty"));
        assert_eq!(output.status.code(), Some(2));
        assert!(!out.exists());
    }
    // A trace without events is not written.
    let nothing = [&["trim", "--event", "myapp:nosuch"], &to[..]].concat();
    let output = run_trackway(&fixture, &nothing, &trace);
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{messages}");
    assert!(messages.contains("nothing is left to be written") && !out.exists(), "{messages}");
    // If the trace is damaged, the undamaged part is written.
    let stream = fs::read_dir(&trace).unwrap().flatten().map(|entry| entry.path()).find(|path| {
        path.is_file() && !path.ends_with("metadata") && fs::metadata(path).unwrap().len() > 70_000
    });
    let stream = stream.expect("a stream with events");
    let length = fs::metadata(&stream).unwrap().len();
    File::options().write(true).open(&stream).unwrap().set_len(length - 1000).unwrap();
    for verb in ["trim", "merge"] {
        let output = run_trackway(&fixture, &[&[verb], &to[..]].concat(), &trace);
        let messages = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{messages}");
        let name = stream.display().to_string();
        assert!(messages.contains(&name) && messages.contains("packet "), "{messages}");
        // The written trace is complete.
        assert!(run_for_stdout(&fixture, &["print"], &out).lines().count() > 1000);
        fs::remove_dir_all(&out).unwrap();
    }
}

/// Writing this packet takes longer than the arrival of the signal.
#[test]
fn a_signal_leaves_nothing_behind() {
    const PACKET_BYTES: u64 = 1 << 40;
    let fixture = Fixture::new("export-signal");
    let trace = record_program(&fixture);
    let metadata = fs::read_to_string(trace.join("metadata")).unwrap();
    let huge = fixture.path("huge");
    fs::create_dir(&huge).unwrap();
    fs::write(huge.join("metadata"), metadata).unwrap();
    let fields =
        PacketFields { content_bytes: 84, packet_bytes: PACKET_BYTES, ..PacketFields::default() };
    fs::write(huge.join("stream"), packet_header(&[0; 16], &fields)).unwrap();
    let file = File::options().write(true).open(huge.join("stream")).unwrap();
    if let Err(error) = file.set_len(PACKET_BYTES) {
        return trackway_tests::report_skipped(format!(
            "files of 1 TiB cannot be made here: {error}"
        ));
    }
    for (verb, signal) in [("trim", libc::SIGINT), ("merge", libc::SIGTERM)] {
        let out = fixture.path("out");
        let mut command = fixture.trackway(&[verb, "-o", out.to_str().unwrap()]);
        let mut child = command.arg(&huge).stderr(Stdio::piped()).spawn().unwrap();
        // The output is in a temporary folder until it is complete.
        let is_begun = || {
            let entries = fs::read_dir(&out).into_iter().flatten().flatten();
            entries.map(|entry| entry.path().join("stream")).any(|stream| stream.exists())
        };
        wait_for("the stream's file", is_begun);
        send_signal(child.id().cast_signed(), signal);
        let status = child.wait().unwrap();
        assert_eq!(status.signal(), Some(signal), "{status}");
        assert!(!out.exists(), "{verb} left something behind");
    }
}

#[test]
fn pieces_become_one_trace_and_others_lie_beside_it() {
    let fixture = Fixture::new("merge");
    let trace = record_program(&fixture);
    let whole = run_for_stdout(&fixture, &["print"], &trace);
    // Three copies of a trace are read as one trace.
    let copies = ["a", "b"].map(|name| fixture.path(name));
    for copy in &copies {
        fs::create_dir(copy).unwrap();
        for entry in fs::read_dir(&trace).unwrap().flatten().filter(|entry| entry.path().is_file())
        {
            fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
        }
    }
    let out = fixture.path("out");
    let mut merge = fixture.trackway(&["merge", "-o", out.to_str().unwrap()]);
    let output = merge.arg(&trace).args(&copies).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(run_for_stdout(&fixture, &["print"], &out), whole);
    // A folder that is given twice is written once.
    let twice = fixture.path("twice");
    let mut trim = fixture.trackway(&["trim", "-o", twice.to_str().unwrap()]);
    let output = trim.arg(&trace).arg(&trace).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(run_for_stdout(&fixture, &["print"], &twice), whole);
    // Merges the trace with another recording.
    fs::remove_dir_all(fixture.path("trace")).unwrap();
    let other = record_program(&fixture);
    let both = fixture.path("both");
    let mut merge = fixture.trackway(&["merge", "-o", both.to_str().unwrap()]);
    let output = merge.arg(&copies[0]).arg(&other).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(both.join("a/metadata").exists());
    assert_eq!(fs::read_dir(&both).unwrap().count(), 2);
    assert_eq!(run_for_stdout(&fixture, &["print"], &both).lines().count(), 20_000);
    if let Some(theirs) = fixture.babeltrace(&both) {
        assert_eq!(theirs.stdout.iter().filter(|&&byte| byte == b'\n').count(), 20_000);
    }
}

#[test]
fn programs_can_read_what_is_printed() {
    let fixture = Fixture::new("formats");
    let trace = record_program(&fixture);
    let stats: Value = serde_json::from_str(&run_for_stdout(
        &fixture,
        &["print", "--stats", "--format", "json"],
        &trace,
    ))
    .expect("JSON");
    assert_eq!(stats["count"], 10_000);
    let counts: Vec<u64> =
        stats["events"].as_array().unwrap().iter().filter_map(|it| it["count"].as_u64()).collect();
    assert_eq!(counts, [5000, 5000]);
    let table = run_for_stdout(&fixture, &["print", "--stats"], &trace);
    assert!(table.contains("10,000 events in ") && table.contains("lost: 0 events"), "{table}");

    let details: Value = serde_json::from_str(&run_for_stdout(
        &fixture,
        &["print", "--details", "--format", "json"],
        &trace,
    ))
    .expect("JSON");
    assert_eq!(details["streams"][0]["events"].as_array().unwrap().len(), 2);
    let table = run_for_stdout(&fixture, &["print", "--details"], &trace);
    assert!(table.contains("{ string path; u32 status; }"), "{table}");

    let lines =
        run_for_stdout(&fixture, &["print", "--format", "json", "--event", "*:request"], &trace);
    let events: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(events.len(), 5000);
    assert_eq!(events[7]["fields"], serde_json::json!({ "path": "/a,\"b\"", "status": 7 }));

    let csv =
        run_for_stdout(&fixture, &["print", "--format", "csv", "--event", "*:request"], &trace);
    let mut lines = csv.lines();
    let head = "time,name,hostname,procname,vpid,stream,cpu_id,vtid,path,status";
    assert_eq!(lines.next(), Some(head));
    assert!(lines.next().unwrap().ends_with(",\"/a,\"\"b\"\"\",0"), "{csv}");
    assert_eq!(run_for_stdout(&fixture, &["print", "--format", "none"], &trace), "");
}
