//! System calls: numbers, arguments and their meanings, from `calls.txt`, completed by rules of
//! type and name.
//!
//! tracefs has no call numbers, and the crates with numbers (`syscalls`, `syscall-numbers`) have
//! nothing else. So one table has everything, and a call's line shows which of its data is
//! recorded. A test compares the table's numbers with the C library's.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use trackway_schema::Scalar;

use super::btf::{Btf, Class};
use super::model::{
    Event, Field, FieldShape, Length, Meaning, Phase, Pointee, ResultKind, Source, Structure,
    Symbols,
};
use super::names;
use super::{compat, ctype};

const TABLE: &str = include_str!("calls.txt");
/// The folder of system call events in tracefs.
pub(crate) const SUBSYSTEM: &str = "syscalls";
/// Most arguments of a call.
const ARGUMENTS_MAX: usize = 6;
/// The special descriptor for the current folder (linux/fcntl.h).
const AT_FDCWD: u64 = 0xffff_ff9c;

/// A system call, from a line of the table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CallDescription {
    /// The call's number on x86-64.
    pub(crate) number: u32,
    /// The call's name in the kernel.
    pub(crate) name: &'static str,
    /// The call's name in programs.
    pub(crate) known_as: &'static str,
    pub(crate) parameters: Vec<Parameter<'static>>,
    returned: ResultKind,
}

/// An argument of a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parameter<'text> {
    type_text: &'text str,
    name: &'text str,
    /// The note after the colon, which describes the argument's meaning.
    note: &'text str,
}

/// Returns all calls of the table, in the order of call numbers.
pub(crate) fn call_table() -> &'static [CallDescription] {
    static CALLS: LazyLock<Vec<CallDescription>> = LazyLock::new(|| {
        let lines = TABLE.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        lines
            .map(|line| parse_line(line).unwrap_or_else(|| panic!("a line of calls.txt: {line}")))
            .collect()
    });
    &CALLS
}

pub(super) fn parse_line(line: &'static str) -> Option<CallDescription> {
    let (number, rest) = line.trim_start().split_once(' ')?;
    let (names, rest) = rest.split_once('(')?;
    let (parameters, returned) = rest.rsplit_once(')')?;
    let (name, known_as) = names.split_once('=').unwrap_or((names, names));
    let parameters: Option<Vec<_>> =
        parameters.split(", ").filter(|text| !text.is_empty()).map(parse_parameter).collect();
    let returned = match returned.trim() {
        "" => ResultKind::Zero,
        "number" => ResultKind::Number,
        "bytes" => ResultKind::Bytes,
        "fd" => ResultKind::Descriptor,
        "pid" => ResultKind::Process,
        "owner" => ResultKind::Owner,
        "address" => ResultKind::Address,
        "never" => ResultKind::Never,
        _ => return None,
    };
    let parameters = parameters.filter(|all| all.len() <= ARGUMENTS_MAX)?;
    Some(CallDescription { number: number.parse().ok()?, name, known_as, parameters, returned })
}

fn parse_parameter(text: &'static str) -> Option<Parameter<'static>> {
    let (declaration, note) = text.split_once(": ").unwrap_or((text, ""));
    let split = declaration.rfind([' ', '*'])? + 1;
    let (type_text, name) = declaration.split_at(split);
    (!name.is_empty()).then_some(Parameter { type_text: type_text.trim(), name, note })
}

pub(super) fn find_call(name: &str) -> Option<&'static CallDescription> {
    static BY_NAME: LazyLock<HashMap<&str, &CallDescription>> =
        LazyLock::new(|| call_table().iter().map(|call| (call.name, call)).collect());
    BY_NAME.get(name).copied()
}

/// Structures that arguments point to; each is looked up once.
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

/// Returns the call and the phase of a tracefs event's name.
pub(crate) fn parse_event_name(event: &str) -> Option<(&str, Phase)> {
    let event = event.strip_prefix(compat::PREFIX).unwrap_or(event);
    let enter = event.strip_prefix("sys_enter_").map(|call| (call, Phase::Enter));
    enter.or_else(|| event.strip_prefix("sys_exit_").map(|call| (call, Phase::Exit)))
}

