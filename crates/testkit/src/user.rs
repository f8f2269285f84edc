//! The user who runs a test, and the tests that root must run in addition.
//!
//! `scripts/suite` runs the tests that record as an ordinary user. A test whose outcome depends on
//! root writes its name into the file that [`AGAIN_VARIABLE`] names; root then runs exactly those
//! tests.
#![expect(unsafe_code, reason = "geteuid(2)")]

use std::io::Write as _;

/// Environment variable that names the file of tests for root.
pub const AGAIN_VARIABLE: &str = "TRACKWAY_TEST_AGAIN";

/// Returns true if the test runs as root. A test that calls this as another user is run as root,
/// too.
pub fn is_root() -> bool {
    // SAFETY: geteuid has no preconditions.
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root {
        request_again();
    }
    is_root
}

/// Reports why a test skips its other checks: the machine lacks something, or the user a right.
///
/// Tests are never `#[ignore]`d; one that cannot run reports that and returns.
pub fn report_skipped(reason: impl core::fmt::Display) {
    // The second run reports what it skips.
    if request_again() {
        return;
    }
    // Not by a macro, whose output is captured in tests that pass. On a line of its own, among the
    // dots of quiet runs.
    let line = format!("\nskipped, because {reason}\n");
    // Without standard error, the line is lost.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Writes the name of this test into the file of tests that root runs, too. Returns `false` if no
/// second run follows.
fn request_again() -> bool {
    let Some(path) = std::env::var_os(AGAIN_VARIABLE) else { return false };
    let thread = std::thread::current();
    // A test's thread has the test's name. With one thread at a time there is only the main thread,
    // and a thread that a test starts has another name: then the whole program is run again.
    let name = thread.name().filter(|name| *name != "main").unwrap_or("*");
    let file = std::fs::OpenOptions::new().append(true).open(path);
    // Without its name in the list, root would not run the test at all.
    file.and_then(|mut file| file.write_all(format!("{name}\n").as_bytes())).expect("a list");
    true
}
