//! The cost and the length of an event by its payload: payloads of increasing length, values of
//! several kinds, contexts. Trackway's events and LTTng-UST's run in the same harness.
//!
//! Main invariant: both tracers record the same values, and each event ends with its number, so
//! that events are accounted for as in the suite `tracepoint`. Figures are ns per event; the bytes
//! of an event, from the tracer's own trace, are reported next to the figures.

use std::process::Command;

use trackway_bench_engine::case::BatchPlan;
use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::child;
use trackway_bench_engine::host::workload::{self, Batch};
use trackway_bench_engine::host::workspace::Workspace;
use trackway_bench_engine::results::{Account, Unit};
use trackway_bench_engine::settings::Settings;
use trackway_bench_engine::suite::{About, Entry, Sample, Suite, SuiteContext};
use trackway_bench_engine::tracer::{Availability, Tracer as _};

use crate::trace_check::{self, EventSizeKind};
use crate::tracers::daemon::Daemon;
use crate::tracers::lttng::Lttng;
use crate::tracers::ust_session::{self, SESSION, SUB_BUFFERS, UstSession, ring_options};
use crate::tracers::{RING_BYTES, name, trackway};

/// Lengths of the sequences, in bytes.
const BYTES: [u32; 5] = [0, 16, 64, 256, 1024];
/// Lengths of the strings, in bytes without the terminator.
const STRINGS: [u32; 3] = [0, 64, 1024];
/// Values of several kinds: the name of the program's work, and a description.
const VALUE_KINDS: [(&str, &str); 5] = [
    ("number", "u32"),
    ("wide", "u64"),
    ("real", "double, u32"),
    ("array", "array of four u32, u32"),
    ("sequence", "sequence of four u32, u32"),
];
/// Contexts, which have the same names in both tracers.
const CONTEXTS: [&[&str]; 4] = [&["vtid"], &["vpid"], &["procname"], &["vtid", "vpid", "procname"]];
/// Events of a batch.
const BATCH_EVENTS: u64 = 2000;
/// Numbers of batches: counted ones, and warm-up batches before them.
const PLAN: BatchPlan = BatchPlan { warm_up: 20, batches: 60 };
const PLAN_QUICK: BatchPlan = BatchPlan { warm_up: 5, batches: 10 };
/// Folder of traces, in the scratch folder.
const TRACE_FOLDER: &str = "payload-trace";
/// Programs, named like their sources.
const TRACKWAY_PROGRAM: &str = "payload";
const LTTNG_PROGRAM: &str = "payload-lttng";
/// Keys of the extra figures of rows.
const BYTES_PER_EVENT: &str = "bytes of an event";

/// The payload of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct EventPayload {
    /// Name of the work in the programs.
    work: &'static str,
    /// Number of bytes, if rows differ in it.
    bytes: Option<u32>,
    /// Description of the payload, if rows do not differ in the number of bytes.
    words: &'static str,
    context: &'static [&'static str],
}

impl EventPayload {
    /// Returns all payloads, or in a quick run some of each kind.
    fn all(is_quick: bool) -> Vec<Self> {
        let of = |work, bytes| Self { work, bytes: Some(bytes), words: "", context: &[] };
        let mut all: Vec<Self> = BYTES.iter().map(|bytes| of("bytes", *bytes)).collect();
        all.extend(STRINGS.iter().map(|bytes| of("string", *bytes)));
        let kinds = VALUE_KINDS.iter();
        all.extend(kinds.map(|(work, words)| Self { work, bytes: None, words, context: &[] }));
        let number = Self { work: "number", bytes: None, words: "u32", context: &[] };
        all.extend(CONTEXTS.iter().map(|context| Self { context, ..number }));
        all.retain(|load| !is_quick || !matches!(load.bytes, Some(0 | 16 | 256)));
        all
    }

    fn case(&self) -> String {
        match (self.work, self.bytes) {
            ("bytes", Some(bytes)) => format!("sequence of {bytes} bytes, u32"),
            (_, Some(bytes)) => format!("string of {bytes} bytes, u32"),
            _ if self.context.is_empty() => self.words.to_owned(),
            _ => format!("{} + {}", self.words, self.context.join(" + ")),
        }
    }

