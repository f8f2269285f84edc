//! System calls whose file name was not in memory at their entry: the exit event has the name, and
//! the reader joins the two events.
//!
//! A thread that decodes an entry without its text writes the line with a *placeholder* in the
//! text's place. When the merge reaches the entry, it looks ahead for the exit of the same thread,
//! within a memory limit, and inserts the text from there; then filters decide. If no text is
//! found, the entry remains as recorded.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::ops::Range;
use std::sync::LazyLock;

use trackway_ctf::read::{
    DecodeError, Enumeration, EventBody, EventClass, EventSink, INCOMPLETE, Integer, Member,
    Replacement, Scope, Sink, StreamClass, Struct, Trace, Type,
};
use trackway_render::{EventEncoder, Line};

use crate::filter::{ClassFilters, GatheredEvent};

const SYSCALL_ENTRY: &str = "syscall_entry_";
const SYSCALL_EXIT: &str = "syscall_exit_";
/// Name of the context that identifies the calling thread.
const THREAD_CONTEXT: &str = "tid";
/// Maximum number of texts of one call.
const TEXTS_MAX: usize = 4;
/// Size of a placeholder in bytes. A lower-case and an upper-case placeholder differ in every byte.
const PLACEHOLDER_BYTES: usize = 16;

/// Returns the placeholder for text `number`: letters that no program can predict.
fn text_placeholder(number: usize) -> [u8; PLACEHOLDER_BYTES] {
    static RANDOM: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(PLACEHOLDER_BYTES));
    let nibble = |at: usize| (*RANDOM >> (4 * at) & 0xf) as u8;
    let mut mark: [u8; PLACEHOLDER_BYTES] = std::array::from_fn(|at| b'a' + nibble(at));
    mark[0] = b'a' + number as u8;
    mark
}

fn uppercase_placeholder(number: usize) -> [u8; PLACEHOLDER_BYTES] {
    text_placeholder(number).map(|byte| byte.to_ascii_uppercase())
}

/// An entry or exit event of a call whose texts may be in the exit event.
#[derive(Debug, Clone)]
pub(crate) struct CallSide {
    /// Number of the call in its trace.
    number: usize,
    is_entry: bool,
    /// Names of the texts that the exit event may have.
    texts: Vec<String>,
    /// For an entry: the bits of `incomplete` for its texts; empty if not known.
    bits: Vec<u64>,
    /// Roles of the members of each scope, by [`Scope`] and the members' order.
    members: [Vec<MemberRole>; 3],
}

impl CallSide {
    /// Returns the side of each event of a trace, by the indexes of its stream class and event
    /// class.
    pub(crate) fn all_of(trace: &Trace) -> Vec<Vec<Option<Self>>> {
        let events = || trace.streams().iter().flat_map(|stream| stream.events());
        let mut returned: HashMap<String, HashSet<&str>> = HashMap::new();
        for event in events() {
            if let Some((name, false)) = parse_call_side(event) {
                returned.entry(name).or_default().extend(field_names_of_kind(event, is_text_list));
            }
        }
        let mut calls: HashMap<String, (usize, Vec<String>)> = HashMap::new();
        for event in events() {
            let Some((name, true)) = parse_call_side(event) else { continue };
            let Some(returned) = returned.get(&name) else { continue };
            let texts = field_names_of_kind(event, |kind| matches!(kind, Type::Text));
            let texts: Vec<String> = texts
                .filter(|text| returned.contains(text))
                .take(TEXTS_MAX)
                .map(str::to_owned)
                .collect();
            if !texts.is_empty() {
                let number = calls.len();
                calls.entry(name).or_insert((number, texts));
            }
        }
        let call = |stream: &StreamClass, event: &EventClass| {
            let (name, is_entry) = parse_call_side(event)?;
            let (number, texts) = calls.get(&name)?;
            let members = member_roles(stream, event, texts);
            let bits = incomplete_bits(event, texts).unwrap_or_default();
            Some(Self { number: *number, is_entry, texts: texts.clone(), bits, members })
        };
        let of_stream = |stream: &StreamClass| {
            stream.events().iter().map(|event| call(stream, event)).collect()
        };
        trace.streams().iter().map(of_stream).collect()
    }

