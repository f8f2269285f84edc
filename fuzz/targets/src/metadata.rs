//! Metadata: any bytes yield a trace, or an error with its position.

use trackway_ctf::read::{EventClass, Trace, Type};

/// Reads metadata, as text or as packets with text. The work is the number of event classes.
pub fn read_tsdl(bytes: &[u8]) -> u64 {
    match Trace::parse(bytes) {
        Ok(trace) => {
            trace.streams().iter().flat_map(|stream| stream.events()).for_each(name_values);
            let classes = trace.streams().iter().map(|stream| stream.events().len() as u64);
            classes.sum()
        }
        Err(error) => {
            let lines = 1 + bytes.iter().filter(|&&byte| byte == b'\n').count();
            let line = error.line as usize;
            assert!(line <= lines, "line {line} of {lines}: {error}");
            assert!((error.line == 0) == (error.column == 0), "a line without a column: {error:?}");
            assert!(!error.to_string().is_empty());
            0
        }
    }
}

/// Queries the names of values, and for bit sets the bits without a name.
fn name_values(event: &EventClass) {
    /// Maximum number of fields, since the cost of each grows with its table of names.
    const FIELDS_MAX: usize = 8;
    let members = event.fields().into_iter().flat_map(|fields| fields.members());
    for member in members.take(FIELDS_MAX) {
        let Type::Integer(integer) = member.kind() else { continue };
        let Some(meaning) = integer.meaning() else { continue };
        for value in [0, 1, 0x241, u64::MAX, 100_u64.wrapping_neg()] {
            let mut names = 0;
            let rest = meaning.for_each_label(integer, (value ^ 1, value), &mut |_| names += 1);
            let own = if value > 1 << 63 { u64::MAX } else { value };
            assert_eq!(rest & !own, 0, "{value:#x}: {rest:#x}");
            assert!(names <= 65, "{names} names for the bits of one value");
        }
    }
}
