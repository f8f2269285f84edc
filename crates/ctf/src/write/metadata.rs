//! Metadata in TSDL, the language of CTF 1.8 (§7 of its specification).
//!
//! The wording follows LTTng-UST 2.13, because readers compare `env` word by word to choose their
//! analyses. Names come from traced programs: [`Members`] turns them into identifiers, so that no
//! name can break out of the declaration.

use std::fmt::Write as _;

use trackway_schema::context::{Context, ContextType, TABLE, record_bytes_of};
use trackway_schema::{EventDescription, Field, FieldKind, Label, Scalar};

use super::meaning::Meaning;
use crate::model::Uuid;

/// Contexts that every record carries, between its header and its payload, in this order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Contexts {
    /// Bits of [`TABLE`].
    pub bits: u32,
    /// Contexts of kernel events, as fields.
    pub kernel: Vec<Field>,
    /// Names of application contexts (`provider:name`). Each record has their types and values: a
    /// byte by [`application_tag`], then an `i64`, a `u64`, an `f64`, bytes up to a NUL, or
    /// nothing.
    pub applications: Vec<String>,
}

/// The source of a trace's events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Domain {
    /// User events of the programs of this user.
    User(u32),
    /// Kernel events.
    Kernel {
        /// Release of the kernel.
        release: String,
        /// Further `env` entries about the recording: names, which are identifiers, and texts.
        remarks: Vec<(&'static str, String)>,
    },
}

/// Codes for the type of an application context in a record.
pub mod application_tag {
    /// The context is not set.
    pub const NONE: u8 = 0;
    /// An `i64`.
    pub const SIGNED: u8 = 1;
    /// A `u64`.
    pub const UNSIGNED: u8 = 2;
    /// An `f64`.
    pub const FLOAT: u8 = 3;
    /// Bytes up to a NUL.
    pub const STRING: u8 = 4;
}

/// Types that an application context may have in a record: code, LTTng's name, type.
const ALTERNATIVES: [(u8, &str, Alternative); 5] = [
    (application_tag::NONE, "_none", Alternative::Nothing),
    (application_tag::SIGNED, "_int64", Alternative::Scalar(Scalar::I64)),
    (application_tag::UNSIGNED, "_uint64", Alternative::Scalar(Scalar::U64)),
    (application_tag::FLOAT, "_double", Alternative::Scalar(Scalar::F64)),
    (application_tag::STRING, "_string", Alternative::Str),
];

enum Alternative {
    Nothing,
    Scalar(Scalar),
    Str,
}

impl Contexts {
    /// Returns the size of the user event contexts in a record, in bytes, without application
    /// contexts.
    pub const fn size_bytes(&self) -> usize {
        record_bytes_of(self.bits)
    }

    const fn is_empty(&self) -> bool {
        self.size_bytes() == 0 && self.kernel.is_empty() && self.applications.is_empty()
    }
}

/// Content of a trace's metadata before its first event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceDescription {
    /// Identity of the trace, repeated in each packet.
    pub uuid: [u8; 16],
    /// Name of the host.
    pub hostname: String,
    /// The source of the trace's events.
    pub domain: Domain,
    /// Name of the session.
    pub trace_name: String,
    /// Time at which the session was created, in LTTng's form: `20261121T025621+0000`.
    pub creation_datetime: String,
    /// Identity of the clock: the kernel's boot id. Times of traces with equal ids are comparable.
    pub boot_uuid: [u8; 16],
    /// `CLOCK_REALTIME` less `CLOCK_MONOTONIC` when the session began, in nanoseconds.
    pub clock_offset_ns: i64,
    /// Contexts that each record of stream class 0 carries before its payload.
    pub contexts: Contexts,
}

/// Declarations that do not depend on events, up to the first stream class.
const TYPES: &str = r"typealias integer { size = 8; align = 8; signed = false; } := uint8_t;
typealias integer { size = 16; align = 8; signed = false; } := uint16_t;
typealias integer { size = 32; align = 8; signed = false; } := uint32_t;
typealias integer { size = 64; align = 8; signed = false; } := uint64_t;
typealias integer { size = 64; align = 8; signed = false; } := unsigned long;
typealias integer { size = 5; align = 1; signed = false; } := uint5_t;
typealias integer { size = 16; align = 1; signed = false; } := uint16_packed_t;
typealias integer { size = 27; align = 1; signed = false; } := uint27_t;
";

