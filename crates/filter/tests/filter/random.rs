//! Random expressions on random values: evaluator and bytecode return the same answers, request
//! equally many random numbers, and keep the same state.

use proptest::prelude::*;
use trackway_filter::compile::compile;
use trackway_filter::evaluate::{State, evaluate};
use trackway_jit::insn::{Insn, alu, class, jump, source};

use super::event::{Event, Script, ValuesAtTime};
use super::frame::Frame;
use super::machine::Machine;
use super::runner::{Runner, check_program};

/// Number of occurrences of a random event.
const TIMES: usize = 3;

/// Random numbers that shrink toward 0 when proptest shrinks a test case.
struct Dice<'a> {
    numbers: &'a [u32],
    at: usize,
}

impl Dice<'_> {
    fn next(&mut self) -> u32 {
        self.at += 1;
        self.numbers.get(self.at - 1).copied().unwrap_or(0)
    }

    fn next_below(&mut self, count: usize) -> usize {
        self.next() as usize % count
    }

    fn one_of<'text>(&mut self, texts: &[&'text str]) -> &'text str {
        texts[self.next_below(texts.len())]
    }
}

const INTEGERS: [&str; 20] = [
    "0",
    "1",
    "-1",
    "2",
    "3",
    "7",
    "-5",
    "64",
    "100",
    "127",
    "-128",
    "200",
    "255",
    "65536",
    "4294967295",
    "4294967296",
    "-4294967297",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
];
const FLOATS: [&str; 8] = ["0", "-0.0", "1", "0.5", "-2.5", "1e300", "inf", "NaN"];
const STRINGS: [&str; 8] = ["", "a", "ab", "abc", "b", "a*b", "hello", "\\xff\\n"];
/// Integer fields with their types.
const FIELDS: [(&str, &str); 11] = [
    ("a", "i8"),
    ("b", "i32"),
    ("c", "i64"),
    ("d", "u8"),
    ("e", "u32"),
    ("g", "u64"),
    ("t", "bool"),
    ("n", "u16"),
    ("m", "i16"),
    ("w", "u64"),
    ("en", "enum i32 OK=0 BAD=1..3 LOW=-1"),
];

/// Creates an event with all fields that random expressions name.
fn random_event(dice: &mut Dice<'_>) -> Event {
    let mut event = Event::default();
    event.layout.event = "app:random".into();
    let values = |dice: &mut Dice<'_>, one: &mut dyn FnMut(&mut Dice<'_>) -> String| {
        let all: Vec<String> = (0..TIMES).map(|_| one(dice)).collect();
        all.join(" | ")
    };
    for (name, of) in FIELDS {
        let text = values(dice, &mut |dice| random_integer(dice, of));
        event.add("field", &format!("{name} {of} = {text}"));
    }
    for (name, of) in [("f", "f64"), ("h", "f32")] {
        let text = values(dice, &mut |dice| dice.one_of(&FLOATS).into());
        event.add("field", &format!("{name} {of} = {text}"));
    }
    for name in ["s", "r", "$p"] {
        let text = values(dice, &mut |dice| format!("\"{}\"", dice.one_of(&STRINGS)));
        let (root, name) = if name == "$p" { ("context", "procname") } else { ("field", name) };
        event.add(root, &format!("{name} string = {text}"));
    }
    for (name, of, element) in [
        ("xs", "sequence u32", "u32"),
        ("ys", "sequence i64", "i64"),
        ("us", "sequence u64", "u64"),
        ("bs", "sequence i8", "i8"),
        ("fs", "sequence f64", "f64"),
    ] {
        let text = values(dice, &mut |dice| {
            let count = dice.next_below(4);
            let elements: Vec<String> = (0..count)
                .map(|_| match element {
                    "f64" => dice.one_of(&FLOATS).into(),
                    of => random_integer(dice, of),
                })
                .collect();
            elements.join(" ")
        });
        event.add("field", &format!("{name} {of} = {text}"));
    }
    let text = values(dice, &mut |dice| [0; 3].map(|_| random_integer(dice, "i16")).join(" "));
    event.add("field", &format!("arr array 3 i16 = {text}"));
    event
}

