//! `trackway print --stats`: statistics of traces, as tables for users, or as data for programs.

use std::fmt::Write as _;
use std::path::PathBuf;

use trackway_ctf::read::{ClockClass, EnvironmentValue, Trace};
use trackway_reader::{Input, Statistics, StreamCount};
use trackway_render::{DateTime, Marks, format_grouped, format_seconds, to_printable};

use crate::common::counted::format_count;
use crate::common::json::quote_json_string;

const NS_IN_SECOND: i64 = 1_000_000_000;
const NS_PER_SECOND: f64 = 1e9;

/// The origin of a folder's trace.
#[derive(Default)]
pub(super) struct TraceSource {
    folder: String,
    hostname: Option<String>,
    /// Kind of the trace's events: `ust`, `kernel`.
    domain: Option<String>,
    /// The tracer, with its version.
    tracer: Option<String>,
    clocks: Vec<SourceClock>,
}

struct SourceClock {
    name: String,
    frequency: u64,
    /// The clock's zero, in nanoseconds since its origin (usually 1970), if that fits 64 bits.
    zero_ns: Option<i64>,
}

/// Returns the origins of the traces in `inputs`, each found in one of `folders`.
pub(super) fn collect_sources<B>(inputs: &[Input<B>], folders: &[PathBuf]) -> Vec<TraceSource> {
    let source = |(input, folder): (&Input<B>, &PathBuf)| {
        let text = |name| input.trace.environment_text(name).map(str::to_owned);
        TraceSource {
            folder: folder.display().to_string(),
            hostname: text("hostname"),
            domain: text("domain"),
            tracer: text("tracer_name").map(|name| name + &format_tracer_version(&input.trace)),
            clocks: input.trace.clocks().iter().map(SourceClock::new).collect(),
        }
    };
    inputs.iter().zip(folders).map(source).collect()
}

/// Returns a space and the tracer's version, as far as the trace contains it.
fn format_tracer_version(trace: &Trace) -> String {
    let number = |name| match trace.environment(name) {
        Some(EnvironmentValue::Number(number)) => Some(number.to_string()),
        _ => None,
    };
    let names = ["tracer_major", "tracer_minor", "tracer_patchlevel"];
    let numbers: Vec<String> = names.into_iter().map_while(number).collect();
    if numbers.is_empty() { String::new() } else { format!(" {}", numbers.join(".")) }
}

impl SourceClock {
    fn new(clock: &ClockClass) -> Self {
        let (name, frequency) = (clock.name().to_owned(), clock.frequency());
        Self { name, frequency, zero_ns: clock.zero_ns() }
    }
}

/// Texts before and after names and losses: escape sequences for colours, or empty.
#[derive(Default)]
pub(super) struct Colours {
    pub(super) name: Marks,
    pub(super) loss: Marks,
}

/// Returns the statistics as tables; `calendar` converts seconds since 1970 to date and time.
pub(super) fn format_text(
    all: &Statistics,
    calendar: impl Fn(i64) -> Option<DateTime>,
    sources: &[TraceSource],
    colours: &Colours,
) -> String {
    let mut text =
        format_summary(all, |ns| date_and_time(ns, &calendar), sources.len(), &colours.loss);
    text.push('\n');
    if !sources.is_empty() {
        text += &format_sources(sources, &colours.name);
        text.push('\n');
    }
    text += &format_events(all, &colours.name);
    text.push('\n');
    text += &format_streams(all, &colours.name);
    text
}

fn format_summary(
    all: &Statistics,
    time: impl Fn(i64) -> String,
    folders: usize,
    loss: &Marks,
) -> String {
    let bytes = sum_over_streams(all, |stream| stream.bytes);
    let pieces = match folders > all.traces {
        true => format!(" in {}", format_count(folders as u64, "folder")),
        false => String::new(),
    };
    let mut text = format!(
        "{}{pieces}, {}, {}; {}",
        format_count(all.traces as u64, "trace"),
        format_count(all.streams.len() as u64, "stream"),
        format_size(bytes),
        format_count(all.count(), "event"),
    );
    // Writing to a string cannot fail, here and below.
    if let (Some(first), Some(last)) = (all.first, all.last) {
        let seconds = all.duration_ns() as f64 / NS_PER_SECOND;
        let _ = write!(text, " in {seconds:.9} s\nfrom {} to {}", time(first), time(last));
    }
    text.push('\n');
    let events = sum_over_streams(all, |stream| stream.lost_events);
    let packets = sum_over_streams(all, |stream| stream.lost_packets);
    let (before, behind) = if (events, packets) == (0, 0) { &Marks::default() } else { loss };
    let (events, packets) = (format_count(events, "event"), format_count(packets, "packet"));
    let _ = write!(text, "{before}lost: {events}, {packets}{behind}");
    let uncertain = all.streams.iter().filter(|stream| stream.is_loss_uncertain).count();
    if uncertain > 0 {
        let streams = format_count(uncertain as u64, "stream");
        let _ = write!(text, "; {streams} may have lost more before the first packet");
    }
    text.push('\n');
    text
}

