//! The callsites of `tracing`, and the records of their spans and events.
//!
//! A callsite has one description for each set of types that its values have had; most callsites
//! have one. The descriptions of a callsite have one name, so they are on or off together: while
//! the first is off, no values are visited. (If libtrackway.so had no room for a description, it is
//! off even if others are on, so the first one remains the first.)
//!
//! All shared state consists of pointers, each null until it is exchanged once for a complete value
//! that stays for ever. A second thread finds the first thread's value and discards its own. So no
//! thread waits for another, wherever one is stopped: even in a fork's child, which lacks the
//! describing threads. Only [`allocate_value`] allocates.

use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use core::{fmt, ptr};

use tracing_core::field::{Field, Visit};
use tracing_core::span::{Attributes, Record};
use tracing_core::{Level, Metadata};

use crate::event::Event;
use crate::level;
use crate::payload::{Buffer, Stage};
use crate::runtime::{self, Code, allocate_value, free_value};
use crate::stage::FIELDS_MAX;

/// Most sets of types for one callsite; values of further sets are not recorded.
const VARIANTS_MAX: usize = 16;
/// Suffix of the name of a span's end event.
const END_SUFFIX: &str = "_end";
/// Number of lists of callsites, which are selected by the hash of their addresses. A power of two.
const BUCKETS: usize = 1024;

/// A description for values of one set of types.
#[derive(Debug)]
struct Variant {
    signature: Signature,
    event: &'static Event,
    next: AtomicPtr<Variant>,
}

/// The codes of all fields, four bits each, the first lowest.
type Signature = u128;

const _: () = assert!(FIELDS_MAX * 4 <= Signature::BITS as usize);

/// Descriptions with one name and different types: a list that only grows, at its end.
#[derive(Debug)]
struct Variants {
    first: AtomicPtr<Variant>,
}

/// The single description of a name, once it is created.
#[derive(Debug)]
struct LazyEvent(AtomicPtr<Event>);

/// A callsite, which is never freed, like `tracing`'s own callsites.
#[derive(Debug)]
pub(crate) struct Callsite {
    pub(crate) metadata: &'static Metadata<'static>,
    next: *const Callsite,
    /// Descriptions of the event, or of a span's beginning.
    main: Variants,
    /// Descriptions of values that a span is given later.
    record: Variants,
    end: LazyEvent,
    enter: LazyEvent,
    exit: LazyEvent,
    /// True if `record`, `enter` or `exit` has a description, or will have one soon.
    has_more: AtomicBool,
}

static CALLSITES: [AtomicPtr<Callsite>; BUCKETS] =
    [const { AtomicPtr::new(ptr::null_mut()) }; BUCKETS];

/// The leading fields of a callsite's events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeadingFields {
    /// An event's leading field: the id of its span, or 0.
    Event,
    /// The leading fields of a span's beginning: its id, and its parent's id or 0.
    Begin,
    /// The leading field of a span's other events: its id.
    Span,
}

impl LeadingFields {
    const fn names(self) -> &'static [&'static str] {
        match self {
            Self::Event | Self::Span => &["span_id"],
            Self::Begin => &["span_id", "parent_id"],
        }
    }
}

impl LazyEvent {
    const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    #[inline(always)]
    fn get(&self) -> Option<&'static Event> {
        // ORDERING: Acquire pairs with the Release in `publish`: a loaded description is complete.
        let event = self.0.load(Ordering::Acquire);
        // SAFETY: the pointer is null, or leads to a description, which is never freed.
        unsafe { event.as_ref() }
    }

    #[inline(always)]
    fn is_on(&self) -> bool {
        self.get().is_some_and(Event::is_on)
    }

    /// Returns the description for all threads, which is `made` if there was none. Otherwise `made`
    /// is unused, but stays: libtrackway.so has registered it with the other's number.
    #[cold]
    fn publish(&self, made: Option<&'static Event>) -> Option<&'static Event> {
        let made = made?;
        let pointer = ptr::from_ref(made).cast_mut();
        // ORDERING: Release publishes the description; Acquire on failure for another's: see `get`.
        let (published, found) = (Ordering::Release, Ordering::Acquire);
        match self.0.compare_exchange(ptr::null_mut(), pointer, published, found) {
            Ok(_) => Some(made),
            // SAFETY: the pointer is not null, and a description is never freed.
            Err(other) => Some(unsafe { &*other }),
        }
    }
}

