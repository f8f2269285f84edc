//! Tests the catalogue of the running kernel, where it is available.

use std::collections::{BTreeMap, BTreeSet};

use trackway_kernel::catalogue::btf::{Btf, Class};
use trackway_kernel::catalogue::format::{EmptyLookup, FORMAT_BYTES_MAX, parse};
use trackway_kernel::catalogue::model::{Event, Field, FieldShape, Phase, Pointee, Source};
use trackway_kernel::catalogue::tracefs::Tracefs;
use trackway_kernel::catalogue::{Catalogue, EventName};
use trackway_testkit::report_skipped;

/// Returns the catalogue and all events; `None`: they are not available, which is reported.
fn open_catalogue() -> Option<(Catalogue, Vec<Event>)> {
    let catalogue = match Catalogue::open() {
        Ok(catalogue) => catalogue,
        Err(error) => {
            report_skipped(error.to_string());
            return None;
        }
    };
    let events = catalogue.events(catalogue.names());
    assert!(events.unreadable.is_empty(), "{:?}", events.unreadable);
    Some((catalogue, events.events))
}

/// Returns true if the kernel's own record contains the field.
fn is_own(field: &Field) -> bool {
    field.size > 0 && !matches!(field.kind, FieldShape::RequestFlags(_))
}

/// RUN the catalogue. EXPECT that it parses every event of the kernel.
#[test]
fn every_format_of_this_kernel_is_understood() {
    let Some((catalogue, events)) = open_catalogue() else { return };
    assert!(events.len() > 100, "{} events", events.len());
    assert_eq!(events.len(), catalogue.names().len());
    for (event, EventName { subsystem, name }) in events.iter().zip(catalogue.names()) {
        assert_eq!((&event.subsystem, &event.name), (subsystem, name));
        if event.call().is_some() {
            continue;
        }
        let mut end = 0;
        for field in event.fields.iter().filter(|field| is_own(field)) {
            let at = format!("{}.{}", event.full_name(), field.name);
            assert!(field.offset >= end, "{at} begins before the one in front ends");
            end = field.offset + field.size;
            let bytes = match field.kind {
                FieldShape::Integer(scalar) => scalar.size_bytes() as u32,
                FieldShape::Array(scalar, count) => scalar.size_bytes() as u32 * count,
                FieldShape::Text(bytes) | FieldShape::Bytes(bytes) => bytes,
                FieldShape::Dynamic(..) | FieldShape::DynamicText(_) | FieldShape::Bitmask(_) => 4,
                FieldShape::Trailing(_)
                | FieldShape::TrailingText
                | FieldShape::RequestFlags(_) => 0,
            };
            assert_eq!(bytes, field.size, "{at}: {:?}", field.kind);
        }
    }
}

/// RUN the parser without BTF. EXPECT equal fields at equal offsets; only names of values and
/// element types may be missing.
#[test]
fn formats_are_understood_without_types() {
    let Some((_, events)) = open_catalogue() else { return };
    let tracefs = Tracefs::open().expect("it was there");
    let mut buffer = Vec::new();
    let mut compared = 0;
    for event in events.iter().filter(|event| event.call().is_none()) {
        let path = format!("events/{}/{}/format", event.subsystem, event.name);
        let text = tracefs.read(&path, FORMAT_BYTES_MAX, &mut buffer).expect("a format");
        let format = parse(text, &EmptyLookup).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!((format.name, Some(format.id)), (&*event.name, event.id));
        let place = |field: &Field| (field.name.clone(), field.offset, field.size);
        let own = event.fields.iter().filter(|field| is_own(field));
        assert!(format.fields.iter().map(place).eq(own.map(place)), "{path}");
        compared += 1;
    }
    assert!(compared > 100, "{compared} formats compared");
}

