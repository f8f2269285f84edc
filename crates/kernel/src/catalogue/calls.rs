//! System calls: numbers, arguments and what those mean, from `calls.txt`, and for what that does
//! not say by rules of type and name.
//!
//! Numbers are in no file of tracefs, and the crates that have them (`syscalls`, `syscall-numbers`)
//! have nothing else; so one table has it all, where a person reads a call's line and knows what is
//! recorded of it. A test compares its numbers with those of the C library.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use trackway_schema::Scalar;

use super::btf::{Btf, Class};
use super::model::{
    Behind, Event, Field, Kind, Length, Meaning, Phase, Returned, Source, Structure, Symbols,
};
use super::names;
use super::{compat, ctype};

const TABLE: &str = include_str!("calls.txt");
/// The folder of tracefs.
pub(crate) const SUBSYSTEM: &str = "syscalls";
/// Most arguments of a call.
const ARGUMENTS_MAX: usize = 6;
/// Linux's value for "the current folder" (linux/fcntl.h).
const AT_FDCWD: u64 = 0xffff_ff9c;

/// A line of the table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// On x86-64.
    pub(crate) number: u32,
    /// What the kernel calls it.
    pub(crate) name: &'static str,
    /// What programs call it.
    pub(crate) known_as: &'static str,
    pub(crate) parameters: Vec<Parameter>,
    returned: Returned,
}

/// An argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parameter {
    type_text: &'static str,
    name: &'static str,
    /// Behind the colon.
    note: &'static str,
}

/// All calls that the table has, in the order of their numbers.
pub(crate) fn table() -> &'static [Call] {
    static CALLS: LazyLock<Vec<Call>> = LazyLock::new(|| {
        let lines = TABLE.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        lines
            .map(|line| call(line).unwrap_or_else(|| panic!("a line of calls.txt: {line}")))
            .collect()
    });
    &CALLS
}

pub(super) fn call(line: &'static str) -> Option<Call> {
    let (number, rest) = line.trim_start().split_once(' ')?;
    let (names, rest) = rest.split_once('(')?;
    let (parameters, returned) = rest.rsplit_once(')')?;
    let (name, known_as) = names.split_once('=').unwrap_or((names, names));
    let parameters: Option<Vec<_>> =
        parameters.split(", ").filter(|text| !text.is_empty()).map(parameter).collect();
    let returned = match returned.trim() {
        "" => Returned::Nothing,
        "number" => Returned::Number,
        "bytes" => Returned::Bytes,
        "fd" => Returned::Descriptor,
        "pid" => Returned::Process,
        "owner" => Returned::Owner,
        "address" => Returned::Address,
        "never" => Returned::Never,
        _ => return None,
    };
    let parameters = parameters.filter(|all| all.len() <= ARGUMENTS_MAX)?;
    Some(Call { number: number.parse().ok()?, name, known_as, parameters, returned })
}

fn parameter(text: &'static str) -> Option<Parameter> {
    let (declaration, note) = text.split_once(": ").unwrap_or((text, ""));
    let split = declaration.rfind([' ', '*'])? + 1;
    let (type_text, name) = declaration.split_at(split);
    (!name.is_empty()).then_some(Parameter { type_text: type_text.trim(), name, note })
}

pub(super) fn find(name: &str) -> Option<&'static Call> {
    static BY_NAME: LazyLock<HashMap<&str, &Call>> =
        LazyLock::new(|| table().iter().map(|call| (call.name, call)).collect());
    BY_NAME.get(name).copied()
}

/// Structures that arguments point to, each looked up once.
#[derive(Debug, Default)]
pub(crate) struct Structures {
    found: HashMap<String, Arc<Structure>>,
}

impl Structures {
    fn get(&mut self, btf: Option<&Btf>, type_text: &str) -> Arc<Structure> {
        let mut name = type_text.split('*').next().unwrap_or_default().trim();
        for word in ["const ", "struct ", "union "] {
            name = name.strip_prefix(word).unwrap_or(name);
        }
        if let Some(found) = self.found.get(name) {
            return Arc::clone(found);
        }
        let found = btf.and_then(|btf| btf.structure(name));
        let unknown = || Structure { name: name.to_owned(), bytes: 0, members: Vec::new() };
        let found = Arc::new(found.unwrap_or_else(unknown));
        self.found.insert(name.to_owned(), Arc::clone(&found));
        found
    }
}