/// Describes the entry or exit of a call: from the entry's fields in tracefs (without
/// `__syscall_nr`), or from the table if tracefs has no fields.
pub(crate) fn describe_call(
    name: &str,
    phase: Phase,
    entry: Option<&[Field]>,
    btf: Option<&Btf>,
    structures: &mut Structures,
) -> Event {
    let known = find_call(name).filter(|_| cfg!(target_arch = "x86_64"));
    let parameters: Vec<Parameter<'_>> = match entry {
        Some(entry) => {
            let fields = entry.iter().filter(|field| field.name != "__syscall_nr");
            let note = |name: &str| {
                let known = known.into_iter().flat_map(|call| &call.parameters);
                known.into_iter().find(|of| of.name == name).map_or("", |of| of.note)
            };
            fields
                .map(|field| Parameter {
                    type_text: &field.type_text,
                    name: &field.name,
                    note: note(&field.name),
                })
                .collect()
        }
        None => known.into_iter().flat_map(|call| call.parameters.iter().copied()).collect(),
    };
    let returned = known.map_or(ResultKind::Number, |call| call.returned);
    let mut fields = call_fields(&parameters, returned, phase, (btf, structures));
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

/// Describes the entry or exit of a call by a 32-bit number; `None`: no call has this name.
pub(crate) fn describe_compat_call(
    name: &str,
    phase: Phase,
    btf: Option<&Btf>,
    structures: &mut Structures,
) -> Option<Event> {
    let line = compat::find_compat_call(name)?;
    let call = line.description()?;
    let fields = call_fields(&call.parameters, call.returned, phase, (btf, structures)).into_iter();
    let fields = fields.map(|field| match field.argument {
        Some(_) => line.narrow(field),
        None => field,
    });
    // At the exit, only arguments with pointees are fields.
    let is_recorded = |field: &Field| {
        phase == Phase::Enter || field.argument.is_none() || field.pointee.is_some()
    };
    let side = if phase == Phase::Enter { "enter" } else { "exit" };
    Some(Event {
        subsystem: SUBSYSTEM.into(),
        name: format!("{}sys_{side}_{name}", compat::PREFIX),
        id: None,
        source: Source::Syscall { number: Some(line.number), phase, is_compat: true },
        fields: fields.filter(is_recorded).collect(),
    })
}

