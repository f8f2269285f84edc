//! Events of case files: a layout, and values that change from one occurrence to the next.

use std::collections::BTreeMap;

use trackway_filter::evaluate::{Runtime, Values};
use trackway_filter::layout::{Integer, Layout, Member, Type};
use trackway_filter::types::Need;
use trackway_schema::{Label, Scalar};

/// A value of a field or context.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Datum {
    /// Bits in slot format.
    Number(u64),
    String(Vec<u8>),
    /// Elements, each in slot format, with their type.
    Sequence(Vec<u64>, Scalar),
}

/// An event with several occurrences.
#[derive(Debug, Clone, Default)]
pub(crate) struct Event {
    pub(crate) layout: Layout,
    /// Values by path, one for each occurrence; later occurrences repeat the last value.
    pub(crate) values: BTreeMap<String, Vec<Datum>>,
}

impl Event {
    /// Returns the value of a path in the occurrence with this number.
    pub(crate) fn find(&self, path: &str, time: usize) -> Option<Datum> {
        if let Some(values) = self.values.get(path) {
            return values.get(time).or(values.last()).cloned();
        }
        // Elements of number sequences are found here; all others have their own path above.
        let (sequence, index) = path.strip_suffix(']')?.rsplit_once('[')?;
        let Datum::Sequence(elements, _) = self.find(sequence, time)? else { return None };
        elements.get(index.parse::<usize>().ok()?).copied().map(Datum::Number)
    }

    /// Adds a declaration `NAME TYPE = VALUES`, in which the values may be missing.
    pub(crate) fn add(&mut self, root: &str, line: &str) {
        let (declared, values) = line.split_once(" =").expect("a value");
        let mut words = declared.split_whitespace();
        let name = words.next().expect("a name");
        let words: Vec<&str> = words.collect();
        let of = parse_type(&words);
        let (members, prefix) = match root {
            "field" => (&mut self.layout.fields, ""),
            "context" => (&mut self.layout.contexts, "$ctx."),
            "app" => (&mut self.layout.applications, "$app."),
            other => panic!("'{other}' begins no line of a case"),
        };
        declare_member(members, name, &of);
        for (index, values) in values.split(" | ").enumerate() {
            for (path, datum) in parse_data(&format!("{prefix}{name}"), &of, values) {
                let times = self.values.entry(path).or_default();
                assert_eq!(times.len(), index);
                times.push(datum);
            }
        }
    }
}

/// Declares a member; dots in the name denote nested structures.
fn declare_member(members: &mut Vec<Member>, name: &str, of: &Type) {
    let Some((outer, inner)) = name.split_once('.') else {
        members.push(Member { name: name.into(), of: of.clone() });
        return;
    };
    let at = members.iter().position(|member| member.name == outer).unwrap_or_else(|| {
        members.push(Member { name: outer.into(), of: Type::Structure(Vec::new()) });
        members.len() - 1
    });
    let Type::Structure(inside) = &mut members[at].of else { panic!("{outer} is no structure") };
    declare_member(inside, inner, of);
}

fn scalar_by_name(name: &str) -> Scalar {
    match name {
        "i8" => Scalar::I8,
        "i16" => Scalar::I16,
        "i32" => Scalar::I32,
        "i64" => Scalar::I64,
        "u8" => Scalar::U8,
        "u16" => Scalar::U16,
        "u32" => Scalar::U32,
        "u64" => Scalar::U64,
        "x64" => Scalar::X64,
        "f32" => Scalar::F32,
        "f64" => Scalar::F64,
        "bool" => Scalar::Bool,
        other => panic!("'{other}' is no type of a case"),
    }
}

fn parse_type(words: &[&str]) -> Type {
    match words {
        ["string"] => Type::String,
        ["variant"] => Type::Other("a variant"),
        ["array", count, element @ ..] => {
            Type::Array(Box::new(parse_type(element)), count.parse().expect("a count"))
        }
        ["sequence", element @ ..] => Type::Sequence(Box::new(parse_type(element))),
        ["enum", of, labels @ ..] => {
            let Type::Integer(integer) = Type::from(scalar_by_name(of)) else {
                panic!("no integer")
            };
            let labels = labels.iter().map(|label| {
                let (name, range) = label.split_once('=').expect("NAME=VALUE");
                let (first, last) = range.split_once("..").unwrap_or((range, range));
                let [first, last] =
                    [first, last].map(|bound| parse_number(bound, scalar_by_name(of)) as i64);
                Label { name: name.into(), first, last }
            });
            Type::Integer(Integer { labels: labels.collect(), ..integer })
        }
        [one] => scalar_by_name(one).into(),
        other => panic!("{other:?} is no type of a case"),
    }
}

