//! Disassembles the machine code of filters, as traced programs generate it.

use std::fmt::Write as _;

use iced_x86::{Decoder, DecoderOptions, Formatter as _, NasmFormatter};
use trackway_jit::object::Alternative;
use trackway_jit::verify::{Rules, State, Verified, verify};
use trackway_jit::x86::{EmitError, INSN_CODE_BYTES_MAX, emit_program};

/// Width of the column with bytes.
const BYTES_WIDTH: usize = 30;

/// Returns the machine code of an alternative's programs, with the verifier's results.
pub(super) fn disassemble_programs(alternative: Alternative<'_>) -> anyhow::Result<String> {
    let mut text = String::new();
    for (number, program) in (0..=u8::MAX).zip(alternative.programs()) {
        let mut states = vec![State::FREE; program.len() + 1];
        let rules = Rules { number, ..Rules::new(alternative.needs_count()) };
        let verified = verify(program, rules, &mut states)?;
        let facts = verified.summary();
        writeln!(
            text,
            "Verified: at most {} steps, {} bytes of stack\n",
            facts.steps, facts.stack_bytes
        )?;
        push_disassembly(&mut text, &verified)?;
    }
    Ok(text)
}

fn push_disassembly(text: &mut String, verified: &Verified<'_>) -> anyhow::Result<()> {
    let count = verified.program().len();
    let mut buffer = vec![0; count * INSN_CODE_BYTES_MAX];
    let mut places = vec![0; count + 1];
    let code = match emit_program(verified, &mut buffer, &mut places) {
        Ok(code) => code,
        Err(error @ EmitError::Unsupported) => {
            writeln!(text, "Machine code: {error}; it is interpreted")?;
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    writeln!(text, "Machine code: {} bytes", code.size_bytes)?;
    let bytes = buffer.get(..code.size_bytes).unwrap_or_default();
    let mut formatter = NasmFormatter::new();
    for instruction in &mut Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE) {
        let (from, length) = (instruction.ip() as usize, instruction.len());
        let raw = bytes.get(from..from + length).unwrap_or_default();
        let raw = raw.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
        let mut shown = String::new();
        formatter.format(&instruction, &mut shown);
        writeln!(text, "{from:4x}  {raw:BYTES_WIDTH$}  {shown}")?;
    }
    Ok(())
}
