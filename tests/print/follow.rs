//! `trackway print --follow`: a trace shown while it is being written.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use trackway_tests::steps::wait_for;
use trackway_tests::{Fixture, build_dir, lossy_text};

const TICKER_SOURCE: &str = r#"
#include <pthread.h>
#include <trackway/trackway.h>
#include <stdio.h>
#include <unistd.h>
TRACKWAY_EVENT(myapp, tick, TRACKWAY_INFO, (u32, n));
TRACKWAY_EVENT(myapp, last, TRACKWAY_INFO, (str, word));
static void *ticker(void *unused)
{
    (void)unused;
    for (unsigned n = 0; n < 1500; n++) {
        trackway(myapp, tick, n);
        usleep(1000);
    }
    return NULL;
}
int main(void)
{
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, ticker, NULL);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    getchar();
    trackway(myapp, last, "end");
    return 0;
}
"#;

#[test]
fn a_recording_is_shown_as_it_grows_and_ends_with_it() {
    let fixture = Fixture::new("follow");
    let program = fixture.compile("ticker", TICKER_SOURCE, true, &[]);
    let trace = fixture.path("trace");
    let mut recorder = fixture.trackway(&["record", "-o"]);
    let recorder = recorder
        .arg(&trace)
        .arg("--")
        .arg(&program)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut recorder = recorder.expect("trackway runs");
    // The folder appears first, its metadata a moment later.
    wait_for("the trace's folder", || trace.is_dir());
    let shown = fixture.path("shown");
    let follower = fixture
        .trackway(&["print", "--follow"])
        .arg(&trace)
        .stdout(File::create(&shown).expect("a file"))
        .stderr(Stdio::piped())
        .spawn()
        .expect("trackway runs");
    let text = || std::fs::read_to_string(&shown).expect("text");
    // All ticks appear while the program still runs.
    wait_for("the ticks", || text().matches("myapp:tick").count() == 3 * 1500);
    assert!(!text().contains("myapp:last"));
    drop(recorder.stdin.take());
    assert!(recorder.wait().expect("it ends").success());
    let output = follower.wait_with_output().expect("it ends");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    assert_eq!(messages, "");
    let whole = fixture.print(&trace);
    // On a machine that delays the recorder, some events may have arrived too late for their order.
    let lines = |text: &str| {
        let mut lines: Vec<String> = text
            .lines()
            .map(|line| line.split(' ').skip(2).collect::<Vec<_>>().join(" "))
            .collect();
        lines.sort_unstable();
        lines
    };
    assert_eq!(lines(&text()), lines(&whole));
    assert!(text().ends_with("{ word = \"end\" }\n"));
}

#[test]
fn an_ended_trace_is_shown_and_what_is_no_folder_refused() {
    let fixture = Fixture::new("follow-ended");
    let program = fixture.compile("ticker", &TICKER_SOURCE.replace("1500", "10"), true, &[]);
    let recording = fixture.record(&[], &[program.to_str().unwrap()]);
    assert!(recording.output.status.success(), "{}", recording.messages());
    let follow =
        |path| fixture.trackway(&["print", "--follow"]).arg(path).output().expect("it runs");
    let output = follow(recording.trace.clone());
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), fixture.print(&recording.trace));
    assert_eq!(follow(fixture.path("nothing")).status.code(), Some(2));
}

/// RUN a follower with filters on events that the trace lacks so far. EXPECT a notice, and the
/// other events; a filter with a likely typing error is refused.
#[test]
fn filters_on_events_to_come_are_accepted() {
    let fixture = Fixture::new("follow-filters");
    let program = fixture.compile("ticker", &TICKER_SOURCE.replace("1500", "10"), true, &[]);
    let recording = fixture.record(&["--event", "myapp:tick"], &[program.to_str().unwrap()]);
    assert!(recording.output.status.success(), "{}", recording.messages());
    let follow = |filter: &str| {
        let mut print = fixture.trackway(&["print", "--follow", "--filter", filter]);
        let output = print.arg(&recording.trace).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), count_ticks(&output.stdout), said)
    };
    for (filter, status, shown, message) in [
        ("later:*: size > 3", 0, 30, "matches 'later:*', and it keeps nothing out so far"),
        ("myap:*: n > 3", 0, 30, "did you mean 'myapp:*'?"),
        ("size > 3", 0, 0, "no event that is there yet is one for --filter:\nsize > 3\n"),
        ("vtid > 3", 2, 0, "did you mean '$ctx.vtid'?"),
        ("myapp:tick: size > 3", 2, 0, "unknown field 'size' of myapp:tick"),
    ] {
        let (found, count, said) = follow(filter);
        assert_eq!((found, count), (Some(status), shown), "{filter}: {said}");
        assert!(said.contains(message), "{filter}: {said}");
    }
}

