//! `trackway list --kernel`: the events of the running kernel, with fields, types and meanings.

use std::io::Write;
use std::process::ExitCode;

use serde_json::{Value, json};
use trackway_console::message;
use trackway_kernel::bpf_program::plan::{EventPlan, RegisterLayout};
use trackway_kernel::catalogue::model::{
    Argument, Event, Field, FieldShape, Length, Meaning, Phase, Pointee, ResultKind, Source,
    Symbol, Symbols,
};
use trackway_kernel::catalogue::select::Selection;
use trackway_kernel::catalogue::{Catalogue, EventName};
use trackway_schema::Scalar;

use crate::common::events::scalar_name;
use crate::common::format::Format;

/// Most value names in the list of one field.
const SYMBOL_NAMES_MAX: usize = 6;

/// Payload bytes that every record can have.
const PAYLOAD_BYTES: u32 = 4096;

/// Lists the kernel events that `patterns` select, or all events.
pub(super) fn run(
    patterns: &[String],
    format: Format,
    output: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let selection = Selection::new(patterns)?;
    let catalogue = Catalogue::open()?;
    // Calls by 32-bit numbers are recorded together with 64-bit calls, so they are listed, too.
    let mut names = catalogue.selected_names(&selection)?;
    names.sort();
    let found = catalogue.events(&names);
    let text = match format {
        Format::Text => format_text(&found.events),
        Format::Json => format!("{}\n", format_json(&found.events, &found.unreadable)),
    };
    output.write_all(text.as_bytes())?;
    for (EventName { subsystem, name }, why) in &found.unreadable {
        message!("trackway: {subsystem}:{name}: {why}");
    }
    Ok(if found.unreadable.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(crate::EXIT_NEGATIVE)
    })
}

fn format_text(events: &[Event]) -> String {
    let mut text = String::new();
    let mut subsystem = "";
    for event in events {
        if event.subsystem != subsystem {
            subsystem = &event.subsystem;
            text.push_str(&format!("{subsystem}\n"));
        }
        let fields: Vec<String> = event.fields.iter().map(|of| format_field(event, of)).collect();
        // The event's name in traces, if it differs.
        let known_as = match event.lttng_name() {
            name if *name == event.name => String::new(),
            name => format!(" ({name})"),
        };
        let fields = fields.join(", ");
        let behind = format_pointer_fields(event);
        text.push_str(&format!("    {}{known_as}: {fields}{behind}\n", event.full_name()));
    }
    text
}

/// Returns the additional fields of a system call's records, by name: the data that its pointers
/// lead to.
fn format_pointer_fields(event: &Event) -> String {
    // The locations of arguments do not matter here.
    let anywhere = RegisterLayout {
        arguments: [0; 6],
        compat_arguments: [0; 6],
        result: 0,
        number: 0,
        task_tid: 0,
        task_status: 0,
        guard: None,
    };
    let staged = EventPlan::from_registers(event, &anywhere, PAYLOAD_BYTES);
    let fields = staged.map(|staged| staged.description.fields).unwrap_or_default();
    let is_own = |name: &str| event.fields.iter().any(|field| field.lttng_name(event) == name);
    let names = fields.into_iter().map(|field| field.name).filter(|name| !is_own(name));
    match names.collect::<Vec<_>>().join(", ") {
        names if names.is_empty() => names,
        names => format!("; behind pointers: {names}"),
    }
}

/// Formats a field: type, name, and meaning.
fn format_field(event: &Event, field: &Field) -> String {
    let about = match describe_meaning(event, field) {
        about if about.is_empty() => about,
        about => format!(" ({about})"),
    };
    // Uses the field's name in traces and filters.
    format!("{} {}{about}", format_type(field), field.lttng_name(event))
}

