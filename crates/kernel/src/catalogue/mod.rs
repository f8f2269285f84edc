//! The catalogue of kernel events: the events of the running kernel, with all data needed to record
//! and print them.
//!
//! The catalogue combines three sources. `format` files of tracefs list the events and their fields
//! ([`format`](mod@format), `print`). The kernel's types describe the arguments of tracepoints and
//! the values of enumerations ([`btf`], [`tracepoint`]). A table describes the arguments of system
//! calls ([`calls`], [`names`]). docs/design/0009-kernel-catalogue.md has reasons and figures. The
//! catalogue checks all input, even from the kernel: modules and users chose some of its words.

pub mod btf;
pub mod calls;
pub mod compat;
mod ctype;
pub mod error;
mod expression;
pub mod format;
pub(crate) mod lttng;
pub(crate) mod members;
pub mod model;
pub mod names;
mod print;
pub mod select;
pub mod tracefs;
mod tracepoint;

use std::collections::HashMap;
use std::io::{self, Read as _};
use std::str::FromStr;

use trackway_console::IoError;

use btf::{Btf, Class};
use calls::Structures;
use error::CatalogueError;
use format::{EmptyLookup, FORMAT_BYTES_MAX, Format, NameLookup};
use model::{Event, Field, Phase, Source};
use select::Selection;
use tracefs::Tracefs;

/// Longest list of events, in bytes. (Linux 6.18: 73 KB.)
const LIST_BYTES_MAX: usize = 8 << 20;
/// Most events in the catalogue.
const EVENTS_MAX: usize = 1 << 16;

/// The name of an event.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventName {
    /// The event's folder in tracefs.
    pub subsystem: String,
    /// The event's name: its folder in the subsystem's folder.
    pub name: String,
}

impl EventName {
    /// Returns the call and the phase, if the event is a system call event.
    pub fn call(&self) -> Option<(&str, Phase)> {
        calls::parse_event_name(&self.name).filter(|_| self.subsystem == calls::SUBSYSTEM)
    }

    /// Returns true for a system call event by a 32-bit number.
    pub fn is_compat(&self) -> bool {
        self.name.starts_with(compat::PREFIX) && self.call().is_some()
    }
}

/// The error that a text is not an event name `subsystem:name`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidEventName;

impl FromStr for EventName {
    type Err = InvalidEventName;

    fn from_str(text: &str) -> Result<Self, InvalidEventName> {
        let (subsystem, name) = text.split_once(':').ok_or(InvalidEventName)?;
        // Subsystem and name become parts of paths.
        let is_word = |word: &str| {
            !word.is_empty()
                && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        let is_name = is_word(subsystem) && is_word(name);
        is_name
            .then(|| Self { subsystem: subsystem.into(), name: name.into() })
            .ok_or(InvalidEventName)
    }
}

/// The events of the running kernel: their names, and their data on request.
#[derive(Debug)]
pub struct Catalogue {
    tracefs: Tracefs,
    btf: Option<Btf>,
    names: Vec<EventName>,
}

/// The requested events that could be read.
#[derive(Debug, Default)]
pub struct Events {
    /// The readable events, in the order of the request.
    pub events: Vec<Event>,
    /// Unreadable events, each with the reason.
    pub unreadable: Vec<(EventName, String)>,
}

impl Catalogue {
    /// Opens tracefs and reads the kernel's types.
    ///
    /// # Errors
    ///
    /// If tracefs is not available. The kernel's types are optional.
    pub fn open() -> Result<Self, CatalogueError> {
        let tracefs = Tracefs::open()?;
        let btf = read_btf();
        let mut names = read_names(&tracefs)?;
        add_undescribed_calls(&mut names, btf.as_ref());
        names.sort();
        Ok(Self { tracefs, btf, names })
    }

    /// Returns the names of all events that can be recorded, sorted.
    pub fn names(&self) -> &[EventName] {
        &self.names
    }

    /// Returns the kernel's types, if the kernel provides them.
    pub fn btf(&self) -> Option<&Btf> {
        self.btf.as_ref()
    }

    /// Returns the selected events.
    ///
    /// # Errors
    ///
    /// If a pattern matches no event.
    pub fn select(&self, selection: &Selection) -> Result<Events, CatalogueError> {
        Ok(self.events(selection.select_from(&self.names)?))
    }