/// Event header types. `medium` has only unaligned members, so that it begins directly after the
/// tag: a structure has the alignment of its widest member. `extended` has aligned members and
/// begins at a byte.
const CLOCKED_TYPES: &str = r"typealias integer {
	size = 27; align = 1; signed = false;
	map = clock.monotonic.value;
} := uint27_clock_monotonic_t;

typealias integer {
	size = 64; align = 8; signed = false;
	map = clock.monotonic.value;
} := uint64_clock_monotonic_t;

struct packet_context {
	uint64_clock_monotonic_t timestamp_begin;
	uint64_clock_monotonic_t timestamp_end;
	uint64_t content_size;
	uint64_t packet_size;
	uint64_t packet_seq_num;
	unsigned long events_discarded;
	uint32_t cpu_id;
};

struct event_header {
	enum : uint5_t { compact = 0 ... 29, medium = 30, extended = 31 } id;
	variant <id> {
		struct {
			uint27_clock_monotonic_t timestamp;
		} compact;
		struct {
			uint27_clock_monotonic_t timestamp;
			uint16_packed_t id;
		} medium;
		struct {
			uint32_t id;
			uint64_clock_monotonic_t timestamp;
		} extended;
	} v;
} align(8);

";

/// Returns the start of a trace's metadata as plain text: types, `trace`, `env`, `clock` and
/// `stream` 0.
///
/// The caller appends each [`event_declaration`], before or after the first record of its event,
/// and a [`stream_declaration`] for each further class.
pub fn metadata_preamble(trace: &TraceDescription) -> String {
    let mut text = format!("/* CTF 1.8 */\n\n{TYPES}\n");
    push_trace(&mut text, trace);
    push_environment(&mut text, trace);
    push_clock(&mut text, trace);
    text.push_str(CLOCKED_TYPES);
    text.push_str(&stream_declaration(0, &trace.contexts));
    text
}

fn push_trace(text: &mut String, trace: &TraceDescription) {
    let _ = write!(
        text,
        "trace {{
	major = 1;
	minor = 8;
	uuid = \"{}\";
	byte_order = le;
	packet.header := struct {{
		uint32_t magic;
		uint8_t  uuid[16];
		uint32_t stream_id;
		uint64_t stream_instance_id;
	}};
}};

",
        Uuid(&trace.uuid)
    );
}

fn push_environment(text: &mut String, trace: &TraceDescription) {
    text.push_str("env {\n");
    let _ = match &trace.domain {
        Domain::User(uid) => write!(
            text,
            "	domain = \"ust\";
	tracer_name = \"lttng-ust\";
	tracer_major = 2;
	tracer_minor = 13;
	tracer_buffering_scheme = \"uid\";
	tracer_buffering_id = {uid};
	architecture_bit_width = 64;
"
        ),
        Domain::Kernel { release, .. } => write!(
            text,
            "	domain = \"kernel\";
	sysname = \"Linux\";
	kernel_release = {};
	tracer_name = \"lttng-modules\";
	tracer_major = 2;
	tracer_minor = 13;
	tracer_patchlevel = 0;
	tracer_buffering_scheme = \"global\";
",
            Quoted(release)
        ),
    };
    if let Domain::Kernel { remarks, .. } = &trace.domain {
        for (name, remark) in remarks {
            let _ = writeln!(text, "\t{name} = {};", Quoted(remark));
        }
    }
    let _ = write!(
        text,
        "	trace_name = {};
	trace_creation_datetime = {};
	hostname = {};
	trackway_version = \"{}\";
}};

",
        Quoted(&trace.trace_name),
        Quoted(&trace.creation_datetime),
        Quoted(&trace.hostname),
        // Names the true tracer: Trace Compass looks for the LTTng names above.
        env!("CARGO_PKG_VERSION"),
    );
}

fn push_clock(text: &mut String, trace: &TraceDescription) {
    let _ = write!(
        text,
        "clock {{
	name = \"monotonic\";
	uuid = \"{}\";
	description = \"Monotonic Clock\";
	freq = 1000000000; /* Frequency, in Hz */
	/* clock value offset from Epoch is: offset * (1/freq) */
	offset = {};
}};

",
        Uuid(&trace.boot_uuid),
        trace.clock_offset_ns
    );
}

