//! Random metadata with types of all kinds: valid, although no tracer writes it.

use super::Random;

/// The limits of generated metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limits {
    /// All of CTF 1.8.
    Format,
    /// Types that babeltrace2 2.0.4 reads correctly. It prints an empty text as the text before it,
    /// refuses bytes in two byte orders, and fails an assertion if an event's own context has a
    /// sequence or a variant. It crashes if an event header has a sequence, and reads as 0 some
    /// integers of 61 to 63 bits that lie across nine bytes.
    Babeltrace,
}

/// Maximum nesting of generated types.
const DEPTH: u32 = 3;

/// Byte offset of the content size in a packet of [`random_metadata`]. No generated type has an
/// alignment that would move it.
const CONTENT_SIZE_BYTE: usize = 8;

/// Returns true if a trace of [`random_metadata`] is big-endian.
pub(crate) fn is_big_endian(metadata: &str) -> bool {
    metadata.contains("byte_order = be;\n")
}

/// Returns a packet of `bytes` random bytes, with a valid magic number and valid sizes.
pub(crate) fn random_packet(random: &mut Random, metadata: &str, bytes: usize) -> Vec<u8> {
    let mut packet: Vec<u8> = (0..bytes)
        .map(|_| if random.next_below(4) == 0 { 0 } else { random.next() as u8 })
        .collect();
    let magic = 0xc1fc_1fc1_u32;
    let magic = if is_big_endian(metadata) { magic.to_be_bytes() } else { magic.to_le_bytes() };
    packet[..4].copy_from_slice(&magic);
    set_content_size(&mut packet, metadata, 8 * bytes as u64);
    let sizes = CONTENT_SIZE_BYTE..CONTENT_SIZE_BYTE + 8;
    packet.copy_within(sizes, CONTENT_SIZE_BYTE + 8);
    packet
}

/// Sets the content size in a packet's context to `bits`.
pub(crate) fn set_content_size(packet: &mut [u8], metadata: &str, bits: u64) {
    let bits = if is_big_endian(metadata) { bits.to_be_bytes() } else { bits.to_le_bytes() };
    packet[CONTENT_SIZE_BYTE..CONTENT_SIZE_BYTE + 8].copy_from_slice(&bits);
}

struct Generator<'random> {
    random: &'random mut Random,
    limits: Limits,
    /// Number of generated names; each name is used once.
    names: u32,
}

/// Returns TSDL of one stream class with a packet header (a magic number), a packet context
/// (content and packet size as its first 16 bytes), an event header and a few events.
pub(crate) fn random_metadata(random: &mut Random, limits: Limits) -> String {
    let mut generator = Generator { random, limits, names: 0 };
    let order = if generator.chance(2) { "le" } else { "be" };
    let mut text = format!(
        "/* CTF 1.8 */
trace {{
    major = 1; minor = 8; byte_order = {order};
    packet.header := struct {{
        integer {{ size = 32; align = 8; }} magic;
        integer {{ size = 32; align = 8; }} spare;
    }};
}};
clock {{ name = monotonic; freq = {}; offset_s = 1000; offset = {}; }};
",
        [1_000_000_000_u64, 1_000_000, 3_000_000_001, 7][generator.next_below(4)],
        generator.next_below(1000),
    );
    let (header, classes) = generator.header();
    let context = generator.members(1);
    let packet_context = generator.members(1);
    text += &format!(
        "stream {{
    packet.context := struct {{
        integer {{ size = 64; align = 8; }} content_size;
        integer {{ size = 64; align = 8; }} packet_size;
        {packet_context}
    }};
    event.header := {header};
    event.context := struct {{ {context} }};
}};\n"
    );
    for id in 0..classes {
        let own_depth = u32::from(limits == Limits::Format);
        let own = if generator.chance(3) { generator.members(own_depth) } else { String::new() };
        let own = if own.is_empty() { own } else { format!("context := struct {{ {own} }};") };
        let fields = generator.members(DEPTH);
        let alignment = generator.struct_alignment();
        text += &format!(
            "event {{ name = \"e{id}\"; id = {id}; {own} fields := struct {{ {fields} }} \
             {alignment}; }};\n"
        );
    }
    text
}