/// Which call an event of tracefs is about, and which side of it.
pub(crate) fn which(event: &str) -> Option<(&str, Phase)> {
    let event = event.strip_prefix(compat::PREFIX).unwrap_or(event);
    let enter = event.strip_prefix("sys_enter_").map(|call| (call, Phase::Enter));
    enter.or_else(|| event.strip_prefix("sys_exit_").map(|call| (call, Phase::Exit)))
}

/// A side of a call, from the fields that tracefs gives of its entry (without `__syscall_nr`), or
/// from the table if there are none.
pub(crate) fn event(
    name: &str,
    phase: Phase,
    entry: Option<&[Field]>,
    btf: Option<&Btf>,
    structures: &mut Structures,
) -> Event {
    let known = find(name).filter(|_| cfg!(target_arch = "x86_64"));
    let parameters: Vec<(&str, &str, &str)> = match entry {
        Some(entry) => {
            let fields = entry.iter().filter(|field| field.name != "__syscall_nr");
            let note = |name: &str| {
                let known = known.into_iter().flat_map(|call| &call.parameters);
                known.into_iter().find(|of| of.name == name).map_or("", |of| of.note)
            };
            fields.map(|field| (&*field.type_text, &*field.name, note(&field.name))).collect()
        }
        None => known
            .into_iter()
            .flat_map(|call| &call.parameters)
            .map(|of| (of.type_text, of.name, of.note))
            .collect(),
    };
    let returned = known.map_or(Returned::Number, |call| call.returned);
    let mut fields = fields(&parameters, returned, phase, (btf, structures));
    for field in fields.iter_mut().filter(|_| phase == Phase::Enter) {
        let of_entry = entry.into_iter().flatten().find(|of| of.name == field.name);
        (field.offset, field.size) = of_entry.map_or((0, 0), |of| (of.offset, of.size));
    }
    let side = if phase == Phase::Enter { "enter" } else { "exit" };
    Event {
        subsystem: SUBSYSTEM.into(),
        name: format!("sys_{side}_{name}"),
        id: None,
        source: Source::Syscall { number: known.map(|call| call.number), phase, is_compat: false },
        fields,
    }
}

/// A side of a call by its number of 32 bits; `None`: there is none of this name.
pub(crate) fn compat_event(
    name: &str,
    phase: Phase,
    btf: Option<&Btf>,
    structures: &mut Structures,
) -> Option<Event> {
    let line = compat::find(name)?;
    let call = line.call()?;
    let parameters: Vec<_> =
        call.parameters.iter().map(|of| (of.type_text, of.name, of.note)).collect();
    let fields = fields(&parameters, call.returned, phase, (btf, structures)).into_iter();
    let fields = fields.map(|field| match field.argument {
        Some(_) => line.narrow(field),
        None => field,
    });
    // When it returns, there is nothing to say of an argument but what it leads to.
    let is_said =
        |field: &Field| phase == Phase::Enter || field.argument.is_none() || field.behind.is_some();
    let side = if phase == Phase::Enter { "enter" } else { "exit" };
    Some(Event {
        subsystem: SUBSYSTEM.into(),
        name: format!("{}sys_{side}_{name}", compat::PREFIX),
        id: None,
        source: Source::Syscall { number: Some(line.number), phase, is_compat: true },
        fields: fields.filter(is_said).collect(),
    })
}

/// The fields of a side of a call that takes these arguments: types, names, and what is noted.
fn fields(
    parameters: &[(&str, &str, &str)],
    returned: Returned,
    phase: Phase,
    (btf, structures): (Option<&Btf>, &mut Structures),
) -> Vec<Field> {
    let parameters = &parameters[..parameters.len().min(ARGUMENTS_MAX)];
    let mut fields = Vec::new();
    if phase == Phase::Exit {
        fields.push(result(returned));
    }
    for index in 0..parameters.len() {
        let (is_in, is_out, field) = argument(parameters, index, btf, structures);
        let is_there = match phase {
            Phase::Enter => true,
            // Texts once more, for those that could not be read before.
            Phase::Exit => is_out || matches!(field.behind, Some(Behind::Text)),
        };
        if is_there {
            // Where vectors are is said by who calls, also of those that lead to what comes back.
            let is_read = match (phase, &field.behind) {
                (Phase::Enter, Some(Behind::Vectors(_))) => true,
                (Phase::Enter, _) => is_in,
                (Phase::Exit, _) => is_there,
            };
            let behind = field.behind.filter(|_| is_read);
            fields.push(Field { behind, ..field });
        }
    }
    fields
}

