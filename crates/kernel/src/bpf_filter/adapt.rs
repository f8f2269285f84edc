//! A filter's program, put together for the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use trackway_jit::helper::Helper;
use trackway_jit::insn::{
    CALL, EXIT, Insn, LDDW, LDDW_FUNCTION, STACK_END, alu, call, class, jump, source,
};
use trackway_jit::program::Program;
use trackway_jit::scan::{Known, Scan};
use trackway_jit::verify::Verified;

use super::{search, state, text, value, words};
use crate::bpf_filter::area::ANSWER_AT;
use crate::bpf_filter::pattern::Automata;
use crate::bpf_filter::search::Masks;
use crate::bpf_filter::state::Cells;
use crate::bpf_filter::value::{Fold, Scalar};
use crate::bpf_sys::asm::{Asm, Label, MAP_VALUE, OF_AREA};
use crate::bpf_sys::btf;

/// The register that has the code of a sequence's elements, and that with `any`'s function.
const SCALAR: u8 = 3;
const FUNCTION: u8 = 4;
/// Most stack that a function may use, in bytes.
const STACK_BYTES_MAX: i16 = 512;

/// Why a program is not one for the kernel: at this instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfit {
    /// It calls a helper that the kernel cannot have.
    Helper(usize, Helper),
    /// It calls a helper with an argument that must be known beforehand, and is not: the type of
    /// elements, or the function for them.
    Argument(usize, Helper),
    /// What calls a helper there has no room left on its stack.
    Stack(usize),
    /// What was put together is too long for its jumps.
    Long,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Helper(insn, helper) => {
                write!(f, "instruction {insn}: the kernel cannot do {}", helper.name())
            }
            Self::Argument(insn, helper) => {
                let name = helper.name();
                write!(f, "instruction {insn}: what {name} is given is not a plain constant")
            }
            Self::Stack(insn) => write!(f, "instruction {insn}: there is no stack left"),
            Self::Long => f.write_str("the program is too long"),
        }
    }
}

impl std::error::Error for Unfit {}

/// A function that is put behind the filter, because something calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Piece {
    Word,
    Compare,
    CompareTurn,
    StartsWith,
    EndsWith,
    /// Edges of so many bytes.
    Edges(u8),
    /// So many bytes and numbers.
    Differ(u8),
    /// Of the automata with these masks.
    Automaton(Masks),
    AutomatonTurn(Masks),
    /// For a pattern with stars, or what is to be anywhere.
    Search(bool),
    LettersTurn(bool),
    BordersTurn,
    SearchTurn,
    Hash,
    HashTurn,
    Element(Scalar),
    /// With this function of the filter.
    Any(Scalar, Label),
    AnyTurn(Scalar, Label),
    Fold(Scalar, Fold),
    FoldTurn(Scalar, Fold),
    FloatCompare,
    Count(Cells),
    Changed(Cells),
    Rate(Cells),
    RateTurn(Cells),
    Random,
}

/// A program that is being put together.
#[derive(Default)]
pub(crate) struct Parts {
    pub(crate) asm: Asm,
    labels: BTreeMap<Piece, Label>,
    /// Those that are still to be written.
    open: Vec<Piece>,
}

/// A filter that is being put into a program.
struct Part<'p> {
    scan: Scan<'p>,
    /// Where its own functions are, by their first instruction, and the stack that each uses.
    functions: BTreeMap<usize, (Label, u16)>,
    memory: Memory<'p>,
}

/// What a filter has besides its area.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory<'a> {
    pub(crate) cells: Cells,
    pub(crate) automata: &'a Automata,
    /// The map of the automata's masks; `None`: that is not made yet.
    pub(crate) masks_fd: Option<i32>,
}

impl Parts {
    /// Writes the functions that were asked for, and those that they ask for.
    pub(crate) fn write_pieces(&mut self) {
        while let Some(piece) = self.open.pop() {
            self.piece(piece);
        }
    }

    /// Whether an area needs room for letters.
    pub(crate) fn has_letters(&self) -> bool {
        [false, true].iter().any(|is_glob| self.labels.contains_key(&Piece::Search(*is_glob)))
    }