/// Returns the fields of a call's entry or exit.
fn call_fields(
    parameters: &[Parameter<'_>],
    returned: ResultKind,
    phase: Phase,
    (btf, structures): (Option<&Btf>, &mut Structures),
) -> Vec<Field> {
    let parameters = &parameters[..parameters.len().min(ARGUMENTS_MAX)];
    let mut fields = Vec::new();
    if phase == Phase::Exit {
        fields.push(result_field(returned));
    }
    for index in 0..parameters.len() {
        let ArgumentField { is_input, is_output, field } =
            argument_field(parameters, index, btf, structures);
        let is_there = match phase {
            Phase::Enter => true,
            // The exit retries texts that were unreadable at the entry.
            Phase::Exit => is_output || matches!(field.pointee, Some(Pointee::Text)),
        };
        if is_there {
            // The caller sets the vectors, even vectors for results.
            let is_read = match (phase, &field.pointee) {
                (Phase::Enter, Some(Pointee::Vectors(_))) => true,
                (Phase::Enter, _) => is_input,
                (Phase::Exit, _) => is_there,
            };
            let pointee = field.pointee.filter(|_| is_read);
            fields.push(Field { pointee, ..field });
        }
    }
    fields
}

/// The offset of the result in tracefs: after the common fields and the call number.
const RESULT_OFFSET: u32 = 16;

fn result_field(returned: ResultKind) -> Field {
    Field {
        name: "ret".into(),
        type_text: "long".into(),
        kind: FieldShape::Integer(Scalar::I64),
        offset: RESULT_OFFSET,
        size: 8,
        meaning: Meaning::Result(returned),
        argument: None,
        pointee: None,
    }
}

/// An argument as a field, with the direction of its pointee.
struct ArgumentField {
    is_input: bool,
    is_output: bool,
    field: Field,
}

/// Describes an argument as a field.
fn argument_field(
    parameters: &[Parameter<'_>],
    index: usize,
    btf: Option<&Btf>,
    structures: &mut Structures,
) -> ArgumentField {
    let Parameter { type_text, name, note } = parameters[index];
    let place = |name: &str| {
        let at = parameters.iter().position(|of| of.name == name)?;
        u8::try_from(at).ok()
    };
    let by_rule = if note.is_empty() { note_by_rule(parameters, index) } else { note.into() };
    let (is_input, is_output, what) = match by_rule.split_once(' ') {
        Some(("out", what)) => (false, true, what),
        Some(("inout", what)) => (true, true, what),
        _ => (true, false, &*by_rule),
    };
    let mut make = || structures.get(btf, type_text);
    let pointee = match parse_pointee(what, place, &mut make) {
        Some(Pointee::Structures(of, Length::Fixed(1))) => match size_argument(parameters, index) {
            Some(size) => Some(Pointee::SizedStructure(of, Length::Argument(size))),
            None => Some(Pointee::Structures(of, Length::Fixed(1))),
        },
        pointee => pointee,
    };
    let is_pointer = type_text.contains('*');
    let meaning = match pointee {
        Some(_) => Meaning::Address,
        None => parse_meaning(what, type_text),
    };
    let is_small = matches!(meaning, Meaning::Descriptor | Meaning::Folder | Meaning::Process);
    let scalar = match ctype::scalar_of_type(type_text) {
        _ if is_pointer => Scalar::U64,
        _ if is_small => Scalar::I32,
        Some(scalar) => scalar,
        None => btf.and_then(|btf| typedef_scalar(btf, type_text)).unwrap_or(Scalar::U64),
    };
    let field = Field {
        name: name.into(),
        type_text: type_text.into(),
        kind: FieldShape::Integer(scalar),
        offset: 0,
        size: 0,
        meaning,
        argument: u8::try_from(index).ok(),
        pointee,
    };
    ArgumentField { is_input, is_output, field }
}

/// Returns the argument with the size of a structure: the next argument, if its name is a size's
/// name.
fn size_argument(parameters: &[Parameter<'_>], index: usize) -> Option<u8> {
    let name = parameters.get(index + 1)?.name;
    u8::try_from(index + 1).ok().filter(|_| ["size", "usize"].contains(&name))
}

fn typedef_scalar(btf: &Btf, type_text: &str) -> Option<Scalar> {
    let name = type_text.strip_prefix("const ").unwrap_or(type_text);
    btf.scalar(btf.find(Class::Typedef, name)?.id)
}

/// Returns the note for an argument, by rules of type and name.
fn note_by_rule(parameters: &[Parameter<'_>], index: usize) -> String {
    let Parameter { type_text, name, .. } = parameters[index];
    let next = parameters.get(index + 1);
    let stars = type_text.matches('*').count();
    let bare = type_text.trim_start_matches("const ").trim();
    if stars > 0 {
        let is_const = type_text.starts_with("const ");
        return match bare.trim_end_matches('*').trim() {
            "char" if is_const && stars == 1 => "text".into(),
            "char *const" => "texts".into(),
            "struct iovec" => next.map_or("pointer".into(), |of| format!("vectors {}", of.name)),
            "struct user_msghdr" => "message".into(),
            "struct sockaddr" => match next {
                Some(of) if of.type_text.contains('*') => format!("out sockaddr *{}", of.name),
                Some(of) => format!("sockaddr {}", of.name),
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

fn parse_meaning(what: &str, type_text: &str) -> Meaning {
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
            let set = names::find_set(what.trim_start_matches("by "));
            set.map_or(Meaning::Plain, Meaning::DependentSymbols)
        }
        _ if what == "pointer" || type_text.contains('*') => Meaning::Address,
        _ => names::find_set(what).map_or(Meaning::Plain, Meaning::Symbols),
    }
}

fn parse_pointee(
    what: &str,
    place: impl Fn(&str) -> Option<u8>,
    structure: &mut dyn FnMut() -> Arc<Structure>,
) -> Option<Pointee> {
    let (kind, length) = what.split_once(' ').unwrap_or((what, "1"));
    let length = parse_length(length, place)?;
    let integers = |scalar| Some(Pointee::Integers(scalar, length));
    match kind {
        "text" => Some(Pointee::Text),
        "texts" => Some(Pointee::Texts),
        "bytes" => Some(Pointee::Bytes(length)),
        "sockaddr" => Some(Pointee::SocketAddress(length)),
        "vectors" => Some(Pointee::Vectors(length)),
        "message" => Some(Pointee::Message),
        "struct" | "structs" => {
            let structure = structure();
            // A structure of unknown size is recorded as an address only.
            (structure.bytes > 0).then_some(Pointee::Structures(structure, length))
        }
        "i32" => integers(Scalar::I32),
        "u32" => integers(Scalar::U32),
        "i64" => integers(Scalar::I64),
        "u64" => integers(Scalar::U64),
        _ => None,
    }
}

fn parse_length(text: &str, place: impl Fn(&str) -> Option<u8>) -> Option<Length> {
    if let Ok(count) = text.parse() {
        return Some(Length::Fixed(count));
    }
    if let Some(limit) = text.strip_prefix("return") {
        return Some(Length::Result(limit.strip_prefix("<=").and_then(place)));
    }
    match text.strip_prefix('*') {
        Some(name) => place(name).map(Length::Pointed),
        None => place(text).map(Length::Argument),
    }
}

/// Returns true for `AT_FDCWD`, which programs can pass instead of a folder's descriptor.
pub fn is_current_folder(value: u64) -> bool {
    value & 0xffff_ffff == AT_FDCWD
}

/// Returns the names of `ioctl` requests.
pub fn ioctl_request_names() -> Arc<Symbols> {
    names::find_set("ioctl").unwrap_or_default()
}

/// Returns the names of file types in file modes.
pub fn file_type_names() -> Arc<Symbols> {
    names::find_set("file_type").unwrap_or_default()
}

/// Returns the names of signals.
pub fn signal_names() -> Arc<Symbols> {
    names::find_set("signal").unwrap_or_default()
}

/// Returns the names of special values of signal handlers.
pub fn signal_handler_names() -> Arc<Symbols> {
    names::find_set("handler").unwrap_or_default()
}

/// Returns the name of the null address.
pub fn null_address_name() -> Arc<Symbols> {
    names::find_set("null").unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_each_call_once_and_all_its_words_mean_something() {
        let calls = call_table();
        assert!(calls.len() > 350);
        assert!(calls.windows(2).all(|pair| pair[0].number < pair[1].number));
        let mut structures = Structures::default();
        for call in calls {
            let entry = describe_call(call.name, Phase::Enter, None, None, &mut structures);
            assert_eq!(entry.fields.len(), call.parameters.len(), "{}", call.name);
            for (of, parameter) in entry.fields.iter().zip(&call.parameters) {
                let word = parameter.note.trim_start_matches("inout ").trim_start_matches("out ");
                let kind = word.split(' ').next().unwrap_or_default();
                if let Some(set) = word.strip_prefix("by ") {
                    assert!(names::find_set(set).is_some(), "{}: {set}", call.name);
                    continue;
                }
                let is_structure = matches!(kind, "struct" | "structs");
                let is_known = word.is_empty() || is_structure || of.meaning != Meaning::Plain;
                assert!(is_known, "{}: {word}", call.name);
                // Each length in a note must name an existing argument.
                let length = word.split_once(' ').map(|(_, length)| length);
                let place = |name: &str| {
                    let at = call.parameters.iter().position(|of| of.name == name);
                    at.map(|at| at as u8)
                };
                if let Some(length) = length {
                    let found = parse_length(length, place);
                    let has_limit = length.contains("<=");
                    assert!(found.is_some(), "{}: {length}", call.name);
                    assert!(!has_limit || found != Some(Length::Result(None)), "{length}");
                }
            }
        }
    }

    /// RUN the table against the C library's header, if it is installed.
    #[test]
    fn numbers_are_those_of_the_c_library() {
        let header = "/usr/include/x86_64-linux-gnu/asm/unistd_64.h";
        let Ok(text) = std::fs::read_to_string(header) else {
            trackway_testkit::report_skipped(format!("{header} is not installed"));
            return;
        };
        let numbers: HashMap<&str, u32> = text
            .lines()
            .filter_map(|line| line.strip_prefix("#define __NR_")?.split_once(' '))
            .filter_map(|(name, number)| Some((name, number.trim().parse().ok()?)))
            .collect();
        let known =
            call_table().iter().filter_map(|call| Some((call, *numbers.get(call.known_as)?)));
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
        let mut of = |name, phase| describe_call(name, phase, None, None, &mut structures);
        let openat = of("openat", Phase::Enter);
        assert_eq!(openat.fields[0].meaning, Meaning::Folder);
        assert_eq!(openat.fields[1].pointee, Some(Pointee::Text));
        let Meaning::Symbols(flags) = &openat.fields[2].meaning else { panic!("no names") };
        assert_eq!(flags.show(0o2000000), "O_RDONLY|O_CLOEXEC");
        assert_eq!(openat.fields[3].meaning, Meaning::Mode);
        let read = of("read", Phase::Exit);
        let names: Vec<&str> = read.fields.iter().map(|field| &*field.name).collect();
        assert_eq!(names, ["ret", "buf"]);
        let buffer = Some(Pointee::Bytes(Length::Result(Some(2))));
        assert_eq!((&read.fields[1].pointee, read.fields[1].argument), (&buffer, Some(1)));
        let connect = of("connect", Phase::Enter);
        let address = Some(Pointee::SocketAddress(Length::Argument(2)));
        assert_eq!(connect.fields[1].pointee, address);
        let accept = of("accept", Phase::Exit);
        assert_eq!(accept.fields[1].pointee, Some(Pointee::SocketAddress(Length::Pointed(2))));
        let mmap = of("mmap", Phase::Enter);
        assert_eq!(mmap.fields[4].kind, FieldShape::Integer(Scalar::I32), "a descriptor may be -1");
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
        assert!(matches!(option.fields[2].meaning, Meaning::DependentSymbols(_)));
    }
}