/// Where tracefs has the result of a call: behind what all events have, and the number.
const RESULT_OFFSET: u32 = 16;

fn result(returned: Returned) -> Field {
    Field {
        name: "ret".into(),
        type_text: "long".into(),
        kind: Kind::Integer(Scalar::I64),
        offset: RESULT_OFFSET,
        size: 8,
        meaning: Meaning::Result(returned),
        argument: None,
        behind: None,
    }
}

/// An argument as a field; whether what it points to is read before the call, and after it.
fn argument(
    parameters: &[(&str, &str, &str)],
    index: usize,
    btf: Option<&Btf>,
    structures: &mut Structures,
) -> (bool, bool, Field) {
    let (type_text, name, note) = parameters[index];
    let place = |name: &str| {
        let at = parameters.iter().position(|of| of.1 == name)?;
        u8::try_from(at).ok()
    };
    let by_rule = if note.is_empty() { rule(parameters, index) } else { note.into() };
    let (direction, what) = match by_rule.split_once(' ') {
        Some(("out", what)) => ((false, true), what),
        Some(("inout", what)) => ((true, true), what),
        _ => ((true, false), &*by_rule),
    };
    let mut make = || structures.get(btf, type_text);
    let behind = match behind(what, place, &mut make) {
        Some(Behind::Structures(of, Length::Fixed(1))) => match size_of(parameters, index) {
            Some(size) => Some(Behind::Sized(of, Length::Argument(size))),
            None => Some(Behind::Structures(of, Length::Fixed(1))),
        },
        behind => behind,
    };
    let is_pointer = type_text.contains('*');
    let meaning = match behind {
        Some(_) => Meaning::Address,
        None => meaning(what, type_text),
    };
    let is_small = matches!(meaning, Meaning::Descriptor | Meaning::Folder | Meaning::Process);
    let scalar = match ctype::integer(type_text) {
        _ if is_pointer => Scalar::U64,
        _ if is_small => Scalar::I32,
        Some(scalar) => scalar,
        None => btf.and_then(|btf| by_name(btf, type_text)).unwrap_or(Scalar::U64),
    };
    let field = Field {
        name: name.into(),
        type_text: type_text.into(),
        kind: Kind::Integer(scalar),
        offset: 0,
        size: 0,
        meaning,
        argument: u8::try_from(index).ok(),
        behind,
    };
    (direction.0, direction.1, field)
}

/// The argument that says how many bytes of a structure there are: the one behind it, of such a
/// name.
fn size_of(parameters: &[(&str, &str, &str)], index: usize) -> Option<u8> {
    let (_, name, _) = parameters.get(index + 1)?;
    u8::try_from(index + 1).ok().filter(|_| ["size", "usize"].contains(name))
}

fn by_name(btf: &Btf, type_text: &str) -> Option<Scalar> {
    let name = type_text.strip_prefix("const ").unwrap_or(type_text);
    btf.scalar(btf.find(Class::Typedef, name)?.id)
}

/// What an argument is, if the table says nothing: in its words.
fn rule(parameters: &[(&str, &str, &str)], index: usize) -> String {
    let (type_text, name, _) = parameters[index];
    let next = parameters.get(index + 1);
    let stars = type_text.matches('*').count();
    let bare = type_text.trim_start_matches("const ").trim();
    if stars > 0 {
        let is_const = type_text.starts_with("const ");
        return match bare.trim_end_matches('*').trim() {
            "char" if is_const && stars == 1 => "text".into(),
            "char *const" => "texts".into(),
            "struct iovec" => next.map_or("pointer".into(), |of| format!("vectors {}", of.1)),
            "struct user_msghdr" => "message".into(),
            "struct sockaddr" => match next {
                Some((of, name, _)) if of.contains('*') => format!("out sockaddr *{name}"),
                Some((_, name, _)) => format!("sockaddr {name}"),
                None => "pointer".into(),
            },
            of if is_const && stars == 1 && of.starts_with("struct ") => "struct".into(),
            _ => "pointer".into(),
        };
    }
    let is_descriptor = name.ends_with("fd") || name.starts_with("fd") || name == "fildes";
    match bare {
        "pid_t" => "pid",
        "uid_t" => "user",
        "gid_t" => "group",
        "umode_t" => "mode",
        "clockid_t" => "clock",
        _ if name.ends_with("dfd") && name != "pidfd" || name == "mountdirfd" => "folder",
        _ if is_descriptor || name == "mqdes" => "fd",
        _ if name.contains("flag") => "hex",
        _ => "",
    }
    .into()
}

