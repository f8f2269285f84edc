//! The callsites of `tracing`, and what is recorded of them.
//!
//! A callsite has a description for each set of types that its values have had (most have one).
//! The descriptions of a callsite have the same name, so they are on or off together: while the
//! first is off, nothing is visited.

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use core::{fmt, ptr};
use std::sync::OnceLock;

use tracing_core::field::{Field, Visit};
use tracing_core::span::{Attributes, Record};
use tracing_core::{Level, Metadata};

use crate::event::Event;
use crate::level;
use crate::payload::{Buffer, Stage};
use crate::runtime::{self, Code};
use crate::stage::FIELDS_MAX;

/// Most sets of types that one callsite may have; what comes with others is not recorded.
const VARIANTS_MAX: u32 = 16;
/// Lists of callsites, by the hash of their addresses. A power of two.
const BUCKETS: usize = 1024;

/// A description for values of certain types.
#[derive(Debug)]
struct Variant {
    signature: Signature,
    event: &'static Event,
    next: *const Variant,
}

/// The codes of all fields, four bits each, the first lowest.
type Signature = u128;

const _: () = assert!(FIELDS_MAX * 4 <= Signature::BITS as usize);

/// Descriptions of one name: a list to which is only added.
#[derive(Debug)]
struct Variants {
    first: AtomicPtr<Variant>,
    count: AtomicU32,
}

/// A callsite. It is never freed, as `tracing`'s own are not.
#[derive(Debug)]
pub(crate) struct Callsite {
    pub(crate) metadata: &'static Metadata<'static>,
    next: *const Callsite,
    /// The event, or a span's beginning.
    main: Variants,
    /// Fields that a span is given later.
    record: Variants,
    end: OnceLock<&'static Event>,
    enter: OnceLock<&'static Event>,
    exit: OnceLock<&'static Event>,
}

static CALLSITES: [AtomicPtr<Callsite>; BUCKETS] =
    [const { AtomicPtr::new(ptr::null_mut()) }; BUCKETS];

/// What events of a callsite begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Head {
    /// An event's: the span that it is in, or 0.
    Event,
    /// A span's beginning: its id, its parent's or 0.
    Begin,
    /// Its other events: its id.
    Span,
}

impl Head {
    const fn names(self) -> &'static [&'static str] {
        match self {
            Self::Event | Self::Span => &["span_id"],
            Self::Begin => &["span_id", "parent_id"],
        }
    }
}

impl Variants {
    const fn new() -> Self {
        Self { first: AtomicPtr::new(ptr::null_mut()), count: AtomicU32::new(0) }
    }

    /// The first, if there is one.
    #[inline(always)]
    fn first(&self) -> Option<&'static Variant> {
        // ORDERING: Acquire pairs with the Release in `add`: a variant is whole when it is seen.
        let first = self.first.load(Ordering::Acquire);
        // SAFETY: null, or one that was leaked.
        unsafe { first.as_ref() }
    }

    /// Whether there is none, or it is on: the first visit tells the types of values.
    #[inline(always)]
    fn may_be_on(&self) -> bool {
        self.first().is_none_or(|variant| variant.event.is_on())
    }

    #[inline(always)]
    fn find(&self, signature: Signature) -> Option<&'static Event> {
        let mut variant = self.first();
        while let Some(this) = variant {
            if this.signature == signature {
                return Some(this.event);
            }
            // SAFETY: null, or one that was leaked.
            variant = unsafe { this.next.as_ref() };
        }
        None
    }

    /// Adds a description with these fields, if there is room for one.
    #[cold]
    fn add(
        &self,
        metadata: &'static Metadata<'static>,
        suffix: &str,
        head: Head,
        signature: Signature,
    ) -> Option<&'static Event> {
        if self.count.fetch_add(1, Ordering::Relaxed) >= VARIANTS_MAX {
            self.count.store(VARIANTS_MAX, Ordering::Relaxed);
            return None;
        }
        let event = describe(metadata, suffix, head, signature);
        let mut next = self.first.load(Ordering::Relaxed);
        loop {
            let variant = Box::into_raw(Box::new(Variant { signature, event, next }));
            // ORDERING: Release publishes the variant; see `first`. Acquire on failure is not
            // needed: the other is only pointed at.
            match self.first.compare_exchange(next, variant, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Some(event),
                Err(other) => {
                    // SAFETY: nobody has seen it.
                    drop(unsafe { Box::from_raw(variant) });
                    next = other;
                }
            }
        }
    }
}

