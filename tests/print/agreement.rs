//! `trackway print` against oracles: it must print the traces of other programs like babeltrace2,
//! to the byte.
//!
//! The writers: babeltrace2's own CTF sink (`bt2.rs`), barectf's C tracers (`barectf.rs`),
//! lttng-tools (`lttng.rs`), and real traces next to the checkout (`real.rs`).

use crate::support::compare_outputs;

/// A comparison that overlooks a difference would be worthless.
#[test]
fn the_smallest_difference_is_found() {
    use std::os::unix::process::ExitStatusExt as _;
    let output = |stdout: &str, stderr: &str, status| std::process::Output {
        status: std::process::ExitStatus::from_raw(status),
        stdout: stdout.as_bytes().to_vec(),
        stderr: stderr.as_bytes().to_vec(),
    };
    let loss = "WARNING: Tracer discarded 1 event between [1] and [2] in trace \"\"\n";
    let theirs = output("a = 1\n", loss, 0);
    assert_eq!(compare_outputs(&output("a = 1\n", loss, 0), &theirs), Ok(()));
    for ours in [
        output("a = 2\n", loss, 0),
        output("a = 1", loss, 0),
        output("a = 1\n", "", 0),
        output("a = 1\n", &loss.replace('1', "2"), 0),
        output("a = 1\n", loss, 1 << 8),
    ] {
        assert!(compare_outputs(&ours, &theirs).is_err(), "{ours:?}");
    }
}
