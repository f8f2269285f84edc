//! The callsites of `tracing`, and what is recorded of them.
//!
//! A callsite has a description for each set of types that its values have had (most have one).
//! The descriptions of a callsite have the same name, so they are on or off together: while the
//! first is off, nothing is visited. (One that libtrackway.so had no room for is off whatever the
//! others are, so the first stays the first.)
//!
//! All that is shared are pointers, each of which is null until it is exchanged, once, for a value
//! that is complete by then and stays for ever. The second thread finds the first one's, and gives
//! up its own. So no thread waits for another, wherever one is stopped: in a fork's child, too, in
//! which the threads that were describing are no more. And nothing is allocated but by
//! [`allocate_value`].

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

/// Most sets of types that one callsite may have; what comes with others is not recorded.
const VARIANTS_MAX: usize = 16;
/// Suffix of the name of a span's end.
const END_SUFFIX: &str = "_end";
/// Lists of callsites, by the hash of their addresses. A power of two.
const BUCKETS: usize = 1024;

/// A description for values of certain types.
#[derive(Debug)]
struct Variant {
    signature: Signature,
    event: &'static Event,
    next: AtomicPtr<Variant>,
}

/// The codes of all fields, four bits each, the first lowest.
type Signature = u128;

const _: () = assert!(FIELDS_MAX * 4 <= Signature::BITS as usize);

/// Descriptions of one name, each of other types: a list to which is only added, at its end.
#[derive(Debug)]
struct Variants {
    first: AtomicPtr<Variant>,
}

/// The description of a name that has one, once it is made.
#[derive(Debug)]
struct LazyEvent(AtomicPtr<Event>);

/// A callsite. It is never freed, as `tracing`'s own are not.
#[derive(Debug)]
pub(crate) struct Callsite {
    pub(crate) metadata: &'static Metadata<'static>,
    next: *const Callsite,
    /// The event, or a span's beginning.
    main: Variants,
    /// Fields that a span is given later.
    record: Variants,
    end: LazyEvent,
    enter: LazyEvent,
    exit: LazyEvent,
    /// True if there is, or soon will be, a description of `record`, `enter` or `exit`.
    has_more: AtomicBool,
}

static CALLSITES: [AtomicPtr<Callsite>; BUCKETS] =
    [const { AtomicPtr::new(ptr::null_mut()) }; BUCKETS];

/// The leading fields of a callsite's events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeadingFields {
    /// An event's: the span that it is in, or 0.
    Event,
    /// A span's beginning: its id, its parent's or 0.
    Begin,
    /// Its other events: its id.
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
        // ORDERING: Acquire pairs with the Release in `publish`: a description is whole when it is
        // seen.
        let event = self.0.load(Ordering::Acquire);
        // SAFETY: null, or a description, which is never freed.
        unsafe { event.as_ref() }
    }

    #[inline(always)]
    fn is_on(&self) -> bool {
        self.get().is_some_and(Event::is_on)
    }

    /// The description for all, which is `made` if there is none yet. Else `made` is used no more:
    /// it stays, because libtrackway.so has seen it, under the same number as the other.
    #[cold]
    fn publish(&self, made: Option<&'static Event>) -> Option<&'static Event> {
        let made = made?;
        let pointer = ptr::from_ref(made).cast_mut();
        // ORDERING: Release publishes the description; Acquire where another's is found: see `get`.
        let (published, found) = (Ordering::Release, Ordering::Acquire);
        match self.0.compare_exchange(ptr::null_mut(), pointer, published, found) {
            Ok(_) => Some(made),
            // SAFETY: it is not null, and a description is never freed.
            Err(other) => Some(unsafe { &*other }),
        }
    }
}

impl Variants {
    const fn new() -> Self {
        Self { first: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The first, if there is one.
    #[inline(always)]
    fn first(&self) -> Option<&'static Variant> {
        Variant::at(&self.first)
    }

    /// Returns true if there is none, or it is on: the first visit tells the types of values.
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
    /// Threads that come with the same new types each make one. The list's end takes one of them;
    /// the others then look at what is there before they try behind it, and find their types. So
    /// each set of types is in the list once, and no place is taken by anything else.
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
                // ORDERING: Release publishes the variant; see `Variant::at`, by which another's
                // is read, too.
                let published = Ordering::Release;
                let end = ptr::null_mut();
                if place.compare_exchange(end, made, published, Ordering::Relaxed).is_ok() {
                    // SAFETY: it is never freed.
                    return Some(unsafe { &*made }.event);
                }
            }
            // It is there by now, by us or by others.
            let there = Variant::at(place)?;
            if there.signature == signature {
                found = Some(there.event);
                break;
            }
            place = &there.next;
        }
        if !made.is_null() {
            // SAFETY: no other code has seen it. (Its event stays: see `One::publish`.)
            unsafe { free_value(made) };
        }
        found
    }
}

