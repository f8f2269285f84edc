//! Recordings of the kernel's events, as most of these tests make them.

use std::process::Output;

use trackway_tests::World;

/// Runs `trackway record OPTIONS -o trace -- COMMAND`.
pub(crate) fn record(world: &World, options: &[&str], command: &[&str]) -> Output {
    record_into(world, "trace", options, command)
}

/// Runs `trackway record OPTIONS -o TRACE -- COMMAND`.
pub(crate) fn record_into(
    world: &World,
    trace: &str,
    options: &[&str],
    command: &[&str],
) -> Output {
    let mut record = world.trackway(&["record", "-o", trace]);
    record.args(options).arg("--").args(command).output().expect("trackway runs")
}
