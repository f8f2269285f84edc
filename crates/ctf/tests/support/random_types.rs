//! Metadata with types of all kinds, made at random: what no tracer writes, but any may.

use super::Random;

/// What a generated trace is made of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Choice {
    /// Whether there are strings and arrays of characters.
    pub(crate) texts: bool,
}

/// Most nesting of generated types.
const DEPTH: u32 = 3;

struct Generator<'random> {
    random: &'random mut Random,
    choice: Choice,
    /// How many names there are so far; each is used once.
    names: u32,
}

/// TSDL of one stream class with a packet header (a magic number) and a packet context (content
/// and packet size as the first 16 bytes behind it), an event header and a few events.
pub(crate) fn random_metadata(random: &mut Random, choice: Choice) -> String {
    let mut generator = Generator { random, choice, names: 0 };
    let order = if generator.chance(2) { "le" } else { "be" };
    let mut text = format!(
        "/* CTF 1.8 */
trace {{
    major = 1; minor = 8; byte_order = {order};
    packet.header := struct {{ integer {{ size = 32; align = 8; }} magic; }};
}};
clock {{ name = monotonic; freq = {}; offset_s = 1000; offset = {}; }};
",
        [1_000_000_000_u64, 1_000_000, 3_000_000_001, 7][generator.below(4)],
        generator.below(1000),
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
        let own = if generator.chance(3) { generator.members(1) } else { String::new() };
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
    fn below(&mut self, bound: u64) -> usize {
        self.random.below(bound) as usize
    }

    /// One time in so many.
    fn chance(&mut self, times: u64) -> bool {
        self.random.below(times) == 0
    }

    fn name(&mut self) -> String {
        self.names += 1;
        format!("f{}", self.names)
    }

    /// An event header, and how many classes of events it can tell apart.
    fn header(&mut self) -> (String, usize) {
        let clock = "map = clock.monotonic.value;";
        let time_bits = [8, 27, 32][self.below(3)];
        let alignment = [1, 1, 8, 32][self.below(4)];
        let time =
            format!("integer {{ size = {time_bits}; align = {alignment}; {clock} }} timestamp;");
        match self.below(4) {
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
            _ => (format!("struct {{ {time} {} }}", self.members(1)), 1),
        }
    }

    fn struct_alignment(&mut self) -> String {
        if self.chance(4) { format!("align({})", 1 << self.below(7)) } else { String::new() }
    }

    /// Members of a structure, a few.
    fn members(&mut self, depth: u32) -> String {
        (0..self.random.below(6)).map(|_| self.member(depth)).collect()
    }

    /// A member, and those before it that it depends on.
    fn member(&mut self, depth: u32) -> String {
        let name = self.name();
        match self.random.below(if depth == 0 { 6 } else { 11 }) {
            0..=2 => format!("{} {name};", self.integer(64)),
            3 => format!("{} {name};", self.enumeration()),
            4 => format!("{} {name};", self.float()),
            5 if self.choice.texts => match self.below(3) {
                0 => format!("string {name};"),
                1 => format!("{} {name}[{}];", self.character(), self.below(9)),
                _ => {
                    let length = self.name();
                    let character = self.character();
                    format!("{} {length}; {character} {name}[{length}];", self.small())
                }
            },
            5 | 6 => format!("{} {name}[{}];", self.plain_type(depth), self.below(5)),
            7 => {
                let length = self.name();
                let element = self.plain_type(depth);
                format!("{} {length}; {element} {name}[{length}];", self.small())
            }
            8 => {
                let (outer, inner) = (self.below(3), self.below(3));
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

    /// A type without a declarator.
    fn plain_type(&mut self, depth: u32) -> String {
        match self.below(if depth == 0 { 4 } else { 5 }) {
            0 | 1 => self.integer(64),
            2 => self.enumeration(),
            3 => self.float(),
            _ => format!("struct {{ {} }}", self.members(depth - 1)),
        }
    }

    fn byte_order(&mut self) -> &'static str {
        ["", "byte_order = le; ", "byte_order = be; ", "byte_order = native; "][self.below(4)]
    }

    fn integer(&mut self, most: u64) -> String {
        let common = [8, 16, 32, 64][self.below(4)];
        let bits = if self.chance(2) { common } else { 1 + self.random.below(most) };
        let bits = bits.min(most);
        let alignment = match self.below(3) {
            0 => String::new(),
            1 => "align = 8; ".to_owned(),
            _ => format!("align = {}; ", 1 << self.below(7)),
        };
        let signed = ["", "signed = true; ", "signed = 0; "][self.below(3)];
        let base = ["", "base = 2; ", "base = 8; ", "base = hex; "][self.below(4)];
        let order = self.byte_order();
        format!("integer {{ size = {bits}; {alignment}{signed}{order}{base}}}")
    }

    /// An integer that is never large, for lengths.
    fn small(&mut self) -> String {
        format!("integer {{ size = {}; }}", 1 + self.below(3))
    }

    fn character(&mut self) -> &'static str {
        [
            "integer { size = 8; encoding = UTF8; }",
            "integer { size = 8; signed = 1; encoding = ASCII; }",
        ][self.below(2)]
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
            ["exp_dig = 8; mant_dig = 24; ", "exp_dig = 11; mant_dig = 53; "][self.below(2)];
        let alignment = ["", "align = 1; ", "align = 32; "][self.below(3)];
        format!("floating_point {{ {digits}{alignment}{}}}", self.byte_order())
    }
}