/// Returns the declaration of stream class `class`, whose records carry these contexts.
pub fn stream_declaration(class: u32, contexts: &Contexts) -> String {
    let mut text = format!(
        "stream {{
	id = {class};
	event.header := struct event_header;
	packet.context := struct packet_context;
",
    );
    if !contexts.is_empty() {
        text.push_str("\tevent.context := struct {\n");
        for Context { name, of, .. } in TABLE.iter().filter(|one| one.is_in(contexts.bits)) {
            let _ = match of {
                ContextType::Scalar(scalar) => {
                    writeln!(text, "\t\t{} _{name};", Integer(*scalar))
                }
                ContextType::Text(bytes) => writeln!(text, "\t\t{CHARACTER} _{name}[{bytes}];"),
            };
        }
        let mut members = Members::default();
        for field in &contexts.kernel {
            push_field(&mut text, &mut members, field, None);
        }
        for name in &contexts.applications {
            push_application(&mut text, &mut members, name);
        }
        text.push_str("\t};\n");
    }
    text.push_str("};\n\n");
    text
}

/// Declares an application context as LTTng 2.13 does, with fewer alternatives.
fn push_application(text: &mut String, members: &mut Members, name: &str) {
    let member = members.add(&application_member(name));
    let tag = members.add(&format!("{}_tag", application_member(name)));
    text.push_str("\t\tenum : uint8_t {\n");
    for (code, alternative, _) in ALTERNATIVES {
        let _ = writeln!(text, "\t\t\t{alternative} = {code},");
    }
    let _ = writeln!(text, "\t\t}} {tag};\n\t\tvariant <{tag}> {{");
    for (_, alternative, of) in ALTERNATIVES {
        let _ = match of {
            Alternative::Nothing => writeln!(text, "\t\t\tstruct {{ }} {alternative};"),
            Alternative::Scalar(scalar) => {
                writeln!(text, "\t\t\t{} {alternative};", Integer(scalar))
            }
            Alternative::Str => writeln!(text, "\t\t\tstring {alternative};"),
        };
    }
    let _ = writeln!(text, "\t\t}} {member};");
}

/// Returns the field name of the application context `provider:name` in a trace.
pub fn application_member(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    format!("_app_{}", name.chars().map(plain).collect::<String>())
}

/// Returns the declaration of event `id` of stream class `class`, to be appended to the metadata.
///
/// An event without a provider has its bare name, like LTTng's kernel events.
///
/// Fields appear in babeltrace2 under their own names, with two exceptions. Bytes other than
/// letters, digits and `_` become `_`. A name that an earlier field has gets a number appended.
pub fn event_declaration(class: u32, id: u32, event: &EventDescription) -> String {
    event_declaration_meaning(class, id, event, &[])
}

/// Returns an event's declaration, with the meanings of its fields' numbers in the fields' order.
/// The types in [`Meaning::declarations`] must be declared before.
pub fn event_declaration_meaning(
    class: u32,
    id: u32,
    event: &EventDescription,
    meanings: &[Option<Meaning>],
) -> String {
    let full_name = event.full_name();
    let name = if event.provider.is_empty() { &event.name } else { &full_name };
    let mut text = format!(
        "event {{\n\tname = {};\n\tid = {id};\n\tstream_id = {class};\n\tloglevel = {};\n\
         \tfields := struct {{\n",
        Quoted(name),
        event.level
    );
    let mut members = Members::default();
    let meanings = meanings.iter().map(Option::as_ref).chain(std::iter::repeat(None));
    for (field, meaning) in event.fields.iter().zip(meanings) {
        push_field(&mut text, &mut members, field, meaning);
    }
    text.push_str("\t};\n};\n\n");
    text
}

/// LTTng's declaration of a byte of text.
const CHARACTER: &str = "integer { size = 8; align = 8; signed = 1; encoding = UTF8; base = 10; }";

