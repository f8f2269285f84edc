//! Random unregistered events with random expressions. Filters compiled without these events answer
//! like the tree compiled for the known event, or count the event. They accept every expression
//! that is valid for the events. These tests select alternatives like traced programs
//! (`agent::filters::linker`): from the bytes of objects, meanings and descriptions.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use trackway_filter::compile::{CompiledFor, compile_for_any};
use trackway_filter::evaluate::{State, evaluate};
use trackway_filter::layout::Layout;
use trackway_filter::types::check_text;
use trackway_jit::frame::{Cell, Environment, Frame};
use trackway_jit::framer::{Contexts, Framer, Mismatch, WantedValue};
use trackway_jit::interpret;
use trackway_jit::meaning::Meanings;
use trackway_jit::object::Object;
use trackway_jit::verify::{Rules, State as Verified, verify};
use trackway_schema::context;
use trackway_schema::{Encoder, EventDescription, FieldViews, Scalar, Shape};
use trackway_testkit::random::Random;

use super::event::{Datum, Event, Script, ValuesAtTime};

/// Number of random expressions, each with its own events.
const CASES: u64 = 400;
/// Number of occurrences of each event.
const TIMES: usize = 4;
/// Size limit of a recorder for the alternatives for unknown events, in bytes.
const GENERIC_BYTES: usize = 16 << 10;
const VPID: u32 = 77;

const SCALARS: [Scalar; 12] = [
    Scalar::I8,
    Scalar::I32,
    Scalar::I64,
    Scalar::U8,
    Scalar::U16,
    Scalar::U32,
    Scalar::U32,
    Scalar::U64,
    Scalar::U64,
    Scalar::X64,
    Scalar::Bool,
    Scalar::F64,
];
const INTEGERS: [u64; 13] =
    [0, 1, 2, 3, 5, 7, 100, 255, 0xffff_ffff, 0x8000_0000, 1 << 63, u64::MAX, (1 << 63) - 1];
const FLOATS: [f64; 5] = [0.0, 1.5, -2.5, 3.0, f64::NAN];
const STRINGS: [&str; 5] = ["", "a", "ab", "BAD", "b"];

/// Writes expressions on numbers `a` to `d`, an enumeration `e`, strings `s` and `t`, and arrays or
/// sequences `y` and `z`.
struct Writer<'r> {
    random: &'r mut Random,
}

impl Writer<'_> {
    fn one_of<'t>(&mut self, of: &[&'t str]) -> &'t str {
        let one: &&str = self.random.pick(of);
        one
    }

    fn truth(&mut self, depth: u64) -> String {
        if depth > 0 && self.random.next_below(3) > 0 {
            let (a, b) = (self.truth(depth - 1), self.truth(depth - 1));
            return match self.random.next_below(5) {
                0 | 1 => format!("({a}) && ({b})"),
                2 | 3 => format!("({a}) || ({b})"),
                _ => format!("!({a})"),
            };
        }
        let operator = self.one_of(&["==", "!=", "<", "<=", ">", ">="]);
        match self.random.next_below(16) {
            0 => format!("{} in (0..5, 200, {})", self.number(1), self.number(0)),
            1 => format!("s {} {}", self.one_of(&["==", "!="]), self.one_of(&["\"a*\"", "t"])),
            2 => format!("starts_with(s, {})", self.one_of(&["t", "\"a\""])),
            3 => format!("{} in (\"a\", \"b*\")", self.one_of(&["s", "t"])),
            4 => format!("e == {}", self.one_of(&["\"BAD\"", "\"OK\"", "1"])),
            5 => format!("any(z {operator} {})", self.number(0)),
            6 => format!("{}(y) {operator} 3", self.one_of(&["sum", "max"])),
            7 => self.one_of(&["count() % 2 == 0", "changed(a)", "$ctx.vpid > 5"]).into(),
            8 => format!("a {operator} b"),
            9 => self.number(2),
            _ => format!("{} {operator} {}", self.number(2), self.number(1)),
        }
    }

    fn number(&mut self, depth: u64) -> String {
        if depth > 0 && self.random.next_below(3) > 0 {
            let (a, b) = (self.number(depth - 1), self.number(depth - 1));
            return match self.random.next_below(8) {
                0 => format!("(-{a})"),
                1 => format!("(~{a})"),
                2 => format!("(({}) + {b})", self.truth(0)),
                3..=5 => format!("({a} {} {b})", self.one_of(&["-", "+", "-"])),
                _ => format!(
                    "({a} {} {b})",
                    self.one_of(&["*", "/", "%", "&", "|", "^", ">>", "<<"])
                ),
            };
        }
        match self.random.next_below(12) {
            0 | 1 => self.one_of(&["0", "1", "5", "1000", "4294967296", "1.5"]).into(),
            2 => format!("z[{}]", self.one_of(&["0", "2", "3", "70000", "a"])),
            3 => format!("y[{}]", self.one_of(&["0", "1", "4"])),
            4 => format!("length({})", self.one_of(&["s", "t", "z", "y"])),
            _ => self.one_of(&["a", "b", "c", "d", "e", "a", "b"]).into(),
        }
    }
}

