//! A trace is followed while a recorder writes it and publishes its progress: in real time, on real
//! files.
//!
//! The test prints the latency from each event's time to its line (`--nocapture`), and asserts
//! nothing about it.

#[path = "../../ctf/tests/support/mod.rs"]
mod support;

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use support::{Random, START_NS, StreamWriter, event_description, trace_description};
use trackway_ctf::write::{Contexts, event_declaration, metadata_preamble};
use trackway_reader::{FollowSettings, FollowedRange, OpenError, Range, Settings, follow_traces};
use trackway_render::{LineOutput, Pretty, PrettyOptions, utc_date_time};
use trackway_schema::{FieldKind, Scalar};
use trackway_testkit::TemporaryFolder;

/// Time between two writes of the recorder while a reader follows.
const FLUSH_PERIOD: Duration = Duration::from_millis(20);
const FLUSHES: usize = 60;
const CPUS: u64 = 3;

/// A simulated recorder: the files of its streams, and the events to be written to them.
struct Recorder {
    folder: PathBuf,
    begin: Instant,
    live: File,
    sequence: u64,
    streams: Vec<(StreamWriter, File)>,
    /// Times of the events, by their numbers.
    times: Vec<Duration>,
}

impl Recorder {
    fn new(folder: &Path) -> Self {
        fs::create_dir_all(folder.join("trackway")).expect("a folder");
        let class = event_description("tick", vec![("n", FieldKind::Scalar(Scalar::U32))]);
        let metadata = metadata_preamble(&trace_description(Contexts::default()));
        let metadata = metadata + &event_declaration(0, 0, &class);
        fs::write(folder.join("metadata"), metadata).expect("a file");
        fs::write(folder.join("trackway/clock.csv"), "").expect("a file");
        let create = |name: String| File::create(folder.join(name)).expect("a file");
        Self {
            folder: folder.to_owned(),
            begin: Instant::now(),
            live: create("trackway/live".into()),
            sequence: 0,
            streams: (0..CPUS)
                .map(|cpu| (StreamWriter::new(cpu), create(format!("channel0_{cpu}"))))
                .collect(),
            times: Vec::new(),
        }
    }

    /// Records events until the next write is due, and writes them.
    fn record_and_flush(&mut self, random: &mut Random) {
        let flush = self.begin.elapsed() + FLUSH_PERIOD;
        for (stream, _) in &mut self.streams {
            stream.begin(clock_value(self.begin.elapsed()));
        }
        while self.begin.elapsed() < flush {
            let now = self.begin.elapsed();
            let n = u32::try_from(self.times.len()).expect("a number");
            let (stream, _) = &mut self.streams[random.next_below(CPUS) as usize];
            stream.record(0, clock_value(now), &n.to_le_bytes());
            self.times.push(now);
            sleep(Duration::from_micros(random.next_below(4000)));
        }
        let flushed = clock_value(self.begin.elapsed());
        for (stream, file) in &mut self.streams {
            stream.end(flushed, 0);
            file.write_all(&std::mem::take(&mut stream.bytes)).expect("a packet");
        }
        self.sequence += 1;
        let words = [self.sequence, flushed, !(self.sequence ^ flushed)];
        self.live.write_all_at(&words.map(u64::to_le_bytes).concat(), 0).expect("a file");
    }

    /// Writes the remaining events; returns the times of all events.
    fn finish(self) -> Vec<Duration> {
        fs::write(self.folder.join("trackway/complete"), "").expect("a file");
        self.times
    }
}

/// Returns the value of the trace's clock.
fn clock_value(since: Duration) -> u64 {
    START_NS + u64::try_from(since.as_nanos()).expect("a time")
}

/// A writer that stores lines with the times of their writes.
struct TimedLines(Vec<(String, Instant)>);

impl Write for TimedLines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let now = Instant::now();
        let text = std::str::from_utf8(bytes).expect("text");
        self.0.extend(text.lines().map(|line| (line.to_owned(), now)));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Follows the trace until it has ended.
fn follow_trace(path: PathBuf) -> Vec<(String, Instant)> {
    let following = FollowSettings {
        paths: &[path],
        prepare: &|_| {},
        now: &|| 0,
        events: &|_| true,
        filters: None,
        is_read: &|| Ok(()),
        settings: Settings::default(),
    };
    let format = Pretty::new(PrettyOptions::default(), utc_date_time);
    let range = FollowedRange::<OpenError>::Known(Range::default());
    let (mut shown, mut messages) = (TimedLines(Vec::new()), Vec::new());
    let done =
        follow_traces(&following, range, &mut LineOutput::new(format, &mut shown), &mut messages)
            .expect("a trace");
    assert!(done.is_whole && done.unfinished.is_empty());
    assert_eq!(String::from_utf8_lossy(&messages), "");
    shown.0
}

/// Returns the number of the event in a line.
fn parse_event_number(line: &str) -> usize {
    let number = line.split_once("n = ").and_then(|(_, rest)| rest.split(' ').next());
    number.and_then(|number| number.parse().ok()).expect("a number")
}

#[test]
fn what_a_recorder_says_is_written_is_shown_while_it_records() {
    let root = TemporaryFolder::new();
    let lock = File::open(root.path()).expect("a folder");
    lock.lock().expect("nobody has it");
    let mut recorder = Recorder::new(&root.join("ust/uid/0/64-bit"));
    let begin = recorder.begin;
    let path = root.path().to_owned();
    let follower = thread::spawn(move || follow_trace(path));
    let mut random = Random(1);
    (0..FLUSHES).for_each(|_| recorder.record_and_flush(&mut random));
    let times = recorder.finish();
    drop(lock);
    let shown = follower.join().expect("it ends");
    let mut shown: Vec<(usize, Instant)> =
        shown.iter().map(|(line, at)| (parse_event_number(line), *at)).collect();
    // On a slow machine, the recorder may be late, so that some events miss their place in the
    // order.
    shown.sort_unstable();
    assert!(shown.iter().map(|(n, _)| *n).eq(0..times.len()), "{shown:?}");
    // The first events are excluded: the reader did not yet trust the recorder's progress.
    let took = shown.iter().map(|&(n, at)| at.saturating_duration_since(begin + times[n]));
    let mut took: Vec<Duration> = took.skip(times.len() / 4).collect();
    took.sort_unstable();
    let part = |percent: usize| took[(took.len() - 1) * percent / 100];
    let (half, most, last) = (part(50), part(99), part(100));
    eprintln!(
        "{} events: half after {half:?}, 99 % after {most:?}, all after {last:?}",
        took.len()
    );
}