impl Variants {
    const fn new() -> Self {
        Self { first: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Returns the first description, if there is one.
    #[inline(always)]
    fn first(&self) -> Option<&'static Variant> {
        Variant::at(&self.first)
    }

    /// Returns true if there is no description, because types are still unknown, or it is on.
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
            variant = Variant::at(&this.next);
        }
        None
    }

    /// Adds a description with these fields, if there is room for one.
    ///
    /// Threads with equal new types each create a description. The list's end accepts one of them;
    /// the other threads compare the new end before they try behind it, and find their types. So
    /// each set of types is in the list once, and no place is wasted.
    #[cold]
    fn add(
        &self,
        metadata: &'static Metadata<'static>,
        suffix: &str,
        head: LeadingFields,
        signature: Signature,
    ) -> Option<&'static Event> {
        let mut made: *mut Variant = ptr::null_mut();
        let mut place = &self.first;
        let mut found = None;
        for _ in 0..VARIANTS_MAX {
            if Variant::at(place).is_none() {
                if made.is_null() {
                    let event = describe_event(metadata, suffix, head, signature)?;
                    let next = AtomicPtr::new(ptr::null_mut());
                    made = allocate_value(Variant { signature, event, next })?;
                }
                // ORDERING: Release publishes the variant; see `Variant::at`, which also loads a
                // variant that another thread has added.
                let published = Ordering::Release;
                let end = ptr::null_mut();
                if place.compare_exchange(end, made, published, Ordering::Relaxed).is_ok() {
                    // SAFETY: a variant in the list is never freed.
                    return Some(unsafe { &*made }.event);
                }
            }
            // This thread or another one has filled the place by now.
            let there = Variant::at(place)?;
            if there.signature == signature {
                found = Some(there.event);
                break;
            }
            place = &there.next;
        }
        if !made.is_null() {
            // SAFETY: no other code has a pointer to it. (Its event stays: see
            // `LazyEvent::publish`.)
            unsafe { free_value(made) };
        }
        found
    }
}

impl Variant {
    /// Returns the variant to which a link points.
    #[inline(always)]
    fn at(link: &AtomicPtr<Self>) -> Option<&'static Self> {
        // ORDERING: Acquire pairs with the Release in `add`: a loaded variant is complete.
        let variant = link.load(Ordering::Acquire);
        // SAFETY: the pointer is null, or leads to a variant in the list, which is never freed.
        unsafe { variant.as_ref() }
    }
}

