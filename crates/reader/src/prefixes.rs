//! The common prefixes of lines of one event class in one packet, concatenated once and then
//! copied.

use trackway_ctf::Literal;

/// Number of kept prefixes, a power of two: most streams have fewer event classes.
const SLOTS: usize = 64;
/// Maximum length of a kept prefix in bytes, to bound the memory for any trace.
const BYTES_MAX: usize = 1024;

/// The most recently made prefixes.
pub(crate) struct Prefixes {
    slots: Box<[Slot]>,
    /// Number of the current packet.
    packet: u64,
}

/// A prefix, with its packet and class.
#[derive(Clone)]
struct Slot {
    /// Number of the prefix's packet; 0 if the slot is empty.
    packet: u64,
    class: usize,
    text: Literal,
}

impl Prefixes {
    /// Creates an empty cache.
    pub(crate) fn new() -> Self {
        Self { slots: Box::default(), packet: 0 }
    }

    /// Begins the next packet, whose lines have other prefixes.
    pub(crate) const fn next_packet(&mut self) {
        self.packet += 1;
    }

    /// Returns the prefix of class `class` in this packet, which is the concatenation of `parts`;
    /// `None` if it is too long.
    #[inline]
    pub(crate) fn of(&mut self, class: usize, parts: [&[u8]; 3]) -> Option<&Literal> {
        let index = class % SLOTS;
        let is_there = self
            .slots
            .get(index)
            .is_some_and(|slot| slot.packet == self.packet && slot.class == class);
        if !is_there {
            self.make(class, parts)?;
        }
        self.slots.get(index).map(|slot| &slot.text)
    }

    #[cold]
    fn make(&mut self, class: usize, parts: [&[u8]; 3]) -> Option<()> {
        if parts.iter().map(|part| part.len()).sum::<usize>() > BYTES_MAX {
            return None;
        }
        if self.slots.is_empty() {
            let none = Slot { packet: 0, class: 0, text: Literal::default() };
            self.slots = vec![none; SLOTS].into_boxed_slice();
        }
        let slot = self.slots.get_mut(class % SLOTS)?;
        slot.text.set(&parts);
        (slot.packet, slot.class) = (self.packet, class);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_those_of_their_class_and_packet() {
        let mut prefixes = Prefixes::new();
        for packet in 0..3_u8 {
            prefixes.next_packet();
            for class in [0, 1, SLOTS, 1, 0, usize::MAX] {
                let name = class.to_string();
                let parts = [&b"host "[..], name.as_bytes(), &[packet]];
                let prefix = prefixes.of(class, parts).expect("a short text");
                assert_eq!(prefix.as_bytes(), parts.concat());
            }
        }
        assert!(prefixes.of(5, [&[b'x'; BYTES_MAX], b"y", b""]).is_none());
        assert!(prefixes.of(5, [&[b'x'; BYTES_MAX], b"", b""]).is_some());
    }
}