    pub(crate) const fn is_entry(&self) -> bool {
        self.is_entry
    }

    /// Returns the number of the call in its trace.
    pub(crate) const fn number(&self) -> usize {
        self.number
    }

    /// Reads the call's values from an event.
    ///
    /// # Errors
    ///
    /// Returns an error if the event's bytes are damaged.
    pub(crate) fn observe(
        &self,
        body: &mut EventBody<'_, '_, '_>,
    ) -> Result<ObservedCall<'_>, DecodeError> {
        let mut observed = ObservedCall::new(self);
        body.peek(&mut observed)?;
        Ok(observed)
    }

    /// Builds the line and the filter values of an entry that lacks texts, to be completed later.
    pub(crate) fn build_late_entry<F: EventEncoder>(
        &self,
        observed: &ObservedCall<'_>,
        format: &mut F,
        line: Line<'_>,
        body: &EventBody<'_, '_, '_>,
        filters: Option<&ClassFilters>,
    ) -> Option<LateEntry> {
        let missing: Vec<usize> = observed.missing().collect();
        let incomplete = if self.bits.is_empty() {
            // Without known bits, each set bit must belong to a missing text.
            (observed.incomplete.count_ones() as usize == missing.len()).then_some(0)
        } else {
            Some(missing.iter().fold(observed.incomplete, |bits, &text| bits & !self.bits[text]))
        };
        let mut line_with = |mark: fn(usize) -> [u8; PLACEHOLDER_BYTES]| {
            let marks: Vec<_> = missing.iter().map(|&text| mark(text)).collect();
            let names = missing.iter().map(|&text| self.texts[text].as_str());
            let texts: Vec<_> = names.zip(&marks).map(|(name, mark)| (name, &mark[..])).collect();
            body.with_replacement(Replacement { texts: &texts, incomplete }, |mut body| {
                let question = filters.and_then(|filters| filters.gather(&mut body).ok());
                let mut out = Vec::new();
                format.push_event(&mut out, line, body).ok().map(|_| (out, question))
            })
        };
        let (marked, question) = line_with(text_placeholder)?;
        let (other, _) = line_with(uppercase_placeholder)?;
        let places = differing_ranges(&marked, &other);
        let is_found = F::CAN_EXCHANGE_TEXTS
            && places.len() == missing.len()
            && places.iter().all(|place| place.len() == PLACEHOLDER_BYTES);
        if F::HAS_BYTES && !is_found {
            return None;
        }
        let caller = (observed.thread?, self.number);
        Some(LateEntry { caller, missing, line: marked, places, question, found: None })
    }
}

/// Returns the call that an event belongs to, and true if the event is the entry.
fn parse_call_side(event: &EventClass) -> Option<(String, bool)> {
    let name = event.name()?;
    let of = |side: &str| name.split_once(side).map(|(before, call)| format!("{before}{call}"));
    of(SYSCALL_ENTRY)
        .map(|call| (call, true))
        .or_else(|| of(SYSCALL_EXIT).map(|call| (call, false)))
}

/// Returns the roles of the members of an event's scopes, for a call with `texts`.
fn member_roles(
    stream: &StreamClass,
    event: &EventClass,
    texts: &[String],
) -> [Vec<MemberRole>; 3] {
    let of = |scope: Option<&Struct>, what: &dyn Fn(&str) -> MemberRole| -> Vec<MemberRole> {
        let members = scope.map(Struct::members).unwrap_or_default().iter();
        members.filter(|member| !member.is_hidden()).map(|member| what(member.name())).collect()
    };
    let context =
        |name: &str| if name == THREAD_CONTEXT { MemberRole::Thread } else { MemberRole::Other };
    let field = |name: &str| match texts.iter().position(|text| text == name) {
        Some(number) => MemberRole::Text(number),
        None if name == INCOMPLETE => MemberRole::Incomplete,
        None => MemberRole::Other,
    };
    let of_stream = match stream.event_context() {
        Some(Type::Struct(context)) => Some(context),
        _ => None,
    };
    [of(of_stream, &context), of(event.context(), &context), of(event.fields(), &field)]
}