    /// Writes a filter with this memory; the function that it begins with.
    ///
    /// # Errors
    ///
    /// What the kernel cannot do.
    pub(crate) fn filter(
        &mut self,
        verified: &Verified<'_>,
        memory: Memory<'_>,
    ) -> Result<Label, Unfit> {
        let mut functions = BTreeMap::new();
        for function in verified.functions() {
            functions.insert(function.start.into(), (self.asm.label(), function.stack_bytes));
        }
        let &(first, _) = functions.get(&0).ok_or(Unfit::Long)?;
        let part = Part { scan: Scan::new(verified.program()), functions, memory };
        filter(self, &part, verified.program())?;
        Ok(first)
    }

    /// Where a function will be.
    pub(crate) fn label(&mut self, piece: Piece) -> Label {
        if let Some(&label) = self.labels.get(&piece) {
            return label;
        }
        let label = self.asm.label();
        self.labels.insert(piece, label);
        self.open.push(piece);
        label
    }

    /// Writes a function.
    fn piece(&mut self, piece: Piece) {
        let label = self.label(piece);
        self.asm.function(label, name(piece));
        match piece {
            Piece::Word => text::word(&mut self.asm),
            Piece::Compare => text::compare(self),
            Piece::CompareTurn => text::compare_turn(&mut self.asm),
            Piece::StartsWith => text::is_at_end(self, false),
            Piece::EndsWith => text::is_at_end(self, true),
            Piece::Edges(bytes) => text::edges(self, bytes),
            Piece::Differ(bytes) => text::differ(&mut self.asm, bytes),
            Piece::Automaton(masks) => search::automaton(self, masks),
            Piece::AutomatonTurn(masks) => search::automaton_turn(&mut self.asm, masks),
            Piece::Search(is_glob) => search::search(self, is_glob),
            Piece::LettersTurn(is_glob) => search::letters_turn(&mut self.asm, is_glob),
            Piece::BordersTurn => search::borders_turn(&mut self.asm),
            Piece::SearchTurn => search::search_turn(&mut self.asm),
            Piece::Hash => text::hash(self),
            Piece::HashTurn => text::hash_turn(&mut self.asm),
            Piece::Element(scalar) => value::element(self, scalar),
            Piece::Any(scalar, function) => {
                value::any(self, scalar, Piece::AnyTurn(scalar, function));
            }
            Piece::AnyTurn(scalar, function) => {
                value::any_turn(&mut self.asm, scalar, function);
            }
            Piece::Fold(scalar, fold) => {
                value::fold(self, scalar, fold, Piece::FoldTurn(scalar, fold));
            }
            Piece::FoldTurn(scalar, fold) => value::fold_turn(&mut self.asm, scalar, fold),
            Piece::FloatCompare => value::float_compare(&mut self.asm),
            Piece::Count(cells) => state::count(&mut self.asm, cells),
            Piece::Changed(cells) => state::changed(&mut self.asm, cells),
            Piece::Rate(cells) => state::rate(self, cells),
            Piece::RateTurn(cells) => state::rate_turn(&mut self.asm, cells),
            Piece::Random => state::random(&mut self.asm),
        }
    }
}

/// A function's name, as bpftool shows it.
fn name(piece: Piece) -> String {
    let debug = format!("{piece:?}");
    let end = debug.find('(').unwrap_or(debug.len());
    format!("trackway_{}", debug[..end].to_lowercase())
}

/// A program for the kernel, of type BPF_PROG_TYPE_RAW_TRACEPOINT or any other that may use
/// bpf_loop: 1 if the filter takes the event in the area, else 0.
#[derive(Debug)]
pub struct Adapted {
    insns: Vec<Insn>,
    pub(crate) btf: btf::Btf,
    /// The only value of a map of its own, if there is something in it.
    pub(crate) masks: Vec<u8>,
}

impl Adapted {
    /// How many instructions it has.
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub const fn len(&self) -> usize {
        self.insns.len()
    }

    /// Its bytes, with the descriptors of the maps whose only values are the [area](super::area),
    /// and the masks.
    pub(crate) fn bytes(&self, area: i32, masks: i32) -> Vec<u8> {
        let with_maps = |insn: &Insn| match (insn.op, insn.src) {
            (LDDW, MAP_VALUE) => {
                let immediate = if insn.immediate == OF_AREA { area } else { masks };
                Insn { immediate, ..*insn }.encode()
            }
            _ => insn.encode(),
        };
        self.insns.iter().flat_map(with_maps).collect()
    }
}

