//! Translates a filter's program to a program for the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use trackway_jit::helper::Helper;
use trackway_jit::insn::{
    CALL, EXIT, Insn, LDDW, LDDW_FUNCTION, STACK_END, alu, call, class, jump, source,
};
use trackway_jit::program::Program;
use trackway_jit::scan::{KnownValue, Scan};
use trackway_jit::verify::Verified;

use super::{helper_cost, search, state, text, value};
use crate::bpf_filter::pattern::Automata;
use crate::bpf_filter::scratch::RESULT_AT;
use crate::bpf_filter::search::{Masks, SearchKind};
use crate::bpf_filter::state::Cells;
use crate::bpf_filter::text::Affix;
use crate::bpf_filter::value::{Fold, Scalar};
use crate::bpf_sys::asm::{AREA_PLACEHOLDER, Asm, Label, MAP_VALUE};
use crate::bpf_sys::btf;

/// Argument registers of helpers: the code of a sequence's element type, and `any`'s function.
const SCALAR: u8 = 3;
const FUNCTION: u8 = 4;
/// The most stack of a function, in bytes.
const STACK_BYTES_MAX: i16 = 512;

/// A part of a program that the kernel does not support.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsupported {
    /// A helper that BPF cannot express, at this instruction.
    Helper(usize, Helper),
    /// A helper argument that must be a constant but is not, at this instruction: the type of
    /// elements, or their function.
    Argument(usize, Helper),
    /// A function that has no stack left for a helper call, at this instruction.
    Stack(usize),
    /// Jumps that are too long after the translation.
    Long,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Helper(insn, helper) => {
                write!(f, "instruction {insn}: the kernel cannot do {}", helper.name())
            }
            Self::Argument(insn, helper) => {
                let name = helper.name();
                write!(f, "instruction {insn}: an argument of {name} is not a constant")
            }
            Self::Stack(insn) => write!(f, "instruction {insn}: no stack is left for the call"),
            Self::Long => f.write_str("the program is too long"),
        }
    }
}

impl std::error::Error for Unsupported {}

/// A function that the assembler adds after the filter because some code calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HelperFunction {
    Word,
    Compare,
    CompareTurn,
    StartsWith,
    EndsWith,
    /// A test of string edges of this many bytes.
    Edges(u8),
    /// A comparison of this many bytes with numbers.
    Differ(u8),
    /// A match by automata with these masks.
    Automaton(Masks),
    AutomatonTurn(Masks),
    Search(SearchKind),
    LettersTurn(SearchKind),
    BordersTurn,
    SearchTurn,
    Hash,
    HashTurn,
    Element(Scalar),
    /// `any` with this function of the filter.
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

/// A program under construction.
#[derive(Default)]
pub(crate) struct FilterAssembler {
    pub(crate) asm: Asm,
    labels: BTreeMap<HelperFunction, Label>,
    /// Helper functions that are not written yet.
    open: Vec<HelperFunction>,
}

/// A filter that is being translated.
struct FilterInput<'p> {
    scan: Scan<'p>,
    /// The filter's functions by their first instruction, with their stack sizes.
    functions: BTreeMap<usize, (Label, u16)>,
    memory: FilterMemory<'p>,
}

/// Memory that a filter uses in addition to its scratch area.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FilterMemory<'a> {
    pub(crate) cells: Cells,
    pub(crate) automata: &'a Automata,
    /// The map of the automata's masks; `None`: not created yet.
    pub(crate) masks_fd: Option<i32>,
}

impl FilterAssembler {
    /// Writes the requested helper functions, and helper functions that these request.
    pub(crate) fn write_helpers(&mut self) {
        while let Some(helper) = self.open.pop() {
            self.write_helper(helper);
        }
    }

    /// Returns true if the scratch area needs memory for letters.
    pub(crate) fn has_letters(&self) -> bool {
        [SearchKind::Part, SearchKind::Glob]
            .iter()
            .any(|kind| self.labels.contains_key(&HelperFunction::Search(*kind)))
    }

    /// Writes a filter; returns the label of its first function.
    ///
    /// # Errors
    ///
    /// If the kernel does not support an instruction.
    pub(crate) fn add_filter(
        &mut self,
        verified: &Verified<'_>,
        memory: FilterMemory<'_>,
    ) -> Result<Label, Unsupported> {
        let mut functions = BTreeMap::new();
        for function in verified.functions() {
            functions.insert(function.start.into(), (self.asm.new_label(), function.stack_bytes));
        }
        let &(first, _) = functions.get(&0).ok_or(Unsupported::Long)?;
        let input = FilterInput { scan: Scan::new(verified.program()), functions, memory };
        copy_filter(self, &input, verified.program())?;
        Ok(first)
    }