impl Variant {
    /// The one that a link leads to.
    #[inline(always)]
    fn at(link: &AtomicPtr<Self>) -> Option<&'static Self> {
        // ORDERING: Acquire pairs with the Release in `add`: a variant is whole when it is seen.
        let variant = link.load(Ordering::Acquire);
        // SAFETY: null, or one that is never freed.
        unsafe { variant.as_ref() }
    }
}

/// Describes `target:name` of a callsite, with what `head` says and the fields of `signature`.
fn describe_event(
    metadata: &'static Metadata<'static>,
    suffix: &str,
    head: LeadingFields,
    signature: Signature,
) -> Option<&'static Event> {
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
        Self::find_from(Self::bucket(metadata).load(Ordering::Acquire), metadata)
    }

    #[inline(always)]
    fn find_from(first: *const Self, metadata: &Metadata<'_>) -> Option<&'static Self> {
        let mut callsite = first;
        // SAFETY: null, or one that is never freed.
        while let Some(this) = unsafe { callsite.as_ref() } {
            if ptr::addr_eq(this.metadata, metadata) {
                return Some(this);
            }
            callsite = this.next;
        }
        None
    }

    /// The same; adds it. `None` without memory.
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
        // ORDERING: Acquire, here and where another's is found: see `find`.
        let mut first = bucket.load(Ordering::Acquire);
        // Once more for each callsite that others have added meanwhile, of which there are so many.
        loop {
            if let Some(found) = Self::find_from(first, metadata) {
                // SAFETY: no other code has seen it.
                unsafe { free_value(made) };
                return Some(found);
            }
            // SAFETY: no other code has seen it yet.
            unsafe { (*made).next = first };
            // ORDERING: Release publishes the callsite; see `find`.
            let published = Ordering::Release;
            match bucket.compare_exchange(first, made, published, Ordering::Acquire) {
                // SAFETY: it is never freed.
                Ok(_) => return Some(unsafe { &*made }),
                Err(found) => first = found,
            }
        }
    }

    /// Returns true if a recorder wants something of it, or could: that is known when it has been
    /// visited.
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

    /// Records an event of this callsite, which is in the span `span`.
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
        // So that what is selected by the end's name alone is on from the first span on.
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

    /// Expects events that are selected by the name of values that a span has not got yet, whatever
    /// their types will be: a description without any says whether the name is on.
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

    /// Records an event that has a span's id and no more.
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

/// Values as they come, and their types.
struct Values<'buffer> {
    stage: Stage<'buffer>,
    signature: Signature,
    /// Fields that there is a code for, less those that the head takes.
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

    /// Takes all values that `visit` shows.
    #[inline(always)]
    fn take(&mut self, metadata: &Metadata<'_>, visit: impl Fn(&mut dyn Visit)) {
        visit(self);
        if !self.is_in_order {
            self.take_in_order(metadata, &visit);
        }
    }

    /// The same where they come in another order than that of their fields, as `record_all!` may
    /// have them: looks for one after the other. Of several for one field, the first counts.
    #[cold]
    fn take_in_order(&mut self, metadata: &Metadata<'_>, visit: &dyn Fn(&mut dyn Visit)) {
        let fields = metadata.fields().len().min(self.fields_max);
        self.stage.rewind(self.head.names().len() * size_of::<u64>(), fields);
        self.signature = 0;
        for end in 1..=fields {
            // Those before it have been taken, so what is taken now is it, if it is there.
            self.fields_max = end;
            visit(self);
        }
    }

    /// Returns true if there are fields that have no value.
    fn lacks_some(&self, metadata: &Metadata<'_>) -> bool {
        let fields = metadata.fields().len().min(self.fields_max);
        (0..fields).any(|index| code_of(self.signature, index) == Code::Absent)
    }

    /// Notes the type of a field's value; false if it is not to be recorded now: fields come in
    /// their order, each once, or else the payload would not be what the signature says.
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

    /// Records them as one of `variants`, which is made if it is not there.
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