/// A field of an event.
struct Field {
    name: &'static str,
    shape: Shape,
    scalar: Option<Scalar>,
    length: u16,
}

/// An event with the description that a program registers.
struct DescribedEvent {
    fields: Vec<Field>,
    bytes: Vec<u8>,
    layout: Layout,
}

impl DescribedEvent {
    fn random(random: &mut Random) -> Self {
        let mut fields = Vec::new();
        let names = ["a", "b", "c", "d", "e", "s", "t", "y", "z"];
        for name in names {
            if random.once_in(60) {
                continue;
            }
            // Occasionally, a field has another type than its name suggests.
            let like = if random.once_in(25) { *random.pick(&names) } else { name };
            let shape = match like {
                "e" => *random.pick(&[Shape::Enumeration, Shape::Scalar]),
                "s" | "t" => *random.pick(&[Shape::Str, Shape::Text]),
                "y" | "z" => *random.pick(&[Shape::Array, Shape::Sequence]),
                _ => Shape::Scalar,
            };
            let scalar = match shape {
                Shape::Str | Shape::Text => None,
                Shape::Enumeration => Some(*random.pick(&SCALARS[..10])),
                _ => Some(*random.pick(&SCALARS)),
            };
            let length = if shape == Shape::Array { 1 + random.next_below(5) as u16 } else { 0 };
            fields.push(Field { name, shape, scalar, length });
        }
        // The order of the fields varies, too.
        let turn = random.next_below(fields.len() as u64) as usize;
        fields.rotate_left(turn);
        let bytes = encode_description(&fields, random.next_below(2) as i64);
        let description = EventDescription::decode(&bytes).expect("a description");
        Self { fields, layout: Layout::of_event(&description), bytes }
    }

    /// Creates random values of the event, and the payload with these values.
    fn happens(&self, random: &mut Random) -> (Event, Vec<u8>) {
        let mut event = Event { layout: self.layout.clone(), ..Event::default() };
        let mut payload = Vec::new();
        for field in &self.fields {
            let datum = match (field.shape, field.scalar) {
                (Shape::Array | Shape::Sequence, Some(scalar)) => {
                    let is_array = field.shape == Shape::Array;
                    let count = if is_array { field.length.into() } else { random.next_below(6) };
                    if !is_array {
                        payload.extend((count as u32).to_le_bytes());
                    }
                    let mut element = || push_random_number(random, scalar, &mut payload);
                    Datum::Sequence((0..count).map(|_| element()).collect(), scalar)
                }
                (_, Some(scalar)) => {
                    Datum::Number(push_random_number(random, scalar, &mut payload))
                }
                (shape, None) => {
                    let string = random.pick(&STRINGS).as_bytes();
                    if shape == Shape::Text {
                        payload.extend((string.len() as u32).to_le_bytes());
                    }
                    payload.extend(string);
                    payload.extend((shape == Shape::Str).then_some(0));
                    Datum::String(string.to_vec())
                }
            };
            event.values.insert(field.name.into(), vec![datum]);
        }
        let vpid = vec![Datum::Number(VPID.into())];
        event.values.insert("$ctx.vpid".into(), vpid);
        (event, payload)
    }
}