/// Returns a row for each trace, and for each additional clock of a trace.
fn format_sources(sources: &[TraceSource], name: &Marks) -> String {
    let head = ["trace", "host", "domain", "tracer", "clock", "Hz", "its zero"];
    let mut rows = vec![head.map(str::to_owned)];
    let cell = |text: &Option<String>| text.clone().unwrap_or_else(empty_cell);
    for TraceSource { folder, hostname, domain, tracer, clocks } in sources {
        let clock = |clock: &SourceClock| {
            let zero =
                clock.zero_ns.map_or_else(empty_cell, |zero| format!("{} s", format_seconds(zero)));
            [clock.name.clone(), format_grouped(clock.frequency), zero]
        };
        let mut clocks: Vec<[String; 3]> = clocks.iter().map(clock).collect();
        if clocks.is_empty() {
            clocks.push([(); 3].map(|()| empty_cell()));
        }
        for (index, [clock, frequency, zero]) in clocks.into_iter().enumerate() {
            let of_trace = [folder.clone(), cell(hostname), cell(domain), cell(tracer)];
            let [folder, host, domain, tracer] =
                if index == 0 { of_trace } else { of_trace.map(|_| String::new()) };
            rows.push([folder, host, domain, tracer, clock, frequency, zero]);
        }
    }
    format_table(&rows, 5, name)
}

/// Returns the text of an empty cell.
fn empty_cell() -> String {
    "·".to_owned()
}

fn format_events(all: &Statistics, name: &Marks) -> String {
    let head = ["event", "count", "share", "bytes", "mean", "a second"];
    let mut rows = vec![head.map(str::to_owned)];
    for event in &all.events {
        rows.push(event_row(all, &event.name, event.count, event.bits));
    }
    if all.events.len() > 1 {
        rows.push(event_row(all, "all", all.count(), all.bits()));
    }
    format_table(&rows, 1, name)
}

fn event_row(all: &Statistics, name: &str, count: u64, bits: u64) -> [String; 6] {
    [
        name.to_owned(),
        format_grouped(count),
        format!("{:.1} %", 100.0 * share_of_events(all, count)),
        format_size(bits / 8),
        format!("{:.1}", mean_bytes(count, bits)),
        events_per_second(all, count)
            .map_or_else(empty_cell, |rate| format_grouped(rate.round() as u64)),
    ]
}

fn format_streams(all: &Statistics, name: &Marks) -> String {
    let head = ["stream", "CPU", "packets", "size", "events", "lost", "lost packets"];
    let mut rows = vec![head.map(str::to_owned)];
    for stream in &all.streams {
        let mark = if stream.is_loss_uncertain { "≥ " } else { "" };
        rows.push([
            stream.name.clone(),
            stream.cpu.map_or_else(empty_cell, |cpu| cpu.to_string()),
            format_grouped(stream.packets),
            format_size(stream.bytes),
            format_grouped(stream.events),
            format!("{mark}{}", format_grouped(stream.lost_events)),
            format_grouped(stream.lost_packets),
        ]);
    }
    format_table(&rows, 1, name)
}