/// Returns the name of a type in the C header, if it has one.
fn format_type(field: &Field) -> String {
    let is_hexadecimal = matches!(field.meaning, Meaning::Hexadecimal | Meaning::Address);
    let name = |scalar: Scalar| match scalar {
        Scalar::U8 if is_hexadecimal => "x8",
        Scalar::U16 if is_hexadecimal => "x16",
        Scalar::U32 | Scalar::I32 if is_hexadecimal => "x32",
        Scalar::U64 | Scalar::I64 if is_hexadecimal => "x64",
        scalar => scalar_name(scalar),
    };
    let kind = match field.kind {
        FieldShape::Integer(scalar) => name(scalar).into(),
        FieldShape::Array(scalar, count) => format!("{}[{count}]", name(scalar)),
        FieldShape::Text(bytes) => format!("char[{bytes}]"),
        FieldShape::Bytes(bytes) => format!("byte[{bytes}]"),
        FieldShape::Dynamic(scalar, _) | FieldShape::Trailing(scalar) => {
            format!("{}[]", name(scalar))
        }
        FieldShape::DynamicText(_) | FieldShape::TrailingText => "str".into(),
        FieldShape::Bitmask(_) => "bits".into(),
        FieldShape::RequestFlags(_) => name(Scalar::U32).into(),
    };
    match &field.meaning {
        Meaning::Symbols(symbols) if symbols.choice_mask == 0 => format!("flags {kind}"),
        Meaning::Symbols(symbols) if symbols.flags.is_empty() => format!("enum {kind}"),
        Meaning::Symbols(_) => format!("enum|flags {kind}"),
        _ => kind,
    }
}

fn describe_meaning(event: &Event, field: &Field) -> String {
    if let Some(behind) = &field.pointee {
        return format!("to {}", format_pointee(event, behind));
    }
    let name = match &field.meaning {
        Meaning::Symbols(symbols) | Meaning::DependentSymbols(symbols) => {
            return format_symbol_names(symbols);
        }
        meaning => meaning_name(meaning),
    };
    let is_told_by_type = matches!(field.meaning, Meaning::Plain | Meaning::Hexadecimal);
    if is_told_by_type { String::new() } else { name.into() }
}

fn format_symbol_names(symbols: &Symbols) -> String {
    let names = |of: &[Symbol], between: &str| {
        let names: Vec<&str> =
            of.iter().take(SYMBOL_NAMES_MAX).map(|symbol| &*symbol.name).collect();
        let more =
            if of.len() > SYMBOL_NAMES_MAX { format!("{between}…") } else { String::new() };
        names.join(between) + &more
    };
    let parts = [names(&symbols.choices, ", "), names(&symbols.flags, "|")];
    let parts: Vec<&str> =
        parts.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
    parts.join("; ")
}

const fn meaning_name(meaning: &Meaning) -> &'static str {
    match meaning {
        Meaning::Plain => "plain",
        Meaning::Hexadecimal => "hexadecimal",
        Meaning::Octal => "octal",
        Meaning::Address => "address",
        Meaning::Code => "address of code",
        Meaning::Symbols(_) => "named",
        Meaning::DependentSymbols(_) => "named, after the field before",
        Meaning::SignalSet => "set of signals",
        Meaning::WaitStatus => "status of a process",
        Meaning::Handler => "address of a handler",
        Meaning::Device => "device",
        Meaning::Uuid => "uuid",
        Meaning::Mac => "hardware address",
        Meaning::Internet => "internet address",
        Meaning::KernelText => "address of text",
        Meaning::Descriptor => "file descriptor",
        Meaning::Folder => "folder",
        Meaning::Process => "process",
        Meaning::User => "user",
        Meaning::Group => "group",
        Meaning::Mode => "mode",
        Meaning::Request => "ioctl request",
        Meaning::Result(returned) => match returned {
            ResultKind::Zero => "0 or error",
            ResultKind::Number => "number or error",
            ResultKind::Bytes => "bytes or error",
            ResultKind::Descriptor => "file descriptor or error",
            ResultKind::Process => "process or error",
            ResultKind::Owner => "user or group",
            ResultKind::Address => "address or error",
            ResultKind::Never => "does not return",
        },
    }
}

