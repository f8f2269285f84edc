//! `trackway print --follow`: a trace shown while it is being written.

use std::fs::File;
use std::process::Stdio;

use trackway_tests::World;
use trackway_tests::steps::wait_for;

const TICKER: &str = r#"
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
    let world = World::new("follow");
    let program = world.compile("ticker", TICKER, true, &[]);
    let trace = world.path("trace");
    let mut recorder = world.trackway(&["record", "-o"]);
    let recorder = recorder
        .arg(&trace)
        .arg("--")
        .arg(&program)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut recorder = recorder.expect("trackway runs");
    // Its folder comes first, its metadata a moment later.
    wait_for("the trace's folder", || trace.is_dir());
    let shown = world.path("shown");
    let follower = world
        .trackway(&["print", "--follow"])
        .arg(&trace)
        .stdout(File::create(&shown).expect("a file"))
        .stderr(Stdio::piped())
        .spawn()
        .expect("trackway runs");
    let text = || std::fs::read_to_string(&shown).expect("text");
    // All of it, while the program still runs.
    wait_for("the ticks", || text().matches("myapp:tick").count() == 3 * 1500);
    assert!(!text().contains("myapp:last"));
    drop(recorder.stdin.take());
    assert!(recorder.wait().expect("it ends").success());
    let output = follower.wait_with_output().expect("it ends");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    assert_eq!(messages, "");
    let whole = world.print(&trace);
    // On a machine that lets the recorder wait, some may have come too late for their place.
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
    let world = World::new("follow-ended");
    let program = world.compile("ticker", &TICKER.replace("1500", "10"), true, &[]);
    let recording = world.record(&[], &[program.to_str().unwrap()]);
    assert!(recording.output.status.success(), "{}", recording.messages());
    let follow = |path| world.trackway(&["print", "--follow"]).arg(path).output().expect("it runs");
    let output = follow(recording.trace.clone());
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), world.print(&recording.trace));
    assert_eq!(follow(world.path("nothing")).status.code(), Some(2));
}
