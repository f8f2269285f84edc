//! `trackway_snapshot()`: without the library, with it, and compiled out.

use std::process::Output;

use trackway_tests::Fixture;

const PROGRAM: &str = r#"
#include <stdio.h>
#include <trackway/trackway.h>
TRACKWAY_EVENT(snapshot, happened, TRACKWAY_INFO, (u32, number));
int main(void)
{
    trackway(snapshot, happened, 1);
    printf("%d %d\n", trackway_snapshot(NULL), trackway_snapshot("no such session"));
    return 0;
}
"#;

fn stdout_of(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn programs_ask_flight_recorders_for_snapshots_and_nobody_else() {
    let fixture = Fixture::new("snapshot");
    let warnings = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"];
    let plain = fixture.compile("plain", PROGRAM, false, &warnings);
    let fixed = ["-no-pie", "-static-pie", "-static"];
    let disabled = fixture.compile("disabled", PROGRAM, false, &["-DTRACKWAY_DISABLE", "-Werror"]);
    assert_eq!(
        stdout_of(&fixture.command(&plain).output().unwrap()),
        "0 0\n",
        "without the library"
    );
    for flag in &fixed {
        let program = fixture.compile("fixed", PROGRAM, false, &[flag]);
        assert_eq!(stdout_of(&fixture.command(&program).output().unwrap()), "0 0\n", "{flag}");
    }
    for (options, program, expected) in [
        (&["--overwrite"][..], &plain, "1 0\n"),
        (&[][..], &plain, "0 0\n"),
        (&["--overwrite"][..], &disabled, "0 0\n"),
    ] {
        let recording = fixture.record(options, &[program]);
        assert_eq!(stdout_of(&recording.output), expected, "{options:?} {}", program.display());
    }
}
