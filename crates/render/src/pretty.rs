//! babeltrace2's text: time, difference to the previous event, origin and fields; and babeltrace2's
//! warnings about losses.

use trackway_ctf::read::{
    DecodeError, EnvironmentValue, EventBody, EventClass, Loss, LossKind, Sink, StreamClass, Trace,
    TraceIdentity,
};

use crate::fields::{FieldWriter, push_quoted};
use crate::format::{
    DeltaSlot, EventEncoder, LastShown, Line, LineFormat, LossPlace, Stamp, TraceName,
    push_without_quotes,
};
use crate::options::{PrettyOptions, ShownNames};
use crate::time::{Calendar, TimeWriter};

/// Names of log levels, by number.
const LEVELS: [&str; 15] = [
    "TRACE_EMERG",
    "TRACE_ALERT",
    "TRACE_CRIT",
    "TRACE_ERR",
    "TRACE_WARNING",
    "TRACE_NOTICE",
    "TRACE_INFO",
    "TRACE_DEBUG_SYSTEM",
    "TRACE_DEBUG_PROGRAM",
    "TRACE_DEBUG_PROCESS",
    "TRACE_DEBUG_MODULE",
    "TRACE_DEBUG_UNIT",
    "TRACE_DEBUG_FUNCTION",
    "TRACE_DEBUG_LINE",
    "TRACE_DEBUG",
];

/// Writes lines in the format of babeltrace2's `sink.text.pretty`.
#[derive(Debug, Clone)]
pub struct Pretty<C> {
    options: PrettyOptions,
    times: TimeWriter<C>,
    /// Texts around event names.
    name_marks: Marks,
    /// Texts around loss messages.
    loss_marks: Marks,
}

/// Texts before and after another text to highlight it; mostly empty.
pub type Marks = (String, String);

impl<C: Calendar> Pretty<C> {
    /// Creates babeltrace2's format with these options.
    pub fn new(options: PrettyOptions, calendar: C) -> Self {
        let times = TimeWriter::new(&options, calendar);
        Self { options, times, name_marks: Marks::default(), loss_marks: Marks::default() }
    }

    /// Sets the texts around event names and around loss messages.
    #[must_use]
    pub fn with_marks(self, name_marks: Marks, loss_marks: Marks) -> Self {
        Self { name_marks, loss_marks, ..self }
    }

    /// Returns the kinds of names that are shown before values.
    pub(crate) const fn names(&self) -> ShownNames {
        self.options.names
    }

    /// Appends the part of a line before the event's contexts and payload.
    #[inline]
    pub(crate) fn push_head(&mut self, out: &mut Vec<u8>, line: &Line<'_>) -> DeltaSlot {
        let head = match line.stamp {
            Some(stamp) => self.times.push_event_time(out, stamp, line.previous),
            None => DeltaSlot::default(),
        };
        match line.prefix {
            Some(prefix) => prefix.push(out),
            None => {
                out.extend_from_slice(line.stream_prefix);
                out.extend_from_slice(line.class_prefix);
                out.extend_from_slice(line.packet_prefix);
            }
        }
        head
    }

    /// Returns true if `, ` precedes each part before the event's name.
    fn has_commas(&self, stream: &StreamClass) -> bool {
        self.options.names.header && stream.clock().is_some()
    }

    /// Appends the environment's part of a line. Returns true if it appended anything.
    fn push_environment(&self, text: &mut String, trace: &Trace, commas: bool) -> bool {
        let fields = &self.options.fields;
        let entry = |name| match trace.environment(name) {
            Some(EnvironmentValue::Text(text)) => Some(text.clone()),
            _ => None,
        };
        let pid = match trace.environment("vpid") {
            Some(EnvironmentValue::Number(pid)) => Some(format!("({pid})")),
            _ => None,
        };
        let parts = [
            (fields.hostname, "trace:hostname", entry("hostname")),
            (fields.domain, "trace:domain", entry("domain")),
            (fields.procname, "trace:procname", entry("procname")),
            (fields.vpid, "trace:vpid", pid),
        ];
        let mut follows = false;
        for (is_shown, name, value) in parts {
            if let Some(value) = value.filter(|_| is_shown) {
                self.push_part(text, commas, follows, name, &value);
                follows = true;
            }
        }
        follows
    }

    fn push_part(&self, text: &mut String, commas: bool, follows: bool, name: &str, value: &str) {
        if commas {
            text.push_str(", ");
        }
        if self.options.names.header {
            text.push_str(name);
            text.push_str(" = ");
        } else if follows {
            text.push(':');
        }
        text.push_str(value);
    }
}

