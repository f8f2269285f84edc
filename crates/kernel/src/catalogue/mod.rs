//! What events the running kernel has, with all that is needed to record and print them.
//!
//! Three sources, each for what it knows best: `format` files of tracefs say what there is, and the
//! fields of each event ([`format`](mod@format), `print`); the kernel's own types say what a
//! tracepoint's arguments are, and what enumerations mean ([`btf`], [`tracepoint`]); a table says
//! what the arguments of system calls mean ([`calls`], [`names`]).
//! docs/design/0009-kernel-catalogue.md has the reasons and figures. What is read is hostile until
//! checked, though the kernel wrote it: it has words in it that modules and users chose.

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
use format::{FORMAT_BYTES_MAX, Format, Names, NoNames};
use model::{Event, Field, Phase, Source};
use select::Selection;
use tracefs::Tracefs;

/// Longest list of events, in bytes. (Linux 6.18: 73 KB.)
const LIST_BYTES_MAX: usize = 8 << 20;
/// Most events.
const EVENTS_MAX: usize = 1 << 16;

/// An event's name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventName {
    /// The folder of tracefs that it is in.
    pub subsystem: String,
    /// Its name there.
    pub name: String,
}

impl EventName {
    /// Of a system call: which, and which side of it.
    pub fn call(&self) -> Option<(&str, Phase)> {
        calls::which(&self.name).filter(|_| self.subsystem == calls::SUBSYSTEM)
    }

    /// Whether it is one of those by the numbers of 32 bits.
    pub fn is_compat(&self) -> bool {
        self.name.starts_with(compat::PREFIX) && self.call().is_some()
    }
}

/// `subsystem:name` is no name of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAName;

impl FromStr for EventName {
    type Err = NotAName;

    fn from_str(text: &str) -> Result<Self, NotAName> {
        let (subsystem, name) = text.split_once(':').ok_or(NotAName)?;
        // They become parts of paths.
        let is_word = |word: &str| {
            !word.is_empty()
                && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        let is_name = is_word(subsystem) && is_word(name);
        is_name.then(|| Self { subsystem: subsystem.into(), name: name.into() }).ok_or(NotAName)
    }
}

/// The events of the running kernel: their names, and the rest of them when it is asked for.
#[derive(Debug)]
pub struct Catalogue {
    tracefs: Tracefs,
    btf: Option<Btf>,
    names: Vec<EventName>,
}

/// Events, as far as they could be read.
#[derive(Debug, Default)]
pub struct Events {
    /// In the order that they were asked for in.
    pub events: Vec<Event>,
    /// Events of which nothing is known, and why.
    pub unread: Vec<(EventName, String)>,
}

impl Catalogue {
    /// Opens what the kernel says of itself.
    ///
    /// # Errors
    ///
    /// If it says nothing, or not to us. Types it need not have.
    pub fn open() -> Result<Self, CatalogueError> {
        let tracefs = Tracefs::open()?;
        let btf = read_btf();
        let mut names = read_names(&tracefs)?;
        add_calls(&mut names, btf.as_ref());
        names.sort();
        Ok(Self { tracefs, btf, names })
    }

    /// Names of all events that can be recorded, sorted.
    pub fn names(&self) -> &[EventName] {
        &self.names
    }

    /// The kernel's types, if it tells them.
    pub fn btf(&self) -> Option<&Btf> {
        self.btf.as_ref()
    }

    /// The events that are meant.
    ///
    /// # Errors
    ///
    /// If a pattern is for none.
    pub fn select(&self, selection: &Selection) -> Result<Events, CatalogueError> {
        Ok(self.events(selection.of(&self.names)?))
    }

    /// Names of the events that are meant, with calls by the numbers of 32 bits, which tracefs does
    /// not have: those that are meant themselves, or that go with those of 64 bits.
    ///
    /// # Errors
    ///
    /// As [`Self::select`].
    pub fn meant(&self, selection: &Selection) -> Result<Vec<EventName>, CatalogueError> {
        if !compat::is_there(self.btf()) {
            return Ok(selection.of(&self.names)?.into_iter().cloned().collect());
        }
        let all: Vec<EventName> = self.names.iter().cloned().chain(compat::names()).collect();
        selection.of(&all)?;
        let is_meant = |name: &&EventName| match name.is_compat() {
            true => compat::takes(selection, name),
            false => selection.takes(name),
        };
        Ok(all.iter().filter(is_meant).cloned().collect())
    }

    /// The names of what begins each call that there is, by the numbers of 64 bits and of 32.
    pub fn calls(&self) -> impl Iterator<Item = EventName> {
        let is_there = compat::is_there(self.btf());
        let compat = compat::names().filter(move |_| is_there);
        let all = self.names.iter().cloned().chain(compat);
        all.filter(|name| matches!(name.call(), Some((_, Phase::Enter))))
    }