/// Emits an event for each byte that it reads.
const ANSWERER_SOURCE: &str = r#"
#include <trackway/trackway.h>
#include <stdio.h>
TRACKWAY_EVENT(myapp, tick, TRACKWAY_INFO, (u32, n));
int main(void) {
    for (unsigned n = 0; getchar() != EOF; n++)
        trackway(myapp, tick, n);
    return 0;
}
"#;

/// A recorded program that ticks on request. Dropping this value ends the program and its recorder.
struct RecordedTicker<'w> {
    fixture: &'w Fixture,
    trace: PathBuf,
    recorder: Child,
    input: Option<ChildStdin>,
}

impl<'w> RecordedTicker<'w> {
    fn start(fixture: &'w Fixture) -> Self {
        let program = fixture.compile("answerer", ANSWERER_SOURCE, true, &[]);
        let trace = fixture.path("trace");
        let mut recorder = fixture.trackway(&["record", "-q", "-o"]);
        recorder.arg(&trace).arg("--").arg(&program);
        let mut recorder = recorder.stdin(Stdio::piped()).spawn().expect("trackway runs");
        let input = recorder.stdin.take();
        let recorded = Self { fixture, trace, recorder, input };
        wait_for("the trace", || recorded.print(&[]).status.success());
        recorded
    }

    /// Makes the program tick, and waits until the tick is in the trace.
    fn tick(&mut self) {
        let before = count_ticks(&self.print(&[]).stdout);
        self.input.as_mut().expect("a pipe").write_all(b"x").expect("the program reads");
        wait_for("a tick", || count_ticks(&self.print(&[]).stdout) > before);
    }

    fn print(&self, options: &[&str]) -> Output {
        let mut print = self.fixture.trackway(&["print"]);
        print.args(options).arg(&self.trace).output().expect("trackway runs")
    }

    fn follow(&self, options: &[&str]) -> PrintFollower {
        PrintFollower::start(self.fixture, options, &self.trace)
    }

    /// Ends the program, and with it the recorder.
    fn finish(mut self) {
        drop(self.input.take());
        assert!(self.recorder.wait().expect("it ends").success());
    }

    /// Kills the recorder; the program then ends, too.
    fn kill(mut self) -> PathBuf {
        self.recorder.kill().expect("it runs");
        self.recorder.wait().expect("it ends");
        drop(self.input.take());
        std::mem::take(&mut self.trace)
    }
}

impl Drop for RecordedTicker<'_> {
    fn drop(&mut self) {
        let _ = self.recorder.kill();
        let _ = self.recorder.wait();
    }
}

/// A running `trackway print --follow`; dropping this value kills the process.
struct PrintFollower {
    child: Option<Child>,
    out: PathBuf,
    messages: PathBuf,
}

impl PrintFollower {
    fn start(fixture: &Fixture, options: &[&str], trace: &Path) -> Self {
        let mut command = fixture.trackway(&["print", "--follow"]);
        command.args(options).arg(trace);
        Self::run(fixture, command)
    }

    fn run(fixture: &Fixture, mut command: Command) -> Self {
        let (out, messages) = (fixture.path("shown"), fixture.path("said"));
        let file = |path: &Path| File::create(path).expect("a file");
        let child = command.stdout(file(&out)).stderr(file(&messages)).spawn();
        Self { child: Some(child.expect("trackway runs")), out, messages }
    }

    fn shown(&self) -> usize {
        count_ticks(&fs::read(&self.out).expect("text"))
    }

    fn read_messages(&self) -> String {
        fs::read_to_string(&self.messages).expect("text")
    }

    /// Waits for the follower's end; returns the exit status, the number of shown ticks, and the
    /// messages.
    fn finish(mut self) -> (Option<i32>, usize, String) {
        let mut child = self.child.take().expect("it was not waited for");
        let mut status = None;
        wait_for("the end of following", || {
            status = child.try_wait().expect("its state");
            status.is_some()
        });
        (status.and_then(|status| status.code()), self.shown(), self.read_messages())
    }
}

