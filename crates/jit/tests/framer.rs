//! Framers copy the values of payloads to frames, whatever the payload's layout.

use proptest::prelude::*;
use trackway_jit::Kind;
use trackway_jit::frame::{Environment, Fill, Frame};
use trackway_jit::framer::{
    ApplicationContext, Contexts, Framer, FramerView, Mismatch, WantedValue,
};
use trackway_jit::helper::Word;
use trackway_jit::x86::emit_fill;
use trackway_schema::context::{PROCNAME, VPID, VTID};
use trackway_schema::{Encoder, FieldViews, Scalar, Shape};
use trackway_testkit::{Executable, GuardedBytes};

const NAME: Word = Word { offset: 1, length: 3, is_constant: false };
const CONTEXTS: Contexts =
    Contexts::NONE.with(VPID, 7).with_signed(VTID, -1).with(PROCNAME, NAME.to_bits());
/// Bytes in front of the payload.
const PAYLOAD_OFFSET: usize = 5;

extern "C" fn return_zero() -> u64 {
    0
}

/// A field with its values and its bytes in a payload.
#[derive(Debug, Clone)]
struct Field {
    shape: Shape,
    scalar: Option<Scalar>,
    /// Elements of the field: one for a scalar, the bytes for a string.
    elements: Vec<u64>,
}

fn any_scalar() -> impl Strategy<Value = Scalar> {
    (1_u8..=15).prop_map(|code| Scalar::from_code(code).expect("a scalar"))
}

fn any_field() -> impl Strategy<Value = Field> {
    let numbers = |count: std::ops::Range<usize>| proptest::collection::vec(any::<u64>(), count);
    let bytes = proptest::collection::vec(1_u64..256, 0..9);
    prop_oneof![
        (any_scalar(), numbers(1..2)).prop_map(|(scalar, elements)| Field {
            shape: Shape::Scalar,
            scalar: Some(scalar),
            elements
        }),
        (any_scalar(), numbers(1..5)).prop_map(|(scalar, elements)| Field {
            shape: Shape::Array,
            scalar: Some(scalar),
            elements
        }),
        (any_scalar(), numbers(0..5)).prop_map(|(scalar, elements)| Field {
            shape: Shape::Sequence,
            scalar: Some(scalar),
            elements
        }),
        bytes.clone().prop_map(|elements| Field { shape: Shape::Str, scalar: None, elements }),
        bytes.prop_map(|elements| Field { shape: Shape::Text, scalar: None, elements }),
    ]
}

impl Field {
    fn element_bytes(&self) -> usize {
        self.scalar.map_or(1, Scalar::size_bytes)
    }

    fn push(&self, payload: &mut Vec<u8>) {
        if matches!(self.shape, Shape::Sequence | Shape::Text) {
            payload.extend((self.elements.len() as u32).to_le_bytes());
        }
        for element in &self.elements {
            payload.extend(&element.to_le_bytes()[..self.element_bytes()]);
        }
        if self.shape == Shape::Str {
            payload.push(0);
        }
    }

    /// Returns the slot value of an element.
    fn value(&self, index: usize) -> u64 {
        let bits = self.elements[index];
        let signed = |value: i64| value.cast_unsigned();
        match self.scalar.expect("a scalar") {
            Scalar::I8 => signed((bits as i8).into()),
            Scalar::I16 => signed((bits as i16).into()),
            Scalar::I32 => signed((bits as i32).into()),
            Scalar::U8 | Scalar::X8 => bits & 0xff,
            Scalar::U16 | Scalar::X16 => bits & 0xffff,
            Scalar::U32 | Scalar::X32 => bits & 0xffff_ffff,
            Scalar::Bool => u64::from(bits & 0xff != 0),
            Scalar::F32 => f64::from(f32::from_bits(bits as u32)).to_bits(),
            Scalar::I64 | Scalar::U64 | Scalar::X64 | Scalar::F64 => bits,
        }
    }

    fn element_kind(&self) -> Kind {
        match self.scalar.expect("a scalar") {
            scalar if scalar.is_float() => Kind::Float,
            scalar if scalar.is_signed() => Kind::Signed,
            _ => Kind::Unsigned,
        }
    }

    /// Returns the kind of the whole field.
    fn kind(&self) -> Kind {
        match self.shape {
            Shape::Str | Shape::Text => Kind::String,
            Shape::Array | Shape::Sequence => Kind::Sequence,
            _ => self.element_kind(),
        }
    }
}

fn encode_description(fields: &[Field]) -> Vec<u8> {
    let mut buffer = [0; 4096];
    let mut encoder = Encoder::new(&mut buffer, b"app", b"event", 6).expect("room");
    for (number, field) in fields.iter().enumerate() {
        let length = if field.shape == Shape::Array { field.elements.len() as u16 } else { 0 };
        let name = format!("f{number}");
        encoder.add_field(name.as_bytes(), field.shape, field.scalar, length, 0).expect("room");
    }
    encoder.finish().to_vec()
}

