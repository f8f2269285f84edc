//! The values that a filter needs, gathered while an event is decoded.

use trackway_ctf::read::{Enumeration, EventSink, Integer, Member, Scope, Sink};
use trackway_ctf::write::application_member;
use trackway_filter::evaluate::Values;
use trackway_filter::types::{MemberPath, Root, Step};
use trackway_jit::Kind;

/// The places of a filter's needed values in an event, as a tree of names and elements.
#[derive(Debug)]
pub(crate) struct Plan {
    places: Vec<GatherNode>,
    needs: usize,
}

/// A place in an event that is a needed value or contains one.
#[derive(Debug, Default)]
struct GatherNode {
    members: Vec<(String, usize)>,
    elements: Vec<(u64, usize)>,
    need: Option<usize>,
}

/// Index of the payload in [`Plan::places`]; the contexts have the next index.
const FIELDS: usize = 0;
const CONTEXTS: usize = 1;

impl Plan {
    /// Creates a plan for `needs`, whose places must all differ.
    pub(crate) fn new<'n>(needs: impl ExactSizeIterator<Item = &'n MemberPath>) -> Self {
        let mut plan =
            Self { places: vec![GatherNode::default(), GatherNode::default()], needs: needs.len() };
        for (number, need) in needs.enumerate() {
            plan.add(number, need);
        }
        plan
    }

    fn add(&mut self, number: usize, need: &MemberPath) {
        let root = match need.root {
            Root::Field => FIELDS,
            Root::Context => CONTEXTS,
            Root::Application => CONTEXTS,
        };
        let mut at = match need.root {
            Root::Application => self.member(root, &application_member(&need.name)),
            _ => self.member(root, &need.name),
        };
        for step in &need.steps {
            at = match step {
                Step::Member(name) => self.member(at, name),
                Step::Element(index) => self.element(at, *index),
            };
        }
        self.places[at].need = Some(number);
    }

    fn member(&mut self, of: usize, name: &str) -> usize {
        let known = self.places[of].members.iter().find(|(known, _)| known == name);
        if let Some(&(_, at)) = known {
            return at;
        }
        let at = self.new_place();
        self.places[of].members.push((name.to_owned(), at));
        at
    }

    fn element(&mut self, of: usize, index: u64) -> usize {
        let known = self.places[of].elements.iter().find(|&&(known, _)| known == index);
        if let Some(&(_, at)) = known {
            return at;
        }
        let at = self.new_place();
        self.places[of].elements.push((index, at));
        at
    }

    fn new_place(&mut self) -> usize {
        self.places.push(GatherNode::default());
        self.places.len() - 1
    }
}

/// The gathered value of a need.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Found {
    Nothing,
    Number(u64),
    /// A range of the gathered bytes.
    Text(usize, usize),
    /// A range of the gathered numbers.
    Elements(usize, usize),
}

/// The values of one event that a filter needs.
#[derive(Debug, Default, Clone)]
pub(crate) struct Gather {
    found: Vec<Found>,
    /// Kind of each need, if it depends on the record: that of a variant's value.
    kinds: Vec<Option<Kind>>,
    bytes: Vec<u8>,
    numbers: Vec<u64>,
    /// Places of the open structures and arrays.
    open: Vec<Option<usize>>,
}

impl Gather {
    /// Returns the kind of a need's value in this record; `None` if it has no value.
    pub(crate) fn kind(&self, need: usize) -> Option<Kind> {
        self.kinds.get(need).copied().flatten()
    }

    /// Returns the approximate memory size in bytes.
    pub(crate) const fn size(&self) -> usize {
        size_of::<Self>()
            + self.found.len() * (size_of::<Found>() + size_of::<Option<Kind>>())
            + self.bytes.len()
            + self.numbers.len() * size_of::<u64>()
    }

    /// Replaces all texts that are equal to `old` by `new`.
    pub(crate) fn replace(&mut self, old: &[u8], new: &[u8]) {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(new);
        for found in &mut self.found {
            if let Found::Text(from, to) = *found
                && self.bytes.get(from..to) == Some(old)
            {
                *found = Found::Text(begin, begin + new.len());
            }
        }
    }

    /// Begins gathering the values of an event.
    pub(crate) fn begin<'g>(&'g mut self, plan: &'g Plan) -> Gathering<'g> {
        self.found.clear();
        self.found.resize(plan.needs, Found::Nothing);
        self.kinds.clear();
        self.kinds.resize(plan.needs, None);
        self.bytes.clear();
        self.numbers.clear();
        self.open.clear();
        Gathering { plan, gather: self, at: None }
    }
}