impl<C: Calendar> EventEncoder for Pretty<C> {
    /// Returns the text before each event's name: `host:program:(pid)`, as far as known.
    fn stream_prefix(&self, trace: &Trace, name: TraceName<'_>, stream: &StreamClass) -> Vec<u8> {
        let commas = self.has_commas(stream);
        let mut text = String::new();
        if self.options.fields.trace {
            self.push_part(&mut text, commas, false, "trace", name.name);
            if self.options.names.header {
                text.push_str(", ");
            }
        }
        self.push_environment(&mut text, trace, commas);
        text.into_bytes()
    }

    fn class_prefix(&self, trace: &Trace, stream: &StreamClass, event: &EventClass) -> Vec<u8> {
        let commas = self.has_commas(stream);
        let mut follows = self.push_environment(&mut String::new(), trace, commas);
        let mut text = String::new();
        let level = event.level().filter(|_| self.options.fields.loglevel);
        let name = level.and_then(|level| LEVELS.get(usize::try_from(level).ok()?));
        if let Some((level, name)) = level.zip(name) {
            let level = format!("{name} ({level})");
            self.push_part(&mut text, commas, follows, "loglevel", &level);
            follows = true;
        }
        if let Some(uri) = event.emf_uri().filter(|_| self.options.fields.emf) {
            self.push_part(&mut text, commas, follows, "model.emf.uri", uri);
            follows = true;
        }
        if follows && !self.options.names.header {
            text.push(' ');
        }
        let name = event.name().unwrap_or("<unknown>");
        let (before, behind) = &self.name_marks;
        self.push_part(&mut text, commas, false, "name", &format!("{before}{name}{behind}"));
        text.push_str(if self.options.names.header { ", " } else { ": " });
        text.into_bytes()
    }

    fn packet_sink(&self, out: &mut Vec<u8>) -> impl Sink {
        FieldWriter::for_packet(out, self.options.names)
    }

    #[inline]
    fn push_event(
        &mut self,
        out: &mut Vec<u8>,
        line: Line<'_>,
        body: EventBody<'_, '_, '_>,
    ) -> Result<DeltaSlot, DecodeError> {
        let head = self.push_head(out, &line);
        let mut sink = FieldWriter::new(out, self.options.names, !line.packet_prefix.is_empty());
        body.read(&mut sink)?;
        out.push(b'\n');
        Ok(head)
    }

    fn push_text(&self, out: &mut Vec<u8>, text: &[u8]) {
        push_without_quotes(out, text, push_quoted);
    }
}

impl<C: Calendar> LineFormat for Pretty<C> {
    #[inline]
    fn patch_delta(
        &mut self,
        out: &mut Vec<u8>,
        line: &[u8],
        head: DeltaSlot,
        stamp: Option<Stamp>,
        shown: &mut LastShown,
    ) {
        match stamp {
            Some(stamp) => self.times.patch_delta(out, line, head, stamp, shown),
            None => out.extend_from_slice(line),
        }
    }

    fn push_loss(
        &mut self,
        out: &mut Vec<u8>,
        place: LossPlace<'_>,
        loss: &Loss,
        shown: &mut LastShown,
    ) {
        let what = match loss.what {
            LossKind::Events => "event",
            LossKind::Packets => "packet",
        };
        out.extend_from_slice(self.loss_marks.0.as_bytes());
        match loss.count {
            None => out.extend_from_slice(
                format!("WARNING: Tracer may have discarded {what}s ").as_bytes(),
            ),
            Some(count) => {
                let plural = if count == 1 { "" } else { "s" };
                let text = format!("WARNING: Tracer discarded {count} {what}{plural} ");
                out.extend_from_slice(text.as_bytes());
            }
        }
        match place.between {
            Some((begin, end)) => {
                out.extend_from_slice(b"between [");
                self.times.push_time(out, begin, shown);
                out.extend_from_slice(b"] and [");
                self.times.push_time(out, end, shown);
                out.push(b']');
            }
            None => out.extend_from_slice(b"(unknown time range)"),
        }
        let identity = match place.identity {
            TraceIdentity::Uuid(_) => "UUID",
            TraceIdentity::Name { .. } => "UID",
        };
        let identity = match place.identity.uid() {
            Some(uid) => format!("({identity}: {uid})"),
            None => format!("(no {identity})"),
        };
        let LossPlace { trace_name, stream_name, class_id, stream_id, .. } = place;
        let text = format!(
            " in trace \"{trace_name}\" {identity} within stream \"{stream_name}\" \
             (stream class ID: {class_id}, stream ID: {stream_id}).{}\n",
            self.loss_marks.1,
        );
        out.extend_from_slice(text.as_bytes());
    }
}