fn build_framer(encoded: &[u8], needs: &[(String, Kind)]) -> Result<Framer, Mismatch> {
    let fields = FieldViews::new(encoded).expect("a description");
    let wanted = |(path, kind): &(String, Kind)| (path.clone().into_bytes(), *kind);
    let needs: Vec<_> = needs.iter().map(wanted).collect();
    Framer::new(&fields, needs.iter().map(|(path, kind)| WantedValue { path, kind: *kind }))
}

/// Fills a frame and returns its slots; `None` if the filter rejects the event. Also fills by
/// machine code where supported.
fn fill_slots(framer: &Framer, bytes: &[u8]) -> Option<Vec<u64>> {
    let environment = Environment::new(&[], &[], return_zero, return_zero);
    let mut frame = Frame::new(&environment, bytes);
    let slots = framer.fill(&mut frame, PAYLOAD_OFFSET, &CONTEXTS).then(|| frame.slots().to_vec());
    if cfg!(all(target_arch = "x86_64", not(miri))) {
        assert_eq!(fill_slots_by_code(&framer.view(), bytes), slots);
    }
    slots
}

fn fill_slots_by_code(framer: &FramerView<'_>, bytes: &[u8]) -> Option<Vec<u64>> {
    let mut code = [0; 4096];
    let size = emit_fill(framer, &mut code).expect("room");
    if bytes.len() < PAYLOAD_OFFSET + framer.coded_bytes() {
        return None;
    }
    // The payload in memory of exactly its size, followed by a guard page.
    let payload = GuardedBytes::new(&bytes[PAYLOAD_OFFSET..PAYLOAD_OFFSET + framer.coded_bytes()]);
    let environment = Environment::new(&[], &[], return_zero, return_zero);
    let mut frame = Frame::new(&environment, bytes);
    let code = size.map_or(Executable::new(&[0xc3]), |size| Executable::new(&code[..size]));
    // SAFETY: the code is this framer's or a no-op. The payload has all bytes that it reads, and
    // the slots that it leaves are set below.
    unsafe {
        let fill = std::mem::transmute::<*const u8, Fill>(code.start());
        frame.fill_by(fill, payload.bytes().as_ptr(), framer.takes.len());
    }
    let rest: Vec<_> = framer.rest().collect();
    FramerView::fill_rest(framer.legs, &rest, &mut frame, PAYLOAD_OFFSET, &CONTEXTS)
        .then(|| frame.slots().to_vec())
}

proptest! {
    /// Each field, as a whole and by its elements, in any order.
    #[test]
    fn frames_have_what_payloads_have(
        fields in proptest::collection::vec(any_field(), 1..12),
        picks in proptest::collection::vec((any::<prop::sample::Index>(), 0_usize..6), 1..20),
    ) {
        let encoded = encode_description(&fields);
        let mut bytes = vec![0xee; PAYLOAD_OFFSET];
        let mut begins = Vec::new();
        for field in &fields {
            begins.push(bytes.len());
            field.push(&mut bytes);
        }
        let (mut needs, mut expected) = (Vec::new(), Some(Vec::new()));
        for (pick, index) in picks {
            let number = pick.index(fields.len());
            let field = &fields[number];
            let is_counted = matches!(field.shape, Shape::Sequence | Shape::Text);
            let offset = (begins[number] + if is_counted { 4 } else { 0 }) as u32;
            let length = field.elements.len() as u32;
            let has_elements = matches!(field.shape, Shape::Array | Shape::Sequence);
            let (path, kind, value) = match field.shape {
                Shape::Array if index >= field.elements.len() => continue,
                _ if has_elements && index < 5 => (
                    format!("f{number}[{index}]"),
                    field.element_kind(),
                    field.elements.get(index).map(|_| field.value(index)),
                ),
                Shape::Scalar => (format!("f{number}"), field.kind(), Some(field.value(0))),
                _ => {
                    let word = Word { offset, length, is_constant: false };
                    (format!("f{number}"), field.kind(), Some(word.to_bits()))
                }
            };
            needs.push((path, kind));
            expected = expected.zip(value).map(|(mut all, value)| {
                all.push(value);
                all
            });
        }
        let framer = build_framer(&encoded, &needs).expect("an event for it");
        prop_assert_eq!(fill_slots(&framer, &bytes), expected);
    }

    /// A payload that does not match its description is rejected, or read within its bounds.
    #[test]
    fn payloads_that_are_not_as_described_do_no_harm(
        fields in proptest::collection::vec(any_field(), 1..12),
        bytes in proptest::collection::vec(any::<u8>(), PAYLOAD_OFFSET..64),
    ) {
        let encoded = encode_description(&fields);
        let needs: Vec<(String, Kind)> = fields
            .iter()
            .enumerate()
            .map(|(number, field)| (format!("f{number}"), field.kind()))
            .collect();
        let framer = build_framer(&encoded, &needs).expect("an event for it");
        if let Some(slots) = fill_slots(&framer, &bytes) {
            prop_assert_eq!(slots.len(), fields.len());
        }
    }
}