/// Describes a callsite's event `target:name`, with the leading fields and those of `signature`.
fn describe_event(
    metadata: &'static Metadata<'static>,
    suffix: &str,
    head: LeadingFields,
    signature: Signature,
) -> Option<&'static Event> {
    // `tracing` names an event without its own name "event src/main.rs:12".
    let name = metadata.name();
    let name = if metadata.is_event() { name.strip_prefix("event ").unwrap_or(name) } else { name };
    let level = match *metadata.level() {
        Level::ERROR => level::ERR,
        Level::WARN => level::WARNING,
        Level::INFO => level::INFO,
        Level::DEBUG => level::DEBUG_MODULE,
        Level::TRACE => level::DEBUG,
    };
    let ids = head.names().iter().map(|name| (*name, Code::U64));
    let values = metadata.fields().iter().filter_map(|field| {
        let code = code_of(signature, field.index());
        (code != Code::Absent).then_some((field.name(), code))
    });
    let mut fields = [("", Code::Absent); FIELDS_MAX];
    let mut count = 0;
    for (place, field) in fields.iter_mut().zip(ids.chain(values)) {
        *place = field;
        count += 1;
    }
    runtime::register_event(metadata.target(), [name, suffix], level, &fields[..count])
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
    /// Returns the bucket of a callsite. Each metadata static has a unique address.
    #[inline(always)]
    fn bucket(metadata: &Metadata<'_>) -> &'static AtomicPtr<Self> {
        let address = ptr::from_ref(metadata).addr() as u64;
        // Multiplies by 2^64 / golden ratio (Knuth 6.4), so that upper bits depend on all others.
        let hash = address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &CALLSITES[hash as usize % BUCKETS]
    }

    /// Returns the added callsite with this metadata, if there is one.
    #[inline(always)]
    pub(crate) fn find(metadata: &Metadata<'_>) -> Option<&'static Self> {
        // ORDERING: Acquire pairs with the Release in `add`: a loaded callsite is complete.
        Self::find_from(Self::bucket(metadata).load(Ordering::Acquire), metadata)
    }

    #[inline(always)]
    fn find_from(first: *const Self, metadata: &Metadata<'_>) -> Option<&'static Self> {
        let mut callsite = first;
        // SAFETY: the pointer is null, or leads to a callsite in the list, which is never freed.
        while let Some(this) = unsafe { callsite.as_ref() } {
            if ptr::addr_eq(this.metadata, metadata) {
                return Some(this);
            }
            callsite = this.next;
        }
        None
    }

    /// Finds a callsite, or adds it. Returns `None` if memory is short.
    pub(crate) fn find_or_add(metadata: &'static Metadata<'static>) -> Option<&'static Self> {
        if let Some(found) = Self::find(metadata) {
            return Some(found);
        }
        Self::add(metadata)
    }

    #[cold]
    fn add(metadata: &'static Metadata<'static>) -> Option<&'static Self> {
        let made = allocate_value(Self {
            metadata,
            next: ptr::null(),
            main: Variants::new(),
            record: Variants::new(),
            end: LazyEvent::new(),
            enter: LazyEvent::new(),
            exit: LazyEvent::new(),
            has_more: AtomicBool::new(false),
        })?;
        let bucket = Self::bucket(metadata);
        // ORDERING: Acquire, here and on a failed exchange: see `find`.
        let mut first = bucket.load(Ordering::Acquire);
        // Repeats only when another thread has added a callsite; their number is limited.
        loop {
            if let Some(found) = Self::find_from(first, metadata) {
                // SAFETY: no other code has a pointer to it.
                unsafe { free_value(made) };
                return Some(found);
            }
            // SAFETY: no other code has a pointer to it yet.
            unsafe { (*made).next = first };
            // ORDERING: Release publishes the callsite; see `find`.
            let published = Ordering::Release;
            match bucket.compare_exchange(first, made, published, Ordering::Acquire) {
                // SAFETY: a callsite in the list is never freed.
                Ok(_) => return Some(unsafe { &*made }),
                Err(found) => first = found,
            }
        }
    }

    /// Returns true if a recorder requests events of this callsite, or if that is unknown before
    /// its first visit.
    #[inline(always)]
    pub(crate) fn may_be_on(&self) -> bool {
        self.main.may_be_on()
            || !self.metadata.is_event()
                && (self.end.is_on() || self.has_more.load(Ordering::Relaxed) && self.is_more_on())
    }

    fn is_more_on(&self) -> bool {
        self.enter.is_on()
            || self.exit.is_on()
            || self.record.first().is_some_and(|variant| variant.event.is_on())
    }

    /// Records an event of this callsite, within the span that `span` returns.
    #[inline]
    pub(crate) fn record_event(
        &self,
        event: &tracing_core::Event<'_>,
        span: impl FnOnce() -> Option<u64>,
    ) {
        if !self.main.may_be_on() {
            return;
        }
        let mut buffer = Buffer::uninit();
        let mut values = Values::new(&mut buffer, LeadingFields::Event, self.metadata);
        values.id(span());
        values.take(self.metadata, |visitor| event.record(visitor));
        values.record(&self.main, self.metadata, "", LeadingFields::Event);
    }

    /// Records that the span `id` of this callsite begins, within `parent`.
    #[inline]
    pub(crate) fn record_begin(
        &self,
        attributes: &Attributes<'_>,
        id: u64,
        parent: impl FnOnce() -> Option<u64>,
    ) {
        // Described from the first span on, for sessions that select only the end's name.
        if self.end.get().is_none() {
            self.end.publish(self.describe_of_span(END_SUFFIX));
        }
        if !self.main.may_be_on() {
            return;
        }
        let mut buffer = Buffer::uninit();
        let mut values = Values::new(&mut buffer, LeadingFields::Begin, self.metadata);
        values.id(Some(id));
        values.id(parent());
        values.take(self.metadata, |visitor| attributes.record(visitor));
        if self.main.find(values.signature).is_none() {
            self.expect_more(&values);
        }
        values.record(&self.main, self.metadata, "_begin", LeadingFields::Begin);
    }

    /// Describes the later values of a span without values, because their types are still unknown:
    /// this description shows if the name is on.
    #[cold]
    fn expect_more(&self, begun: &Values<'_>) {
        if self.record.first().is_none() && begun.lacks_some(self.metadata) {
            self.has_more.store(true, Ordering::Relaxed);
            self.record.add(self.metadata, "_record", LeadingFields::Span, 0);
        }
    }

    /// Records that the span `id` is given more values.
    pub(crate) fn record(&self, record: &Record<'_>, id: u64) {
        if !self.record.may_be_on() {
            return;
        }
        let mut buffer = Buffer::uninit();
        let mut values = Values::new(&mut buffer, LeadingFields::Span, self.metadata);
        values.id(Some(id));
        values.take(self.metadata, |visitor| record.record(visitor));
        self.has_more.store(true, Ordering::Relaxed);
        values.record(&self.record, self.metadata, "_record", LeadingFields::Span);
    }

    /// Records that the span `id` is entered.
    pub(crate) fn record_enter(&self, id: u64) {
        self.of_span(&self.enter, "_enter", id);
    }

    /// Records that the span `id` is exited.
    pub(crate) fn record_exit(&self, id: u64) {
        self.of_span(&self.exit, "_exit", id);
    }

    /// Records that the span `id` ends.
    #[inline]
    pub(crate) fn record_end(&self, id: u64) {
        self.of_span(&self.end, END_SUFFIX, id);
    }

    /// Records an event whose only field is a span's id.
    #[inline(always)]
    fn of_span(&self, event: &LazyEvent, suffix: &str, id: u64) {
        let event = event.get().or_else(|| event.publish(self.describe_of_span(suffix)));
        if let Some(event) = event.filter(|event| event.is_on()) {
            let mut buffer = Buffer::uninit();
            let mut stage = Stage::new(&mut buffer, 1);
            stage.number(id.to_le_bytes());
            stage.record(event);
        }
    }

    #[cold]
    fn describe_of_span(&self, suffix: &str) -> Option<&'static Event> {
        if suffix != END_SUFFIX {
            self.has_more.store(true, Ordering::Relaxed);
        }
        describe_event(self.metadata, suffix, LeadingFields::Span, 0)
    }
}

