//! What filters ask for of what lies behind pointers: read before they are asked, by the very steps
//! that record it, into the filter's area; from there it is recorded if they say yes. So it is read
//! once, and what is asked is what is recorded.
//!
//! ```text
//! the area's bytes: | length, what a step adds, what it takes apart | … | the filter's own |
//! ```
//!
//! A step has the same place in the areas of all filters of an event: the first that asks for it
//! has it read there; others, whose area is another one, copy it from there.

use std::collections::BTreeMap;

use trackway_jit::helper::Word;
use trackway_jit::insn::{STACK_END, alu, jump};
use trackway_schema::{FieldKind, Scalar};

use super::behind::{SOCKET_OTHER_BYTES_MAX, TEXTS_EACH_BYTES_MAX, TEXTS_MAX, Taken};
use super::filter::{element_bytes, into_bytes, length_to_word, widen, word};
use super::program::{AT, CPU, Maker, helper, short, stack};
use super::staging::{Staged, Step, VARIABLE_BYTES_MAX};
use crate::bpf_filter::area::{BYTES_AT, REGION_BYTES};
use crate::bpf_sys::asm::{Asm, Label};

/// Bytes of the length in front of what a step adds.
const LENGTH_BYTES: u32 = 8;
/// Where a socket's address has what (`Maker::socket`): lengths, and what is behind them.
const PORT_AT: u32 = 2;
const V4_LENGTH_AT: u32 = 4;
const V4_AT: u32 = 8;
/// If there is nothing in front of it.
const V6_LENGTH_AT: u32 = 8;
/// If there is nothing in front of it either.
const DATA_LENGTH_AT: u32 = 12;
const PATHS_AT: u32 = 16;
const PATH_AT: u32 = 20;

/// Steps that were read, by number, with the map of the area that they are in.
pub(super) type Homes = BTreeMap<usize, i32>;

/// What is asked for of what a step adds. Offsets are in that.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part {
    /// All of it, which is text.
    Text,
    Scalar {
        at: u32,
        scalar: Scalar,
    },
    Array {
        at: u32,
        length: u32,
    },
    /// Text in so many bytes.
    ArrayText {
        at: u32,
        bytes: u32,
    },
    Sequence(Elements),
    Element {
        of: Elements,
        index: u32,
        scalar: Scalar,
    },
    /// The path of a socket that has one.
    Path,
    /// The only text, if there is one.
    Only,
    /// The text of this number.
    Nth(u32),
    /// An element that there never is.
    Never,
    /// What is missing so far.
    Incomplete,
}

/// Where elements are.
#[derive(Debug, Clone, Copy)]
pub(super) enum Elements {
    /// Behind `head` bytes and, for each element, `before` bytes; `most` at most.
    Members {
        head: u32,
        before: u32,
        most: u32,
    },
    /// Bytes of an address of the internet.
    V4,
    V6,
    /// Of one of another kind, behind the family.
    Data,
}

impl Part {
    /// Bytes of its own that it needs in the area.
    pub(super) const fn own_bytes(self) -> u32 {
        match self {
            Self::ArrayText { bytes, .. } => bytes,
            Self::Nth(_) => TEXTS_EACH_BYTES_MAX,
            _ => 0,
        }
    }
}

/// The step that a field is of, and which of its fields that is.
pub(super) fn owner(staged: &Staged, field: usize) -> Option<(usize, usize)> {
    let until = staged.steps.get(..=field)?;
    let owner = until.iter().rposition(|step| *step != Step::Within)?;
    Some((owner, field - owner))
}

/// Whether a step is read before filters are asked.
pub(super) fn is_ahead(step: &Step) -> bool {
    step.is_users() || *step == Step::Incomplete
}

/// The steps that have to be read for the part of one: what is missing is known when all are.
pub(super) fn steps_for(staged: &Staged, owner: usize) -> impl Iterator<Item = usize> {
    let is_all = staged.steps.get(owner) == Some(&Step::Incomplete);
    let steps = staged.steps.iter().enumerate();
    steps.filter(move |(at, step)| step.is_users() && (is_all || *at == owner)).map(|(at, _)| at)
}