    /// Returns the names of selected events, including system call events by 32-bit numbers, which
    /// tracefs lacks. A 32-bit call is selected by its own name, or with the 64-bit call.
    ///
    /// # Errors
    ///
    /// See [`Self::select`].
    pub fn selected_names(&self, selection: &Selection) -> Result<Vec<EventName>, CatalogueError> {
        if !compat::is_supported(self.btf()) {
            return Ok(selection.select_from(&self.names)?.into_iter().cloned().collect());
        }
        let all: Vec<EventName> = self.names.iter().cloned().chain(compat::event_names()).collect();
        selection.select_from(&all)?;
        let is_selected = |name: &&EventName| match name.is_compat() {
            true => compat::is_selected(selection, name),
            false => selection.selects(name),
        };
        Ok(all.iter().filter(is_selected).cloned().collect())
    }

    /// Returns the names of the entry events of all system calls, by 64-bit and 32-bit numbers.
    pub fn call_entries(&self) -> impl Iterator<Item = EventName> {
        let is_there = compat::is_supported(self.btf());
        let compat = compat::event_names().filter(move |_| is_there);
        let all = self.names.iter().cloned().chain(compat);
        all.filter(|name| matches!(name.call(), Some((_, Phase::Enter))))
    }

    /// Reads events; skips events that do not exist any more.
    pub fn events<'name>(&self, names: impl IntoIterator<Item = &'name EventName>) -> Events {
        let mut reader = CatalogueReader {
            catalogue: self,
            structures: Structures::default(),
            entries: HashMap::new(),
            buffer: Vec::new(),
        };
        let mut found = Events::default();
        for name in names {
            match reader.read_event(name) {
                Ok(event) => found.events.push(event),
                Err(ReadFailure::Removed) => {}
                Err(ReadFailure::Bad(why)) => found.unreadable.push((name.clone(), why)),
            }
        }
        found
    }
}

fn read_btf() -> Option<Btf> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(btf::VMLINUX).ok()?;
    let length = file.metadata().map_or(0, |metadata| metadata.len());
    bytes.try_reserve(usize::try_from(length.min(btf::BTF_BYTES_MAX)).ok()?).ok()?;
    file.take(btf::BTF_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Btf::parse(bytes).ok()
}

fn read_names(tracefs: &Tracefs) -> Result<Vec<EventName>, CatalogueError> {
    const LIST: &str = "available_events";
    let mut buffer = Vec::new();
    let text = tracefs
        .read(LIST, LIST_BYTES_MAX, &mut buffer)
        .map_err(|error| CatalogueError::Io(tracefs.root().join(LIST), error.into()))?;
    Ok(text.lines().filter_map(|line| line.parse().ok()).take(EVENTS_MAX).collect())
}

/// Adds system call events of the table for which the kernel has tracepoints but tracefs lacks
/// formats (CONFIG_FTRACE_SYSCALLS).
fn add_undescribed_calls(names: &mut Vec<EventName>, btf: Option<&Btf>) {
    let has = |subsystem: &str| names.iter().any(|name| name.subsystem == subsystem);
    if has(calls::SUBSYSTEM) || !has("raw_syscalls") || !cfg!(target_arch = "x86_64") {
        return;
    }
    let is_there = |name: &str| {
        btf.is_none_or(|btf| btf.find(Class::Func, &format!("__x64_sys_{name}")).is_some())
    };
    for call in calls::call_table().iter().filter(|call| is_there(call.name)) {
        for side in ["enter", "exit"] {
            let name = format!("sys_{side}_{}", call.name);
            names.push(EventName { subsystem: calls::SUBSYSTEM.into(), name });
        }
    }
}

/// The reason why an event cannot be read.
enum ReadFailure {
    /// The event does not exist any more.
    Removed,
    /// The event's description is invalid, for this reason.
    Bad(String),
}

struct CatalogueReader<'catalogue> {
    catalogue: &'catalogue Catalogue,
    structures: Structures,
    /// Arguments of system calls by the call's name; `None`: tracefs has no format for the call.
    entries: HashMap<String, Option<Vec<Field>>>,
    buffer: Vec<u8>,
}