impl Drop for PrintFollower {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn count_ticks(text: &[u8]) -> usize {
    String::from_utf8_lossy(text).matches("myapp:tick").count()
}

#[test]
fn a_trace_whose_recorder_was_killed_is_said_to_be_incomplete_until_it_is_recovered() {
    let fixture = Fixture::new("follow-killed");
    let mut recorded = RecordedTicker::start(&fixture);
    recorded.tick();
    for options in [&[][..], &["--stats"], &["--details"]] {
        let live = recorded.print(options);
        assert!(
            live.status.success() && lossy_text(&live.stderr).is_empty(),
            "{}",
            lossy_text(&live.stderr)
        );
    }
    let follower = recorded.follow(&[]);
    wait_for("the tick", || follower.shown() == 1);
    let trace = recorded.kill();
    let (status, shown, said) = follower.finish();
    assert_eq!((status, shown), (Some(1), 1), "{said}");
    let place = fs::canonicalize(&trace).expect("a folder");
    let hint = format!("hint: trackway recover {} completes it", place.display());
    assert!(
        said.contains(" is not complete: its recorder was killed or interrupted\n")
            && said.contains(&hint)
    );

    let print = |options: &[&str]| {
        let output = fixture.trackway(&["print"]).args(options).arg(&trace).output();
        output.expect("trackway runs")
    };
    for options in [&[][..], &["--stats"], &["--details"], &["--count"]] {
        let output = print(options);
        assert!(output.status.success(), "{options:?}: it is not damaged");
        assert!(lossy_text(&output.stderr).contains(&hint), "{}", lossy_text(&output.stderr));
    }
    if let Some(theirs) = fixture.babeltrace(&trace) {
        assert_eq!(lossy_text(&print(&[]).stdout), lossy_text(&theirs.stdout));
    }
    let (_, words) = hint.split_once("trackway ").expect("a command");
    let words: Vec<&str> = words.split(' ').take(2).collect();
    let recovered = fixture.trackway(&words).output().expect("trackway runs");
    assert!(
        lossy_text(&recovered.stderr).contains("recovered "),
        "{}",
        lossy_text(&recovered.stderr)
    );
    assert_eq!(lossy_text(&print(&[]).stderr), "");
    let (status, shown, said) = PrintFollower::start(&fixture, &[], &trace).finish();
    assert_eq!((status, shown, said.as_str()), (Some(0), 1, ""));
}

#[test]
fn a_trace_whose_memory_is_gone_is_said_to_be_incomplete_until_that_is_settled() {
    let fixture = Fixture::new("follow-gone");
    let mut recorded = RecordedTicker::start(&fixture);
    recorded.tick();
    let trace = recorded.kill();
    // Removes all windows, as a restart of the machine does.
    for file in fs::read_dir(fixture.window_dir()).expect("a folder").flatten() {
        fs::remove_file(file.path()).expect("a window");
    }
    let said = || {
        let output = fixture.trackway(&["print"]).arg(&trace).output().expect("trackway runs");
        assert!(output.status.success());
        lossy_text(&output.stderr)
    };
    assert!(said().contains("is not complete"));
    let recovered = fixture.trackway(&["recover"]).arg(&trace).output().expect("trackway runs");
    assert!(recovered.status.success());
    let recovered = lossy_text(&recovered.stderr);
    assert!(recovered.contains("what is written is all there is"), "{recovered}");
    assert_eq!(said(), "");
}

#[test]
fn traces_made_of_a_recorded_one_are_not_taken_for_incomplete() {
    let fixture = Fixture::new("follow-trimmed");
    let mut recorded = RecordedTicker::start(&fixture);
    recorded.tick();
    let trace = recorded.trace.clone();
    recorded.finish();
    let trimmed = fixture.path("trimmed");
    let output = fixture.trackway(&["trim", "-o"]).arg(&trimmed).arg(&trace).output();
    assert!(output.expect("trackway runs").status.success());
    let (status, shown, said) = PrintFollower::start(&fixture, &[], &trimmed).finish();
    assert_eq!((status, shown, said.as_str()), (Some(0), 1, ""));
}

#[test]
fn times_of_the_day_are_those_of_the_first_event_whenever_it_comes() {
    let fixture = Fixture::new("follow-begin");
    let trace = fixture.path("trace");
    fs::create_dir(&trace).expect("a folder");
    let wrong = PrintFollower::start(&fixture, &["--begin", "25:00"], &trace).finish();
    assert_eq!((wrong.0, wrong.1), (Some(2), 0));
    assert!(wrong.2.contains("'25:00' is not a time"), "{}", wrong.2);

    let follower = PrintFollower::start(&fixture, &["--begin", "00:00"], &trace);
    let mut recorded = RecordedTicker::start(&fixture);
    recorded.tick();
    wait_for("the tick", || follower.shown() == 1);
    recorded.finish();
    assert_eq!(follower.finish(), (Some(0), 1, String::new()));
}

#[test]
fn following_ends_with_the_range_whether_or_not_anything_happens() {
    let fixture = Fixture::new("follow-end");
    let mut recorded = RecordedTicker::start(&fixture);
    let soon = || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time");
        (now + Duration::from_secs(1)).as_secs().to_string()
    };
    let ended = |shown| (Some(0), shown, String::new());
    // No event has happened yet.
    assert_eq!(recorded.follow(&["--end", &soon()]).finish(), ended(0));
    recorded.tick();
    // No further event happens.
    let end = soon();
    assert_eq!(recorded.follow(&["--begin", "0", "--end", &end]).finish(), ended(1));
    recorded.tick();
    assert_eq!(recorded.follow(&["--begin", "0", "--end", &end]).finish(), ended(1));
    // All events are later than the day's beginning: there is nothing to wait for.
    assert_eq!(recorded.follow(&["--end", "00:00"]).finish(), ended(0));
    recorded.finish();
}