/// Puts the program of a filter with these constants together with what the kernel wants around it.
/// `cells` is how many cells of state its object has.
///
/// # Errors
///
/// What the kernel cannot do.
pub fn adapt(verified: &Verified<'_>, cells: usize, constants: &[u8]) -> Result<Adapted, Unfit> {
    let (automata, masks) = Automata::of(&words::calls(verified), constants);
    let memory = Memory { cells: Cells::Area(cells), automata: &automata, masks_fd: None };
    let mut parts = Parts::default();
    let (main, filter) = (parts.asm.label(), parts.asm.label());
    prologue(&mut parts.asm, main, filter);
    let first = parts.filter(verified, memory)?;
    parts.asm.alias(filter, first);
    parts.write_pieces();
    if !parts.asm.finish() {
        return Err(Unfit::Long);
    }
    let btf = btf::of(&parts.asm.functions);
    Ok(Adapted { btf, insns: parts.asm.insns, masks })
}

/// Finds the frame, and calls the filter.
fn prologue(asm: &mut Asm, main: Label, filter: Label) {
    let out = asm.label();
    asm.function(main, "trackway");
    asm.map_value(6, OF_AREA);
    asm.mov(1, 6);
    asm.call(filter);
    asm.store(6, ANSWER_AT, 0);
    asm.jumpi(jump::JEQ, 0, 0, out);
    asm.movi(0, 1);
    asm.place(out);
    asm.exit();
}

/// The filter as it is, but for calls of helpers, which may become longer.
fn filter(parts: &mut Parts, part: &Part<'_>, program: Program<'_>) -> Result<(), Unfit> {
    let targets: BTreeSet<usize> =
        program.insns().filter_map(|(at, insn)| jump_target(at, insn)).collect();
    let labels: BTreeMap<usize, Label> =
        targets.into_iter().map(|target| (target, parts.asm.label())).collect();
    let mut stack_bytes = 0;
    for (at, insn) in program.insns() {
        if let Some(&(label, bytes)) = part.functions.get(&at) {
            parts.asm.function(label, format!("filter_{at}"));
            stack_bytes = bytes;
        }
        if let Some(&label) = labels.get(&at) {
            parts.asm.place(label);
        }
        let function = usize::try_from(at as i64 + 1 + i64::from(insn.immediate));
        let function = function.ok().and_then(|start| part.functions.get(&start));
        match (insn.op, jump_target(at, insn)) {
            (CALL, _) if insn.src == call::HELPER => helper(parts, part, (at, insn), stack_bytes)?,
            (CALL, _) => parts.asm.call(function.ok_or(Unfit::Long)?.0),
            // Who is given a function knows it already.
            (LDDW, _) if insn.src == LDDW_FUNCTION => parts.asm.wide(insn.dst, 0),
            (LDDW, _) => {
                parts.asm.push(insn);
                parts.asm.push(program.insn(at + 1));
            }
            (_, Some(target)) => parts.asm.push_jump(insn, labels[&target]),
            _ => parts.asm.push(plain(insn)),
        }
    }
    Ok(())
}

/// The instruction that a jump leads to; `None`: it is none.
pub(crate) fn jump_target(at: usize, insn: Insn) -> Option<usize> {
    let is_jump = matches!(insn.class(), class::JMP | class::JMP32);
    if !is_jump || matches!(insn.op, CALL | EXIT) {
        return None;
    }
    let is_long = insn.class() == class::JMP32 && insn.op & 0xf0 == jump::JA;
    let distance = if is_long { insn.immediate } else { insn.offset.into() };
    usize::try_from(at as i64 + 1 + i64::from(distance)).ok()
}