/// A sink that gathers an event's values while the event is decoded.
pub(crate) struct Gathering<'g> {
    plan: &'g Plan,
    gather: &'g mut Gather,
    /// Place of the next value, if the plan contains it.
    at: Option<usize>,
}

impl Gathering<'_> {
    fn place(&self) -> Option<&GatherNode> {
        self.plan.places.get(self.at?)
    }

    fn put(&mut self, found: Found, kind: Kind) {
        if let Some(need) = self.place().and_then(|place| place.need) {
            self.gather.found[need] = found;
            self.gather.kinds[need] = Some(kind);
        }
    }

    fn number(&mut self, value: u64, kind: Kind) {
        if let Some(need) = self.open_elements() {
            let end = self.gather.numbers.len() + 1;
            self.gather.numbers.push(value);
            if let Found::Elements(_, old_end) = &mut self.gather.found[need] {
                *old_end = end;
            }
        }
        self.put(Found::Number(value), kind);
    }

    /// Returns the need whose value is the innermost open array.
    fn open_elements(&self) -> Option<usize> {
        let need = self.plan.places.get((*self.gather.open.last()?)?)?.need?;
        matches!(self.gather.found[need], Found::Elements(..)).then_some(need)
    }
}

impl Sink for Gathering<'_> {
    fn integer(&mut self, kind: &Integer, value: u64) {
        let value = if kind.is_boolean() { u64::from(value != 0) } else { value };
        self.number(value, if kind.is_signed() { Kind::Signed } else { Kind::Unsigned });
    }

    fn enumeration(&mut self, of: &Enumeration, value: u64) {
        let is_signed = of.integer().is_signed();
        self.number(value, if is_signed { Kind::Signed } else { Kind::Unsigned });
    }

    fn float(&mut self, value: f64) {
        self.number(value.to_bits(), Kind::Float);
    }

    fn text(&mut self, bytes: &[u8]) {
        if self.place().is_some_and(|place| place.need.is_some()) {
            let begin = self.gather.bytes.len();
            self.gather.bytes.extend_from_slice(bytes);
            self.put(Found::Text(begin, self.gather.bytes.len()), Kind::String);
        }
    }

    fn begin_struct(&mut self) {
        self.gather.open.push(self.at.take());
    }

    fn member(&mut self, member: &Member) {
        let of = self.gather.open.last().copied().flatten();
        let members = of.and_then(|of| self.plan.places.get(of)).map(|place| &place.members);
        let named = members.and_then(|members| {
            members.iter().find(|(name, _)| name == member.key()).map(|&(_, at)| at)
        });
        self.at = named;
    }

    fn end_struct(&mut self) {
        self.gather.open.pop();
        self.at = None;
    }

    fn begin_array(&mut self) {
        let begin = self.gather.numbers.len();
        self.put(Found::Elements(begin, begin), Kind::Sequence);
        self.gather.open.push(self.at.take());
    }

    fn element(&mut self, index: u64) {
        let of = self.gather.open.last().copied().flatten();
        let elements = of.and_then(|of| self.plan.places.get(of)).map(|place| &place.elements);
        self.at = elements.and_then(|elements| {
            elements.iter().find(|&&(element, _)| element == index).map(|&(_, at)| at)
        });
    }

    fn end_array(&mut self) {
        self.gather.open.pop();
        self.at = None;
    }
}

impl EventSink for Gathering<'_> {
    fn begin_scope(&mut self, scope: Scope) {
        self.at = Some(match scope {
            Scope::StreamContext | Scope::EventContext => CONTEXTS,
            Scope::Fields => FIELDS,
        });
    }
}

impl Values for Gather {
    fn number(&self, need: usize) -> Option<u64> {
        match self.found.get(need)? {
            Found::Number(number) => Some(*number),
            _ => None,
        }
    }

    fn string(&self, need: usize) -> Option<&[u8]> {
        match *self.found.get(need)? {
            Found::Text(begin, end) => self.bytes.get(begin..end),
            _ => None,
        }
    }

    fn length(&self, need: usize) -> Option<u64> {
        match self.found.get(need)? {
            Found::Elements(begin, end) => Some((end - begin) as u64),
            _ => None,
        }
    }

    fn element(&self, need: usize, index: u64) -> Option<u64> {
        match *self.found.get(need)? {
            Found::Elements(begin, end) => {
                let numbers = self.numbers.get(begin..end)?;
                numbers.get(usize::try_from(index).ok()?).copied()
            }
            _ => None,
        }
    }
}