#[test]
fn a_range_whose_events_may_be_in_memory_still_is_said_to_be_incomplete() {
    let fixture = Fixture::new("follow-end-killed");
    let mut recorded = RecordedTicker::start(&fixture);
    recorded.tick();
    // The end is so soon after the present events that the follower reaches it before it can know
    // that the traces have ended.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time");
    let end = format!("{}.{:09}", now.as_secs(), now.subsec_nanos());
    let trace = recorded.kill();
    let follow =
        || PrintFollower::start(&fixture, &["--begin", "0", "--end", &end], &trace).finish();
    let (status, shown, said) = follow();
    assert_eq!((status, shown), (Some(1), 1), "{said}");
    assert!(said.contains(" is not complete: its recorder was killed or interrupted\n"), "{said}");
    assert!(fixture.trackway(&["recover"]).output().expect("trackway runs").status.success());
    assert_eq!(follow(), (Some(0), 1, String::new()));
}

#[test]
fn a_folder_that_is_moved_is_followed_and_one_that_is_removed_ends_it() {
    let fixture = Fixture::new("follow-moved");
    let mut recorded = RecordedTicker::start(&fixture);
    recorded.tick();
    let follower = recorded.follow(&[]);
    wait_for("the tick", || follower.shown() == 1);
    let moved = fixture.path("moved");
    fs::rename(&recorded.trace, &moved).expect("a folder");
    recorded.trace = moved.clone();
    recorded.tick();
    recorded.finish();
    let (status, shown, said) = follower.finish();
    assert_eq!((status, shown), (Some(0), 2), "{said}");
    assert!(said.contains(" was moved, and is followed in ") && said.lines().count() == 1);

    // The end of other tracers' traces is unknown.
    let trace = fixture.path("other");
    fs::create_dir(&trace).expect("a folder");
    fs::write(trace.join("metadata"), TRACE_METADATA).expect("metadata");
    let follower = PrintFollower::start(&fixture, &[], &trace);
    let mut stream = File::create(trace.join("stream")).expect("a file");
    for n in 0..3_u32 {
        stream.write_all(&n.to_le_bytes()).expect("an event");
        // The packet contains neither its size nor the times of its events.
        wait_for("the event", || follower.shown() == n as usize + 1);
    }
    fs::remove_dir_all(&trace).expect("a folder");
    let (status, shown, said) = follower.finish();
    assert_eq!((status, shown), (Some(2), 3), "{said}");
    assert!(said.contains("was removed while it was followed"), "{said}");
}