    /// Returns the label of a helper function, and requests the function.
    pub(crate) fn label(&mut self, helper: HelperFunction) -> Label {
        if let Some(&label) = self.labels.get(&helper) {
            return label;
        }
        let label = self.asm.new_label();
        self.labels.insert(helper, label);
        self.open.push(helper);
        label
    }

    /// Writes a helper function.
    fn write_helper(&mut self, helper: HelperFunction) {
        let label = self.label(helper);
        self.asm.begin_function(label, function_name(helper));
        match helper {
            HelperFunction::Word => text::write_word(&mut self.asm),
            HelperFunction::Compare => text::write_compare(self),
            HelperFunction::CompareTurn => text::write_compare_turn(&mut self.asm),
            HelperFunction::StartsWith => text::write_affix_test(self, Affix::Prefix),
            HelperFunction::EndsWith => text::write_affix_test(self, Affix::Suffix),
            HelperFunction::Edges(bytes) => text::write_edges(self, bytes),
            HelperFunction::Differ(bytes) => text::write_differ(&mut self.asm, bytes),
            HelperFunction::Automaton(masks) => search::write_automaton(self, masks),
            HelperFunction::AutomatonTurn(masks) => {
                search::write_automaton_turn(&mut self.asm, masks)
            }
            HelperFunction::Search(kind) => search::write_search(self, kind),
            HelperFunction::LettersTurn(kind) => search::write_letters_turn(&mut self.asm, kind),
            HelperFunction::BordersTurn => search::write_borders_turn(&mut self.asm),
            HelperFunction::SearchTurn => search::write_search_turn(&mut self.asm),
            HelperFunction::Hash => text::write_hash(self),
            HelperFunction::HashTurn => text::write_hash_turn(&mut self.asm),
            HelperFunction::Element(scalar) => value::write_element(self, scalar),
            HelperFunction::Any(scalar, function) => {
                value::write_any(self, scalar, HelperFunction::AnyTurn(scalar, function));
            }
            HelperFunction::AnyTurn(scalar, function) => {
                value::write_any_turn(&mut self.asm, scalar, function);
            }
            HelperFunction::Fold(scalar, fold) => {
                value::write_fold(self, scalar, fold, HelperFunction::FoldTurn(scalar, fold));
            }
            HelperFunction::FoldTurn(scalar, fold) => {
                value::write_fold_turn(&mut self.asm, scalar, fold)
            }
            HelperFunction::FloatCompare => value::write_float_compare(&mut self.asm),
            HelperFunction::Count(cells) => state::write_count(&mut self.asm, cells),
            HelperFunction::Changed(cells) => state::write_changed(&mut self.asm, cells),
            HelperFunction::Rate(cells) => state::write_rate(self, cells),
            HelperFunction::RateTurn(cells) => state::write_rate_turn(&mut self.asm, cells),
            HelperFunction::Random => state::write_random(&mut self.asm),
        }
    }
}

/// Returns a function's name for bpftool.
fn function_name(helper: HelperFunction) -> String {
    let debug = format!("{helper:?}");
    let end = debug.find('(').unwrap_or(debug.len());
    format!("trackway_{}", debug[..end].to_lowercase())
}

/// A program for the kernel, of a type that may use bpf_loop, such as BPF_PROG_TYPE_RAW_TRACEPOINT.
/// It returns 1 if the filter passes the event in the scratch area, else 0.
#[derive(Debug)]
pub struct TranslatedFilter {
    insns: Vec<Insn>,
    pub(crate) btf: btf::Btf,
    /// The only value of the mask map; empty if there are no masks.
    pub(crate) masks: Vec<u8>,
}

impl TranslatedFilter {
    /// Returns the number of instructions.
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub const fn len(&self) -> usize {
        self.insns.len()
    }

    /// Encodes the program with the descriptors of the map of [scratch areas](super::scratch) and
    /// the map of masks.
    pub(crate) fn bytes(&self, area: i32, masks: i32) -> Vec<u8> {
        let with_maps = |insn: &Insn| match (insn.op, insn.src) {
            (LDDW, MAP_VALUE) => {
                let immediate = if insn.immediate == AREA_PLACEHOLDER { area } else { masks };
                Insn { immediate, ..*insn }.encode()
            }
            _ => insn.encode(),
        };
        self.insns.iter().flat_map(with_maps).collect()
    }
}

