//! Reading of traces: streams are decoded in parallel and merged in time order; counted; or
//! exported, in part or merged.
//!
//! [`print_events()`] writes the events of traces to any [`EventOutput`], and reports losses and
//! damage. Memory does not grow with the traces, and the output is the same for any number of
//! threads. [`collect_statistics`] counts events; [`trim_traces()`] and [`merge_traces()`] write
//! new traces.
//!
//! ```text
//! folder → input → stream → plan ──tasks──→ decode ──batches──→ merge → lines
//!                                 └─────── pipeline ───────┘
//! ```
#![forbid(unsafe_code)]

mod batch;
mod call;
mod decode;
mod export;
mod filter;
mod folder;
mod follow;
mod index;
mod input;
mod lookahead;
mod merge;
mod messages;
mod order;
mod overlap;
mod pipeline;
mod plan;
mod prefixes;
mod recording;
mod select;
mod stats;
mod stream;
mod workers;

use std::io::{self, Write};
use std::num::NonZero;
use std::thread::Builder;

use trackway_ctf::read::{ByteSource, SourceStream};
use trackway_render::EventOutput;

pub use export::{ExportError, ExportSettings, ExportSummary, merge_traces, trim_traces};
pub use filter::{FilterError, Filters, UnmatchedFilter, event_layouts};
pub use folder::{FoundTraces, OpenError, TraceFile, open_traces};
pub use follow::{FollowSettings, FollowSummary, FollowedRange, follow_traces};
pub use index::{Index, IndexError};
pub use input::{DataFile, Input};
pub use recording::find_unfinished_recordings;
pub use select::{Range, Selection};
pub use stats::{EventCount, Statistics, StreamCount, collect_statistics};

use filter::StatefulFilters;
use input::{NamedTrace, join_trace_pieces};
use lookahead::Lookahead;
use merge::Merge;
use order::StreamOrders;
use pipeline::{Limits, Pipeline, WorkerState};
use stream::{StreamClassPlan, collect_streams};

/// Settings for decoding and merging; they do not change the result.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Number of threads, including the caller's.
    pub jobs: NonZero<usize>,
    /// Size of the batches that threads pass to each other, in bytes of output.
    pub batch_bytes: usize,
    /// Called now and then with the number of processed events.
    pub progress: Option<fn(u64)>,
}

impl Default for Settings {
    /// Returns one thread for each processor, and batches that fit a processor's cache.
    fn default() -> Self {
        let jobs = std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
        Self { jobs, batch_bytes: 128 << 10, progress: None }
    }
}

/// The result of reading traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// True if nothing was damaged.
    pub is_whole: bool,
    /// Number of selected events.
    pub events: u64,
    /// Maximum size of the decoded events that waited for the merge, in bytes.
    pub most_bytes: usize,
}

/// Writes the selected events of `inputs` to `output`, in time order, and reports losses and damage
/// to `messages`.
///
/// Events of one stream keep the stream's order. If time goes backward within a stream, the earlier
/// event follows at once. The first such place of each stream is reported as damage.
///
/// # Errors
///
/// Returns an error if `output` or `messages` cannot be written.
pub fn print_events<B: ByteSource + Sync>(
    inputs: Vec<Input<B>>,
    selection: &Selection<'_>,
    output: &mut impl EventOutput,
    settings: &Settings,
    messages: &mut dyn Write,
) -> io::Result<Summary> {
    output.begin()?;
    let (summary, _) =
        print_events_after(inputs, selection, output, settings, PrintState::default(), messages)?;
    output.end()?;
    Ok(summary)
}

/// The state after written events, for later events of the same traces.
#[derive(Default)]
struct PrintState {
    /// State of the filters.
    judge: StatefulFilters,
    orders: StreamOrders,
}

/// Writes events like [`print_events()`], after earlier ones in state `before`; also returns the
/// state after them.
fn print_events_after<B: ByteSource + Sync, O: EventOutput>(
    inputs: Vec<Input<B>>,
    selection: &Selection<'_>,
    output: &mut O,
    settings: &Settings,
    before: PrintState,
    messages: &mut dyn Write,
) -> io::Result<(Summary, PrintState)> {
    let encoder = output.encoder();
    let alone = inputs.into_iter().map(|input| (input, ())).collect();
    let traces: Vec<(NamedTrace, Vec<DataFile<B>>)> =
        join_trace_pieces(alone).into_iter().map(|one| NamedTrace::of(one.input)).collect();
    let texts = |(trace, _): &(NamedTrace, _)| StreamClassPlan::of(trace, &encoder, selection);
    let texts: Vec<_> = traces.iter().map(texts).collect();
    let streams = collect_streams(&traces, &texts, selection.range);
    let pipeline = Pipeline::new(&streams, pipeline_limits(settings, streams.len()));
    let mut merge = Merge {
        streams: &streams,
        pipeline: &pipeline,
        tools: WorkerState::new(encoder.clone()),
        encoder: encoder.clone(),
        output,
        messages,
        is_whole: true,
        events: 0,
        progress: settings.progress,
        judge: before.judge,
        orders: before.orders,
        lookahead: Lookahead::new(&streams),
    };
    let run = std::thread::scope(|scope| {
        for _ in 1..settings.jobs.get() {
            let help = || pipeline.run_worker(&mut WorkerState::new(encoder.clone()));
            if Builder::new().spawn_scoped(scope, help).is_err() {
                // The system has no more threads: the merge decodes the rest itself.
                break;
            }
        }
        let _stop = pipeline.stop_at_end();
        merge.run()
    });
    let (is_whole, events) = (merge.is_whole, merge.events);
    let after = PrintState { judge: merge.judge, orders: merge.orders };
    run.map(|()| (Summary { is_whole, events, most_bytes: pipeline.most_bytes() }, after))
}

/// Returns the earliest begin of the first packets of all files, in nanoseconds since the clocks'
/// origin.
pub fn first_packet_time<B: ByteSource>(inputs: &[Input<B>]) -> Option<i64> {
    let files = inputs.iter().flat_map(|input| input.files.iter().map(|file| (&input.trace, file)));
    let times = files.filter_map(|(trace, file)| {
        let packet = SourceStream::new(&file.bytes)
            .with_window(input::HEADER_WINDOW_BYTES, Vec::new())
            .peek(trace)?;
        let clock = trace.streams().get(packet.stream)?.clock()?;
        clock.ns_from_origin(packet.timestamp_begin?).ok()
    });
    times.min()
}

/// Number of batches for each thread that may wait for the merge.
const BATCHES_AHEAD: usize = 16;
/// Memory for the batches and windows that all streams need at once, whatever their number, in
/// bytes.
const STREAMS_BYTES: usize = 64 << 20;
/// Minimum size of batches and windows, in bytes.
const PIECE_BYTES_MIN: usize = 4 << 10;
/// Size of each stream's first batch, in bytes.
const FIRST_BATCH_BYTES: usize = 4 << 10;
/// Maximum size of a window, in bytes.
const WINDOW_BYTES: usize = 128 << 10;

fn pipeline_limits(settings: &Settings, streams: usize) -> Limits {
    let share = (STREAMS_BYTES / streams.max(1)).max(PIECE_BYTES_MIN);
    let batch_bytes = settings.batch_bytes.min(share);
    Limits {
        batch_bytes,
        first_batch_bytes: FIRST_BATCH_BYTES.min(batch_bytes),
        window_bytes: WINDOW_BYTES.min(share),
        ahead_bytes: batch_bytes.saturating_mul(BATCHES_AHEAD * settings.jobs.get()),
    }
}