#[test]
fn following_ends_when_nobody_reads_it_whether_or_not_anything_happens() {
    let fixture = Fixture::new("follow-pipe");
    let mut recorded = RecordedTicker::start(&fixture);
    recorded.tick();
    let mut command = fixture.trackway(&["print", "--follow"]);
    command.arg(&recorded.trace).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut follower = command.spawn().expect("trackway runs");
    let mut line = String::new();
    let mut read = BufReader::new(follower.stdout.take().expect("a pipe"));
    read.read_line(&mut line).expect("the tick");
    assert_eq!(count_ticks(line.as_bytes()), 1);
    drop(read);
    let mut status = None;
    wait_for("the end of following", || {
        status = follower.try_wait().expect("its state");
        status.is_some()
    });
    // Like other programs in a pipe, the follower ends without an error.
    assert!(status.is_some_and(|status| status.success()));
    let mut said = String::new();
    follower.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    assert_eq!(said, "");
    recorded.finish();
}

#[test]
fn the_metadata_of_a_trace_where_nothing_happens_is_not_read_again_and_again() {
    let fixture = Fixture::new("follow-idle");
    let mut recorded = RecordedTicker::start(&fixture);
    recorded.tick();
    let follower = recorded.follow(&[]);
    wait_for("the tick", || follower.shown() == 1);
    let pid = follower.child.as_ref().expect("it runs").id();
    let number = |file: &str, name: &str| -> u64 {
        let text = fs::read_to_string(format!("/proc/{pid}/{file}")).expect("a process");
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
        line.trim().parse().expect("a number")
    };
    // The follower sleeps between its checks of the files.
    let looks = || number("status", "voluntary_ctxt_switches:");
    let read = || number("io", "rchar:");
    let pass = |looks_to_pass| {
        let before = looks();
        wait_for("looks", || looks() >= before + looks_to_pass);
    };
    // The follower checks the files for a second or two. Then it reads only the recorder's
    // position, in the few bytes of `trackway/live`.
    const POLLS_MAX: u64 = 10;
    // SAFETY: geteuid has no preconditions.
    let user = unsafe { libc::geteuid() };
    let metadata = recorded.trace.join(format!("ust/uid/{user}/64-bit/metadata"));
    let metadata = fs::metadata(metadata).expect("metadata").len();
    assert!(metadata > 100 * POLLS_MAX, "{metadata}");
    wait_for("looks that read next to nothing", || {
        let before = read();
        pass(POLLS_MAX);
        read() - before < 100 * POLLS_MAX
    });
    recorded.tick();
    wait_for("the other tick", || follower.shown() == 2);
    recorded.finish();
    assert_eq!(follower.finish(), (Some(0), 2, String::new()));
}

/// The memory is bounded for any number of packets that wait to be written.
#[test]
fn memory_for_a_file_does_not_grow_with_its_packets() {
    const PACKETS: usize = 1 << 20;
    /// Less memory than the positions of all packets need.
    const MEMORY_BYTES: usize = 32 * PACKETS;
    let fixture = Fixture::new("follow-packets");
    let trace = fixture.path("trace");
    fs::create_dir(&trace).expect("a folder");
    let context = "packet.context := struct { integer { size = 8; align = 8; } packet_size; };";
    let metadata =
        TRACE_METADATA.replace("id = 0; };\nevent", &format!("id = 0; {context} }};\nevent"));
    fs::write(trace.join("metadata"), metadata).expect("metadata");
    // Packets of one byte, which contains their size in bits; the last packet has an event.
    let mut packets = vec![8; PACKETS];
    packets.extend([40, 1, 0, 0, 0]);
    fs::write(trace.join("stream"), packets).expect("a stream");
    let mut command = fixture.command("prlimit");
    command.arg(format!("--data={MEMORY_BYTES}")).arg(build_dir().join("trackway"));
    command.args(["print", "--follow", "--jobs", "1"]).arg(&trace);
    let follower = PrintFollower::run(&fixture, command);
    wait_for("the event, or the end", || {
        follower.shown() == 1 || !follower.read_messages().is_empty()
    });
    fs::remove_dir_all(&trace).expect("a folder");
    let (status, shown, said) = follower.finish();
    assert_eq!((status, shown), (Some(2), 1), "{said}");
}

/// A trace with one kind of event, and with packets without sizes or times.
const TRACE_METADATA: &str = "/* CTF 1.8 */
trace { major = 1; minor = 8; byte_order = le; };
stream { id = 0; };
event { name = \"myapp:tick\"; stream_id = 0; id = 0;
    fields := struct { integer { size = 32; align = 8; } n; }; };
";