/// RUN the catalogue. EXPECT unique names in traces, of events and of each event's fields.
#[test]
fn names_in_traces_are_told_apart() {
    let Some((_, events)) = open_catalogue() else { return };
    let mut names = BTreeMap::new();
    for event in &events {
        let other = names.insert(event.lttng_name().into_owned(), event.full_name());
        assert_eq!(other, None, "{}", event.full_name());
        let fields: BTreeSet<_> = event.fields.iter().map(|of| of.lttng_name(event)).collect();
        assert_eq!(fields.len(), event.fields.len(), "{}", event.full_name());
    }
}

/// RUN the catalogue. EXPECT arguments from BTF for almost all tracepoints, and members of `struct
/// trace_event_raw_NAME` at the fields' offsets.
#[test]
fn types_and_formats_agree() {
    let Some((catalogue, events)) = open_catalogue() else { return };
    let Some(btf) = catalogue.btf() else {
        report_skipped("the kernel has no BTF");
        return;
    };
    let has_arguments = |event: &&Event| matches!(event.source, Source::RawTracepoint { .. });
    let tracepoints = events.iter().filter(|event| event.call().is_none());
    let (with, all) = (events.iter().filter(has_arguments).count(), tracepoints.count());
    assert!(with * 10 > all * 9, "{with} of {all}");
    let mut compared = 0;
    for event in &events {
        let name = format!("trace_event_raw_{}", event.name);
        let Some(raw) = btf.find(Class::Struct, &name) else { continue };
        let members: BTreeMap<_, _> =
            btf.members(&raw).map(|of| (of.name, of.bit_offset / 8)).collect();
        for field in event.fields.iter().filter(|field| is_own(field)) {
            let location = format!("__data_loc_{}", field.name);
            let member = members.get(&*field.name).or_else(|| members.get(&*location));
            assert_eq!(member, Some(&field.offset), "{name}.{}", field.name);
            compared += 1;
        }
    }
    assert!(compared > 500, "{compared} fields compared");
}

/// RUN the catalogue. EXPECT numbers of system calls, and meanings for all arguments with a note.
#[test]
fn system_calls_are_known() {
    let Some((catalogue, events)) = open_catalogue() else { return };
    if cfg!(not(target_arch = "x86_64")) {
        report_skipped("the table is that of x86-64");
        return;
    }
    let calls: Vec<_> = events.iter().filter(|event| event.call().is_some()).collect();
    assert!(calls.len() > 500, "{} sides of calls", calls.len());
    let unknown: Vec<_> = calls
        .iter()
        .filter(|event| matches!(event.call(), Some((None, _))))
        .map(|event| &event.name)
        .collect();
    // Newer kernels have additional system calls.
    assert!(unknown.len() < 20, "{unknown:?}");
    let find = |name: &str| calls.iter().find(|event| event.name == name).expect("a call");
    let openat = find("sys_enter_openat");
    assert_eq!(openat.call(), Some((Some(257), Phase::Enter)));
    assert_eq!(openat.fields[1].pointee, Some(Pointee::Text));
    if catalogue.btf().is_some() {
        let sleep = find("sys_enter_nanosleep");
        let Some(Pointee::Structures(of, _)) = &sleep.fields[0].pointee else {
            panic!("{sleep:?}")
        };
        let names: Vec<_> = of.members.iter().map(|of| (&*of.name, of.offset)).collect();
        assert_eq!((of.bytes, &*names), (16, &[("tv_sec", 0), ("tv_nsec", 8)][..]));
    }
}

#[test]
fn types_of_this_kernel_are_read_whole() {
    let path = trackway_kernel::catalogue::btf::VMLINUX;
    let Ok(bytes) = std::fs::read(path) else {
        report_skipped(format!("{path} cannot be read"));
        return;
    };
    let btf = Btf::parse(bytes).expect("types");
    assert_eq!(btf.types().count(), btf.len());
    let task = btf.find(Class::Struct, "task_struct").expect("what every kernel has");
    let members: Vec<_> = btf.members(&task).map(|of| of.name).collect();
    assert!(members.contains(&"comm") && members.contains(&"tgid"));
    assert!(task.size_or_type > 1000);
}