    /// Sets arguments and environment of a program that emits this payload.
    fn configure(&self, command: &mut Command, plan: &BatchPlan) {
        let batches = plan.warm_up + plan.batches;
        command.args(["batches", self.work, "1", &batches.to_string(), &BATCH_EVENTS.to_string()]);
        command.env("LAB_BYTES", self.bytes.unwrap_or_default().to_string());
    }
}

/// The tracer of the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EventTracer {
    Trackway,
    Lttng,
}

impl EventTracer {
    /// Both tracers, Trackway first.
    const ALL: [Self; 2] = [Self::Trackway, Self::Lttng];

    const fn name(self) -> &'static str {
        match self {
            Self::Trackway => name::TRACKWAY,
            Self::Lttng => name::LTTNG,
        }
    }
}

/// The suite `payload`.
#[derive(Default)]
pub(crate) struct Payloads {
    rows: Vec<(EventTracer, EventPayload)>,
    daemon: Option<Daemon>,
}

impl Payloads {
    /// Prepares a tracer; the entry has the reason if that is not possible.
    fn set_up(&mut self, event_tracer: EventTracer, workspace: &Workspace) -> Result<Entry> {
        let availability = match event_tracer {
            EventTracer::Trackway => trackway::check_availability(
                &workspace.tools,
                trackway_bench_engine::host::workspace::has("cc"),
            ),
            EventTracer::Lttng => Lttng::with_own_daemon().availability(workspace),
        };
        if let Availability::Missing(reason) = availability {
            return Ok(Entry { absent: Some(reason), ..Entry::default() });
        }
        let done = match event_tracer {
            EventTracer::Trackway => trackway::link_flags(workspace).and_then(|flags| {
                let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
                workspace.compile(TRACKWAY_PROGRAM, &flags).map(|_| ())
            }),
            EventTracer::Lttng => {
                workspace.compile(LTTNG_PROGRAM, &["-llttng-ust", "-ldl"]).and_then(|_| {
                    self.daemon = Some(Daemon::start(workspace)?);
                    Ok(())
                })
            }
        };
        match done {
            Ok(()) => Ok(Entry::default()),
            Err(Error::Interrupted) => Err(Error::Interrupted),
            Err(error) => Ok(Entry { failed: Some(error.to_string()), ..Entry::default() }),
        }
    }

    fn run_trackway(
        workspace: &Workspace,
        load: &EventPayload,
        plan: &BatchPlan,
    ) -> Result<(Vec<Batch>, Account)> {
        let context = if load.context.is_empty() { "none".into() } else { load.context.join(",") };
        let mut command = Command::new(&workspace.tools.trackway);
        command.args(["record", "--flight-recorder", "--context", &context, "--buffer-size"]);
        trackway::set_trace_output(
            command.arg(RING_BYTES.to_string()),
            &workspace.path(TRACE_FOLDER),
        );
        command.arg("--").arg(workspace.path(TRACKWAY_PROGRAM));
        load.configure(&mut command, plan);
        trackway::set_window(&mut command, workspace.window_dir());
        let finished = child::run(&mut command, TRACKWAY_PROGRAM)?;
        let batches = workload::parse_batches(&finished.stdout)?;
        let (trace, emitted) = (workspace.path(TRACE_FOLDER), count_events(&batches));
        let account = trackway::account_of_thread(&trace, emitted)?;
        Ok((batches, account))
    }

    fn run_lttng(
        &self,
        workspace: &Workspace,
        load: &EventPayload,
        plan: &BatchPlan,
    ) -> Result<(Vec<Batch>, Account)> {
        let daemon = self.daemon.as_ref();
        let daemon = daemon.ok_or_else(|| Error::output("lttng-sessiond", "it is not running"))?;
        let session = UstSession {
            name: SESSION,
            is_snapshot: true,
            channel: &ring_options(RING_BYTES, SUB_BUFFERS),
            rules: &["lab:*"],
            filter: None,
            contexts: load.context,
        };
        session.begin_again(daemon, &workspace.path(TRACE_FOLDER))?;
        let mut command = daemon.command(&workspace.path(LTTNG_PROGRAM));
        load.configure(&mut command, plan);
        let finished = child::run(&mut command, LTTNG_PROGRAM)?;
        ust_session::end_session(daemon, SESSION, true)?;
        let batches = workload::parse_batches(&finished.stdout)?;
        let emitted = count_events(&batches);
        let account = trace_check::account_with_overwrites(
            &workspace.path(TRACE_FOLDER),
            &[emitted],
            EventSizeKind::Same,
        )?;
        Ok((batches, account))
    }
}

