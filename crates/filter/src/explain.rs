//! Formats the results of compiling an expression: the typed tree and the bytecode.

use trackway_jit::helper::{Helper, Word};
use trackway_jit::insn::{
    CALL, EXIT, Insn, LDDW, LDDW_FUNCTION, alu, call, class, jump, mode, size, source,
};
use trackway_jit::listing::Line;

use crate::object::Alternative;
use crate::text::Text;
use crate::types::{Expr, Filter, Node, Type};

/// Widths of the bytes column and of the instruction column.
const BYTES_WIDTH: usize = 23;
const TEXT_WIDTH: usize = 34;

/// Formats the typed tree: one line for each operator and operand, indented below its parent.
pub fn format_tree(filter: &Filter) -> String {
    let mut text = String::new();
    push_subtree(filter, &filter.root, 0, &mut text);
    text
}

fn push_subtree(filter: &Filter, expr: &Expr, depth: usize, text: &mut String) {
    let of = match expr.of {
        Type::Signed => "signed",
        Type::Unsigned => "unsigned",
        Type::Float => "float",
        Type::Text => "string",
        Type::Sequence => "sequence",
    };
    let name = node_name(filter, expr);
    text.push_str(&format!("{:depth$}{name}: {of}\n", "", depth = 2 * depth));
    for child in expr.children() {
        push_subtree(filter, child, depth + 1, text);
    }
}

fn node_name(filter: &Filter, expr: &Expr) -> String {
    let path = |need: &usize| filter.needs[*need].path.clone();
    match &expr.node {
        Node::Number(bits) => format_number(*bits, expr.of),
        Node::Text(bytes) => Text::exact(bytes).quoted(),
        Node::Load(need) => path(need),
        Node::Element(need, _) => format!("element of {}", path(need)),
        Node::Absent => "no element".into(),
        Node::Length(_) => "length".into(),
        Node::Item => "the element".into(),
        Node::Bound => "it".into(),
        Node::Negate(_) => "-".into(),
        Node::Complement(_) => "~".into(),
        Node::Not(_) => "!".into(),
        Node::ToFloat(_) => "as float".into(),
        Node::Arithmetic(operator, ..) | Node::Compare(operator, ..) => operator.symbol().into(),
        Node::Matches(_, text) => format!("like {}", text.quoted()),
        Node::StringTest(test, ..) => format!("{test:?}"),
        Node::Ranges(of, ranges) => {
            let range = |&(first, last): &(u64, u64)| {
                if first == last {
                    format_number(first, of.of)
                } else {
                    format!("{}..{}", format_number(first, of.of), format_number(last, of.of))
                }
            };
            let ranges: Vec<String> = ranges.iter().map(range).collect();
            format!("in ({})", ranges.join(", "))
        }
        Node::Within(..) => "is".into(),
        Node::All(_) => "&&".into(),
        Node::Either(_) => "||".into(),
        Node::Any(need, _) => format!("any of {}", path(need)),
        Node::Fold(fold, need) => format!("{} of {}", fold.name(), path(need)),
        Node::Sample(threshold) => format!("sample({})", *threshold as f64 / 2_f64.powi(64)),
        Node::Rate { many, interval_ns, .. } => format!("rate({many}/{interval_ns}ns)"),
        Node::Count(_) => "count()".into(),
        Node::Changed(..) => "changed".into(),
    }
}

fn format_number(bits: u64, of: Type) -> String {
    match of {
        Type::Float => format!("{:?}", f64::from_bits(bits)),
        Type::Unsigned => bits.to_string(),
        _ => (bits as i64).to_string(),
    }
}

/// Number of instructions before a call that compares bytes, among which the constants are loaded.
const NUMBER_SEARCH_INSNS: usize = 4;

/// Formats the bytecode, one line for each instruction: number, bytes, operation, meaning.
pub fn format_listing(alternative: &Alternative) -> String {
    let mut text = String::new();
    for (place, program) in alternative.programs.iter().enumerate() {
        if place > 0 {
            text.push_str(&format!("\nProgram {place}\n"));
        }
        let mut insns = program.iter().enumerate();
        while let Some((number, insn)) = insns.next() {
            let second = if insn.op == LDDW { insns.next() } else { None };
            let second = second.map(|(_, second)| *second).unwrap_or_default();
            let (done, mut about) = describe_instruction(alternative, number, *insn, second);
            if insn.op == CALL {
                about = quote_compared_bytes(program, number);
            }
            let bytes = insn.encode().map(|byte| format!("{byte:02x}")).join(" ");
            let line = format!("{number:4}  {bytes:BYTES_WIDTH$}  {done:TEXT_WIDTH$}{about}");
            text.push_str(line.trim_end());
            text.push('\n');
        }
    }
    text
}