/// Where in the area's bytes the length of what a step adds is.
fn place(staged: &Staged, step: usize) -> u32 {
    let before = staged.steps.iter().take(step).filter(|step| step.is_users());
    before.map(|step| LENGTH_BYTES + step.all_bytes(&staged.taken).next_multiple_of(8)).sum()
}

/// Where the filters' own bytes begin.
pub(super) fn end(staged: &Staged) -> u32 {
    place(staged, staged.steps.len())
}

/// Which part of what a step adds a field is, or its element of this number; `None`: there is
/// never such a thing.
pub(super) fn part(
    staged: &Staged,
    (owner, member): (usize, usize),
    field: &FieldKind,
    index: Option<u32>,
) -> Option<Part> {
    let size = element_bytes(field);
    let scalar = match *field {
        FieldKind::Scalar(scalar) | FieldKind::Enumeration(scalar, _) => Some(scalar),
        FieldKind::Array(scalar, _) | FieldKind::Sequence(scalar) => Some(scalar),
        _ => None,
    };
    let fixed = |at: u32| match (field, index) {
        (FieldKind::Array(_, length), None) => Some(Part::Array { at, length: (*length).into() }),
        _ => Some(Part::Scalar { at: at + index.unwrap_or(0) * size, scalar: scalar? }),
    };
    let some = |of: Elements| match index {
        None => Some(Part::Sequence(of)),
        Some(index) if index < of.most() => Some(Part::Element { of, index, scalar: scalar? }),
        Some(_) => None,
    };
    let taken = |number: u8| staged.taken.get(usize::from(number));
    match *staged.steps.get(owner)? {
        Step::UserText(_) => Some(Part::Text),
        Step::UserTextAgain(_) => Some(if index? == 0 { Part::Only } else { Part::Never }),
        Step::UserTexts(_) => {
            Some(if index? < TEXTS_MAX { Part::Nth(index?) } else { Part::Never })
        }
        Step::User(..) => fixed(0),
        Step::UserElements(_, _, bytes) => {
            some(Elements::Members { head: 4, before: 0, most: VARIABLE_BYTES_MAX / bytes })
        }
        Step::Structure(_, number) => {
            let of = taken(number)?;
            let &(offset, bytes, is_text) = of.members.get(member)?;
            // As it was read, unless it is recorded as it was read.
            let at = if of.is_packed() { offset } else { of.members_bytes() + offset };
            if is_text { Some(Part::ArrayText { at, bytes }) } else { fixed(at) }
        }
        Step::Structures(_, _, number) => some(members(taken(number)?, member)?),
        Step::SocketAddress(..) | Step::Message(_) => match member {
            0 => fixed(0),
            1 => fixed(PORT_AT),
            2 => some(Elements::V4),
            3 => some(Elements::V6),
            4 => some(Elements::Data),
            _ => Some(if index? == 0 { Part::Path } else { Part::Never }),
        },
        Step::Incomplete => Some(Part::Incomplete),
        _ => None,
    }
}

/// Where elements of this member of structures are.
fn members(of: &Taken, member: usize) -> Option<Elements> {
    let before = of.members.get(..member)?.iter().map(|(_, bytes, _)| bytes).sum();
    let head = 4 * (member as u32 + 1);
    Some(Elements::Members { head, before, most: of.count_max() })
}

impl Elements {
    const fn most(self) -> u32 {
        match self {
            Self::Members { most, .. } => most,
            Self::V4 => 4,
            Self::V6 => 16,
            Self::Data => SOCKET_OTHER_BYTES_MAX - 2,
        }
    }