#[test]
fn contexts_are_there_for_every_event() {
    let encoded = encode_description(&[]);
    let needs = [("$ctx.vpid", Kind::Signed), ("$ctx.vtid", Kind::Signed)]
        .map(|(path, kind)| (path.to_owned(), kind));
    let name = ("$ctx.procname".to_owned(), Kind::String);
    let framer = build_framer(&encoded, &[&needs[..], &[name]].concat()).expect("an event for it");
    assert_eq!(framer.slots(), 3);
    let slots = fill_slots(&framer, &[0; PAYLOAD_OFFSET]).expect("contexts");
    assert_eq!(slots, [7, u64::MAX, NAME.to_bits()]);
}

/// Application contexts are before the payload, at distances that the process defines.
#[test]
fn contexts_of_applications_are_found_before_the_payload() {
    let number = Field { shape: Shape::Str, scalar: None, elements: vec![7] };
    let encoded = encode_description(&[number]);
    let fields = FieldViews::new(&encoded).expect("fields");
    let application = |name: &[u8]| match name {
        b"app:id" => Some(ApplicationContext { kind: Kind::Signed, before: 12 }),
        b"app:user" => Some(ApplicationContext { kind: Kind::String, before: 4 }),
        _ => None,
    };
    let make = |needs: &[(&[u8], Kind)]| {
        let mut framer = Framer::EMPTY;
        let needs = needs.iter().map(|&(path, kind)| WantedValue { path, kind });
        framer.build_in_place_with(&fields, needs, application).map(|()| framer)
    };
    let framer = make(&[
        (b"$app.app:user", Kind::String),
        (b"f0", Kind::String),
        (b"$app.app:id", Kind::Signed),
    ]);
    let framer = framer.expect("a framer");
    let mut bytes = (-3_i64).to_le_bytes().to_vec();
    bytes.extend(b"me\0.\x07\0");
    let environment = Environment::new(&[], &[], return_zero, return_zero);
    let mut frame = Frame::new(&environment, &bytes);
    assert!(framer.fill(&mut frame, 12, &CONTEXTS));
    let word = |offset, length| Word { offset, length, is_constant: false }.to_bits();
    assert_eq!(frame.slots(), [word(8, 2), word(12, 1), (-3_i64).cast_unsigned()]);
    // Too few bytes precede the payload.
    let mut frame = Frame::new(&environment, &bytes);
    assert!(!framer.fill(&mut frame, 11, &CONTEXTS));
    assert_eq!(make(&[(b"$app.app:other", Kind::Signed)]), Err(Mismatch::Lacks(0)));
    let other = make(&[(b"f0", Kind::String), (b"$app.app:id", Kind::Unsigned)]);
    assert_eq!(other, Err(Mismatch::IsOther(1)));
}

#[test]
fn what_an_event_lacks_or_has_otherwise_is_said() {
    let field = |shape, scalar| Field { shape, scalar, elements: vec![1, 2] };
    let encoded = encode_description(&[
        field(Shape::Scalar, Some(Scalar::I32)),
        field(Shape::Str, None),
        field(Shape::Array, Some(Scalar::U8)),
    ]);
    let framer = |path: &str, kind| {
        let needs = [("f0".to_owned(), Kind::Signed), (path.to_owned(), kind)];
        build_framer(&encoded, &needs).map(|framer| framer.slots())
    };
    assert_eq!(framer("f1", Kind::String), Ok(2));
    for (path, kind, unfit) in [
        ("f9", Kind::Signed, Mismatch::Lacks(1)),
        ("f0.a", Kind::Signed, Mismatch::Lacks(1)),
        ("$ctx.cpu", Kind::Signed, Mismatch::Lacks(1)),
        ("$ctx.vpid", Kind::String, Mismatch::IsOther(1)),
        ("f0", Kind::Unsigned, Mismatch::IsOther(1)),
        ("f0[0]", Kind::Signed, Mismatch::IsOther(1)),
        ("f1", Kind::Sequence, Mismatch::IsOther(1)),
        ("f2[2]", Kind::Unsigned, Mismatch::IsOther(1)),
        ("f2[x]", Kind::Unsigned, Mismatch::Lacks(1)),
    ] {
        assert_eq!(framer(path, kind), Err(unfit), "{path}");
    }
    // A missing need takes precedence over a wrong kind, in any order.
    let both = [("f0".to_owned(), Kind::String), ("f9".to_owned(), Kind::Signed)];
    assert_eq!(
        self::build_framer(&encoded, &both).map(|framer| framer.slots()),
        Err(Mismatch::Lacks(1))
    );
    let cut = FieldViews::new(&encoded[..encoded.len() - 1]).expect("a description");
    let wanted = WantedValue { path: b"f2", kind: Kind::Sequence };
    assert_eq!(Framer::new(&cut, [wanted].into_iter()), Err(Mismatch::Description));
}