/// Returns an integer that fits a type.
fn random_integer(dice: &mut Dice<'_>, of: &str) -> String {
    let value: i128 = dice.one_of(&INTEGERS).parse().expect("an integer");
    let bits = value as u64;
    match of.split(' ').next().unwrap_or_default() {
        "i8" => (bits as i8).to_string(),
        "i16" => (bits as i16).to_string(),
        "i64" => (bits as i64).to_string(),
        "u8" => (bits as u8).to_string(),
        "u16" => (bits as u16).to_string(),
        "u32" => (bits as u32).to_string(),
        "u64" => bits.to_string(),
        "bool" => (bits & 1 != 0).to_string(),
        _ => (bits as i32).to_string(),
    }
}

/// Writes random expressions.
struct Writer<'a, 'dice> {
    dice: &'a mut Dice<'dice>,
    /// Sequence of the enclosing iteration, and true if its elements are floats.
    item: Option<(&'static str, bool)>,
}

impl Writer<'_, '_> {
    fn truth(&mut self, depth: usize) -> String {
        if depth == 0 {
            return match self.dice.next_below(3) {
                0 => self.number(0),
                1 => format!("{} == {}", self.number(0), self.number(0)),
                _ => self.strings(),
            };
        }
        let depth = depth - 1;
        let comparison = ["==", "!=", "<", "<=", ">", ">="];
        match self.dice.next_below(13) {
            0 => self.number(depth),
            1 | 2 => {
                let operator = self.dice.one_of(&comparison);
                format!("({}) {operator} ({})", self.number(depth), self.number(depth))
            }
            3 => {
                let operator = self.dice.one_of(&comparison);
                format!("({}) {operator} ({})", self.float(depth), self.number(depth))
            }
            4 => format!("!({})", self.truth(depth)),
            5 | 6 => self.joined(" && ", depth),
            7 | 8 => self.joined(" || ", depth),
            9 => self.strings(),
            10 => self.membership(depth),
            11 if self.item.is_none() => self.any(depth),
            12 if self.item.is_none() => self.state(depth),
            _ => format!("({}) > 3", self.number(depth)),
        }
    }

    fn joined(&mut self, operator: &str, depth: usize) -> String {
        let count = 2 + self.dice.next_below(4);
        let parts: Vec<String> = (0..count).map(|_| format!("({})", self.truth(depth))).collect();
        parts.join(operator)
    }

    fn state(&mut self, depth: usize) -> String {
        match self.dice.next_below(6) {
            0 => "count() % 2 == 0".into(),
            1 => format!("changed({})", self.number(depth)),
            2 => format!("changed({})", self.dice.one_of(&["s", "f", "$ctx.procname"])),
            3 => "sample(1/2)".into(),
            4 => "rate(1/10ns)".into(),
            _ => format!("changed({}) + count() > 1", self.truth(depth)),
        }
    }

    fn any(&mut self, depth: usize) -> String {
        let function = self.dice.one_of(&["any", "all", "none"]);
        let sequences = [
            ("xs", false),
            ("ys", false),
            ("us", false),
            ("bs", false),
            ("arr", false),
            ("fs", true),
        ];
        let item = sequences[self.dice.next_below(sequences.len())];
        self.item = Some(item);
        let rest = self.truth(depth);
        let by = self.number(0);
        self.item = None;
        let (name, _) = item;
        format!("{function}({name} > {by} || ({rest}))")
    }