/// Describes `target:name` of a callsite, with what `head` says and the fields of `signature`.
fn describe(
    metadata: &'static Metadata<'static>,
    suffix: &str,
    head: Head,
    signature: Signature,
) -> &'static Event {
    // What `tracing` calls an event that has no name of its own: "event src/main.rs:12".
    let name = metadata.name();
    let name = if metadata.is_event() { name.strip_prefix("event ").unwrap_or(name) } else { name };
    let level = match *metadata.level() {
        Level::ERROR => level::ERR,
        Level::WARN => level::WARNING,
        Level::INFO => level::INFO,
        Level::DEBUG => level::DEBUG_MODULE,
        Level::TRACE => level::DEBUG,
    };
    let ids = head.names().iter().map(|name| (String::from(*name), Code::U64));
    let fields = metadata.fields().iter().filter_map(|field| {
        let code = code_of(signature, field.index());
        (code != Code::Absent).then(|| (String::from(field.name()), code))
    });
    runtime::describe(metadata.target(), &format!("{name}{suffix}"), level, ids.chain(fields))
}

fn code_of(signature: Signature, index: usize) -> Code {
    if index >= FIELDS_MAX {
        return Code::Absent;
    }
    match (signature >> (index * 4)) & 0xf {
        1 => Code::I64,
        2 => Code::U64,
        3 => Code::F64,
        4 => Code::Bool,
        5 => Code::Str,
        6 => Code::Bytes,
        _ => Code::Absent,
    }
}

impl Callsite {
    /// The bucket of the callsite with this metadata. Statics have addresses of their own.
    #[inline(always)]
    fn bucket(metadata: &Metadata<'_>) -> &'static AtomicPtr<Self> {
        let address = ptr::from_ref(metadata).addr() as u64;
        // Multiplied by 2^64 / golden ratio (Knuth 6.4): the upper bits depend on all others.
        let hash = address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &CALLSITES[hash as usize % BUCKETS]
    }

    /// The one with this metadata, if it is a callsite's and was added.
    #[inline(always)]
    pub(crate) fn find(metadata: &Metadata<'_>) -> Option<&'static Self> {
        // ORDERING: Acquire pairs with the Release in `find_or_add`: a callsite is whole when it
        // is seen.
        let mut callsite = Self::bucket(metadata).load(Ordering::Acquire).cast_const();
        // SAFETY: null, or one that was leaked.
        while let Some(this) = unsafe { callsite.as_ref() } {
            if ptr::addr_eq(this.metadata, metadata) {
                return Some(this);
            }
            callsite = this.next;
        }
        None
    }

    /// The same; adds it.
    pub(crate) fn find_or_add(metadata: &'static Metadata<'static>) -> &'static Self {
        if let Some(found) = Self::find(metadata) {
            return found;
        }
        let bucket = Self::bucket(metadata);
        let mut callsite = Box::new(Self {
            metadata,
            next: ptr::null(),
            main: Variants::new(),
            record: Variants::new(),
            end: OnceLock::new(),
            enter: OnceLock::new(),
            exit: OnceLock::new(),
        });
        let mut next = bucket.load(Ordering::Relaxed);
        loop {
            callsite.next = next;
            let added = Box::into_raw(callsite);
            // ORDERING: Release publishes the callsite; see `find`.
            match bucket.compare_exchange(next, added, Ordering::Release, Ordering::Relaxed) {
                // SAFETY: it is never freed. If another thread has added the same one, the older
                // is found no more; its events stay what they are.
                Ok(_) => return unsafe { &*added },
                Err(other) => {
                    // SAFETY: nobody has seen it.
                    callsite = unsafe { Box::from_raw(added) };
                    next = other;
                }
            }
        }
    }

    /// Whether a recorder wants something of it, or could: that is known when it has been visited.
    #[inline(always)]
    pub(crate) fn may_be_on(&self) -> bool {
        let is_on =
            |event: &OnceLock<&'static Event>| event.get().is_some_and(|event| event.is_on());
        self.main.may_be_on()
            || !self.metadata.is_event()
                && (is_on(&self.end) || is_on(&self.enter) || is_on(&self.exit))
    }

    /// Records an event of this callsite, which is in the span `span`.
    #[inline]
    pub(crate) fn event(
        &self,
        event: &tracing_core::Event<'_>,
        span: impl FnOnce() -> Option<u64>,
    ) {
        if !self.main.may_be_on() {
            return;
        }
        let mut buffer = Buffer::uninit();
        let mut values = Values::new(&mut buffer, Head::Event, self.metadata);
        values.id(span());
        event.record(&mut values);
        values.record(&self.main, self.metadata, "", Head::Event);
    }

    /// Records that the span `id` of this callsite begins, within `parent`.
    #[inline]
    pub(crate) fn begin(
        &self,
        attributes: &Attributes<'_>,
        id: u64,
        parent: impl FnOnce() -> Option<u64>,
    ) {
        // So that what is selected by the end's name alone is on from the first span on.
        self.end.get_or_init(|| self.describe_of_span("_end"));
        if !self.main.may_be_on() {
            return;
        }
        let mut buffer = Buffer::uninit();
        let mut values = Values::new(&mut buffer, Head::Begin, self.metadata);
        values.id(Some(id));
        values.id(parent());
        attributes.record(&mut values);
        values.record(&self.main, self.metadata, "_begin", Head::Begin);
    }

    /// Records that the span `id` is given more values.
    pub(crate) fn record(&self, record: &Record<'_>, id: u64) {
        if !self.record.may_be_on() {
            return;
        }
        let mut buffer = Buffer::uninit();
        let mut values = Values::new(&mut buffer, Head::Span, self.metadata);
        values.id(Some(id));
        record.record(&mut values);
        values.record(&self.record, self.metadata, "_record", Head::Span);
    }

    /// Records that the span `id` is entered.
    pub(crate) fn enter(&self, id: u64) {
        self.of_span(&self.enter, "_enter", id);
    }

    /// Records that the span `id` is exited.
    pub(crate) fn exit(&self, id: u64) {
        self.of_span(&self.exit, "_exit", id);
    }

    /// Records that the span `id` ends.
    #[inline]
    pub(crate) fn end(&self, id: u64) {
        self.of_span(&self.end, "_end", id);
    }

    /// Records an event that has a span's id and no more.
    #[inline(always)]
    fn of_span(&self, event: &OnceLock<&'static Event>, suffix: &str, id: u64) {
        let event = event.get_or_init(|| self.describe_of_span(suffix));
        if event.is_on() {
            let mut buffer = Buffer::uninit();
            let mut stage = Stage::new(&mut buffer, 1);
            stage.number(id.to_le_bytes());
            stage.record(event);
        }
    }

    #[cold]
    fn describe_of_span(&self, suffix: &str) -> &'static Event {
        describe(self.metadata, suffix, Head::Span, 0)
    }
}

