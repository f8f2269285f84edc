//! A trace's metadata file. Each version replaces the previous file atomically, so the file is
//! always valid.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use trackway_ctf::read::Trace;
use trackway_ctf::write::{
    Contexts, Meaning, TraceDescription, event_declaration_meaning, metadata_preamble,
    parse_declared_type_name, stream_declaration,
};
use trackway_schema::EventDescription;

use crate::trace::folder::TraceFolder;

/// Largest metadata file that is read, in bytes.
const BYTES_MAX: u64 = 256 << 20;

/// The metadata file of a trace.
#[derive(Debug)]
pub(crate) struct Metadata {
    folder: Arc<TraceFolder>,
    text: String,
    declared: Declarations,
    written_bytes: usize,
}

/// The declarations in a metadata text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Declarations {
    /// Stream classes.
    classes: HashSet<u32>,
    /// Events, by stream class and id.
    events: HashSet<(u32, u32)>,
    /// Names of declared types of numbers with a meaning.
    types: HashSet<String>,
}

/// Key in the `env` of the kernel trace that lists the fields that are always empty.
pub(crate) const EMPTY_FIELDS: &str = "trackway_empty_fields";
/// Key in the `env` that lists fields that are not recorded: beyond the limit of an event, or of an
/// unknown kind.
pub(crate) const LEFT_OUT_FIELDS: &str = "trackway_left_out_fields";

/// Returns the `env` value that lists these fields of events.
pub(crate) fn format_field_list<'a>(fields: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let named = fields.map(|(event, field)| format!("{event}:{field}"));
    named.collect::<Vec<_>>().join(" ")
}

impl Metadata {
    /// Writes the metadata of a new trace in `folder`.
    pub(crate) fn create(folder: Arc<TraceFolder>, trace: &TraceDescription) -> io::Result<Self> {
        let mut metadata = Self {
            folder,
            text: metadata_preamble(trace),
            declared: Declarations { classes: HashSet::from([0]), ..Declarations::default() },
            written_bytes: 0,
        };
        metadata.write()?;
        Ok(metadata)
    }

    /// Returns the identity of the trace in `folder`, if its metadata can be read.
    pub(crate) fn uuid_in(folder: &Path) -> Option<[u8; 16]> {
        let path = folder.join("metadata");
        if fs::metadata(&path).ok()?.len() > BYTES_MAX {
            return None;
        }
        uuid_in_text(&fs::read(&path).ok()?)
    }

    /// Reads the metadata that a recorder wrote in `folder`.
    pub(crate) fn reopen(folder: Arc<TraceFolder>) -> io::Result<Self> {
        let path = folder.current_path()?.join("metadata");
        if fs::metadata(&path)?.len() > BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let text = fs::read_to_string(&path)?;
        let declared = Declarations::of(&text);
        let written_bytes = text.len();
        Ok(Self { folder, text, declared, written_bytes })
    }

    /// Returns the identity of the trace, if the metadata text is valid.
    pub(crate) fn uuid(&self) -> Option<[u8; 16]> {
        uuid_in_text(self.text.as_bytes())
    }

    /// Adds the declaration of a stream class if the class is not declared. [`Self::write`] writes
    /// it to the file.
    pub(crate) fn declare_class(&mut self, class: u32, contexts: &Contexts) {
        if self.declared.classes.insert(class) {
            self.text.push_str(&stream_declaration(class, contexts));
        }
    }

    /// Adds the declaration of event `id` of a stream class.
    pub(crate) fn declare_event(&mut self, class: u32, id: u32, event: &EventDescription) {
        self.declare_event_with_meanings(class, id, event, &[]);
    }

    /// Adds the declaration of an event with the meanings of its numbers, in the order of its
    /// fields.
    pub(crate) fn declare_event_with_meanings(
        &mut self,
        class: u32,
        id: u32,
        event: &EventDescription,
        meanings: &[Option<Meaning>],
    ) {
        if !self.declared.events.insert((class, id)) {
            return;
        }
        for (field, meaning) in event.fields.iter().zip(meanings) {
            let (Some(scalar), Some(meaning)) = (Meaning::scalar_of_field(&field.kind), meaning)
            else {
                continue;
            };
            for declaration in meaning.declarations(scalar) {
                if self.declared.types.insert(declaration.name) {
                    self.text.push_str(&declaration.text);
                }
            }
        }
        self.text.push_str(&event_declaration_meaning(class, id, event, meanings));
    }

    /// Declares exactly the events and classes of the trace `other`, of which this trace is a
    /// piece: readers use the metadata with the most declarations for all pieces.
    pub(crate) fn copy_declarations(&mut self, other: &Self) {
        self.text.clone_from(&other.text);
        self.declared.clone_from(&other.declared);
        self.written_bytes = 0;
    }

    /// Replaces the fields that `remark` lists by `fields`, in the form of [`format_field_list`],
    /// if the trace has this remark.
    pub(crate) fn replace_field_list(&mut self, remark: &str, fields: &str) {
        let begin = format!("\t{remark} = \"");
        let Some(at) = self.text.find(&begin) else { return };
        let from = at + begin.len();
        let Some(length) = self.text[from..].find('"') else { return };
        let named = from..from + length;
        if self.text[named.clone()] != *fields {
            self.text.replace_range(named, fields);
            self.written_bytes = 0;
        }
    }