/// Translates a filter's program with these constants and this many cells of state.
///
/// # Errors
///
/// If the kernel does not support an instruction.
pub fn translate_filter(
    verified: &Verified<'_>,
    cells: usize,
    constants: &[u8],
) -> Result<TranslatedFilter, Unsupported> {
    let (automata, masks) = Automata::build(&helper_cost::find_string_calls(verified), constants);
    let memory = FilterMemory { cells: Cells::Scratch(cells), automata: &automata, masks_fd: None };
    let mut assembler = FilterAssembler::default();
    let (main, filter) = (assembler.asm.new_label(), assembler.asm.new_label());
    write_prologue(&mut assembler.asm, main, filter);
    let first = assembler.add_filter(verified, memory)?;
    assembler.asm.alias_label(filter, first);
    assembler.write_helpers();
    if !assembler.asm.finish() {
        return Err(Unsupported::Long);
    }
    let btf = btf::describe_functions(&assembler.asm.functions);
    Ok(TranslatedFilter { btf, insns: assembler.asm.insns, masks })
}

/// Writes the code that finds the frame and calls the filter.
fn write_prologue(asm: &mut Asm, main: Label, filter: Label) {
    let out = asm.new_label();
    asm.begin_function(main, "trackway");
    asm.load_map_value(6, AREA_PLACEHOLDER);
    asm.mov(1, 6);
    asm.call(filter);
    asm.store(6, RESULT_AT, 0);
    asm.jumpi(jump::JEQ, 0, 0, out);
    asm.movi(0, 1);
    asm.place_label(out);
    asm.exit();
}

/// Copies the filter and replaces its helper calls, which may become longer.
fn copy_filter(
    assembler: &mut FilterAssembler,
    input: &FilterInput<'_>,
    program: Program<'_>,
) -> Result<(), Unsupported> {
    let targets: BTreeSet<usize> =
        program.insns().filter_map(|(at, insn)| jump_target(at, insn)).collect();
    let labels: BTreeMap<usize, Label> =
        targets.into_iter().map(|target| (target, assembler.asm.new_label())).collect();
    let mut stack_bytes = 0;
    for (at, insn) in program.insns() {
        if let Some(&(label, bytes)) = input.functions.get(&at) {
            assembler.asm.begin_function(label, format!("filter_{at}"));
            stack_bytes = bytes;
        }
        if let Some(&label) = labels.get(&at) {
            assembler.asm.place_label(label);
        }
        let function = usize::try_from(at as i64 + 1 + i64::from(insn.immediate));
        let function = function.ok().and_then(|start| input.functions.get(&start));
        match (insn.op, jump_target(at, insn)) {
            (CALL, _) if insn.src == call::HELPER => {
                replace_helper_call(assembler, input, (at, insn), stack_bytes)?
            }
            (CALL, _) => assembler.asm.call(function.ok_or(Unsupported::Long)?.0),
            // The called helper function contains the address, so the argument is unused.
            (LDDW, _) if insn.src == LDDW_FUNCTION => assembler.asm.load_wide(insn.dst, 0),
            (LDDW, _) => {
                assembler.asm.push(insn);
                assembler.asm.push(program.insn(at + 1));
            }
            (_, Some(target)) => assembler.asm.push_jump(insn, labels[&target]),
            _ => assembler.asm.push(rewrite_arithmetic(insn)),
        }
    }
    Ok(())
}

/// Returns the target instruction of a jump; `None`: the instruction is not a jump.
pub(crate) fn jump_target(at: usize, insn: Insn) -> Option<usize> {
    let is_jump = matches!(insn.class(), class::JMP | class::JMP32);
    if !is_jump || matches!(insn.op, CALL | EXIT) {
        return None;
    }
    let is_long = insn.class() == class::JMP32 && insn.op & 0xf0 == jump::JA;
    let distance = if is_long { insn.immediate } else { insn.offset.into() };
    usize::try_from(at as i64 + 1 + i64::from(distance)).ok()
}