impl CatalogueReader<'_> {
    fn read_event(&mut self, name: &EventName) -> Result<Event, ReadFailure> {
        if name.is_compat() {
            return self.read_compat_call(name);
        }
        if let Some((call, phase)) = name.call() {
            return self.read_call(name, call, phase);
        }
        let (id, mut fields) = self.read_format(name)?;
        lttng::add_lttng_fields(&name.subsystem, &name.name, &mut fields);
        let btf = self.catalogue.btf.as_ref();
        let source = match btf.and_then(|btf| tracepoint::tracepoint_arguments(btf, &name.name)) {
            Some(arguments) => {
                tracepoint::relate_arguments(&mut fields, &arguments);
                Source::RawTracepoint { arguments }
            }
            None => Source::Tracepoint,
        };
        let (subsystem, name) = (name.subsystem.clone(), name.name.clone());
        Ok(Event { subsystem, name, id: Some(id), source, fields })
    }

    fn read_compat_call(&mut self, name: &EventName) -> Result<Event, ReadFailure> {
        let btf = self.catalogue.btf.as_ref();
        let structures = &mut self.structures;
        let event = name
            .call()
            .filter(|_| compat::is_supported(btf))
            .and_then(|(call, phase)| calls::describe_compat_call(call, phase, btf, structures));
        event.ok_or(ReadFailure::Removed)
    }

    fn read_call(
        &mut self,
        name: &EventName,
        call: &str,
        phase: Phase,
    ) -> Result<Event, ReadFailure> {
        if !self.entries.contains_key(call) {
            let entry = format!("sys_enter_{call}");
            let entry = EventName { subsystem: name.subsystem.clone(), name: entry };
            let fields = self.read_format(&entry).map(|(_, fields)| fields);
            let fields = match fields {
                Ok(fields) => Some(fields),
                Err(ReadFailure::Removed) => None,
                Err(bad) => return Err(bad),
            };
            self.entries.insert(call.to_owned(), fields);
        }
        let id = match self.read_format(name) {
            Ok((id, _)) => Some(id),
            Err(ReadFailure::Removed) => None,
            Err(bad) => return Err(bad),
        };
        let entry = self.entries.get(call).and_then(Option::as_deref);
        let btf = self.catalogue.btf.as_ref();
        let event = calls::describe_call(call, phase, entry, btf, &mut self.structures);
        Ok(Event { id, ..event })
    }

    /// Reads the event's id and fields from tracefs.
    fn read_format(&mut self, name: &EventName) -> Result<(u16, Vec<Field>), ReadFailure> {
        let path = format!("events/{}/{}/format", name.subsystem, name.name);
        let text = self.catalogue.tracefs.read(&path, FORMAT_BYTES_MAX, &mut self.buffer);
        let text = text.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => ReadFailure::Removed,
            _ => ReadFailure::Bad(IoError::text(&error)),
        })?;
        let names: &dyn NameLookup = match &self.catalogue.btf {
            Some(btf) => btf,
            None => &EmptyLookup,
        };
        let Format { id, fields, .. } =
            format::parse(text, names).map_err(|error| ReadFailure::Bad(error.to_string()))?;
        Ok((id, fields))
    }
}

impl Event {
    /// Returns the call's number and phase, if the event is a system call event.
    pub fn call(&self) -> Option<(Option<u32>, Phase)> {
        match self.source {
            Source::Syscall { number, phase, .. } => Some((number, phase)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undescribed_calls_are_those_of_the_table() {
        let names = |names: &[&str]| -> Vec<EventName> {
            names.iter().map(|name| name.parse().expect("a name")).collect()
        };
        let mut found = names(&["raw_syscalls:sys_enter", "sched:sched_switch"]);
        add_undescribed_calls(&mut found, None);
        let expected = if cfg!(target_arch = "x86_64") { 2 * calls::call_table().len() } else { 0 };
        assert_eq!(found.len(), 2 + expected);
        for described in [&["raw_syscalls:sys_enter", "syscalls:sys_enter_read"][..], &["a:b"]] {
            let mut found = names(described);
            add_undescribed_calls(&mut found, None);
            assert_eq!(found, names(described));
        }
    }

    #[test]
    fn names_that_escape_the_folder_are_invalid() {
        for wrong in ["a", "a:", ":b", "../a:b", "a:../../etc", "a/b:c", "a:b:c", "a:b c"] {
            assert_eq!(wrong.parse::<EventName>(), Err(InvalidEventName), "{wrong}");
        }
    }
}