fn meaning(what: &str, type_text: &str) -> Meaning {
    match what {
        "fd" => Meaning::Descriptor,
        "folder" => Meaning::Folder,
        "pid" => Meaning::Process,
        "user" => Meaning::User,
        "group" => Meaning::Group,
        "mode" => Meaning::Mode,
        "octal" => Meaning::Octal,
        "hex" => Meaning::Hexadecimal,
        "ioctl" => Meaning::Request,
        _ if what.starts_with("by ") => {
            let set = names::set(what.trim_start_matches("by "));
            set.map_or(Meaning::Plain, Meaning::SymbolsBehind)
        }
        _ if what == "pointer" || type_text.contains('*') => Meaning::Address,
        _ => names::set(what).map_or(Meaning::Plain, Meaning::Symbols),
    }
}

fn behind(
    what: &str,
    place: impl Fn(&str) -> Option<u8>,
    structure: &mut dyn FnMut() -> Arc<Structure>,
) -> Option<Behind> {
    let (kind, length) = what.split_once(' ').unwrap_or((what, "1"));
    let length = length_of(length, place)?;
    let integers = |scalar| Some(Behind::Integers(scalar, length));
    match kind {
        "text" => Some(Behind::Text),
        "texts" => Some(Behind::Texts),
        "bytes" => Some(Behind::Bytes(length)),
        "sockaddr" => Some(Behind::SocketAddress(length)),
        "vectors" => Some(Behind::Vectors(length)),
        "message" => Some(Behind::Message),
        "struct" | "structs" => {
            let structure = structure();
            // Of what size nobody knows is only an address.
            (structure.bytes > 0).then_some(Behind::Structures(structure, length))
        }
        "i32" => integers(Scalar::I32),
        "u32" => integers(Scalar::U32),
        "i64" => integers(Scalar::I64),
        "u64" => integers(Scalar::U64),
        _ => None,
    }
}

fn length_of(text: &str, place: impl Fn(&str) -> Option<u8>) -> Option<Length> {
    if let Ok(count) = text.parse() {
        return Some(Length::Fixed(count));
    }
    if let Some(limit) = text.strip_prefix("return") {
        return Some(Length::Returned(limit.strip_prefix("<=").and_then(place)));
    }
    match text.strip_prefix('*') {
        Some(name) => place(name).map(Length::Pointed),
        None => place(text).map(Length::Argument),
    }
}

/// What descriptors of folders may also be.
pub fn is_current_folder(value: u64) -> bool {
    value & 0xffff_ffff == AT_FDCWD
}

/// The names of `ioctl` requests that have some.
pub fn requests() -> Arc<Symbols> {
    names::set("ioctl").unwrap_or_default()
}

/// The names of types of files, as modes have them.
pub fn file_types() -> Arc<Symbols> {
    names::set("file_type").unwrap_or_default()
}

/// The names of signals.
pub fn signals() -> Arc<Symbols> {
    names::set("signal").unwrap_or_default()
}

