//! Fills frames from the values of a case.

use trackway_filter::object::Alternative;
use trackway_jit::Kind;
use trackway_jit::helper::Word;
use trackway_schema::Scalar;

use super::event::Datum;

/// A filter's frame: a slot for each need, and the bytes that words refer to.
pub(crate) struct Frame {
    slots: Vec<u64>,
    bytes: Vec<u8>,
}

impl Frame {
    /// Creates the frame of an event; returns `None` if the event lacks a need.
    pub(crate) fn of(
        alternative: &Alternative,
        find: impl Fn(&str) -> Option<Datum>,
    ) -> Option<Self> {
        let mut frame = Self { slots: Vec::new(), bytes: b"before".to_vec() };
        for need in &alternative.needs {
            let found = match find(&need.path) {
                None if need.is_text_element() => {
                    frame.slots.push(Word::ABSENT);
                    continue;
                }
                found => found?,
            };
            let slot = match (need.kind, found) {
                (Kind::Signed | Kind::Unsigned | Kind::Float, Datum::Number(bits)) => bits,
                (Kind::String, Datum::String(bytes)) => frame.word(&bytes, bytes.len()),
                (Kind::Sequence, Datum::Sequence(elements, scalar)) => {
                    let width = scalar.size_bytes();
                    let mut bytes = Vec::new();
                    for element in &elements {
                        let element = match scalar {
                            Scalar::F32 => (f64::from_bits(*element) as f32).to_bits().into(),
                            _ => *element,
                        };
                        bytes.extend(&element.to_le_bytes()[..width]);
                    }
                    frame.word(&bytes, elements.len())
                }
                (kind, datum) => panic!("{} is asked for as {kind:?}: {datum:?}", need.path),
            };
            frame.slots.push(slot);
        }
        Some(frame)
    }

    pub(crate) fn slots(&self) -> &[u64] {
        &self.slots
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn word(&mut self, bytes: &[u8], length: usize) -> u64 {
        let offset = self.bytes.len() as u32;
        self.bytes.extend(bytes);
        Word { offset, length: length as u32, is_constant: false }.to_bits()
    }
}
