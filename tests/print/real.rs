//! Real traces next to the checkout, in `../shared/traces`.

use std::path::Path;

use trackway_tests::{Fixture, report_skipped, source_dir};

use crate::support::find_traces_below;
use crate::support::{
    compare_outputs, first_difference, has_babeltrace, run_babeltrace, run_print, stderr_text,
};

#[test]
fn real_traces_print_as_babeltrace2_prints_them() {
    let shared = source_dir().join("../shared/traces");
    if !shared.is_dir() {
        return report_skipped("../shared/traces is not there");
    }
    if !has_babeltrace() {
        return;
    }
    let fixture = Fixture::new("real");
    let traces = find_traces_below(&shared);
    assert!(!traces.is_empty(), "no trace in {shared:?}");
    for trace in traces {
        // Each trace is compared alone: the clocks of the two hosts in `synctraces` disagree.
        compare_readers(&fixture, &trace);
    }
}

fn compare_readers(fixture: &Fixture, trace: &Path) {
    let (ours, theirs) = (run_print(fixture, &[trace]), run_babeltrace(fixture, &[trace]));
    assert!(!theirs.stdout.is_empty(), "babeltrace2 on {trace:?}: {}", stderr_text(&theirs));
    // In `synctraces`, packets end later than the next packet's first event. babeltrace2 2.0.4
    // fails there ("Youngest upstream message iterator wrapper's timestamp is less than …"): its
    // output up to then must be the beginning of Trackway's.
    if !theirs.status.success()
        && stderr_text(&theirs).contains("Youngest upstream message iterator")
    {
        let both = ours.stdout.get(..theirs.stdout.len()).unwrap_or(&ours.stdout);
        assert!(both == theirs.stdout, "{trace:?}: {}", first_difference(both, &theirs.stdout));
        assert!(ours.status.success(), "{trace:?}: {}", stderr_text(&ours));
        return;
    }
    if let Err(difference) = compare_outputs(&ours, &theirs) {
        panic!("{trace:?}: {difference}");
    }
}
