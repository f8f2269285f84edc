//! `trackway print --stats`: what traces hold, as tables for people, or for programs.

use std::fmt::Write as _;

use trackway_ctf::text::DateTime;
use trackway_reader::{Statistics, StreamCount};

use crate::list::quoted;

const NS_IN_SECOND: i64 = 1_000_000_000;
const NS_PER_SECOND: f64 = 1e9;

/// As tables; `calendar` gives the date and time at a time in seconds since 1970, and `clocks` are
/// the traces' clocks, each in words.
pub(crate) fn text(
    all: &Statistics,
    calendar: impl Fn(i64) -> Option<DateTime>,
    clocks: &[String],
) -> String {
    let mut text = head(all, |ns| date_and_time(ns, &calendar), clocks);
    text.push('\n');
    text += &events(all);
    text.push('\n');
    text += &streams(all);
    text
}

fn head(all: &Statistics, time: impl Fn(i64) -> String, clocks: &[String]) -> String {
    let bytes = sum(all, |stream| stream.bytes);
    let mut text = format!(
        "{}, {}, {}; {}",
        counted(all.traces as u64, "trace"),
        counted(all.streams.len() as u64, "stream"),
        size(bytes),
        counted(all.count(), "event"),
    );
    // Writing into a string cannot fail; so below.
    if let (Some(first), Some(last)) = (all.first, all.last) {
        let seconds = all.duration_ns() as f64 / NS_PER_SECOND;
        let _ = write!(text, " in {seconds:.9} s\nfrom {} to {}", time(first), time(last));
    }
    text.push('\n');
    let events = sum(all, |stream| stream.lost_events);
    let packets = sum(all, |stream| stream.lost_packets);
    let _ = write!(text, "lost: {}, {}", counted(events, "event"), counted(packets, "packet"));
    let uncertain = all.streams.iter().filter(|stream| stream.is_loss_uncertain).count();
    if uncertain > 0 {
        let streams = counted(uncertain as u64, "stream");
        let _ = write!(text, "; {streams} may have lost more before the first packet");
    }
    text.push('\n');
    for clock in clocks {
        let _ = writeln!(text, "clock {clock}");
    }
    text
}

fn events(all: &Statistics) -> String {
    let head = ["event", "count", "share", "bytes", "mean", "a second"];
    let mut rows = vec![head.map(str::to_owned)];
    for event in &all.events {
        rows.push(event_row(all, &event.name, event.count, event.bits));
    }
    if all.events.len() > 1 {
        rows.push(event_row(all, "all", all.count(), all.bits()));
    }
    table(&rows)
}

fn event_row(all: &Statistics, name: &str, count: u64, bits: u64) -> [String; 6] {
    [
        name.to_owned(),
        grouped(count),
        format!("{:.1} %", 100.0 * share(all, count)),
        size(bits / 8),
        format!("{:.1}", mean_bytes(count, bits)),
        rate(all, count).map_or("·".to_owned(), |rate| grouped(rate.round() as u64)),
    ]
}

fn streams(all: &Statistics) -> String {
    let head = ["stream", "CPU", "packets", "size", "events", "lost", "lost packets"];
    let mut rows = vec![head.map(str::to_owned)];
    for stream in &all.streams {
        let mark = if stream.is_loss_uncertain { "≥ " } else { "" };
        rows.push([
            stream.name.clone(),
            stream.cpu.map_or("·".to_owned(), |cpu| cpu.to_string()),
            grouped(stream.packets),
            size(stream.bytes),
            grouped(stream.events),
            format!("{mark}{}", grouped(stream.lost_events)),
            grouped(stream.lost_packets),
        ]);
    }
    table(&rows)
}

/// Columns aligned, the first to the left, the others to the right.
fn table<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> String {
    let mut widths = [0; COLUMNS];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in rows {
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            // The formatter counts characters, as a terminal does.
            let _ = match column {
                0 => write!(text, "{cell:<width$}"),
                _ => write!(text, "  {cell:>width$}"),
            };
        }
        text.push('\n');
    }
    text
}

/// `1,234 events`
fn counted(count: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// A time in nanoseconds since 1970, with its date where there is one.
fn date_and_time(ns: i64, calendar: impl Fn(i64) -> Option<DateTime>) -> String {
    let (seconds, fraction) = (ns.div_euclid(NS_IN_SECOND), ns.rem_euclid(NS_IN_SECOND));
    let Some(DateTime { year, month, day, hour, minute, second }) = calendar(seconds) else {
        return format!("{ns} ns");
    };
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{fraction:09}")
}

/// Digits in groups of three.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A figure of all streams: what packets say of themselves may be anything.
fn sum(all: &Statistics, figure: fn(&StreamCount) -> u64) -> u64 {
    all.streams.iter().map(figure).fold(0, u64::saturating_add)
}

/// `12.3 KiB`
fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.1} GiB", bytes as f64 / 1_073_741_824.0),
    }
}

fn share(all: &Statistics, count: u64) -> f64 {
    count as f64 / all.count().max(1) as f64
}

fn mean_bytes(count: u64, bits: u64) -> f64 {
    bits as f64 / 8.0 / count.max(1) as f64
}

/// Events a second, from the first event to the last; `None` if no time went by.
fn rate(all: &Statistics, count: u64) -> Option<f64> {
    let duration_ns = all.duration_ns();
    (duration_ns > 0).then(|| count as f64 / (duration_ns as f64 / NS_PER_SECOND))
}