    /// All that is known of some events. Those that are gone meanwhile are left out.
    pub fn events<'name>(&self, names: impl IntoIterator<Item = &'name EventName>) -> Events {
        let mut reader = Reader {
            catalogue: self,
            structures: Structures::default(),
            entries: HashMap::new(),
            buffer: Vec::new(),
        };
        let mut found = Events::default();
        for name in names {
            match reader.event(name) {
                Ok(event) => found.events.push(event),
                Err(Unread::Gone) => {}
                Err(Unread::Bad(why)) => found.unread.push((name.clone(), why)),
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

/// Adds system calls where tracefs does not describe them (CONFIG_FTRACE_SYSCALLS), but there are
/// tracepoints for them: those of our table that this kernel has.
fn add_calls(names: &mut Vec<EventName>, btf: Option<&Btf>) {
    let has = |subsystem: &str| names.iter().any(|name| name.subsystem == subsystem);
    if has(calls::SUBSYSTEM) || !has("raw_syscalls") || !cfg!(target_arch = "x86_64") {
        return;
    }
    let is_there = |name: &str| {
        btf.is_none_or(|btf| btf.find(Class::Func, &format!("__x64_sys_{name}")).is_some())
    };
    for call in calls::table().iter().filter(|call| is_there(call.name)) {
        for side in ["enter", "exit"] {
            let name = format!("sys_{side}_{}", call.name);
            names.push(EventName { subsystem: calls::SUBSYSTEM.into(), name });
        }
    }
}

/// Why an event cannot be told.
enum Unread {
    /// It is no more.
    Gone,
    /// What is wrong with its description.
    Bad(String),
}

struct Reader<'catalogue> {
    catalogue: &'catalogue Catalogue,
    structures: Structures,
    /// Arguments of system calls, by the call's name; none where tracefs does not say.
    entries: HashMap<String, Option<Vec<Field>>>,
    buffer: Vec<u8>,
}

impl Reader<'_> {
    fn event(&mut self, name: &EventName) -> Result<Event, Unread> {
        if name.is_compat() {
            return self.compat_call(name);
        }
        if let Some((call, phase)) = name.call() {
            return self.call(name, call, phase);
        }
        let (id, mut fields) = self.format(name)?;
        lttng::add(&name.subsystem, &name.name, &mut fields);
        let btf = self.catalogue.btf.as_ref();
        let source = match btf.and_then(|btf| tracepoint::arguments(btf, &name.name)) {
            Some(arguments) => {
                tracepoint::relate(&mut fields, &arguments);
                Source::RawTracepoint { arguments }
            }
            None => Source::Tracepoint,
        };
        let (subsystem, name) = (name.subsystem.clone(), name.name.clone());
        Ok(Event { subsystem, name, id: Some(id), source, fields })
    }

    fn compat_call(&mut self, name: &EventName) -> Result<Event, Unread> {
        let btf = self.catalogue.btf.as_ref();
        let structures = &mut self.structures;
        let event = name
            .call()
            .filter(|_| compat::is_there(btf))
            .and_then(|(call, phase)| calls::compat_event(call, phase, btf, structures));
        event.ok_or(Unread::Gone)
    }

    fn call(&mut self, name: &EventName, call: &str, phase: Phase) -> Result<Event, Unread> {
        if !self.entries.contains_key(call) {
            let entry = format!("sys_enter_{call}");
            let entry = EventName { subsystem: name.subsystem.clone(), name: entry };
            let fields = self.format(&entry).map(|(_, fields)| fields);
            let fields = match fields {
                Ok(fields) => Some(fields),
                Err(Unread::Gone) => None,
                Err(bad) => return Err(bad),
            };
            self.entries.insert(call.to_owned(), fields);
        }
        let id = match self.format(name) {
            Ok((id, _)) => Some(id),
            Err(Unread::Gone) => None,
            Err(bad) => return Err(bad),
        };
        let entry = self.entries.get(call).and_then(Option::as_deref);
        let btf = self.catalogue.btf.as_ref();
        let event = calls::event(call, phase, entry, btf, &mut self.structures);
        Ok(Event { id, ..event })
    }

    /// The number and the fields that tracefs says.
    fn format(&mut self, name: &EventName) -> Result<(u16, Vec<Field>), Unread> {
        let path = format!("events/{}/{}/format", name.subsystem, name.name);
        let text = self.catalogue.tracefs.read(&path, FORMAT_BYTES_MAX, &mut self.buffer);
        let text = text.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Unread::Gone,
            _ => Unread::Bad(IoError::text(&error)),
        })?;
        let names: &dyn Names = match &self.catalogue.btf {
            Some(btf) => btf,
            None => &NoNames,
        };
        let Format { id, fields, .. } =
            format::parse(text, names).map_err(|error| Unread::Bad(error.to_string()))?;
        Ok((id, fields))
    }
}

impl Event {
    /// The call's number and side, if the event is of a system call.
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
    fn calls_that_tracefs_does_not_describe_are_those_of_the_table() {
        let names = |names: &[&str]| -> Vec<EventName> {
            names.iter().map(|name| name.parse().expect("a name")).collect()
        };
        let mut found = names(&["raw_syscalls:sys_enter", "sched:sched_switch"]);
        add_calls(&mut found, None);
        let expected = if cfg!(target_arch = "x86_64") { 2 * calls::table().len() } else { 0 };
        assert_eq!(found.len(), 2 + expected);
        for described in [&["raw_syscalls:sys_enter", "syscalls:sys_enter_read"][..], &["a:b"]] {
            let mut found = names(described);
            add_calls(&mut found, None);
            assert_eq!(found, names(described));
        }
    }

    #[test]
    fn names_that_would_lead_elsewhere_are_none() {
        for wrong in ["a", "a:", ":b", "../a:b", "a:../../etc", "a/b:c", "a:b:c", "a:b c"] {
            assert_eq!(wrong.parse::<EventName>(), Err(NotAName), "{wrong}");
        }
    }
}
