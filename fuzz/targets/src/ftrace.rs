//! Pages of the kernel's ring buffer, their records, and filters on these records.

use std::sync::LazyLock;

use trackway_filter::compile::compile;
use trackway_filter::layout::Layout;
use trackway_kernel::catalogue::format::{EmptyLookup, parse};
use trackway_kernel::catalogue::model::{Event, Phase, Pointee, Source};
use trackway_kernel::tracefs::contexts::{CommonLayout, Context};
use trackway_kernel::tracefs::convert::{Converter, plan_event};
use trackway_kernel::tracefs::filter::{Filter, Occurrence};
use trackway_kernel::tracefs::page::{PAGE_BYTES_MAX, Page, PageFormat};

use crate::Bound;

/// Limit of records: each has at least four bytes.
pub(crate) const RECORDS: Bound = Bound { per_byte: 1, base: 16 };
/// Limit of memory: event descriptions. Pages are not copied, and payloads are bounded.
pub(crate) const MEMORY: Bound = Bound { per_byte: 16, base: 1 << 20 };
pub(crate) const ALLOCATIONS: Bound = Bound { per_byte: 16, base: 64 << 10 };
/// Maximum size of a payload, in bytes.
const PAYLOAD_BYTES_MAX: u32 = 3500;

const HEADER_PAGE: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
    \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
    \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";
const HEADER_EVENT: &str = "type_len : 5 bits\ntime_delta : 27 bits\npadding : type == 29\n\
    time_extend : type == 30\n";
const COMMON: &str = "format:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n";
/// Format with one field of each kind.
const FIELDS: &str = "\tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
    \tfield:int prio;\toffset:24;\tsize:4;\tsigned:1;\n\
    \tfield:__data_loc char[] name;\toffset:28;\tsize:4;\tsigned:0;\n\
    \tfield:__rel_loc u16[] values;\toffset:32;\tsize:4;\tsigned:0;\n\
    \tfield:__data_loc cpumask_t[] mask;\toffset:36;\tsize:4;\tsigned:0;\n\
    \tfield:u32 words[4];\toffset:40;\tsize:16;\tsigned:0;\n";
/// Format of an event in Linux 6.18.
const OPENAT: &str = "\tfield:int dfd;\toffset:16;\tsize:8;\tsigned:0;\n\
    \tfield:const char * filename;\toffset:24;\tsize:8;\tsigned:0;\n\
    \tfield:int flags;\toffset:32;\tsize:8;\tsigned:0;\n\
    \tfield:umode_t mode;\toffset:40;\tsize:8;\tsigned:0;\n";

/// Filter on the first event: reads each kind of field, so that other fields precede some.
const FILTER: &str = "comm == \"s*\" || prio > 5 && any(values == 3) || words[3] == 1 && \
    (name == \"*b*\" || length(mask) == 1 || values[1] == 2) || changed(prio)";

/// Compiles the filter for the event.
fn compile_filter(event: &Event) -> Option<Filter> {
    let staged = plan_event(event, PAYLOAD_BYTES_MAX);
    let layout = Layout::of_event(&staged.description);
    let object = compile(FILTER, &layout).ok()?.into_object().encode().ok()?;
    Filter::new(&object, 0, &staged).ok()?
}

/// Created once, because filters live as long as the process.
static CONVERTER: LazyLock<Option<Converter>> = LazyLock::new(build_converter);

/// Builds a converter for two events from their formats.
fn build_converter() -> Option<Converter> {
    let text = format!("name: made_up\nID: 300\n{COMMON}{FIELDS}");
    let made_up = parse(&text, &EmptyLookup).ok()?;
    let common = CommonLayout::find(&made_up.common)?;
    let made_up = Event {
        subsystem: "made".into(),
        name: "up".into(),
        id: Some(made_up.id),
        source: Source::Tracepoint,
        fields: made_up.fields,
    };
    let text = format!("name: openat\nID: 782\n{COMMON}{OPENAT}");
    let mut openat = parse(&text, &EmptyLookup).ok()?;
    for (field, argument) in openat.fields.iter_mut().zip(0..) {
        field.argument = Some(argument);
        field.pointee = (argument == 1).then_some(Pointee::Text);
    }
    let openat = Event {
        subsystem: "syscalls".into(),
        name: "sys_enter_openat".into(),
        id: Some(openat.id),
        source: Source::Syscall { number: Some(257), phase: Phase::Enter, is_compat: false },
        fields: openat.fields,
    };
    let filters = vec![compile_filter(&made_up)?];
    let events = [(&made_up, filters), (&openat, Vec::new())];
    let contexts = vec![Context::Tid];
    Some(Converter::with_filters(events.into_iter(), common, PAYLOAD_BYTES_MAX, contexts))
}

/// Reads event descriptions if the input is text, otherwise a page. The work is the number of
/// records.
pub fn read_ftrace(bytes: &[u8]) -> u64 {
    if let Ok(text) = core::str::from_utf8(bytes)
        && let Ok(format) = PageFormat::parse(text, HEADER_EVENT)
    {
        assert!((1..=PAGE_BYTES_MAX).contains(&format.page_bytes()));
        return 1;
    }
    let format = PageFormat::parse(HEADER_PAGE, HEADER_EVENT).expect("a format");
    let converter = CONVERTER.as_ref().expect("events");
    let memory = converter.new_state();
    let Ok(page) = Page::new(&format, bytes) else { return 0 };
    let (mut records, mut into) = (0, Vec::new());
    for record in page {
        records += 1;
        let Ok(record) = record else { continue };
        assert!(record.bytes.len() <= bytes.len());
        into.clear();
        if let Some(converted) = converter.convert(record.bytes, &mut into) {
            assert!((5..=PAYLOAD_BYTES_MAX as usize + 4).contains(&into.len()));
            let occurrence = Occurrence { cpu: 0, time_ns: record.timestamp };
            let is_taken = converter.passes(&converted, &into, occurrence, &memory);
            assert!(is_taken || converted.event == 0);
        }
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that the corpus reaches the conversion, so that the fuzzer can, too.
    #[test]
    fn kept_pages_have_records_that_are_converted() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../corpus/ftrace");
        let converter = build_converter().expect("events");
        assert!(converter.missing_events.is_empty() && converter.descriptions().len() == 2);
        let read = |name: &str| std::fs::read(format!("{folder}/{name}")).expect("a page");
        assert!(read_ftrace(&read("lost")) > 50);
        assert_eq!((read_ftrace(&read("made-up")), read_ftrace(&read("nothing"))), (3, 0));
        assert_eq!((read_ftrace(&read("too-long")), read_ftrace(&read("header"))), (1, 1));
    }
}
