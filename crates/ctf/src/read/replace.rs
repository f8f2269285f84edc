//! Events read with some of their texts replaced. An example is a system call whose file name was
//! not in memory at its entry; the event of its exit has the name.

use super::decode::Sink;
use super::stream::EventSink;
use crate::model::scope::Scope;
use crate::model::types::{Enumeration, Integer, Member, VariantOption};

/// Name of the payload's last member, whose value flags incomplete arguments.
pub const INCOMPLETE: &str = "incomplete";

/// Values that the reader substitutes for the event's own values.
#[derive(Debug, Clone, Copy)]
pub struct Replacement<'r> {
    /// Names of texts in the payload, each with its replacement.
    pub texts: &'r [(&'r str, &'r [u8])],
    /// Value for [`INCOMPLETE`]; `None` keeps the event's value.
    pub incomplete: Option<u64>,
}

/// Sink that passes an event's fields to another sink, with some values replaced.
pub(super) struct Replacing<'s, 'r, S> {
    sink: &'s mut S,
    by: Replacement<'r>,
    is_payload: bool,
    depth: u32,
    /// Replacement for the next text.
    text: Option<&'r [u8]>,
    /// Replacement for the next number.
    number: Option<u64>,
}

impl<'s, 'r, S> Replacing<'s, 'r, S> {
    pub(super) const fn new(sink: &'s mut S, by: Replacement<'r>) -> Self {
        Self { sink, by, is_payload: false, depth: 0, text: None, number: None }
    }
}

impl<S: Sink> Sink for Replacing<'_, '_, S> {
    fn integer(&mut self, kind: &Integer, value: u64) {
        self.sink.integer(kind, self.number.unwrap_or(value));
    }

    fn enumeration(&mut self, kind: &Enumeration, value: u64) {
        self.sink.enumeration(kind, value);
    }

    fn float(&mut self, value: f64) {
        self.sink.float(value);
    }

    fn text(&mut self, bytes: &[u8]) {
        self.sink.text(self.text.unwrap_or(bytes));
    }

    fn blob(&mut self, byte: &Integer, bytes: &[u8]) {
        self.sink.blob(byte, bytes);
    }

    fn begin_struct(&mut self) {
        self.depth += 1;
        self.sink.begin_struct();
    }

    fn member(&mut self, member: &Member) {
        let is_argument = self.is_payload && self.depth == 1;
        let name = member.name();
        let mut texts =
            self.by.texts.iter().filter(|(replaced, _)| is_argument && *replaced == name);
        self.text = texts.next().map(|&(_, text)| text);
        self.number = self.by.incomplete.filter(|_| is_argument && name == INCOMPLETE);
        self.sink.member(member);
    }

    fn end_struct(&mut self) {
        self.depth -= 1;
        self.sink.end_struct();
    }

    fn begin_array(&mut self) {
        self.sink.begin_array();
    }

    fn element(&mut self, index: u64) {
        self.sink.element(index);
    }

    fn end_array(&mut self) {
        self.sink.end_array();
    }

    fn begin_variant(&mut self, option: &VariantOption) {
        self.sink.begin_variant(option);
    }

    fn end_variant(&mut self) {
        self.sink.end_variant();
    }

    fn nothing(&mut self) {
        self.sink.nothing();
    }
}

impl<S: EventSink> EventSink for Replacing<'_, '_, S> {
    fn begin_scope(&mut self, scope: Scope) {
        self.is_payload = scope == Scope::Fields;
        self.sink.begin_scope(scope);
    }
}