/// Describes an instruction and the data that it reads.
fn describe_instruction(
    alternative: &Alternative,
    number: usize,
    insn: Insn,
    second: Insn,
) -> (String, String) {
    let Insn { op, dst, src, offset, immediate } = insn;
    let nothing = String::new;
    let operand = if op & source::X != 0 { format!("r{src}") } else { immediate.to_string() };
    let target = number as i64 + 1 + i64::from(offset);
    match (insn.class(), op) {
        (_, LDDW) if src == LDDW_FUNCTION => {
            let target = number as i64 + 1 + i64::from(immediate);
            (format!("r{dst} = function {target}"), nothing())
        }
        (_, LDDW) => {
            let bits = u64::from(second.immediate as u32) << 32 | u64::from(immediate as u32);
            (format!("r{dst} = {bits:#x} ll"), quote_constant(alternative, bits))
        }
        (_, CALL) if src == call::FUNCTION => {
            (format!("call function {}", number as i64 + 1 + i64::from(immediate)), nothing())
        }
        (_, CALL) => {
            let helper = Helper::from_number(immediate).map_or("?", Helper::name);
            (format!("call {helper}#{immediate}"), nothing())
        }
        (_, EXIT) => ("exit".into(), nothing()),
        (class::LDX, _) if op == class::LDX | size::DW | mode::MEM => {
            let slot = usize::try_from(offset).ok().map(|offset| offset / 8);
            let need = slot.and_then(|slot| alternative.needs.get(slot));
            let need = need.map_or_else(nothing, |need| need.path.clone());
            (format!("r{dst} = *(u64 *)(r{src} {offset:+})"), need)
        }
        (class::LDX, _) if op == class::LDX | size::W | mode::MEM => {
            let slot = usize::try_from(offset).ok().map(|offset| offset / 8);
            let need = slot.and_then(|slot| alternative.needs.get(slot));
            let half = if offset % 8 == 0 { "where it is:" } else { "length:" };
            let need = need.map_or_else(nothing, |need| format!("{half} {}", need.path));
            (format!("r{dst} = *(u32 *)(r{src} {offset:+})"), need)
        }
        (class::STX, _) if op == class::STX | size::DW | mode::MEM => {
            (format!("*(u64 *)(r{dst} {offset:+}) = r{src}"), nothing())
        }
        (class::JMP, _) if op & 0xf0 == jump::JA => (format!("goto {target}"), nothing()),
        (class::JMP, _) => {
            let relation = relation_symbol(op & 0xf0);
            (format!("if r{dst} {relation} {operand} goto {target}"), nothing())
        }
        (class::ALU64, _) if !is_other_arithmetic(insn) => match op & 0xf0 {
            alu::MOV => (format!("r{dst} = {operand}"), nothing()),
            alu::NEG => (format!("r{dst} = -r{dst}"), nothing()),
            code => {
                let sign = if offset == 1 { "s" } else { "" };
                (format!("r{dst} {sign}{}= {operand}", operation_symbol(code)), nothing())
            }
        },
        // Instructions that only filters in C use.
        _ => (Line { insn, next: second }.to_string(), nothing()),
    }
}

/// Returns the bytes that a call compares with, or nothing for other calls.
fn quote_compared_bytes(program: &[Insn], call: usize) -> String {
    let helper = program.get(call).and_then(|insn| Helper::from_number(insn.immediate));
    let Some(count) = helper.and_then(Helper::compared_bytes) else { return String::new() };
    let (first, last) = Helper::number_bytes(count);
    // Instructions directly before the call load the numbers as constants.
    let before = &program[call.saturating_sub(NUMBER_SEARCH_INSNS)..call];
    let number = |register, size: u8| {
        let at = before.iter().rposition(|insn| insn.dst == register && insn.op != 0)?;
        let low = before[at].immediate;
        let bits = match before[at].op {
            LDDW => u64::from(before.get(at + 1)?.immediate as u32) << 32 | u64::from(low as u32),
            _ => low as u64,
        };
        Some(bits.to_le_bytes()[..size.into()].to_vec())
    };
    let end = if last == 0 { Some(Vec::new()) } else { number(4, last) };
    match (number(3, first), end) {
        (Some(begin), Some(end)) => {
            // The last bytes that do not overlap the first ones.
            let behind = &end[end.len().saturating_sub((count - first).into())..];
            Text::exact(&[&begin, behind].concat()).quoted()
        }
        _ => String::new(),
    }
}

/// Returns true for arithmetic that expressions never compile to: byte swaps and sign-extending
/// moves.
const fn is_other_arithmetic(insn: Insn) -> bool {
    let code = insn.op & 0xf0;
    code == alu::END || code == alu::MOV && insn.offset != 0
}

/// Returns the constant string that a word refers to, if it does.
fn quote_constant(alternative: &Alternative, bits: u64) -> String {
    let word = Word::from_bits(bits);
    let from = word.offset as usize;
    let bytes = from
        .checked_add(word.length as usize)
        .filter(|_| word.is_constant)
        .and_then(|to| alternative.constants.get(from..to));
    bytes.map_or_else(String::new, |bytes| Text::exact(bytes).quoted())
}

fn relation_symbol(code: u8) -> &'static str {
    match code {
        jump::JEQ => "==",
        jump::JNE => "!=",
        jump::JGT => ">",
        jump::JGE => ">=",
        jump::JLT => "<",
        jump::JLE => "<=",
        jump::JSET => "&",
        jump::JSGT => "s>",
        jump::JSGE => "s>=",
        jump::JSLT => "s<",
        jump::JSLE => "s<=",
        _ => "?",
    }
}

fn operation_symbol(code: u8) -> &'static str {
    match code {
        alu::ADD => "+",
        alu::SUB => "-",
        alu::MUL => "*",
        alu::DIV => "/",
        alu::MOD => "%",
        alu::AND => "&",
        alu::OR => "|",
        alu::XOR => "^",
        alu::LSH => "<<",
        alu::RSH => ">>",
        alu::ARSH => "s>>",
        _ => "?",
    }
}