/// Arithmetic with a constant that the kernel's verifier refuses, as the same in its words: shifts
/// are modulo the width; a division by zero is 0, its remainder what was divided (RFC 9669, 4.1).
fn plain(insn: Insn) -> Insn {
    let is_64 = insn.class() == class::ALU64;
    if !is_64 && insn.class() != class::ALU || insn.op & source::X != 0 {
        return insn;
    }
    let class = insn.class();
    match (insn.op & 0xf0, insn.immediate) {
        (alu::LSH | alu::RSH | alu::ARSH, by) => {
            Insn { immediate: by & if is_64 { 63 } else { 31 }, ..insn }
        }
        // Pointers to the stack are not subtracted from; numbers may be added all the same.
        (alu::SUB, by) if is_64 && by != i32::MIN => {
            Insn { op: class | alu::ADD, immediate: -by, ..insn }
        }
        (alu::DIV, 0) => Insn { op: class | alu::MOV, offset: 0, ..insn },
        (alu::MOD, 0) => {
            Insn { op: class | alu::MOV | source::X, src: insn.dst, offset: 0, ..insn }
        }
        _ => insn,
    }
}

/// A call of a helper, in a function with so much stack: of a function that does the same.
fn helper(
    parts: &mut Parts,
    part: &Part<'_>,
    (at, insn): (usize, Insn),
    stack_bytes: u16,
) -> Result<(), Unfit> {
    let Some(helper) = Helper::from_number(insn.immediate) else { return Err(Unfit::Long) };
    let argument = |register| part.scan.known(at, register);
    let code = || match argument(SCALAR) {
        Some(Known::Number(code)) => Some(code),
        _ => None,
    };
    let scalar = || code().and_then(Scalar::from_code);
    let unknown = Unfit::Argument(at, helper);
    let edges = helper.edge_bytes().map(Piece::Edges);
    if let Some(piece) = edges.or(helper.compared_bytes().map(Piece::Differ)) {
        let label = parts.label(piece);
        // Of these helpers alone it is known that the frame stays where it was: it waits behind
        // what the function has on its stack.
        let kept_at = -(stack_bytes.cast_signed() + 8);
        if kept_at < -STACK_BYTES_MAX {
            return Err(Unfit::Stack(at));
        }
        parts.asm.store(STACK_END, kept_at, 1);
        parts.asm.call(label);
        parts.asm.load(1, STACK_END, kept_at);
        return Ok(());
    }
    let piece = match helper {
        Helper::StringCompare => Piece::Compare,
        Helper::StringMatches | Helper::StringContains => searched(parts, part, (at, helper)),
        Helper::StringStartsWith => Piece::StartsWith,
        Helper::StringEndsWith => Piece::EndsWith,
        Helper::StringHash => Piece::Hash,
        Helper::Element => Piece::Element(scalar().ok_or(unknown)?),
        Helper::Any => match argument(FUNCTION) {
            Some(Known::Function(start)) => {
                let &(function, _) = part.functions.get(&start).ok_or(unknown)?;
                Piece::Any(scalar().ok_or(unknown)?, function)
            }
            _ => return Err(unknown),
        },
        Helper::Sum | Helper::Least | Helper::Greatest => {
            let fold = match helper {
                Helper::Sum => Fold::Sum,
                Helper::Least => Fold::Least,
                _ => Fold::Greatest,
            };
            Piece::Fold(code().and_then(Scalar::integer).ok_or(unknown)?, fold)
        }
        Helper::FloatCompare => Piece::FloatCompare,
        Helper::Count => Piece::Count(part.memory.cells),
        Helper::Changed => Piece::Changed(part.memory.cells),
        Helper::Rate => Piece::Rate(part.memory.cells),
        Helper::Random => Piece::Random,
        Helper::TimeNs => {
            parts.asm.call_kernel(state::TIME_NS);
            return Ok(());
        }
        // Floats and tail calls. (Edges and bytes are done above.)
        _ => return Err(Unfit::Helper(at, helper)),
    };
    let label = parts.label(piece);
    parts.asm.call(label);
    Ok(())
}

/// What searches, with what it is given besides the frame and a text.
fn searched(parts: &mut Parts, part: &Part<'_>, (at, helper): (usize, Helper)) -> Piece {
    let Memory { automata, masks_fd, .. } = part.memory;
    let Some(place) = automata.places.get(&at) else {
        return Piece::Search(helper == Helper::StringMatches);
    };
    parts.asm.movi(3, place.offset);
    parts.asm.wide(4, place.stay);
    parts.asm.wide(5, place.begin);
    Piece::Automaton(Masks { fd: masks_fd, bytes: automata.masks_bytes })
}