    fn membership(&mut self, depth: usize) -> String {
        match self.dice.next_below(3) {
            0 => format!("en in (\"{}\", 2)", self.dice.one_of(&["OK", "B*", "*"])),
            1 => {
                let items: Vec<String> = (0..1 + self.dice.next_below(7))
                    .map(|_| match self.dice.next_below(3) {
                        0 => self.number(depth),
                        1 => self.dice.one_of(&INTEGERS).into(),
                        _ => {
                            let low = self.dice.next_below(100) as i64 - 30;
                            format!("{low}..{}", low + self.dice.next_below(90) as i64)
                        }
                    })
                    .collect();
                format!("({}) in ({})", self.number(depth), items.join(", "))
            }
            _ => {
                let items: Vec<String> =
                    (0..1 + self.dice.next_below(3)).map(|_| self.pattern()).collect();
                format!("{} in ({})", self.dice.one_of(&["s", "r"]), items.join(", "))
            }
        }
    }

    fn pattern(&mut self) -> String {
        format!(
            "\"{}\"",
            self.dice.one_of(&["a", "a*", "*b", "*", "*e*o", "*a*", "", "a\\*b", "abc"])
        )
    }

    fn strings(&mut self) -> String {
        let a = self.dice.one_of(&["s", "r", "$ctx.procname"]);
        let b = self.dice.one_of(&["s", "r", "\"a\"", "\"\"", "\"abc\"", "\"b\""]);
        match self.dice.next_below(5) {
            0 => format!("{a} {} {b}", self.dice.one_of(&["==", "!=", "<", "<=", ">", ">="])),
            1 => format!("{a} {} {}", self.dice.one_of(&["==", "!="]), self.pattern()),
            2 => format!("starts_with({a}, {b})"),
            3 => format!("ends_with({a}, {b})"),
            _ => format!("contains({a}, {b})"),
        }
    }

    fn float(&mut self, depth: usize) -> String {
        if depth == 0 {
            return match (self.dice.next_below(4), self.item) {
                (0, Some((name, true))) => name.into(),
                (1, _) => "h".into(),
                (2, _) => "2.5".into(),
                _ => "f".into(),
            };
        }
        match self.dice.next_below(3) {
            0 => self.float(0),
            1 => format!("-({})", self.float(depth - 1)),
            _ => {
                let operator = self.dice.one_of(&["+", "-", "*", "/"]);
                format!("({}) {operator} ({})", self.float(depth - 1), self.number(depth - 1))
            }
        }
    }

    /// Writes an integer expression.
    fn number(&mut self, depth: usize) -> String {
        if depth == 0 {
            return match (self.dice.next_below(6), self.item) {
                (0..=2, _) => FIELDS[self.dice.next_below(FIELDS.len())].0.into(),
                (3 | 4, Some((name, false))) => name.into(),
                (3, _) => format!("length({})", self.dice.one_of(&["s", "xs", "r", "fs", "arr"])),
                (4, None) => self.element(),
                _ => self.dice.one_of(&INTEGERS).into(),
            };
        }
        let depth = depth - 1;
        match self.dice.next_below(8) {
            0 => self.number(0),
            1 => format!("-({})", FIELDS[self.dice.next_below(FIELDS.len())].0),
            2 => format!("~({})", self.number(depth)),
            3 => format!("({}) + 0", self.truth(depth)),
            4 => {
                let operator = self.dice.one_of(&["<<", ">>"]);
                let by = if self.dice.next_below(2) == 0 {
                    "n".into()
                } else {
                    self.dice.next_below(64).to_string()
                };
                format!("({}) {operator} {by}", self.number(depth))
            }
            5 => format!("({}) % {}", self.number(depth), self.dice.one_of(&INTEGERS)),
            _ => {
                let operator = self.dice.one_of(&["+", "-", "*", "/", "%", "&", "|", "^"]);
                format!("({}) {operator} ({})", self.number(depth), self.number(depth))
            }
        }
    }