/// Values as they come, and their types.
struct Values<'buffer> {
    stage: Stage<'buffer>,
    signature: Signature,
    /// Fields that there is a code for, less those that the head takes.
    fields_max: usize,
}

impl<'buffer> Values<'buffer> {
    #[inline(always)]
    fn new(buffer: &'buffer mut Buffer, head: Head, metadata: &Metadata<'_>) -> Self {
        let fields_max = FIELDS_MAX - head.names().len();
        let more = head.names().len() + metadata.fields().len().min(fields_max);
        Self { stage: Stage::new(buffer, more), signature: 0, fields_max }
    }

    #[inline(always)]
    fn id(&mut self, id: Option<u64>) {
        self.stage.number(id.unwrap_or(0).to_le_bytes());
    }

    /// Notes the type of a field's value; false if it is not to be recorded: fields come in their
    /// order, each once, or else the payload would not be what the signature says.
    #[inline(always)]
    fn note(&mut self, field: &Field, code: Code) -> bool {
        let index = field.index();
        if index >= self.fields_max || self.signature >> (index * 4) != 0 {
            return false;
        }
        self.signature |= Signature::from(code as u8) << (index * 4);
        true
    }

    /// Records them as one of `variants`, which is made if it is not there.
    #[inline(always)]
    fn record(
        &mut self,
        variants: &Variants,
        metadata: &'static Metadata<'static>,
        suffix: &str,
        head: Head,
    ) {
        let event = variants
            .find(self.signature)
            .or_else(|| variants.add(metadata, suffix, head, self.signature));
        if let Some(event) = event {
            self.stage.record(event);
        }
    }
}

impl Visit for Values<'_> {
    #[inline]
    fn record_f64(&mut self, field: &Field, value: f64) {
        if self.note(field, Code::F64) {
            self.stage.number(value.to_le_bytes());
        }
    }

    #[inline]
    fn record_i64(&mut self, field: &Field, value: i64) {
        if self.note(field, Code::I64) {
            self.stage.number(value.to_le_bytes());
        }
    }

    #[inline]
    fn record_u64(&mut self, field: &Field, value: u64) {
        if self.note(field, Code::U64) {
            self.stage.number(value.to_le_bytes());
        }
    }

    #[inline]
    fn record_bool(&mut self, field: &Field, value: bool) {
        if self.note(field, Code::Bool) {
            self.stage.number([u8::from(value)]);
        }
    }

    #[inline]
    fn record_str(&mut self, field: &Field, value: &str) {
        if self.note(field, Code::Str) {
            self.stage.string(value);
        }
    }

    fn record_bytes(&mut self, field: &Field, value: &[u8]) {
        if self.note(field, Code::Bytes) {
            self.stage.sequence(value);
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        if self.note(field, Code::Str) {
            self.stage.formatted(format_args!("{value}"));
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if self.note(field, Code::Str) {
            self.stage.formatted(format_args!("{value:?}"));
        }
    }
}