impl Generator<'_> {
    fn next_below(&mut self, bound: u64) -> usize {
        self.random.next_below(bound) as usize
    }

    /// Returns true once in `times` calls, at random.
    fn chance(&mut self, times: u64) -> bool {
        self.random.next_below(times) == 0
    }

    fn name(&mut self) -> String {
        self.names += 1;
        format!("f{}", self.names)
    }

    /// Returns an event header, and the number of event classes that it can distinguish.
    fn header(&mut self) -> (String, usize) {
        let clock = "map = clock.monotonic.value;";
        let time_bits = [8, 27, 32][self.next_below(3)];
        let alignment = [1, 1, 8, 32][self.next_below(4)];
        let time =
            format!("integer {{ size = {time_bits}; align = {alignment}; {clock} }} timestamp;");
        match self.next_below(4) {
            0 => (format!("struct {{ {time} }}"), 1),
            1 => (format!("struct {{ {time} integer {{ size = 2; align = 1; }} id; }}"), 4),
            2 => {
                let header = format!(
                    "struct {{
            enum : integer {{ size = 2; align = 1; }} {{ compact = 0 ... 2, extended = 3 }} id;
            variant <id> {{
                struct {{ {time} }} compact;
                struct {{ integer {{ size = 2; }} id; {time} }} extended;
            }} v;
        }} align(8)"
                );
                (header, 4)
            }
            _ if self.limits == Limits::Babeltrace => {
                (format!("struct {{ {time} {} spare; }}", self.integer(64)), 1)
            }
            _ => (format!("struct {{ {time} {} }}", self.members(1)), 1),
        }
    }

    fn struct_alignment(&mut self) -> String {
        if self.chance(4) { format!("align({})", 1 << self.next_below(7)) } else { String::new() }
    }

    /// Returns a few members of a structure.
    fn members(&mut self, depth: u32) -> String {
        (0..self.random.next_below(6)).map(|_| self.member(depth)).collect()
    }

    /// Returns a member, after any members on which it depends.
    fn member(&mut self, depth: u32) -> String {
        let name = self.name();
        match self.random.next_below(if depth == 0 { 6 } else { 11 }) {
            0..=2 => format!("{} {name};", self.integer(64)),
            3 => format!("{} {name};", self.enumeration()),
            4 => format!("{} {name};", self.float()),
            5 if self.limits == Limits::Format => match self.next_below(3) {
                0 => format!("string {name};"),
                1 => format!("{} {name}[{}];", self.character(), self.next_below(9)),
                _ => {
                    let length = self.name();
                    let character = self.character();
                    format!("{} {length}; {character} {name}[{length}];", self.small())
                }
            },
            5 | 6 => format!("{} {name}[{}];", self.plain_type(depth), self.next_below(5)),
            7 => {
                let length = self.name();
                let element = self.plain_type(depth);
                format!("{} {length}; {element} {name}[{length}];", self.small())
            }
            8 => {
                let (outer, inner) = (self.next_below(3), self.next_below(3));
                format!("{} {name}[{outer}][{inner}];", self.plain_type(depth))
            }
            9 => {
                let members = self.members(depth - 1);
                let alignment = self.struct_alignment();
                format!("struct {{ {members} }} {alignment} {name};")
            }
            _ => self.variant(depth, &name),
        }
    }

    fn variant(&mut self, depth: u32, name: &str) -> String {
        let tag = self.name();
        let options: String = ["a", "b", "c"]
            .iter()
            .map(|option| format!("{} {option};", self.plain_type(depth)))
            .collect();
        let signed = self.chance(2);
        let (integer, labels) = if signed {
            ("size = 2; signed = true;", "a = -2 ... -1, b = 0, c = 1")
        } else {
            ("size = 2;", "a, b = 1 ... 2, c")
        };
        format!(
            "enum : integer {{ {integer} }} {{ {labels} }} {tag};
             variant <{tag}> {{ {options} }} {name};"
        )
    }

    /// Returns a type without a declarator.
    fn plain_type(&mut self, depth: u32) -> String {
        match self.next_below(if depth == 0 { 4 } else { 5 }) {
            0 | 1 => self.integer(64),
            2 => self.enumeration(),
            3 => self.float(),
            _ => format!("struct {{ {} }}", self.members(depth - 1)),
        }
    }

    fn byte_order(&mut self) -> &'static str {
        ["", "byte_order = le; ", "byte_order = be; ", "byte_order = native; "][self.next_below(4)]
    }

    fn integer(&mut self, most: u64) -> String {
        let common = [8, 16, 32, 64][self.next_below(4)];
        let bits = if self.chance(2) { common } else { 1 + self.random.next_below(most) };
        let bits = match bits.min(most) {
            61..=63 if self.limits == Limits::Babeltrace => 60,
            bits => bits,
        };
        let alignment = match self.next_below(3) {
            0 => String::new(),
            1 => "align = 8; ".to_owned(),
            _ => format!("align = {}; ", 1 << self.next_below(7)),
        };
        let signed = ["", "signed = true; ", "signed = 0; "][self.next_below(3)];
        let base = ["", "base = 2; ", "base = 8; ", "base = hex; "][self.next_below(4)];
        let order = self.byte_order();
        let any_place = order.is_empty() || self.limits == Limits::Format;
        let (bits, alignment) = if any_place {
            (bits, alignment)
        } else {
            (bits.next_multiple_of(8), format!("align = {}; ", 8 << self.next_below(3)))
        };
        format!("integer {{ size = {bits}; {alignment}{signed}{order}{base}}}")
    }

    /// Returns an integer with small values only, for lengths.
    fn small(&mut self) -> String {
        format!("integer {{ size = {}; }}", 1 + self.next_below(3))
    }

    fn character(&mut self) -> &'static str {
        [
            "integer { size = 8; encoding = UTF8; }",
            "integer { size = 8; signed = 1; encoding = ASCII; }",
        ][self.next_below(2)]
    }

    fn enumeration(&mut self) -> String {
        let integer = self.integer(20);
        format!(
            "enum : {integer} {{ \"none at all\" = 0, few = 1 ... 3, \"1\" = 1, more,
             last = 9 ... 20 }}"
        )
    }

    fn float(&mut self) -> String {
        let digits =
            ["exp_dig = 8; mant_dig = 24; ", "exp_dig = 11; mant_dig = 53; "][self.next_below(2)];
        let order = self.byte_order();
        let packed = order.is_empty() || self.limits == Limits::Format;
        let alignments = ["", if packed { "align = 1; " } else { "align = 8; " }, "align = 32; "];
        format!("floating_point {{ {digits}{}{order}}}", alignments[self.next_below(3)])
    }
}