    fn element(&mut self) -> String {
        let sequence = self.dice.one_of(&["xs", "ys", "us", "bs", "arr"]);
        if self.dice.next_below(2) == 0 {
            return format!("{}({sequence})", self.dice.one_of(&["sum", "min", "max"]));
        }
        let index = self.dice.one_of(&["0", "1", "2", "n", "a"]);
        format!("{sequence}[{index}]")
    }
}

/// Compares the answers of tree and bytecode, after `spoil` has modified the bytecode. Returns
/// `None` if the text is no valid expression, else the first difference, if any.
fn compare_answers(
    values: &[u32],
    expression: &[u32],
    depth: usize,
    spoil: impl Fn(&mut [Insn]),
) -> Option<Result<(), String>> {
    let event = random_event(&mut Dice { numbers: values, at: 0 });
    let mut dice = Dice { numbers: expression, at: 0 };
    let text = Writer { dice: &mut dice, item: None }.truth(depth);
    let compiled = compile(&text, &event.layout).ok()?;
    let mut alternative = compiled.alternative;
    let whole = alternative.programs[0].clone();
    spoil(&mut alternative.programs[0]);
    check_program(&alternative.programs[0]);
    let mut states = [State::new(&compiled.filter), State::new(&compiled.filter)];
    let script =
        Script { times: vec![0, 5, 10], randoms: vec![0, u64::MAX, 7], ..Script::default() };
    // The verifier may reject modified bytecode.
    let is_whole = whole == alternative.programs[0];
    let mut machine = is_whole.then(|| Machine::new(compiled.filter.cells, &alternative, &script));
    let mut runtimes = [script.clone(), script];
    for time in 0..TIMES {
        runtimes[0].now = time;
        runtimes[1].now = time;
        let now = ValuesAtTime::new(&compiled.filter.needs, &event, time);
        let expected = evaluate(&compiled.filter, &now, &mut states[0], &mut runtimes[0]);
        let frame = Frame::of(&alternative, |path| event.find(path, time)).expect("a frame");
        let (state, runtime) = (&mut states[1], &mut runtimes[1]);
        let answer = Runner { alternative: &alternative, frame: &frame, state, runtime }.run();
        let is_same = answer == expected
            && states[0] == states[1]
            && runtimes[0].requests == runtimes[1].requests;
        if !is_same {
            return Some(Err(format!("event {time}, {expected} and {answer}: {text}")));
        }
        let answers = machine.as_mut().map(|machine| machine.answers(&frame, time));
        if answers.is_some_and(|answers| answers != [expected; 2]) {
            return Some(Err(format!("event {time}, {expected} and {answers:?}: {text}")));
        }
    }
    Some(Ok(()))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 3000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn bytecode_answers_what_the_tree_says(
        values in prop::collection::vec(any::<u32>(), 0..150),
        expression in prop::collection::vec(any::<u32>(), 0..300),
        depth in 0..6_usize,
    ) {
        let compared = compare_answers(&values, &expression, depth, |_| {});
        prop_assert_eq!(compared.unwrap_or(Ok(())), Ok(()));
    }
}

/// Checks the relaxed form of a filter that accepts one event. The relaxed filter must accept all
/// events that differ only in unknown values, and read no unknown needs. Returns `None` if there is
/// nothing to compare; else true if the relaxed filter can reject, or the error.
fn check_relaxed(
    values: [&[u32]; 2],
    expression: &[u32],
    depth: usize,
) -> Option<Result<bool, String>> {
    let [event, mut other] =
        values.map(|values| random_event(&mut Dice { numbers: values, at: 0 }));
    let mut dice = Dice { numbers: expression, at: 0 };
    let text = Writer { dice: &mut dice, item: None }.truth(depth);
    let compiled = compile(&text, &event.layout).ok()?;
    let unknown = ["s", "a", "xs"];
    let relaxed = compiled.relaxed(&text, |need| unknown.contains(&need.place.name.as_str()));
    let relaxed = relaxed.expect("it is simpler")?;
    let is_unknown =
        |path: &String| unknown.iter().any(|name| path.split('[').next() == Some(*name));
    for (path, data) in &event.values {
        if !is_unknown(path) {
            other.values.insert(path.clone(), data.clone());
        }
    }
    other.values.retain(|path, _| is_unknown(path) || event.values.contains_key(path));
    let script =
        Script { times: vec![0, 5, 10], randoms: vec![0, u64::MAX, 7], ..Script::default() };
    let (mut state, mut says_no) = (State::new(&compiled.filter), false);
    let mut runtimes = [script.clone(), script];
    for time in 0..TIMES {
        runtimes[0].now = time;
        let now = ValuesAtTime::new(&compiled.filter.needs, &event, time);
        let passes = evaluate(&compiled.filter, &now, &mut state, &mut runtimes[0]);
        let now = ValuesAtTime::new(&relaxed.filter.needs, &other, time);
        let may_pass = evaluate(&relaxed.filter, &now, &mut State::default(), &mut runtimes[1]);
        says_no |= !may_pass;
        if passes && !may_pass || runtimes[1].requests != 0 {
            return Some(Err(format!("event {time}: {text}")));
        }
    }
    let paths = relaxed.alternative.needs.iter().map(|need| &need.path);
    if paths.clone().any(is_unknown) {
        return Some(Err(format!("{:?} of {text}", paths.collect::<Vec<_>>())));
    }
    Some(Ok(says_no))
}

#[test]
fn who_does_not_know_all_says_no_only_where_who_does_would() {
    let mut seed = 7_u64;
    let mut numbers = || -> Vec<u32> {
        let next = |_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005);
            seed = seed.wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as u32
        };
        (0..300).map(next).collect()
    };
    let relaxed = |case: usize| check_relaxed([&numbers(), &numbers()], &numbers(), case % 6);
    let all: Vec<bool> = (0..6000_usize)
        .filter_map(relaxed)
        .map(|result| result.unwrap_or_else(|why| panic!("{why}")))
        .collect();
    let no = all.iter().filter(|says_no| **says_no).count();
    assert!(all.len() > 100 && no > 20, "{no} of {}", all.len());
}