/// Aligns columns: the first `left` to the left, the others to the right. Escapes line ends in
/// cells, which would break the table. Puts `name` around cells of the first column, except its
/// heading.
fn format_table<const COLUMNS: usize>(
    rows: &[[String; COLUMNS]],
    left: usize,
    name: &Marks,
) -> String {
    let rows: Vec<[String; COLUMNS]> =
        rows.iter().map(|row| row.each_ref().map(|cell| to_printable(cell))).collect();
    let mut widths = [0; COLUMNS];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            // The formatter counts characters, like a terminal.
            let gap = if column == 0 { "" } else { "  " };
            let is_name = (column, number > 0) == (0, true);
            let (before, behind) = if is_name { name } else { &Marks::default() };
            let _ = match column < left {
                true => write!(text, "{gap}{before}{cell:<width$}{behind}"),
                false => write!(text, "{gap}{cell:>width$}"),
            };
        }
        text.push('\n');
    }
    text
}

/// Formats a time in nanoseconds since 1970, with its date if it has one.
fn date_and_time(ns: i64, calendar: impl Fn(i64) -> Option<DateTime>) -> String {
    let (seconds, fraction) = (ns.div_euclid(NS_IN_SECOND), ns.rem_euclid(NS_IN_SECOND));
    let Some(DateTime { year, month, day, hour, minute, second }) = calendar(seconds) else {
        return format!("{ns} ns");
    };
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{fraction:09}")
}

/// Returns the sum of a figure over all streams; it saturates, because packets may contain any
/// numbers.
fn sum_over_streams(all: &Statistics, figure: fn(&StreamCount) -> u64) -> u64 {
    all.streams.iter().map(figure).fold(0, u64::saturating_add)
}

/// Formats a size: `12.3 KiB`.
fn format_size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.1} GiB", bytes as f64 / 1_073_741_824.0),
    }
}

fn share_of_events(all: &Statistics, count: u64) -> f64 {
    count as f64 / all.count().max(1) as f64
}

fn mean_bytes(count: u64, bits: u64) -> f64 {
    bits as f64 / 8.0 / count.max(1) as f64
}

/// Returns the events per second, from the first event to the last; `None` if the time is zero.
fn events_per_second(all: &Statistics, count: u64) -> Option<f64> {
    let duration_ns = all.duration_ns();
    (duration_ns > 0).then(|| count as f64 / (duration_ns as f64 / NS_PER_SECOND))
}

/// Formats a trace's origin as a JSON object.
fn source_to_json(source: &TraceSource) -> String {
    let text = |text: &Option<String>| text.as_deref().map_or("null".to_owned(), quote_json_string);
    let clocks: Vec<String> = source
        .clocks
        .iter()
        .map(|clock| {
            format!(
                "{{\"name\":{},\"frequency\":{},\"zero_ns\":{}}}",
                quote_json_string(&clock.name),
                clock.frequency,
                number_to_json(clock.zero_ns),
            )
        })
        .collect();
    format!(
        "{{\"path\":{},\"hostname\":{},\"domain\":{},\"tracer\":{},\"clocks\":[{}]}}",
        quote_json_string(&source.folder),
        text(&source.hostname),
        text(&source.domain),
        text(&source.tracer),
        clocks.join(","),
    )
}

fn number_to_json(number: Option<i64>) -> String {
    number.map_or("null".to_owned(), |it| it.to_string())
}

/// Returns the statistics as a JSON object, on one line.
pub(super) fn format_json(all: &Statistics, sources: &[TraceSource]) -> String {
    let events: Vec<String> = all
        .events
        .iter()
        .map(|event| {
            format!(
                "{{\"name\":{},\"count\":{},\"share\":{:?},\"bytes\":{:?},\"mean_bytes\":{:?},\
                 \"rate_per_s\":{}}}",
                quote_json_string(&event.name),
                event.count,
                share_of_events(all, event.count),
                event.bits as f64 / 8.0,
                mean_bytes(event.count, event.bits),
                events_per_second(all, event.count)
                    .map_or("null".to_owned(), |rate| format!("{rate:?}")),
            )
        })
        .collect();
    let streams: Vec<String> = all
        .streams
        .iter()
        .map(|stream| {
            format!(
                "{{\"name\":{},\"cpu\":{},\"packets\":{},\"bytes\":{},\"events\":{},\
                 \"lost_events\":{},\"lost_packets\":{},\"may_have_lost_more\":{},\
                 \"first\":{},\"last\":{}}}",
                quote_json_string(&stream.name),
                stream.cpu.map_or("null".to_owned(), |cpu| cpu.to_string()),
                stream.packets,
                stream.bytes,
                stream.events,
                stream.lost_events,
                stream.lost_packets,
                stream.is_loss_uncertain,
                number_to_json(stream.first),
                number_to_json(stream.last),
            )
        })
        .collect();
    format!(
        "{{\"traces\":{},\"count\":{},\"first\":{},\"last\":{},\"duration_ns\":{},\
         \"bytes\":{},\"lost_events\":{},\"lost_packets\":{},\"folders\":[{}],\
         \"events\":[{}],\"streams\":[{}]}}\n",
        all.traces,
        all.count(),
        number_to_json(all.first),
        number_to_json(all.last),
        all.duration_ns(),
        sum_over_streams(all, |stream| stream.bytes),
        sum_over_streams(all, |stream| stream.lost_events),
        sum_over_streams(all, |stream| stream.lost_packets),
        sources.iter().map(source_to_json).collect::<Vec<_>>().join(","),
        events.join(","),
        streams.join(","),
    )
}

