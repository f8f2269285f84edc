//! Filter expressions of users: an invalid expression is rejected with its position, and a valid
//! one becomes bytecode that traced programs accept.

use trackway_filter::compile::compile;
use trackway_filter::error::Error;
use trackway_filter::layout::{Integer, Layout, Member, Type};
use trackway_filter::object::Object;
use trackway_jit::object::Object as Read;
use trackway_jit::verify::{Rules, State, verify};
use trackway_schema::{Label, Scalar};

use crate::Bound;

/// Limit of instructions: a predicate on each element of a list, and the path to it.
pub(crate) const INSNS: Bound = Bound { per_byte: 16, base: 64 };
/// Limit of memory: trees, typed trees, graphs, tables of known values, and verifier states.
pub(crate) const MEMORY: Bound = Bound { per_byte: 4096, base: 8 << 20 };
pub(crate) const ALLOCATIONS: Bound = Bound { per_byte: 64, base: 16 << 10 };
/// Maximum size of the text, in bytes: longer texts take long, without more coverage.
const TEXT_BYTES_MAX: usize = 2048;

/// Compiles a filter. The work is the number of instructions.
pub fn compile_expression(bytes: &[u8]) -> u64 {
    let text = &bytes[..bytes.len().min(TEXT_BYTES_MAX)];
    let Ok(text) = core::str::from_utf8(text) else { return 0 };
    let layout = layout_of_all_kinds();
    match compile(text, &layout) {
        Err(error) => {
            check_message(&error, text);
            0
        }
        Ok(compiled) => {
            compiled.filter.warnings.iter().for_each(|warning| check_message(warning, text));
            let cells = compiled.filter.cells;
            check_accepted(&Object { cells, alternatives: vec![compiled.alternative] })
        }
    }
}

/// Checks that an error's position is in the text, and that its message can be rendered.
fn check_message(error: &Error, text: &str) {
    assert!(error.span.from <= error.span.to && error.span.to <= text.len(), "{error}");
    assert!(!error.message.is_empty() && error.render(text).contains(&error.message));
}

/// Checks that a traced program would accept the object; returns the number of its instructions.
fn check_accepted(object: &Object) -> u64 {
    let bytes = object.encode().expect("an object of one filter");
    let read = Read::decode(&bytes).expect("what was written can be read");
    let mut insns = 0;
    for alternative in read.alternatives() {
        for (number, program) in (0..).zip(alternative.programs()) {
            let rules = Rules { number, ..Rules::new(alternative.needs_count()) };
            let mut states = vec![State::FREE; program.len()];
            let verified = verify(program, rules, &mut states);
            assert!(verified.is_ok(), "{}", verified.expect_err("refused"));
            insns += program.len() as u64;
        }
    }
    insns
}

/// Returns an event with a field of each kind.
fn layout_of_all_kinds() -> Layout {
    let member = |name: &str, of: Type| Member { name: name.into(), of };
    let labels = [("idle", 0, 0), ("busy", 1, 4)].map(|(name, first, last)| Label {
        name: name.into(),
        first,
        last,
    });
    let state = Type::Integer(Integer {
        is_signed: false,
        bits: 8,
        scalar: Some(Scalar::U8),
        labels: labels.into(),
    });
    Layout {
        event: "app:event".into(),
        fields: vec![
            member("a", Scalar::I32.into()),
            member("b", Scalar::U64.into()),
            member("f", Scalar::F64.into()),
            member("s", Type::String),
            member("e", state),
            member("xs", Type::Sequence(Box::new(Scalar::U16.into()))),
            member("ys", Type::Array(Box::new(Scalar::F32.into()), 4)),
            member("p", Type::Structure(vec![member("x", Scalar::I8.into())])),
        ],
        contexts: Layout::program_contexts(),
        applications: vec![member("app:id", Scalar::U32.into())],
    }
}