/// Rewrites arithmetic with a constant that the verifier rejects: shifts are modulo the width; a
/// division by zero gives 0, and its remainder is the dividend (RFC 9669, 4.1).
fn rewrite_arithmetic(insn: Insn) -> Insn {
    let is_64 = insn.class() == class::ALU64;
    if !is_64 && insn.class() != class::ALU || insn.op & source::X != 0 {
        return insn;
    }
    let class = insn.class();
    match (insn.op & 0xf0, insn.immediate) {
        (alu::LSH | alu::RSH | alu::ARSH, by) => {
            Insn { immediate: by & if is_64 { 63 } else { 31 }, ..insn }
        }
        // The verifier rejects subtraction from stack pointers; addition is valid for numbers, too.
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

/// Replaces a helper call in a function with `stack_bytes` bytes of stack.
fn replace_helper_call(
    assembler: &mut FilterAssembler,
    input: &FilterInput<'_>,
    (at, insn): (usize, Insn),
    stack_bytes: u16,
) -> Result<(), Unsupported> {
    let Some(helper) = Helper::from_number(insn.immediate) else { return Err(Unsupported::Long) };
    let argument = |register| input.scan.known(at, register);
    let code = || match argument(SCALAR) {
        Some(KnownValue::Number(code)) => Some(code),
        _ => None,
    };
    let scalar = || code().and_then(Scalar::from_code);
    let unknown = Unsupported::Argument(at, helper);
    let edges = helper.edge_bytes().map(HelperFunction::Edges);
    if let Some(function) = edges.or(helper.compared_bytes().map(HelperFunction::Differ)) {
        let label = assembler.label(function);
        // Only these helpers guarantee that register 1 keeps the frame. The code saves the register
        // after the function's stack.
        let kept_at = -(stack_bytes.cast_signed() + 8);
        if kept_at < -STACK_BYTES_MAX {
            return Err(Unsupported::Stack(at));
        }
        assembler.asm.store(STACK_END, kept_at, 1);
        assembler.asm.call(label);
        assembler.asm.load(1, STACK_END, kept_at);
        return Ok(());
    }
    let function = match helper {
        Helper::StringCompare => HelperFunction::Compare,
        Helper::StringMatches | Helper::StringContains => {
            search_helper(assembler, input, (at, helper))
        }
        Helper::StringStartsWith => HelperFunction::StartsWith,
        Helper::StringEndsWith => HelperFunction::EndsWith,
        Helper::StringHash => HelperFunction::Hash,
        Helper::Element => HelperFunction::Element(scalar().ok_or(unknown)?),
        Helper::Any => match argument(FUNCTION) {
            Some(KnownValue::Function(start)) => {
                let &(function, _) = input.functions.get(&start).ok_or(unknown)?;
                HelperFunction::Any(scalar().ok_or(unknown)?, function)
            }
            _ => return Err(unknown),
        },
        Helper::Sum | Helper::Least | Helper::Greatest => {
            let fold = match helper {
                Helper::Sum => Fold::Sum,
                Helper::Least => Fold::Least,
                _ => Fold::Greatest,
            };
            HelperFunction::Fold(code().and_then(Scalar::from_integer_code).ok_or(unknown)?, fold)
        }
        Helper::FloatCompare => HelperFunction::FloatCompare,
        Helper::Count => HelperFunction::Count(input.memory.cells),
        Helper::Changed => HelperFunction::Changed(input.memory.cells),
        Helper::Rate => HelperFunction::Rate(input.memory.cells),
        Helper::Random => HelperFunction::Random,
        Helper::TimeNs => {
            assembler.asm.call_kernel(state::KTIME_NS_HELPER);
            return Ok(());
        }
        // Floats and tail calls. (The code above handles edges and bytes.)
        _ => return Err(Unsupported::Helper(at, helper)),
    };
    let label = assembler.label(function);
    assembler.asm.call(label);
    Ok(())
}

/// Returns the search function for a call, and loads its extra arguments.
fn search_helper(
    assembler: &mut FilterAssembler,
    input: &FilterInput<'_>,
    (at, helper): (usize, Helper),
) -> HelperFunction {
    let FilterMemory { automata, masks_fd, .. } = input.memory;
    let Some(automaton) = automata.by_call.get(&at) else {
        let is_glob = helper == Helper::StringMatches;
        return HelperFunction::Search(if is_glob { SearchKind::Glob } else { SearchKind::Part });
    };
    assembler.asm.movi(3, automaton.offset);
    assembler.asm.load_wide(4, automaton.stay);
    assembler.asm.load_wide(5, automaton.begin);
    HelperFunction::Automaton(Masks { fd: masks_fd, bytes: automata.masks_bytes })
}