    /// How many there are, in r2, and where the first is, in r3, from the beginning of what the
    /// step adds, which is at `base` in the area. Goes to `out` if that makes no sense.
    fn find(self, asm: &mut Asm, base: i16, out: Label) {
        match self {
            Self::Members { head, before, most } => {
                asm.load_of(4, 2, AT, base);
                asm.jumpi(jump::JGT, 2, most as i32, out);
                asm.mov(3, 2);
                asm.alui(alu::MUL, 3, before as i32);
                asm.alui(alu::ADD, 3, head as i32);
            }
            Self::V4 => {
                asm.load_of(4, 2, AT, base + V4_LENGTH_AT as i16);
                asm.jumpi(jump::JGT, 2, self.most() as i32, out);
                asm.movi(3, V4_AT as i32);
            }
            Self::V6 => {
                asm.load_of(4, 3, AT, base + V4_LENGTH_AT as i16);
                asm.jumpi(jump::JGT, 3, Self::V4.most() as i32, out);
                asm.mov(4, AT);
                asm.alu(alu::ADD, 4, 3);
                asm.load_of(4, 2, 4, base + V6_LENGTH_AT as i16);
                asm.jumpi(jump::JGT, 2, self.most() as i32, out);
                asm.alui(alu::ADD, 3, V6_LENGTH_AT as i32 + 4);
            }
            Self::Data => {
                Self::V6.find(asm, base, out);
                asm.alu(alu::ADD, 3, 2);
                asm.mov(4, AT);
                asm.alu(alu::ADD, 4, 3);
                asm.load_of(4, 2, 4, base);
                asm.jumpi(jump::JGT, 2, self.most() as i32, out);
                asm.alui(alu::ADD, 3, 4);
            }
        }
    }
}

/// Where a step's length is in an area, and what it adds.
fn places(staged: &Staged, step: usize) -> (i16, i16) {
    let length = BYTES_AT + short(place(staged, step) as usize);
    (length, length + LENGTH_BYTES as i16)
}

