//! Filters in C, as object files of clang: an invalid file is rejected with a message, and a valid
//! one becomes an object that traced programs accept.

use trackway_filter::elf::{OBJECT_BYTES_MAX, convert_to_object};
use trackway_jit::insn::INSN_BYTES;
use trackway_jit::object::Object;
use trackway_jit::verify::{Rules, State, verify};

use crate::Bound;

/// Limit of instructions: the limit of an object, for any file.
pub(crate) const INSNS: Bound = Bound { per_byte: 0, base: (OBJECT_BYTES_MAX / INSN_BYTES) as u64 };
/// Limit of memory: section, function and relocation tables, an object, and verifier states.
pub(crate) const MEMORY: Bound = Bound { per_byte: 32, base: 8 << 20 };
pub(crate) const ALLOCATIONS: Bound = Bound { per_byte: 4, base: 16 << 10 };

/// Converts a file to an object. The work is the number of instructions.
pub fn compile_elf(bytes: &[u8]) -> u64 {
    let encoded = match convert_to_object(bytes) {
        Ok(encoded) => encoded,
        Err(error) => {
            assert!(!error.message.is_empty() && error.to_string().len() < 8 << 10, "{error}");
            return 0;
        }
    };
    assert!(encoded.len() <= OBJECT_BYTES_MAX, "{} bytes", encoded.len());
    let object = Object::decode(&encoded).expect("what was written can be read");
    let mut insns = 0;
    for alternative in object.alternatives() {
        for (number, program) in (0..).zip(alternative.programs()) {
            let rules = Rules { number, ..Rules::new(alternative.needs_count()) };
            let mut states = vec![State::FREE; program.len() + 1];
            let verified = verify(program, rules, &mut states);
            assert!(verified.is_ok(), "{}", verified.expect_err("refused"));
            insns += program.len() as u64;
        }
    }
    insns
}