/// The visited values, and their types.
struct Values<'buffer> {
    stage: Stage<'buffer>,
    signature: Signature,
    /// Most fields for which the signature has codes, minus the leading fields.
    fields_max: usize,
    head: LeadingFields,
    is_in_order: bool,
}

impl<'buffer> Values<'buffer> {
    #[inline(always)]
    fn new(buffer: &'buffer mut Buffer, head: LeadingFields, metadata: &Metadata<'_>) -> Self {
        let fields_max = FIELDS_MAX - head.names().len();
        let more = head.names().len() + metadata.fields().len().min(fields_max);
        let stage = Stage::new(buffer, more);
        Self { stage, signature: 0, fields_max, head, is_in_order: true }
    }

    #[inline(always)]
    fn id(&mut self, id: Option<u64>) {
        self.stage.number(id.unwrap_or(0).to_le_bytes());
    }

    /// Takes all values that `visit` visits.
    #[inline(always)]
    fn take(&mut self, metadata: &Metadata<'_>, visit: impl Fn(&mut dyn Visit)) {
        visit(self);
        if !self.is_in_order {
            self.take_in_order(metadata, &visit);
        }
    }

    /// Takes values that are visited in another order than that of their fields, as in
    /// `record_all!`: visits all values once for each field. Of several values for a field, the
    /// first counts.
    #[cold]
    fn take_in_order(&mut self, metadata: &Metadata<'_>, visit: &dyn Fn(&mut dyn Visit)) {
        let fields = metadata.fields().len().min(self.fields_max);
        self.stage.rewind(self.head.names().len() * size_of::<u64>(), fields);
        self.signature = 0;
        for end in 1..=fields {
            // All earlier fields are done, so this visit takes only the next field's value, if it
            // exists.
            self.fields_max = end;
            visit(self);
        }
    }

    /// Returns true if some field has no value.
    fn lacks_some(&self, metadata: &Metadata<'_>) -> bool {
        let fields = metadata.fields().len().min(self.fields_max);
        (0..fields).any(|index| code_of(self.signature, index) == Code::Absent)
    }

    /// Notes the type of a field's value; returns false if the value must not be recorded now. The
    /// payload must have each field once, in order, to match its signature.
    #[inline(always)]
    fn note(&mut self, field: &Field, code: Code) -> bool {
        let index = field.index();
        if index >= self.fields_max {
            return false;
        }
        if self.signature >> (index * 4) != 0 {
            self.is_in_order = false;
            return false;
        }
        self.signature |= Signature::from(code as u8) << (index * 4);
        true
    }

    /// Records the values as one of `variants`; adds the variant if it does not exist.
    #[inline(always)]
    fn record(
        &mut self,
        variants: &Variants,
        metadata: &'static Metadata<'static>,
        suffix: &str,
        head: LeadingFields,
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