/// Returns the events as comma-separated values; with `is_escaped`, each on one line.
pub(super) fn format_csv(all: &Statistics, is_escaped: bool) -> String {
    let mut text = "name,count,share,bytes,mean_bytes,rate_per_s\n".to_owned();
    for event in &all.events {
        let mut name = Vec::new();
        let shown = if is_escaped { to_printable(&event.name) } else { event.name.clone() };
        trackway_render::push_csv_cell(&mut name, shown.as_bytes());
        let _ = writeln!(
            text,
            "{},{},{:?},{:?},{:?},{}",
            String::from_utf8_lossy(&name),
            event.count,
            share_of_events(all, event.count),
            event.bits as f64 / 8.0,
            mean_bytes(event.count, event.bits),
            events_per_second(all, event.count).map_or(String::new(), |rate| format!("{rate:?}")),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use trackway_reader::{DataFile, EventCount};
    use trackway_render::utc_date_time;

    use super::*;

    fn example_statistics() -> Statistics {
        let event = |name: &str, count, bits| EventCount { name: name.to_owned(), count, bits };
        let stream = StreamCount {
            name: "/t/stream_0".to_owned(),
            cpu: Some(0),
            packets: 1234,
            bytes: 5 << 20,
            events: 4000,
            lost_events: 7,
            is_loss_uncertain: true,
            ..StreamCount::default()
        };
        Statistics {
            events: vec![event("app:often", 3000, 3000 * 96), event("app, \"rare\"", 1000, 8100)],
            streams: vec![stream],
            traces: 1,
            first: Some(1_000_000_000),
            last: Some(3_000_000_000),
            is_whole: true,
        }
    }

    fn example_sources() -> Vec<TraceSource> {
        let clock = |name: &str, frequency, zero_ns| SourceClock {
            name: name.to_owned(),
            frequency,
            zero_ns,
        };
        let first = clock("mono", 1_000_000_000, Some(1_795_228_670_000_000_001));
        vec![TraceSource {
            folder: "/t".to_owned(),
            hostname: Some("here".to_owned()),
            domain: Some("ust".to_owned()),
            tracer: Some("tracer 2.13".to_owned()),
            clocks: vec![first, clock("cpu", 2_400_000_000, None)],
        }]
    }

    #[test]
    fn tables_read_as_intended() {
        let expected = "\
1 trace, 1 stream, 5.0 MiB; 4,000 events in 2.000000000 s
from 1970-01-01 00:00:01.000000000 to 1970-01-01 00:00:03.000000000
lost: 7 events, 0 packets; 1 stream may have lost more before the first packet

trace  host  domain  tracer       clock             Hz                its zero
/t     here  ust     tracer 2.13  mono   1,000,000,000  1795228670.000000001 s
                                  cpu    2,400,000,000                       ·

event        count    share     bytes  mean  a second
app:often    3,000   75.0 %  35.2 KiB  12.0     1,500
app, \"rare\"  1,000   25.0 %    1012 B   1.0       500
all          4,000  100.0 %  36.1 KiB   9.3     2,000

stream       CPU  packets     size  events  lost  lost packets
/t/stream_0    0    1,234  5.0 MiB   4,000   ≥ 7             0
";
        let text = format_text(
            &example_statistics(),
            utc_date_time,
            &example_sources(),
            &Colours::default(),
        );
        assert!(text == expected, "instead of what is expected:\n{text}");
    }

    #[test]
    fn programs_get_the_same() {
        assert_eq!(
            format_json(&example_statistics(), &example_sources()),
            "{\"traces\":1,\"count\":4000,\"first\":1000000000,\"last\":3000000000,\
             \"duration_ns\":2000000000,\"bytes\":5242880,\"lost_events\":7,\"lost_packets\":0,\
             \"folders\":[{\"path\":\"/t\",\"hostname\":\"here\",\"domain\":\"ust\",\
             \"tracer\":\"tracer 2.13\",\"clocks\":[{\"name\":\"mono\",\"frequency\":1000000000,\
             \"zero_ns\":1795228670000000001},{\"name\":\"cpu\",\"frequency\":2400000000,\
             \"zero_ns\":null}]}],\"events\":[\
             {\"name\":\"app:often\",\"count\":3000,\"share\":0.75,\"bytes\":36000.0,\
             \"mean_bytes\":12.0,\"rate_per_s\":1500.0},\
             {\"name\":\"app, \\\"rare\\\"\",\"count\":1000,\"share\":0.25,\"bytes\":1012.5,\
             \"mean_bytes\":1.0125,\"rate_per_s\":500.0}],\"streams\":[\
             {\"name\":\"/t/stream_0\",\"cpu\":0,\"packets\":1234,\"bytes\":5242880,\
             \"events\":4000,\"lost_events\":7,\"lost_packets\":0,\"may_have_lost_more\":true,\
             \"first\":null,\"last\":null}]}\n"
        );
        assert_eq!(
            format_csv(&example_statistics(), false),
            "name,count,share,bytes,mean_bytes,rate_per_s\n\
             app:often,3000,0.75,36000.0,12.0,1500.0\n\
             \"app, \"\"rare\"\"\",1000,0.25,1012.5,1.0125,500.0\n"
        );
    }

    #[test]
    fn nothing_is_no_reason_to_divide_by_zero() {
        let none = Statistics::default();
        let text = format_text(&none, utc_date_time, &[], &Colours::default());
        assert!(text.starts_with("0 traces, 0 streams, 0 B; 0 events\n"), "{text}");
        assert!(format_json(&none, &[]).contains("\"first\":null"));
    }

    #[test]
    fn sources_say_what_is_known() {
        let metadata = "/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le; };
            env { hostname = \"a\\nb\"; tracer_name = \"t\"; tracer_major = 2; tracer_minor = 13; };
            clock { name = mono; freq = 1000000; offset_s = 7; offset = 5; };";
        let trace = Trace::parse(metadata.as_bytes()).expect("metadata");
        let nameless = "/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le; };";
        let nameless = Trace::parse(nameless.as_bytes()).expect("metadata");
        let input =
            |trace| Input { trace, folder: String::new(), files: Vec::<DataFile<&[u8]>>::new() };
        let found = collect_sources(&[input(trace), input(nameless)], &["/a".into(), "/b".into()]);
        assert_eq!(
            found.iter().map(source_to_json).collect::<Vec<_>>(),
            [
                "{\"path\":\"/a\",\"hostname\":\"a\\u000ab\",\"domain\":null,\
                 \"tracer\":\"t 2.13\",\"clocks\":[{\"name\":\"mono\",\"frequency\":1000000,\
                 \"zero_ns\":7000005000}]}",
                "{\"path\":\"/b\",\"hostname\":null,\"domain\":null,\"tracer\":null,\
                 \"clocks\":[]}",
            ]
        );
        let table = format_sources(&found, &Marks::default());
        assert_eq!(table.lines().count(), 3, "{table}");
        assert!(table.contains("a\\nb") && table.contains("  1,000,000  7.000005000 s"), "{table}");
        let head = format_text(
            &Statistics { traces: 1, ..Statistics::default() },
            utc_date_time,
            &found,
            &Colours::default(),
        );
        assert!(head.starts_with("1 trace in 2 folders, 0 streams"), "{head}");
    }

    #[test]
    fn no_name_breaks_the_table() {
        let mut all = example_statistics();
        all.events[0].name = "app:a\nb\x1b[2J".to_owned();
        let table = format_events(&all, &Marks::default());
        assert_eq!(table.lines().count(), 4, "{table}");
        assert!(table.contains("app:a\\nb\\u001b[2J"), "{table}");
    }
}