/// Returns the type of a pointer's target.
fn format_pointee(event: &Event, behind: &Pointee) -> String {
    let length = |length: &Length| length_name(event, *length);
    match behind {
        Pointee::Text => "text".into(),
        Pointee::Texts => "texts".into(),
        Pointee::Bytes(bytes) => format!("byte[{}]", length(bytes)),
        Pointee::SocketAddress(bytes) => format!("sockaddr of {} bytes", length(bytes)),
        Pointee::Vectors(count) => format!("iovec[{}]", length(count)),
        Pointee::Message => "msghdr".into(),
        Pointee::Integers(scalar, Length::Fixed(1)) => scalar_name(*scalar).into(),
        Pointee::Integers(scalar, count) => format!("{}[{}]", scalar_name(*scalar), length(count)),
        Pointee::Structures(structure, Length::Fixed(1)) => structure.name.clone(),
        Pointee::SizedStructure(structure, bytes) => {
            format!("{} of {} bytes", structure.name, length(bytes))
        }
        Pointee::Structures(structure, count) => format!("{}[{}]", structure.name, length(count)),
    }
}

fn length_name(event: &Event, length: Length) -> String {
    let argument = |index: u8| {
        let field = event.fields.iter().find(|field| field.argument == Some(index));
        field
            .map_or_else(|| format!("argument {index}"), |field| field.lttng_name(event).to_owned())
    };
    match length {
        Length::Fixed(count) => count.to_string(),
        Length::Argument(index) => argument(index),
        Length::Pointed(index) => format!("*{}", argument(index)),
        Length::Result(_) => "ret".into(),
    }
}

fn format_json(events: &[Event], unread: &[(EventName, String)]) -> Value {
    let events: Vec<Value> = events.iter().map(event_to_json).collect();
    let unread = unread.iter().map(
        |(name, why)| json!({ "name": format!("{}:{}", name.subsystem, name.name), "why": why }),
    );
    json!({ "events": events, "unread": unread.collect::<Vec<_>>() })
}

fn event_to_json(event: &Event) -> Value {
    let fields: Vec<Value> = event.fields.iter().map(|field| field_to_json(event, field)).collect();
    let mut json = json!({
        "name": event.full_name(),
        "lttng_name": event.lttng_name(),
        "id": event.id,
        "fields": fields,
    });
    match &event.source {
        Source::RawTracepoint { arguments } => {
            json["source"] = "raw_tracepoint".into();
            json["arguments"] = arguments.iter().map(argument_to_json).collect();
        }
        Source::Tracepoint => json["source"] = "tracepoint".into(),
        Source::Syscall { number, phase, is_compat } => {
            let phase = if *phase == Phase::Enter { "syscall_enter" } else { "syscall_exit" };
            json["source"] = phase.into();
            json["is_compat"] = (*is_compat).into();
            json["number"] = (*number).into();
        }
    }
    json
}

fn argument_to_json(argument: &Argument) -> Value {
    json!({ "name": argument.name, "type": argument.type_text })
}

fn field_to_json(event: &Event, field: &Field) -> Value {
    let mut json = json!({
        "name": field.name,
        "lttng_name": field.lttng_name(event),
        "c_type": field.type_text,
        "type": format_type(field),
        "meaning": meaning_name(&field.meaning),
    });
    if field.size > 0 {
        json["offset"] = field.offset.into();
        json["size"] = field.size.into();
    }
    if let Some(index) = field.argument {
        json["argument"] = index.into();
    }
    if let Some(behind) = &field.pointee {
        json["points_to"] = format_pointee(event, behind).into();
    }
    if let Meaning::Symbols(symbols) = &field.meaning {
        let pairs = |of: &[Symbol]| -> Vec<Value> {
            of.iter().map(|of| json!({ "name": of.name, "value": of.value })).collect()
        };
        json["choice_mask"] = symbols.choice_mask.into();
        json["choices"] = pairs(&symbols.choices).into();
        json["flags"] = pairs(&symbols.flags).into();
    }
    json
}