/// As a JSON object, on one line.
pub(crate) fn json(all: &Statistics, clocks: &[String]) -> String {
    let number = |number: Option<i64>| number.map_or("null".to_owned(), |it| it.to_string());
    let events: Vec<String> = all
        .events
        .iter()
        .map(|event| {
            format!(
                "{{\"name\":{},\"count\":{},\"share\":{:?},\"bytes\":{:?},\"mean_bytes\":{:?},\
                 \"rate_per_s\":{}}}",
                quoted(&event.name),
                event.count,
                share(all, event.count),
                event.bits as f64 / 8.0,
                mean_bytes(event.count, event.bits),
                rate(all, event.count).map_or("null".to_owned(), |rate| format!("{rate:?}")),
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
                quoted(&stream.name),
                stream.cpu.map_or("null".to_owned(), |cpu| cpu.to_string()),
                stream.packets,
                stream.bytes,
                stream.events,
                stream.lost_events,
                stream.lost_packets,
                stream.is_loss_uncertain,
                number(stream.first),
                number(stream.last),
            )
        })
        .collect();
    format!(
        "{{\"traces\":{},\"count\":{},\"first\":{},\"last\":{},\"duration_ns\":{},\
         \"bytes\":{},\"lost_events\":{},\"lost_packets\":{},\"clocks\":[{}],\
         \"events\":[{}],\"streams\":[{}]}}\n",
        all.traces,
        all.count(),
        number(all.first),
        number(all.last),
        all.duration_ns(),
        sum(all, |stream| stream.bytes),
        sum(all, |stream| stream.lost_events),
        sum(all, |stream| stream.lost_packets),
        clocks.iter().map(|clock| quoted(clock)).collect::<Vec<_>>().join(","),
        events.join(","),
        streams.join(","),
    )
}

/// The events as comma-separated values.
pub(crate) fn csv(all: &Statistics) -> String {
    let mut text = "name,count,share,bytes,mean_bytes,rate_per_s\n".to_owned();
    for event in &all.events {
        let mut name = Vec::new();
        trackway_ctf::text::push_csv_cell(&mut name, event.name.as_bytes());
        let _ = writeln!(
            text,
            "{},{},{:?},{:?},{:?},{}",
            String::from_utf8_lossy(&name),
            event.count,
            share(all, event.count),
            event.bits as f64 / 8.0,
            mean_bytes(event.count, event.bits),
            rate(all, event.count).map_or(String::new(), |rate| format!("{rate:?}")),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use trackway_ctf::text::utc;
    use trackway_reader::EventCount;

    use super::*;

    fn example() -> Statistics {
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

    #[test]
    fn tables_read_as_intended() {
        let clocks = ["mono: 1000 Hz".to_owned()];
        let expected = "\
1 trace, 1 stream, 5.0 MiB; 4,000 events in 2.000000000 s
from 1970-01-01 00:00:01.000000000 to 1970-01-01 00:00:03.000000000
lost: 7 events, 0 packets; 1 stream may have lost more before the first packet
clock mono: 1000 Hz

event        count    share     bytes  mean  a second
app:often    3,000   75.0 %  35.2 KiB  12.0     1,500
app, \"rare\"  1,000   25.0 %    1012 B   1.0       500
all          4,000  100.0 %  36.1 KiB   9.3     2,000

stream       CPU  packets     size  events  lost  lost packets
/t/stream_0    0    1,234  5.0 MiB   4,000   ≥ 7             0
";
        let text = text(&example(), utc, &clocks);
        assert!(text == expected, "instead of what is expected:\n{text}");
    }

    #[test]
    fn programs_get_the_same() {
        assert_eq!(
            json(&example(), &["mono".to_owned()]),
            "{\"traces\":1,\"count\":4000,\"first\":1000000000,\"last\":3000000000,\
             \"duration_ns\":2000000000,\"bytes\":5242880,\"lost_events\":7,\"lost_packets\":0,\
             \"clocks\":[\"mono\"],\"events\":[\
             {\"name\":\"app:often\",\"count\":3000,\"share\":0.75,\"bytes\":36000.0,\
             \"mean_bytes\":12.0,\"rate_per_s\":1500.0},\
             {\"name\":\"app, \\\"rare\\\"\",\"count\":1000,\"share\":0.25,\"bytes\":1012.5,\
             \"mean_bytes\":1.0125,\"rate_per_s\":500.0}],\"streams\":[\
             {\"name\":\"/t/stream_0\",\"cpu\":0,\"packets\":1234,\"bytes\":5242880,\
             \"events\":4000,\"lost_events\":7,\"lost_packets\":0,\"may_have_lost_more\":true,\
             \"first\":null,\"last\":null}]}\n"
        );
        assert_eq!(
            csv(&example()),
            "name,count,share,bytes,mean_bytes,rate_per_s\n\
             app:often,3000,0.75,36000.0,12.0,1500.0\n\
             \"app, \"\"rare\"\"\",1000,0.25,1012.5,1.0125,500.0\n"
        );
    }

    #[test]
    fn nothing_is_no_reason_to_divide_by_zero() {
        let none = Statistics::default();
        let text = text(&none, utc, &[]);
        assert!(text.starts_with("0 traces, 0 streams, 0 B; 0 events\n"), "{text}");
        assert!(json(&none, &[]).contains("\"first\":null"));
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }
}
