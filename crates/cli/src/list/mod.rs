//! `trackway list`: instrumentation points of running processes.
//!
//! The window contains events, but not the processes that have them. The SDT notes in a process's
//! mapped files show the events of that process.

mod args;
mod contexts;
mod kernel_events;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use trackway_abi::window::EVENTS_MAX;
use trackway_console::{Style, Target, stdout};
use trackway_recorder::diagnosis::{Reason, Selection, diagnose};
use trackway_recorder::{WindowHandle, elf, processes, versions};
use trackway_schema::{EventDescription, Field, FieldKind, LEVEL_NAMES};
use trackway_window::Window;

pub(crate) use self::args::Arguments;
use crate::common::events::{group_variants_by_name, scalar_name};
use crate::common::format::Format;
use crate::common::json::{quote_json_string, reason_to_json};

/// Most files that are examined for one process.
const MODULES_MAX: usize = 1024;

/// A live process that has loaded the library.
struct Process {
    pid: u32,
    name: String,
    /// Full names of the process's events.
    events: BTreeSet<String>,
}

/// The processes and events to list.
#[derive(Default)]
struct Listing {
    processes: Vec<Process>,
    /// Variants of each event (one name, different fields), by full name.
    events: BTreeMap<String, Vec<EventDescription>>,
    /// Number of registrations that the table rejected since the window was created.
    refused: u32,
    /// Processes with libraries of other versions, by version.
    other_versions: BTreeMap<u32, Vec<u32>>,
    /// The reasons why some processes with events are not listed.
    unlisted: Vec<Reason>,
}

/// Lists events of processes, events of the kernel, or contexts.
///
/// # Errors
///
/// If the requested data cannot be read, or standard output cannot be written.
pub(crate) fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let Arguments { kernel, patterns, contexts, format } = arguments;
    if contexts {
        contexts::run(format, &mut stdout())
    } else if kernel {
        kernel_events::run(&patterns, format, &mut stdout())
    } else {
        list_processes(format, &mut stdout())
    }
}

/// Lists the instrumentation points of processes.
fn list_processes(format: Format, output: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let mut found = WindowHandle::inspect(scan_window)?.unwrap_or_default();
    found.other_versions = versions::other_versions();
    found.unlisted = diagnose(&Selection::all());
    found.unlisted.retain(Reason::excludes_processes);
    let mut text = String::new();
    match format {
        Format::Text => push_text(&mut text, &found),
        Format::Json => push_json(&mut text, &found),
    }
    output.write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn scan_window(window: &Window) -> Listing {
    window.sweep_processes();
    let events = group_variants_by_name(window);
    let mut points: HashMap<PathBuf, BTreeSet<String>> = HashMap::new();
    let mut found = Vec::new();
    for pid in processes::live_pids_in_window(window) {
        let Some(files) = processes::mapped_executables(pid) else { continue };
        let mut of_process = BTreeSet::new();
        for path in files.into_iter().take(MODULES_MAX) {
            let of_file = points
                .entry(path)
                .or_insert_with_key(|path| read_instrumentation_points(pid, path));
            of_process.extend(of_file.iter().filter(|name| events.contains_key(*name)).cloned());
        }
        found.push(Process { pid, name: processes::command_name_of(pid), events: of_process });
    }
    let refused = window.header().events_refused.load(Ordering::Relaxed);
    Listing { processes: found, events, refused, ..Listing::default() }
}

/// Reads a file's instrumentation points through /proc, which reaches other mount namespaces.
fn read_instrumentation_points(pid: u32, path: &Path) -> BTreeSet<String> {
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    let inside = root.join(path.strip_prefix("/").unwrap_or(path));
    elf::read_module(&inside)
        .or_else(|| elf::read_module(path))
        .map(|module| module.points)
        .unwrap_or_default()
}

impl Listing {
    /// Returns the names of events that no live process has.
    fn idle_event_names(&self) -> impl Iterator<Item = &String> {
        self.events
            .keys()
            .filter(|name| !self.processes.iter().any(|process| process.events.contains(*name)))
    }

    fn variants_of<'found>(
        &'found self,
        names: impl Iterator<Item = &'found String>,
    ) -> impl Iterator<Item = &'found EventDescription> {
        names.flat_map(|name| self.events.get(name).into_iter().flatten())
    }
}

fn push_events<'found>(
    text: &mut String,
    indent: &str,
    events: impl Iterator<Item = &'found EventDescription>,
) {
    for event in events {
        let fields: Vec<String> = event.fields.iter().map(format_field).collect();
        let level = LEVEL_NAMES.get(usize::from(event.level)).unwrap_or(&"");
        let name = event.full_name();
        let name = Target::Output.paint(Style::Name, &name);
        text.push_str(&format!("{indent}{name} ({level}): {}\n", fields.join(", ")));
    }
}