impl Maker<'_> {
    /// The address, in r0, of the area of this map that belongs to this CPU and level.
    pub(super) fn find_area(&mut self, fd: i32, out: Label) {
        let asm = &mut self.asm;
        asm.map(1, fd);
        asm.mov(2, STACK_END);
        asm.alui(alu::ADD, 2, stack::KEY.into());
        asm.call_kernel(helper::MAP_LOOKUP_ELEM);
        // (There is one for each.)
        asm.jumpi(jump::JEQ, 0, 0, out);
    }

    /// Has these steps in the area that [`AT`] points to: reads those that were not read yet,
    /// copies those that are in another one.
    pub(super) fn read_ahead(&mut self, steps: &[usize], fd: i32, homes: &mut Homes, out: Label) {
        let mut read = Vec::new();
        for &step in steps {
            match homes.get(&step) {
                Some(&home) if home != fd => self.copy_from_area(step, home, out),
                Some(_) => {}
                None => {
                    homes.insert(step, fd);
                    read.push(step);
                }
            }
        }
        if read.is_empty() {
            return;
        }
        // What steps take for the CPU's part is the area.
        let staged = self.staged;
        self.asm.store(STACK_END, stack::PART, CPU);
        self.asm.mov(CPU, AT);
        let reach = core::mem::replace(&mut self.reach, BYTES_AT as usize + REGION_BYTES);
        for &number in &read {
            let (length, content) = places(staged, number);
            self.asm.movi(AT, content.into());
            self.user_step(&staged.steps[number]);
            self.asm.alui(alu::SUB, AT, content.into());
            self.asm.store(CPU, length, AT);
        }
        self.reach = reach;
        self.asm.mov(AT, CPU);
        self.asm.load(CPU, STACK_END, stack::PART);
        self.count_missing(&read);
    }

    fn copy_from_area(&mut self, step: usize, home: i32, out: Label) {
        let (length, _) = places(self.staged, step);
        let bytes = LENGTH_BYTES + self.staged.steps[step].all_bytes(&self.staged.taken);
        self.find_area(home, out);
        let asm = &mut self.asm;
        asm.mov(3, 0);
        asm.alui(alu::ADD, 3, length.into());
        asm.mov(1, AT);
        asm.alui(alu::ADD, 1, length.into());
        asm.movi(2, bytes as i32);
        asm.call_kernel(helper::PROBE_READ_KERNEL);
    }

    /// Counts the event, once, if one of these steps found that what it should read was not in
    /// memory.
    fn count_missing(&mut self, steps: &[usize]) {
        let (is_missing, is_done) = (self.asm.label(), self.asm.label());
        for &step in steps {
            self.if_missing(step, is_missing);
        }
        self.asm.goto(is_done);
        self.asm.place(is_missing);
        self.asm.load(1, STACK_END, stack::MISSING);
        self.asm.jumpi(jump::JNE, 1, 0, is_done);
        self.asm.storei(STACK_END, stack::MISSING, 1);
        self.count_unread();
        self.asm.place(is_done);
    }

    /// Jumps there if what a step should read was not in memory. (What was cut is noted, too, but
    /// then something is there.)
    fn if_missing(&mut self, step: usize, is_missing: Label) {
        let (length, content) = places(self.staged, step);
        let of = &self.staged.steps[step];
        let bit = 1 << of.follows().map_or(7, |at| self.number(at));
        let asm = &mut self.asm;
        let is_there = asm.label();
        asm.load(1, STACK_END, stack::INCOMPLETE);
        asm.alui(alu::AND, 1, bit);
        asm.jumpi(jump::JEQ, 1, 0, is_there);
        match of {
            Step::User(..) | Step::Structure(..) => asm.goto(is_missing),
            // A NUL alone.
            Step::UserText(_) => {
                asm.load(1, AT, length);
                asm.jumpi(jump::JEQ, 1, 1, is_missing);
            }
            // No elements; of a socket neither family nor port.
            _ => {
                asm.load_of(4, 1, AT, content);
                asm.jumpi(jump::JEQ, 1, 0, is_missing);
            }
        }
        self.asm.place(is_there);
    }

    /// What a slot is filled with, in r1. `place` is where the filter has bytes of its own. Goes on
    /// at `goes_on` where nobody knows whether it is what is asked for, at `out` where there is no
    /// such number. A text that is not there is [`Word::ABSENT`].
    pub(super) fn part(
        &mut self,
        (step, part): (usize, Part),
        place: u32,
        (goes_on, out): (Label, Label),
    ) {
        if matches!(part, Part::Text) {
            self.if_missing(step, goes_on);
        }
        let (length, base) = places(self.staged, step);
        let offset = (base - BYTES_AT) as u32;
        let asm = &mut self.asm;
        let (is_absent, is_done) = (asm.label(), asm.label());
        match part {
            Part::Text => text_word(asm, length, (offset, 0)),
            Part::Scalar { at, scalar } => {
                asm.load_of(scalar.size_bytes() as u32, 1, AT, base + at as i16);
                widen(asm, scalar, 1);
            }
            Part::Array { at, length } => asm.wide(1, word(offset + at, length)),
            Part::ArrayText { at, bytes } => {
                asm.mov(3, AT);
                asm.alui(alu::ADD, 3, i32::from(base) + at as i32);
                into_bytes(asm, 1, place);
                asm.movi(2, bytes as i32);
                asm.call_kernel(helper::PROBE_READ_KERNEL_STR);
                length_to_word(asm, place);
            }
            Part::Sequence(of) => {
                of.find(asm, base, out);
                asm.mov(1, 2);
                asm.alui(alu::LSH, 1, 32);
                asm.alui(alu::ADD, 3, offset as i32);
                asm.alu(alu::OR, 1, 3);
            }
            Part::Element { of, index, scalar } => {
                let size = scalar.size_bytes() as u32;
                of.find(asm, base, out);
                asm.jumpi(jump::JLE, 2, index as i32, out);
                asm.alu(alu::ADD, 3, AT);
                asm.load_of(size, 1, 3, base + (index * size) as i16);
                widen(asm, scalar, 1);
            }
            Part::Path => {
                let lengths = [V4_LENGTH_AT, V6_LENGTH_AT, DATA_LENGTH_AT].map(|at| (at, 0));
                for (at, is) in lengths.into_iter().chain([(PATHS_AT, 1)]) {
                    asm.load_of(4, 1, AT, base + at as i16);
                    asm.jumpi(jump::JNE, 1, is, is_absent);
                }
                text_word(asm, length, (offset, PATH_AT));
            }
            Part::Only => {
                asm.load_of(4, 1, AT, base);
                asm.jumpi(jump::JEQ, 1, 0, is_absent);
                text_word(asm, length, (offset, 4));
            }
            Part::Nth(index) => nth(asm, index, (base, place), is_absent),
            Part::Never => asm.goto(is_absent),
            Part::Incomplete => asm.load(1, STACK_END, stack::INCOMPLETE),
        }
        if matches!(part, Part::Path | Part::Only | Part::Nth(_)) {
            asm.goto(is_done);
        }
        if matches!(part, Part::Path | Part::Only | Part::Nth(_) | Part::Never) {
            asm.place(is_absent);
            asm.wide(1, Word::ABSENT);
        }
        asm.place(is_done);
    }

    /// Adds what a step has read to an area, at [`AT`], and moves that on.
    pub(super) fn add_read(&mut self, step: usize, home: i32, out: Label) {
        let (length, content) = places(self.staged, step);
        let of = &self.staged.steps[step];
        let most = of.all_bytes(&self.staged.taken) - of.aside_bytes(&self.staged.taken);
        self.find_area(home, out);
        let asm = &mut self.asm;
        let fits = asm.label();
        asm.load(2, 0, length);
        // (It does, which the verifier does not know.)
        asm.jumpi(jump::JLE, 2, most as i32, fits);
        asm.movi(2, most as i32);
        asm.place(fits);
        asm.store(STACK_END, stack::COUNT, 2);
        asm.mov(3, 0);
        asm.alui(alu::ADD, 3, content.into());
        asm.mov(1, CPU);
        asm.alu(alu::ADD, 1, AT);
        asm.call_kernel(helper::PROBE_READ_KERNEL);
        asm.load(2, STACK_END, stack::COUNT);
        asm.alu(alu::ADD, AT, 2);
    }
}