/// Makes 400 comparisons; returns the number of comparisons, and of differences.
fn compare_many(spoil: impl Fn(&mut [Insn])) -> (usize, usize) {
    let mut seed = 1_u64;
    let mut numbers = || -> Vec<u32> {
        let next = |_| {
            // Knuth's linear congruential generator for MMIX.
            seed = seed.wrapping_mul(6_364_136_223_846_793_005);
            seed = seed.wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as u32
        };
        (0..300).map(next).collect()
    };
    let compared: Vec<_> = (0..400)
        .filter_map(|case| compare_answers(&numbers(), &numbers(), case % 5, &spoil))
        .collect();
    (compared.len(), compared.iter().filter(|result| result.is_err()).count())
}

#[test]
fn most_random_expressions_are_ones() {
    let (count, differing) = compare_many(|_| {});
    assert!(count > 300, "only {count} of 400 were compared");
    assert_eq!(differing, 0);
}

#[test]
fn wrong_bytecode_is_noticed() {
    let replace = |from: u8, to: u8| {
        move |program: &mut [Insn]| {
            for insn in program.iter_mut().filter(|insn| insn.op == from) {
                insn.op = to;
            }
        }
    };
    let jump = class::JMP | source::K;
    for (from, to) in [
        (jump | jump::JSLE, jump | jump::JSLT),
        (jump | jump::JSGE, jump | jump::JGE),
        (jump | jump::JEQ, jump | jump::JSLE),
        (class::ALU64 | source::X | alu::ADD, class::ALU64 | source::X | alu::SUB),
        (class::ALU64 | source::X | alu::AND, class::ALU64 | source::X | alu::OR),
    ] {
        let (_, differing) = compare_many(replace(from, to));
        assert!(differing > 0, "{from:#x} instead of {to:#x} goes unnoticed");
    }
}