/// Returns the bits of an entry's `incomplete` for its texts; bit n belongs to argument n. Returns
/// `None` if an argument before a text has several fields or is no argument.
fn incomplete_bits(event: &EventClass, texts: &[String]) -> Option<Vec<u64>> {
    let members = event.fields()?.members().iter().filter(|member| !member.is_hidden());
    let single = |member: &&Member| {
        matches!(member.kind(), Type::Integer(_) | Type::Enumeration(_) | Type::Text)
    };
    let arguments: Vec<&str> = members.take_while(single).map(Member::name).collect();
    let bit = |text: &String| {
        let argument = arguments.iter().position(|name| name == text)?;
        1_u64.checked_shl(u32::try_from(argument).ok()?)
    };
    texts.iter().map(bit).collect()
}

/// Returns the names of an event's fields whose type satisfies `is_it`.
fn field_names_of_kind(event: &EventClass, is_it: fn(&Type) -> bool) -> impl Iterator<Item = &str> {
    let members = event.fields().map(Struct::members).unwrap_or_default();
    members.iter().filter(move |member| is_it(member.kind())).map(Member::name)
}

fn is_text_list(kind: &Type) -> bool {
    matches!(kind, Type::Sequence(sequence) if matches!(sequence.element(), Type::Text))
}

/// Returns the ranges in which two lines of equal length differ.
fn differing_ranges(one: &[u8], other: &[u8]) -> Vec<Range<usize>> {
    let mut places: Vec<Range<usize>> = Vec::new();
    if one.len() != other.len() {
        return places;
    }
    for (at, (one, other)) in one.iter().zip(other).enumerate() {
        match places.last_mut() {
            _ if one == other => {}
            Some(place) if place.end == at => place.end += 1,
            _ => places.push(at..at + 1),
        }
    }
    places
}

/// An entry into a call or an exit from it, by one thread; an exit may have texts of the call.
#[derive(Debug)]
pub(crate) struct CallBoundary {
    /// Index in the batch of the boundary's own event, or of the event after it.
    pub(crate) mark: usize,
    pub(crate) time: i64,
    /// Id of the thread, and number of the call.
    pub(crate) caller: (u64, usize),
    /// Texts of an exit, by their numbers; empty if it has none.
    pub(crate) texts: Vec<Vec<u8>>,
}

impl CallBoundary {
    pub(crate) fn size(&self) -> usize {
        size_of::<Self>()
            + self.texts.iter().map(|text| size_of_val(text) + text.len()).sum::<usize>()
    }
}

/// An entry that lacks texts, with its line and filter values.
#[derive(Debug)]
pub(crate) struct LateEntry {
    /// Id of the thread, and number of the call.
    pub(crate) caller: (u64, usize),
    /// Numbers of the missing texts.
    missing: Vec<usize>,
    /// Line with placeholders for the texts, and the ranges of the placeholders.
    line: Vec<u8>,
    places: Vec<Range<usize>>,
    /// Values that filters need from the entry, with placeholders.
    pub(crate) question: Option<GatheredEvent>,
    /// Found texts, in the order of `missing`.
    found: Option<Vec<Vec<u8>>>,
}

impl LateEntry {
    pub(crate) fn size(&self) -> usize {
        size_of::<Self>() + self.line.len() + self.question.as_ref().map_or(0, GatheredEvent::size)
    }

    /// Stores the texts of the exit, if they include all missing ones.
    pub(crate) fn take(&mut self, texts: &[Vec<u8>]) {
        let text = |&number: &usize| texts.get(number).filter(|text| !text.is_empty()).cloned();
        self.found = self.missing.iter().map(text).collect();
    }

    /// Replaces the placeholders in the filter values by the found texts, or by empty texts.
    pub(crate) fn answer(&mut self) {
        let Some(question) = &mut self.question else { return };
        for (place, &number) in self.missing.iter().enumerate() {
            let text = self.found.as_ref().and_then(|found| found.get(place));
            question.replace(&text_placeholder(number), text.map_or(&[], Vec::as_slice));
        }
    }