/// The word, in r1, of text that ends what a step adds, with a NUL, and begins `skip` bytes behind
/// its beginning, which is at `offset`. Its length is in the area there.
fn text_word(asm: &mut Asm, length: i16, (offset, skip): (u32, u32)) {
    asm.load(1, AT, length);
    asm.alui(alu::SUB, 1, skip as i32 + 1);
    asm.alui(alu::LSH, 1, 32);
    asm.alui(alu::OR, 1, (offset + skip) as i32);
}

/// The word, in r1, of the text of this number of those behind their number at `base`. Each is
/// copied to `place`, to be told how long it is. If there are fewer: `is_absent`.
fn nth(asm: &mut Asm, index: u32, (base, place): (i16, u32), is_absent: Label) {
    let most = TEXTS_EACH_BYTES_MAX as i32;
    asm.load_of(4, 1, AT, base);
    asm.jumpi(jump::JLE, 1, index as i32, is_absent);
    asm.mov(3, AT);
    asm.alui(alu::ADD, 3, i32::from(base) + 4);
    for number in 0..=index {
        asm.store(STACK_END, stack::POINTER, 3);
        into_bytes(asm, 1, place);
        asm.movi(2, most);
        asm.call_kernel(helper::PROBE_READ_KERNEL_STR);
        asm.jumpi(jump::JSLE, 0, 0, is_absent);
        if number < index {
            let is_short = asm.label();
            asm.jumpi(jump::JLE, 0, most, is_short);
            asm.movi(0, most);
            asm.place(is_short);
            asm.load(3, STACK_END, stack::POINTER);
            asm.alu(alu::ADD, 3, 0);
        }
    }
    length_to_word(asm, place);
}