    /// Replaces the file if the text has changed.
    pub(crate) fn write(&mut self) -> io::Result<()> {
        if self.written_bytes == self.text.len() {
            return Ok(());
        }
        // Readers skip names that begin with a dot.
        let folder = self.folder.current_path()?;
        let next = folder.join(".metadata.next");
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&next)?;
        let written = file
            .write_all(self.text.as_bytes())
            .and_then(|()| fs::rename(&next, folder.join("metadata")));
        if let Err(error) = written {
            // A partial file would occupy scarce disk space.
            let _ = fs::remove_file(&next);
            return Err(error);
        }
        self.written_bytes = self.text.len();
        Ok(())
    }

    /// Returns the size of the written file, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.written_bytes as u64
    }
}

fn uuid_in_text(text: &[u8]) -> Option<[u8; 16]> {
    Trace::parse(text).ok()?.uuid().copied()
}

impl Declarations {
    /// Reads the declarations of a metadata text written by Trackway. A class has an id; an event
    /// has an id and, on the next line, the id of its class.
    fn of(text: &str) -> Self {
        let number = |line: &str, name: &str| -> Option<u32> {
            line.strip_prefix(name)?.strip_suffix(';')?.parse().ok()
        };
        let mut declared = Self::default();
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            declared.types.extend(parse_declared_type_name(line).map(str::to_owned));
            let Some(id) = number(line, "\tid = ") else { continue };
            match lines.peek().and_then(|next| number(next, "\tstream_id = ")) {
                Some(class) => declared.events.insert((class, id)),
                None => declared.classes.insert(id),
            };
        }
        declared
    }
}

#[cfg(test)]
mod tests {
    use trackway_ctf::write::{ValueNames, event_declaration};
    use trackway_schema::{Field, FieldKind, Scalar};

    use super::*;

    fn trace_description(domain: trackway_ctf::write::Domain) -> TraceDescription {
        TraceDescription {
            uuid: [1; 16],
            hostname: "host".into(),
            domain,
            trace_name: "t".into(),
            creation_datetime: "20261121T025621+0000".into(),
            boot_uuid: [2; 16],
            clock_offset_ns: 5,
            contexts: Contexts::default(),
        }
    }

    #[test]
    fn what_was_declared_is_known_again() {
        let mut text = metadata_preamble(&trace_description(trackway_ctf::write::Domain::User(0)));
        let mut declared = Declarations { classes: HashSet::from([0]), ..Declarations::default() };
        assert_eq!(Declarations::of(&text), declared);
        let event = |name: &str| EventDescription {
            provider: "a".into(),
            name: name.into(),
            level: 6,
            fields: Vec::new(),
        };
        text.push_str(&event_declaration(0, 0, &event("x")));
        text.push_str(&event_declaration(0, 77, &event("y")));
        text.push_str(&stream_declaration(
            3,
            &Contexts { bits: trackway_schema::context::VPID, ..Contexts::default() },
        ));
        text.push_str(&event_declaration(3, 0, &event("x")));
        let names =
            |value| ValueNames { flags: vec![("a".into(), value)], ..ValueNames::default() };
        let meaning = |value| Some(Meaning::Names(names(value).into()));
        let mut of = event("z");
        of.fields.push(Field { name: "f".into(), kind: FieldKind::Scalar(Scalar::X32) });
        let mut metadata = Metadata {
            folder: Arc::new(TraceFolder::open(Path::new("/")).expect("a folder")),
            text,
            declared: declared.clone(),
            written_bytes: 0,
        };
        for (id, value) in [(1, 1), (2, 2), (3, 1)] {
            metadata.declare_event_with_meanings(3, id, &of, &[meaning(value)]);
            declared.events.insert((3, id));
        }
        let text = metadata.text;
        assert_eq!(text.matches("enum trackway_flags_").count(), 2, "each table once");
        assert_eq!(metadata.declared.types.len(), 4, "and each type");
        declared.types = metadata.declared.types;
        declared.classes.insert(3);
        declared.events.extend([(0, 0), (0, 77), (3, 0)]);
        assert_eq!(Declarations::of(&text), declared);
    }

    #[test]
    fn empty_fields_are_named_in_the_place_of_those_before() {
        let remarks = vec![(EMPTY_FIELDS, String::new()), ("another", "e:f".into())];
        let domain = trackway_ctf::write::Domain::Kernel { release: "6.18".into(), remarks };
        let text = metadata_preamble(&trace_description(domain));
        let folder = Arc::new(TraceFolder::open(Path::new("/")).expect("a folder"));
        let (declared, written_bytes) = (Declarations::default(), text.len());
        let mut metadata = Metadata { folder, text: text.clone(), declared, written_bytes };
        metadata.replace_field_list(EMPTY_FIELDS, "");
        assert_eq!((metadata.written_bytes, &metadata.text), (text.len(), &text));
        for fields in ["fork:parent_pid fork:child_pid", "fork:parent_pid", ""] {
            metadata.replace_field_list(EMPTY_FIELDS, fields);
            let named = format!("{EMPTY_FIELDS} = \"{fields}\"");
            let expected = text.replace(&format!("{EMPTY_FIELDS} = \"\""), &named);
            assert_eq!((metadata.written_bytes, &metadata.text), (0, &expected));
        }
    }

    #[test]
    fn what_cannot_be_written_takes_no_room() {
        let folder = trackway_testkit::TemporaryFolder::new();
        let place = Arc::new(TraceFolder::open(folder.path()).expect("a folder"));
        let metadata = |text: &str| Metadata {
            folder: Arc::clone(&place),
            text: text.into(),
            declared: Declarations::default(),
            written_bytes: 0,
        };
        fs::create_dir(folder.join("metadata")).expect("a folder");
        metadata("one").write().expect_err("a folder is in its place");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
        fs::remove_dir(folder.join("metadata")).expect("ours");
        metadata("two").write().expect("room");
        assert_eq!(fs::read_to_string(folder.join("metadata")).expect("text"), "two");
    }
}