fn parse_number(text: &str, scalar: Scalar) -> u64 {
    match scalar {
        Scalar::F32 => f64::from(text.parse::<f32>().expect("a float")).to_bits(),
        Scalar::F64 => text.parse::<f64>().expect("a float").to_bits(),
        Scalar::Bool => u64::from(text == "true"),
        _ => text
            .parse::<i64>()
            .map(|value| value as u64)
            .unwrap_or_else(|_| text.parse().unwrap_or_else(|_| panic!("'{text}' is no integer"))),
    }
}

/// Parses the values of a path, or of the paths of its elements.
fn parse_data(path: &str, of: &Type, text: &str) -> Vec<(String, Datum)> {
    let text = text.trim();
    let one = |datum| vec![(path.to_owned(), datum)];
    match of {
        Type::String => one(Datum::String(parse_string(text))),
        Type::Other(_) => Vec::new(),
        Type::Array(element, _) | Type::Sequence(element) => match scalar_of(element) {
            Some(scalar) => {
                let elements = text.split_whitespace().map(|element| parse_number(element, scalar));
                one(Datum::Sequence(elements.collect(), scalar))
            }
            None => text
                .split_whitespace()
                .enumerate()
                .flat_map(|(index, text)| parse_data(&format!("{path}[{index}]"), element, text))
                .collect(),
        },
        other => one(Datum::Number(parse_number(text, scalar_of(other).expect("a scalar")))),
    }
}

fn scalar_of(of: &Type) -> Option<Scalar> {
    use trackway_filter::layout::Float;
    match of {
        Type::Integer(integer) => integer.scalar,
        Type::Float(Float::F32) => Some(Scalar::F32),
        Type::Float(Float::F64) => Some(Scalar::F64),
        _ => None,
    }
}

/// Parses a quoted string with the escapes `\n`, `\\`, `\"` and `\xff` (any byte).
fn parse_string(text: &str) -> Vec<u8> {
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    let mut bytes = inner.unwrap_or_else(|| panic!("{text} is no string")).bytes();
    let mut string = Vec::new();
    while let Some(byte) = bytes.next() {
        string.push(match byte {
            b'\\' => match bytes.next().expect("an escape") {
                b'n' => b'\n',
                b'x' => {
                    let mut digit = || (bytes.next().expect("a digit") as char).to_digit(16);
                    let high = digit().expect("a digit");
                    (high * 16 + digit().expect("a digit")) as u8
                }
                other => other,
            },
            byte => byte,
        });
    }
    string
}

/// Values of one occurrence of an event, for the evaluator.
pub(crate) struct ValuesAtTime {
    values: Vec<Option<Datum>>,
}

impl ValuesAtTime {
    pub(crate) fn new(needs: &[Need], event: &Event, time: usize) -> Self {
        Self { values: needs.iter().map(|need| event.find(&need.path, time)).collect() }
    }
}

impl Values for ValuesAtTime {
    fn number(&self, need: usize) -> Option<u64> {
        match self.values[need].as_ref()? {
            Datum::Number(bits) => Some(*bits),
            other => panic!("{other:?} is no number"),
        }
    }

    fn string(&self, need: usize) -> Option<&[u8]> {
        match self.values[need].as_ref()? {
            Datum::String(bytes) => Some(bytes),
            other => panic!("{other:?} is no string"),
        }
    }

    fn length(&self, need: usize) -> Option<u64> {
        match self.values[need].as_ref()? {
            Datum::Sequence(elements, _) => Some(elements.len() as u64),
            other => panic!("{other:?} is no sequence"),
        }
    }

    fn element(&self, need: usize, index: u64) -> Option<u64> {
        match self.values[need].as_ref()? {
            Datum::Sequence(elements, _) => elements.get(usize::try_from(index).ok()?).copied(),
            other => panic!("{other:?} is no sequence"),
        }
    }
}

/// A runtime with predetermined values.
#[derive(Debug, Clone, Default)]
pub(crate) struct Script {
    pub(crate) times: Vec<u64>,
    pub(crate) randoms: Vec<u64>,
    pub(crate) now: usize,
    pub(crate) requests: usize,
}

impl Runtime for Script {
    fn time_ns(&mut self) -> u64 {
        self.times.get(self.now).or(self.times.last()).copied().unwrap_or(0)
    }

    fn random(&mut self) -> u64 {
        self.requests += 1;
        match self.randoms.as_slice() {
            [] => 0,
            randoms => randoms[(self.requests - 1) % randoms.len()],
        }
    }
}