/// The names of addresses that are none: those of handlers of signals, or of all others.
pub fn addresses(is_handler: bool) -> Arc<Symbols> {
    names::set(if is_handler { "handler" } else { "null" }).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_each_call_once_and_all_its_words_mean_something() {
        let calls = table();
        assert!(calls.len() > 350);
        assert!(calls.windows(2).all(|pair| pair[0].number < pair[1].number));
        let mut structures = Structures::default();
        for call in calls {
            let entry = event(call.name, Phase::Enter, None, None, &mut structures);
            assert_eq!(entry.fields.len(), call.parameters.len(), "{}", call.name);
            for (of, parameter) in entry.fields.iter().zip(&call.parameters) {
                let word = parameter.note.trim_start_matches("inout ").trim_start_matches("out ");
                let kind = word.split(' ').next().unwrap_or_default();
                if let Some(set) = word.strip_prefix("by ") {
                    assert!(names::set(set).is_some(), "{}: {set}", call.name);
                    continue;
                }
                let is_structure = matches!(kind, "struct" | "structs");
                let is_known = word.is_empty() || is_structure || of.meaning != Meaning::Plain;
                assert!(is_known, "{}: {word}", call.name);
                // Lengths name arguments that there are.
                let length = word.split_once(' ').map(|(_, length)| length);
                let place = |name: &str| {
                    let at = call.parameters.iter().position(|of| of.name == name);
                    at.map(|at| at as u8)
                };
                if let Some(length) = length {
                    let found = length_of(length, place);
                    let has_limit = length.contains("<=");
                    assert!(found.is_some(), "{}: {length}", call.name);
                    assert!(!has_limit || found != Some(Length::Returned(None)), "{length}");
                }
            }
        }
    }

    /// Of the C library's header, if there is one.
    #[test]
    fn numbers_are_those_of_the_c_library() {
        let header = "/usr/include/x86_64-linux-gnu/asm/unistd_64.h";
        let Ok(text) = std::fs::read_to_string(header) else {
            trackway_testkit::skipped(format!("{header} is not installed"));
            return;
        };
        let numbers: HashMap<&str, u32> = text
            .lines()
            .filter_map(|line| line.strip_prefix("#define __NR_")?.split_once(' '))
            .filter_map(|(name, number)| Some((name, number.trim().parse().ok()?)))
            .collect();
        let known = table().iter().filter_map(|call| Some((call, *numbers.get(call.known_as)?)));
        let mut count = 0;
        for (call, number) in known {
            assert_eq!(call.number, number, "{}", call.name);
            count += 1;
        }
        assert!(count > 300, "{count} calls compared");
    }

    #[test]
    fn arguments_mean_what_the_table_and_the_rules_say() {
        let mut structures = Structures::default();
        let mut of = |name, phase| event(name, phase, None, None, &mut structures);
        let openat = of("openat", Phase::Enter);
        assert_eq!(openat.fields[0].meaning, Meaning::Folder);
        assert_eq!(openat.fields[1].behind, Some(Behind::Text));
        let Meaning::Symbols(flags) = &openat.fields[2].meaning else { panic!("no names") };
        assert_eq!(flags.show(0o2000000), "O_RDONLY|O_CLOEXEC");
        assert_eq!(openat.fields[3].meaning, Meaning::Mode);
        let read = of("read", Phase::Exit);
        let names: Vec<&str> = read.fields.iter().map(|field| &*field.name).collect();
        assert_eq!(names, ["ret", "buf"]);
        let buffer = Some(Behind::Bytes(Length::Returned(Some(2))));
        assert_eq!((&read.fields[1].behind, read.fields[1].argument), (&buffer, Some(1)));
        let connect = of("connect", Phase::Enter);
        let address = Some(Behind::SocketAddress(Length::Argument(2)));
        assert_eq!(connect.fields[1].behind, address);
        let accept = of("accept", Phase::Exit);
        assert_eq!(accept.fields[1].behind, Some(Behind::SocketAddress(Length::Pointed(2))));
        let mmap = of("mmap", Phase::Enter);
        assert_eq!(mmap.fields[4].kind, Kind::Integer(Scalar::I32), "a descriptor may be -1");
        let Meaning::Symbols(flags) = &mmap.fields[3].meaning else { panic!("no names") };
        assert_eq!(flags.show(0x22), "MAP_PRIVATE|MAP_ANONYMOUS");
        let clone = of("clone", Phase::Enter);
        let Meaning::Symbols(flags) = &clone.fields[0].meaning else { panic!("no names") };
        assert_eq!(flags.show(0x1200011), "SIGCHLD|CLONE_CHILD_CLEARTID|CLONE_CHILD_SETTID");
        let kill = of("kill", Phase::Enter);
        let Meaning::Symbols(signals) = &kill.fields[1].meaning else { panic!("no names") };
        assert_eq!((signals.show(31), signals.show(32)), ("SIGSYS".into(), "SIGRTMIN".into()));
        assert_eq!((signals.show(35), signals.show(64)), ("SIGRT_3".into(), "SIGRT_32".into()));
        let option = of("setsockopt", Phase::Enter);
        assert!(matches!(option.fields[2].meaning, Meaning::SymbolsBehind(_)));
    }
}
