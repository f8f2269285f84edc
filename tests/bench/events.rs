//! `trackway bench tracepoint`: events in loops, single events and single steps, and the account of
//! events. `trackway bench drain`: events that reach files.

use serde_json::Value;
use trackway_tests::bench::{self, count_in_row};
use trackway_tests::{Fixture, report_skipped};

/// RUN the suite once. EXPECT every event of every buffer state to be recorded, overwritten or lost
/// as in that state, all single events to be in histograms, and plausible instruction counts of
/// each loop.
#[test]
fn events_are_accounted_for_in_every_mode_one_by_one_and_step_by_step() {
    let fixture = Fixture::new("bench-events");
    let tracers = "trackway-lockless,printf,rdtsc,lw-ust,trackway-off";
    let Some(rows) = bench::measure_rows(&fixture, "tracepoint", tracers) else { return };
    check_session_modes(&rows);
    check_single_events(&rows);
    check_instruction_counts(&rows);
}

fn check_session_modes(rows: &[Value]) {
    for tracer in ["trackway", "trackway-lockless"] {
        for (case, may_overwrite) in [
            ("u32, 1 thread", true),
            ("u32, steady", false),
            ("u32, producer only", false),
            ("u32, single events, overwrite", true),
            ("u32, single events, steady", false),
            ("u32, single events, producer only", false),
        ] {
            let row = bench::row_of_case(rows, tracer, case);
            assert_eq!(row["status"], "measured", "{row}");
            let names = ["emitted", "recorded", "lost", "overwritten"];
            let [emitted, recorded, lost, overwritten] = names.map(|name| count_in_row(row, name));
            assert_eq!(recorded + lost + overwritten, emitted, "{tracer}, {case}");
            assert!(recorded > 0 && lost == 0, "{tracer}, {case}: {row}");
            assert_eq!(overwritten > 0, may_overwrite, "{tracer}, {case}: {row}");
        }
    }
    // Trackway's formatted event is in the same table as the function that formats the same text.
    let text = bench::row_of_case(rows, "printf", "\"%s (%d)\", 1 thread");
    let beside = text["beside"].as_u64().expect("beside") as usize;
    assert_eq!(rows[beside]["tracer"], "trackway-printf", "{text}");
}

fn check_single_events(rows: &[Value]) {
    for tracer in ["rdtsc", "lw-ust", "trackway"] {
        let row = bench::row_of_case(rows, tracer, "u32, single events, overwrite");
        let histogram = row["histogram"].as_array().expect("a histogram");
        let counted: u64 = histogram.iter().map(|one| one[1].as_u64().expect("a count")).sum();
        let tail = &row["tail"];
        assert_eq!((counted, tail["count"].as_u64()), (20_000, Some(20_000)), "{row}");
        let names = ["p50", "p90", "p99", "p999", "max"];
        let figures = names.map(|name| tail[name].as_f64().expect(name));
        assert!(figures.is_sorted(), "{tracer}: {figures:?}");
        assert!(histogram.is_sorted_by(|a, b| a[0].as_f64() < b[0].as_f64()), "{row}");
        let timing = row["measuring"].as_f64();
        assert!(timing.is_some_and(|ns| ns > 0.0), "{row}");
    }
}

fn check_instruction_counts(rows: &[Value]) {
    let steps = |tracer: &'static str| bench::row_of_case(rows, tracer, "u32, instructions");
    if steps("trackway")["status"] == "absent" {
        return report_skipped("programs cannot be stepped through here");
    }
    let instructions = |tracer: &'static str| {
        assert_eq!(steps(tracer)["unit"], "instructions/event");
        steps(tracer)["spread"]["median"].as_f64().expect("a figure")
    };
    let [clock, off, light, ours] =
        ["rdtsc", "trackway-off", "lw-ust", "trackway"].map(instructions);
    // The bounds follow from the work: only the clock; the load of a word; clock and copy; a
    // record.
    assert!((2.0..20.0).contains(&clock), "{clock}");
    assert!((2.0..20.0).contains(&off), "{off}");
    assert!(light > 2.0 * clock && light < 1000.0, "{light}");
    assert!(ours > 2.0 * off && ours < 1000.0, "{ours}");
    assert_eq!(count_in_row(steps("trackway"), "lost"), 0);
}

/// RUN threads at full speed with buffers of each size. EXPECT every event to be in the trace or
/// counted as lost, more events per second emitted than recorded, and no verdict after one round.
#[test]
fn arrival_in_files_is_listed_by_buffer_memory() {
    let fixture = Fixture::new("bench-drain");
    let Some(report) = bench::run_complete_suite(&fixture, "drain", "trackway") else { return };
    let rows = bench::rows_of_suite(&report, "drain");
    let ours = bench::rows_of_tracer(&rows, "trackway");
    let sizes: Vec<f64> = ours.iter().map(|row| row["x"].as_f64().expect("MiB")).collect();
    assert_eq!(sizes, [0.25, 1.0, 4.0, 16.0]);
    for row in ours {
        assert!(bench::is_measured(row), "{row}");
        bench::assert_events_accounted_for(row);
        let figure = row["samples"][0].as_f64().expect("a figure");
        let extra = |name: &str| row["extra"][name].as_f64().expect(name);
        assert!(figure > 0.0 && figure <= extra("events/s emitted"), "{row}");
        assert!(extra("events/s with fsync") <= figure, "{row}");
        let lost = count_in_row(row, "lost") as f64 / count_in_row(row, "emitted") as f64;
        assert!((extra("lost, %") - lost * 100.0).abs() < 1e-6, "{row}");
    }
    let bars = report["bars"].as_array().expect("bars");
    assert!(bars.iter().any(|bar| bar["suite"] == "reading"), "{bars:?}");
    let decided = |bar: &&Value| bar["verdict"] == "holds" || bar["verdict"] == "misses";
    assert_eq!(bars.iter().find(decided), None);
}