fn count_events(batches: &[Batch]) -> u64 {
    batches.iter().map(|batch| batch.events).sum()
}

impl Suite for Payloads {
    fn about(&self) -> About {
        About {
            name: "payload",
            title: "What an event costs, by what it carries",
            repeats: "the survey's method, whose events carry 4 bytes; design",
            unit: Unit::NsPerEvent,
            x_axis: "bytes",
        }
    }

    fn seconds(&self, settings: &Settings) -> f64 {
        if settings.quick { 10.0 } else { 120.0 }
    }

    fn tracers(&self) -> Vec<&'static str> {
        EventTracer::ALL.map(EventTracer::name).into()
    }

    fn enter(&mut self, context: &SuiteContext<'_>) -> Result<Vec<Entry>> {
        let mut entries: Vec<Entry> = Vec::new();
        let loads = EventPayload::all(context.settings.quick);
        for event_tracer in EventTracer::ALL {
            // Trackway's event is the baseline and is always measured.
            if event_tracer != EventTracer::Trackway && !context.settings.wants(event_tracer.name())
            {
                continue;
            }
            let ready = self.set_up(event_tracer, context.workspace)?;
            for (at, load) in loads.iter().enumerate() {
                let is_ours = event_tracer == EventTracer::Trackway;
                entries.push(Entry {
                    tracer: event_tracer.name().to_owned(),
                    case: load.case(),
                    x: load.bytes.map(f64::from),
                    records: true,
                    baseline: (!is_ours && entries[at].can_be_measured()).then_some(at),
                    command: format!("trackway bench payload --tracers {}", event_tracer.name()),
                    ..ready.clone()
                });
                self.rows.push((event_tracer, *load));
            }
        }
        // The control repeats the first row.
        if let Some(first) = entries.first().filter(|first| first.can_be_measured()).cloned() {
            let tracer = format!("{} again", first.tracer);
            entries.push(Entry { tracer, is_control: true, baseline: Some(0), ..first });
            self.rows.push(self.rows[0]);
        }
        Ok(entries)
    }

    fn sample(&mut self, context: &SuiteContext<'_>, row: usize) -> Result<Sample> {
        let plan = if context.settings.quick { PLAN_QUICK } else { PLAN };
        let (event_tracer, load) = self.rows[row];
        context.workspace.clear(TRACE_FOLDER);
        let (batches, account) = match event_tracer {
            EventTracer::Trackway => Self::run_trackway(context.workspace, &load, &plan)?,
            EventTracer::Lttng => self.run_lttng(context.workspace, &load, &plan)?,
        };
        let extra = account.bytes_per_event().map(|bytes| (BYTES_PER_EVENT, bytes));
        Ok(Sample {
            figure: workload::median_event_ns(&batches, plan.warm_up)?,
            account: Some(account),
            extra: extra.into_iter().collect(),
            ..Sample::default()
        })
    }

    fn leave(&mut self) {
        self.daemon = None;
        self.rows.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_have_words_of_their_own() {
        let loads = EventPayload::all(false);
        assert!(EventPayload::all(true).len() < loads.len());
        let cases: std::collections::BTreeSet<String> =
            loads.iter().map(EventPayload::case).collect();
        assert_eq!(cases.len(), loads.len());
        for case in ["sequence of 0 bytes, u32", "string of 64 bytes, u32", "u32 + vpid"] {
            assert!(cases.contains(case), "{case}: {cases:?}");
        }
        assert!(loads.iter().all(|load| load.bytes.is_none_or(|bytes| bytes <= 1024)));
    }
}