fn push_text(text: &mut String, found: &Listing) {
    if !found.processes.is_empty() {
        text.push_str("running processes: trackway session create --pid PID records one of them\n");
    }
    for process in &found.processes {
        let name = Target::Output.one_line(&process.name);
        let name = Target::Output.paint(Style::Name, &name);
        text.push_str(&format!("  {} {name}\n", process.pid));
        push_events(text, "    ", found.variants_of(process.events.iter()));
    }
    let mut idle = found.variants_of(found.idle_event_names()).peekable();
    if idle.peek().is_some() {
        text.push_str(
            "known events: trackway record --event 'PROVIDER:NAME' -- COMMAND records them\n",
        );
        push_events(text, "  ", idle);
    }
    if found.refused > 0 {
        text.push_str(&format!(
            "{} events could not be registered: the table of {EVENTS_MAX} events is full\n",
            found.refused
        ));
    }
    for (version, pids) in &found.other_versions {
        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
        text.push_str(&format!(
            "with a libtrackway.so {} than this trackway: {}\n    {}\n",
            versions::describe_age(*version),
            pids.join(", "),
            versions::remedy_for_version(*version)
        ));
    }
    for reason in &found.unlisted {
        text.push_str(&format!("{reason}\n"));
        text.extend(reason.hint().map(|hint| format!("    {hint}\n")));
    }
    if text.is_empty() {
        text.push_str("no process has the library loaded\n");
    }
}

fn format_field(field: &Field) -> String {
    let kind = match &field.kind {
        FieldKind::Scalar(scalar) => scalar_name(*scalar).to_owned(),
        FieldKind::Str => "str".into(),
        FieldKind::Text => "text".into(),
        FieldKind::Array(scalar, length) => format!("{}[{length}]", scalar_name(*scalar)),
        FieldKind::Sequence(scalar) => format!("{}[]", scalar_name(*scalar)),
        FieldKind::Strings => "str[]".into(),
        FieldKind::Enumeration(scalar, _) => format!("enum {}", scalar_name(*scalar)),
    };
    format!("{kind} {}", field.name)
}

fn push_json(text: &mut String, found: &Listing) {
    let events = |events: &mut dyn Iterator<Item = &EventDescription>| -> String {
        let all: Vec<String> = events
            .map(|event| {
                let fields: Vec<String> =
                    event.fields.iter().map(|one| quote_json_string(&format_field(one))).collect();
                let level = LEVEL_NAMES.get(usize::from(event.level)).unwrap_or(&"");
                format!(
                    "{{\"name\":{},\"level\":{},\"fields\":[{}]}}",
                    quote_json_string(&event.full_name()),
                    quote_json_string(level),
                    fields.join(",")
                )
            })
            .collect();
        format!("[{}]", all.join(","))
    };
    let processes: Vec<String> = found
        .processes
        .iter()
        .map(|process| {
            format!(
                "{{\"pid\":{},\"name\":{},\"events\":{}}}",
                process.pid,
                quote_json_string(&process.name),
                events(&mut found.variants_of(process.events.iter()))
            )
        })
        .collect();
    let other_versions: Vec<String> = found
        .other_versions
        .iter()
        .map(|(version, pids)| format!("{{\"version\":{version},\"processes\":{pids:?}}}"))
        .collect();
    let unlisted: Vec<String> =
        found.unlisted.iter().map(|reason| reason_to_json(reason).to_string()).collect();
    text.push_str(&format!(
        "{{\"processes\":[{}],\"other_events\":{},\"events_refused\":{},\
         \"other_versions\":[{}],\"unlisted\":[{}]}}\n",
        processes.join(","),
        events(&mut found.variants_of(found.idle_event_names())),
        found.refused,
        other_versions.join(","),
        unlisted.join(",")
    ));
}

#[cfg(test)]
mod tests {
    use trackway_schema::Scalar;

    use super::*;

    #[test]
    fn lists_are_text_and_json() {
        let event = EventDescription {
            provider: "app".into(),
            name: "req\"".into(),
            level: 6,
            fields: vec![Field { name: "n".into(), kind: FieldKind::Scalar(Scalar::U32) }],
        };
        let name = event.full_name();
        let found = Listing {
            processes: vec![Process {
                pid: 7,
                name: "a\nb".into(),
                events: BTreeSet::from([name.clone()]),
            }],
            events: BTreeMap::from([(name, vec![event])]),
            refused: 2,
            other_versions: BTreeMap::from([(0, vec![8, 9])]),
            unlisted: Vec::new(),
        };
        let mut text = String::new();
        push_text(&mut text, &found);
        assert_eq!(
            text,
            "running processes: trackway session create --pid PID records one of them\n  \
             7 a\nb\n    app:req\" (INFO): u32 n\n\
             2 events could not be registered: the table of 4096 events is full\n\
             with a libtrackway.so older than this trackway: 8, 9\n    \
             start them again with the library that came with trackway\n"
        );
        let mut json = String::new();
        push_json(&mut json, &found);
        assert_eq!(
            json,
            "{\"processes\":[{\"pid\":7,\"name\":\"a\\u000ab\",\"events\":[{\"name\":\
             \"app:req\\\"\",\"level\":\"INFO\",\"fields\":[\"u32 n\"]}]}],\"other_events\":[],\
             \"events_refused\":2,\"other_versions\":[{\"version\":0,\"processes\":[8, 9]}],\
             \"unlisted\":[]}\n"
        );
    }
}