    /// Returns the line with its texts, if they were found.
    pub(crate) fn line(&self, format: &impl EventEncoder) -> Option<Vec<u8>> {
        let found = self.found.as_ref()?;
        let (mut line, mut end) = (Vec::with_capacity(self.line.len() + 256), 0);
        for (place, text) in self.places.iter().zip(found) {
            line.extend_from_slice(self.line.get(end..place.start)?);
            format.push_text(&mut line, text);
            end = place.end;
        }
        line.extend_from_slice(self.line.get(end..)?);
        Some(line)
    }
}

/// The values of an entry or exit event.
pub(crate) struct ObservedCall<'c> {
    call: &'c CallSide,
    thread: Option<u64>,
    incomplete: u64,
    /// Bit set of the texts that are present.
    present: u64,
    /// Texts of an exit.
    texts: Option<Vec<Vec<u8>>>,
    /// Roles of the remaining members of the current scope.
    members: std::slice::Iter<'c, MemberRole>,
    depth: u32,
    next: MemberRole,
}

/// The role of a value in a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MemberRole {
    Other,
    Thread,
    Incomplete,
    Text(usize),
}

impl<'c> ObservedCall<'c> {
    fn new(call: &'c CallSide) -> Self {
        Self {
            call,
            thread: None,
            incomplete: 0,
            present: 0,
            texts: None,
            members: [].iter(),
            depth: 0,
            next: MemberRole::Other,
        }
    }
}

impl ObservedCall<'_> {
    /// Returns the event as an entry or exit of its thread.
    pub(crate) fn boundary(&self, time: Option<i64>) -> Option<CallBoundary> {
        let texts = self.texts.clone().unwrap_or_default();
        Some(CallBoundary { mark: 0, time: time?, caller: (self.thread?, self.call.number), texts })
    }

    /// Returns true if the event is an entry that lacks texts.
    pub(crate) fn lacks_texts(&self) -> bool {
        self.call.is_entry && self.incomplete != 0 && self.missing().next().is_some()
    }

    /// Returns the numbers of the texts that an entry lacks. An empty text without a set bit was
    /// empty in memory.
    fn missing(&self) -> impl Iterator<Item = usize> {
        let is_set =
            |text: usize| self.call.bits.get(text).is_none_or(|bit| self.incomplete & bit != 0);
        let texts = 0..self.call.texts.len();
        texts.filter(move |&text| self.present & 1 << text == 0 && is_set(text))
    }
}

impl Sink for ObservedCall<'_> {
    fn integer(&mut self, _: &Integer, value: u64) {
        match self.next {
            MemberRole::Thread => self.thread = Some(value),
            MemberRole::Incomplete => self.incomplete = value,
            MemberRole::Other | MemberRole::Text(_) => {}
        }
    }

    fn enumeration(&mut self, _: &Enumeration, _: u64) {}

    fn float(&mut self, _: f64) {}

    fn text(&mut self, bytes: &[u8]) {
        let MemberRole::Text(number) = self.next else { return };
        if bytes.is_empty() || self.present & 1 << number != 0 {
            return;
        }
        self.present |= 1 << number;
        if !self.call.is_entry {
            let count = self.call.texts.len();
            let texts = self.texts.get_or_insert_with(|| vec![Vec::new(); count]);
            bytes.clone_into(&mut texts[number]);
        }
    }

    fn begin_struct(&mut self) {
        self.depth += 1;
    }

    fn member(&mut self, _: &Member) {
        let next = if self.depth == 1 { self.members.next() } else { None };
        self.next = next.copied().unwrap_or(MemberRole::Other);
    }

    fn end_struct(&mut self) {
        self.depth -= 1;
    }
}

impl EventSink for ObservedCall<'_> {
    fn begin_scope(&mut self, scope: Scope) {
        (self.members, self.depth) = (self.call.members[scope as usize].iter(), 0);
    }
}