/// Encodes a description; labels have consecutive numbers from `first`.
fn encode_description(fields: &[Field], first: i64) -> Vec<u8> {
    let mut buffer = [0; 1024];
    let mut encoder = Encoder::new(&mut buffer, b"app", b"new", 6).expect("room");
    let labels = [b"OK", b"NO", b"BA"];
    for Field { name, shape, scalar, length } in fields {
        let count = if *shape == Shape::Enumeration { labels.len() } else { 0 };
        encoder.add_field(name.as_bytes(), *shape, *scalar, *length, count).expect("room");
        for (label, value) in labels[..count].iter().zip(first..) {
            let name: &[u8] = if *label == b"BA" { b"BAD" } else { *label };
            encoder.add_label(name, value, value).expect("room");
        }
    }
    encoder.finish().to_vec()
}

/// Appends a random number to the payload, and returns it in slot format.
fn push_random_number(random: &mut Random, scalar: Scalar, payload: &mut Vec<u8>) -> u64 {
    let bits = match scalar {
        Scalar::F64 => random.pick(&FLOATS).to_bits(),
        Scalar::Bool => random.next_below(2),
        _ => *random.pick(&INTEGERS),
    };
    let size = scalar.size_bytes();
    payload.extend(&bits.to_le_bytes()[..size]);
    let above = 64 - 8 * size as u32;
    if scalar.is_signed() {
        ((bits << above).cast_signed() >> above).cast_unsigned()
    } else {
        bits << above >> above
    }
}

/// The decision of a traced program about an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The program drops the event.
    Drops,
    /// The program counts the event as lost.
    Counts,
    /// The alternative with this number decides.
    Judges(usize),
}

/// A filter in the form that a traced program gets.
struct Published {
    object: Vec<u8>,
    meanings: Vec<u8>,
    cells: Vec<Cell>,
}

impl Published {
    fn new(compiled: &CompiledFor) -> Self {
        let object = compiled.encode().expect("an object");
        let cells = (0..compiled.object.cells).map(|_| AtomicU64::new(0)).collect();
        Self { object, meanings: compiled.meanings.clone(), cells }
    }

    fn judge(&self, event: &DescribedEvent, framer: &mut Framer) -> Outcome {
        let object = Object::decode(&self.object).expect("an object");
        let meanings = match &self.meanings[..] {
            [] => Meanings::default(),
            bytes => Meanings::decode(bytes).expect("meanings"),
        };
        let fields = FieldViews::new(&event.bytes).expect("fields");
        let mut lacks = true;
        for (number, alternative) in object.alternatives().enumerate() {
            let wanted = alternative
                .needs()
                .map(|need| WantedValue { path: need.path.as_bytes(), kind: need.kind });
            match framer.build_in_place(&fields, wanted) {
                Err(unfit) => lacks &= matches!(unfit, Mismatch::Lacks(_)),
                Ok(()) if !meanings.are_of(&fields, number, &alternative) => lacks = false,
                Ok(()) => return Outcome::Judges(number),
            }
        }
        if lacks { Outcome::Drops } else { Outcome::Counts }
    }

    fn answer(&self, alternative: usize, framer: &Framer, payload: &[u8]) -> bool {
        let object = Object::decode(&self.object).expect("an object");
        let alternative = object.alternatives().nth(alternative).expect("an alternative");
        let program = alternative.programs().next().expect("a program");
        let mut states = vec![Verified::FREE; program.len() + 1];
        let verified = verify(program, Rules::new(alternative.needs_count()), &mut states);
        let verified = verified.expect("a filter");
        let environment = Environment::new(
            alternative.constants(),
            &self.cells,
            unused_callback,
            unused_callback,
        );
        let mut frame = Frame::new(&environment, payload);
        let contexts =
            Contexts::NONE.with(context::VPID, VPID.into()).with(context::VTID, VPID.into());
        framer.fill(&mut frame, 0, &contexts)
            && interpret::run(&[verified], &frame).expect("verified").answer != 0
    }
}