fn push_field(text: &mut String, members: &mut Members, field: &Field, meaning: Option<&Meaning>) {
    let number = |scalar: Scalar| match meaning {
        Some(meaning) => meaning.type_name(scalar),
        None => Integer(scalar).to_string(),
    };
    let written = match &field.kind {
        FieldKind::Scalar(scalar) => {
            let name = members.add(&field.name);
            writeln!(text, "\t\t{} {name};", number(*scalar))
        }
        FieldKind::Str => writeln!(text, "\t\tstring {};", members.add(&field.name)),
        FieldKind::Array(scalar, length) => {
            let name = members.add(&field.name);
            writeln!(text, "\t\t{} {name}[{length}];", number(*scalar))
        }
        FieldKind::Text => {
            let (length, name) = members.add_with_length(&field.name);
            writeln!(
                text,
                "\t\t{} {length};\n\t\t{CHARACTER} {name}[ {length} ];",
                Integer(Scalar::U32)
            )
        }
        FieldKind::Sequence(scalar) => {
            let (length, name) = members.add_with_length(&field.name);
            writeln!(
                text,
                "\t\t{} {length};\n\t\t{} {name}[ {length} ];",
                Integer(Scalar::U32),
                number(*scalar)
            )
        }
        FieldKind::Strings => {
            let (length, name) = members.add_with_length(&field.name);
            writeln!(text, "\t\t{} {length};\n\t\tstring {name}[ {length} ];", Integer(Scalar::U32))
        }
        FieldKind::Enumeration(scalar, labels) => {
            let name = members.add(&field.name);
            push_enumeration(text, *scalar, labels);
            writeln!(text, " {name};")
        }
    };
    // Writing to a `String` cannot fail.
    let _ = written;
}

/// Declares an enumeration without the labels that no value of the type can have: readers refuse
/// them.
fn push_enumeration(text: &mut String, scalar: Scalar, labels: &[Label]) {
    let (least, greatest) = value_range(scalar);
    let value = |number: i64| {
        if scalar.is_signed() { i128::from(number) } else { i128::from(number as u64) }
    };
    let mut lines = String::new();
    for label in labels {
        let (first, last) = (value(label.first).max(least), value(label.last).min(greatest));
        let name = Quoted(&label.name);
        let _ = match first.cmp(&last) {
            std::cmp::Ordering::Less => writeln!(lines, "\t\t\t{name} = {first} ... {last},"),
            std::cmp::Ordering::Equal => writeln!(lines, "\t\t\t{name} = {first},"),
            std::cmp::Ordering::Greater => Ok(()),
        };
    }
    let integer = Integer(scalar);
    let _ = if lines.is_empty() {
        write!(text, "\t\t{integer}")
    } else {
        write!(text, "\t\tenum : {integer} {{\n{lines}\t\t}}")
    };
}

fn value_range(scalar: Scalar) -> (i128, i128) {
    let bits = 8 * scalar.size_bytes() as u32;
    if scalar.is_signed() {
        (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    } else {
        (0, (1 << bits) - 1)
    }
}

/// The names that a structure's members already use.
#[derive(Default)]
struct Members {
    names: Vec<String>,
}

impl Members {
    /// Returns an identifier for `name` that no member has yet. Its leading `_`, which readers
    /// remove, keeps it apart from TSDL's keywords and types.
    fn add(&mut self, name: &str) -> String {
        let identifier: String = std::iter::once('_')
            .chain(name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }))
            .collect();
        let mut unique = identifier.clone();
        let mut number = 2;
        while self.names.contains(&unique) {
            unique = format!("{identifier}_{number}");
            number += 1;
        }
        self.names.push(unique.clone());
        unique
    }

    /// Returns identifiers for the length and the elements of a sequence, named as in LTTng.
    fn add_with_length(&mut self, name: &str) -> (String, String) {
        let length = self.add(&format!("_{name}_length"));
        (length, self.add(name))
    }
}

/// A scalar's type in TSDL: an integer, or a floating-point number.
pub(super) struct Integer(pub(super) Scalar);

impl std::fmt::Display for Integer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Scalar::F32 => {
                formatter.write_str("floating_point { exp_dig = 8; mant_dig = 24; align = 8; }")
            }
            Scalar::F64 => {
                formatter.write_str("floating_point { exp_dig = 11; mant_dig = 53; align = 8; }")
            }
            scalar => write!(
                formatter,
                "integer {{ size = {}; align = 8; signed = {}; encoding = none; base = {}; }}",
                8 * scalar.size_bytes(),
                u8::from(scalar.is_signed()),
                if scalar.is_hexadecimal() { 16 } else { 10 }
            ),
        }
    }
}

/// A string literal: quotes and backslashes are escaped, so that no character ends it; control
/// characters too.
pub(super) struct Quoted<'text>(pub(super) &'text str);

impl std::fmt::Display for Quoted<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(formatter, "\\{c}")?,
                '\n' => formatter.write_str("\\n")?,
                // An octal escape has at most three digits, so the following character cannot join
                // it.
                c if c.is_ascii_control() => write!(formatter, "\\{:03o}", u32::from(c))?,
                c => formatter.write_char(c)?,
            }
        }
        formatter.write_char('"')
    }
}