extern "C" fn unused_callback() -> u64 {
    0
}

/// Checks that the `published` filter answers like the tree compiled for the event; returns the
/// decision.
///
/// # Errors
///
/// Returns a description of the difference.
fn check_decision(
    text: &str,
    published: &Published,
    event: &DescribedEvent,
    random: &mut Random,
) -> Result<Outcome, String> {
    let mut framer = Framer::EMPTY;
    let outcome = published.judge(event, &mut framer);
    let known = check_text(text, &event.layout);
    match (outcome, &known) {
        (Outcome::Counts, _) => {}
        (Outcome::Drops, Err(_)) => {}
        (Outcome::Judges(alternative), Ok(filter)) => {
            let mut state = State::new(filter);
            for _ in 0..TIMES {
                let (values, payload) = event.happens(random);
                let now = ValuesAtTime::new(&filter.needs, &values, 0);
                let expected = evaluate(filter, &now, &mut state, &mut Script::default());
                let answer = published.answer(alternative, &framer, &payload);
                if answer != expected {
                    return Err(format!("{answer}, not {expected}: {:?}", values.values));
                }
            }
        }
        _ => return Err(format!("{outcome:?}, but {:?}", known.map(|_| ()))),
    }
    Ok(outcome)
}

/// Results of the random cases.
#[derive(Debug, Default)]
struct Counts {
    /// Number of events that the filter decided before they were known.
    judged: usize,
    counted: usize,
    /// Descriptions of differences.
    wrong: Vec<String>,
}

/// Runs random events through filters that were compiled for no events, for other events, and for
/// all. `spoil` damages the compiled filter.
fn run(cases: u64, spoil: &dyn Fn(&mut CompiledFor)) -> Counts {
    let mut counts = Counts::default();
    for seed in 0..cases {
        let mut random = Random::new(seed);
        let depth = random.next_below(4);
        let text = Writer { random: &mut random }.truth(depth);
        let events: Vec<DescribedEvent> =
            (0..3).map(|_| DescribedEvent::random(&mut random)).collect();
        let layouts: Vec<Layout> = events.iter().map(|event| event.layout.clone()).collect();
        for known in 0..=events.len() {
            let mut compiled = match compile_for_any(&text, &layouts[..known], GENERIC_BYTES) {
                Ok(compiled) => compiled,
                Err(error) => {
                    if layouts.iter().any(|layout| check_text(&text, layout).is_ok()) {
                        counts.wrong.push(format!("{text}: {}", error.message));
                    }
                    continue;
                }
            };
            spoil(&mut compiled);
            let published = Published::new(&compiled);
            for (number, event) in events.iter().enumerate() {
                published.cells.iter().for_each(|cell| cell.store(0, Relaxed));
                let makes_sense = check_text(&text, &event.layout).is_ok();
                match check_decision(&text, &published, event, &mut random) {
                    Err(what) => counts.wrong.push(format!("{text}: ({known}/{number}) {what}")),
                    Ok(Outcome::Counts) if makes_sense && number < known => {
                        counts.wrong.push(format!("{text}: ({known}/{number}) is counted"));
                    }
                    Ok(Outcome::Counts) if makes_sense => counts.counted += 1,
                    Ok(Outcome::Judges(_)) if number >= known => counts.judged += 1,
                    Ok(_) => {}
                }
            }
        }
    }
    counts
}

#[test]
fn events_that_nobody_knows_are_judged_as_when_they_are_known_or_counted() {
    let counts = run(CASES, &|_| {});
    let first: Vec<&String> = counts.wrong.iter().take(5).collect();
    assert!(first.is_empty(), "{} of them: {first:#?}", counts.wrong.len());
    // Most events are decided, not counted, though many filters read elements or labels.
    let Counts { judged, counted, .. } = counts;
    assert!(judged > counted, "{judged} judged, {counted} counted");
}

#[test]
fn what_would_be_wrong_is_noticed() {
    let without_meanings = run(CASES / 4, &|compiled| {
        compiled.meanings.clear();
        compiled.needs_meanings = false;
    });
    assert!(!without_meanings.wrong.is_empty());
}
