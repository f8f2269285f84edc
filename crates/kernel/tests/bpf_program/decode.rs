//! Decodes records by the descriptions of their events.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use trackway_kernel::bpf_program::buffers::Buffers;
use trackway_ring::Drained;
use trackway_schema::{EventDescription, FieldKind, Scalar};

/// The value of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Number(i64),
    Text(String),
    Numbers(Vec<i64>),
    Texts(Vec<String>),
}

/// A decoded record.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub(crate) time_ns: u64,
    pub(crate) id: usize,
    pub(crate) tid: u64,
    pub(crate) fields: BTreeMap<String, Value>,
}

struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken.to_vec()
    }

    fn unsigned(&mut self, count: usize) -> u64 {
        let mut bytes = self.bytes(count);
        bytes.resize(8, 0);
        u64::from_le_bytes(bytes.try_into().expect("eight"))
    }

    fn scalar(&mut self, scalar: Scalar) -> i64 {
        let unused = 64 - 8 * scalar.size_bytes() as u32;
        let value = self.unsigned(scalar.size_bytes()).cast_signed();
        if scalar.is_signed() { value << unused >> unused } else { value }
    }

    fn text(&mut self) -> String {
        let end = self.0.iter().position(|&byte| byte == 0).expect("a NUL");
        let text = self.bytes(end);
        self.bytes(1);
        String::from_utf8_lossy(&text).into_owned()
    }

    fn value(&mut self, kind: &FieldKind) -> Value {
        match kind {
            FieldKind::Scalar(scalar) | FieldKind::Enumeration(scalar, _) => {
                Value::Number(self.scalar(*scalar))
            }
            FieldKind::Array(scalar, count) => {
                Value::Numbers((0..*count).map(|_| self.scalar(*scalar)).collect())
            }
            FieldKind::Sequence(scalar) => {
                let count = self.unsigned(4);
                assert!(count < 1000, "{count}");
                Value::Numbers((0..count).map(|_| self.scalar(*scalar)).collect())
            }
            FieldKind::Str => Value::Text(self.text()),
            FieldKind::Strings => {
                let count = self.unsigned(4);
                assert!(count < 100, "{count}");
                Value::Texts((0..count).map(|_| self.text()).collect())
            }
            FieldKind::Text => unreachable!("no kernel event has it"),
        }
    }
}

/// Returns all records in one region of a CPU, and checks the properties on which readers rely.
pub(crate) fn read_records(
    buffers: &Buffers,
    (cpu, level): (usize, usize),
    events: &[EventDescription],
) -> Vec<Record> {
    let region = buffers.region(cpu, level).expect("it is there");
    let snapshot = region.snapshot().expect("it makes sense");
    // If programs do not overwrite, the region has all records from the beginning.
    let is_whole = region.control.limit.load(Ordering::Relaxed) == u64::MAX;
    let oldest = if is_whole { region.oldest_index(snapshot.head) } else { 0 };
    let position = oldest << region.geometry.sub_shift();
    let mut drained = Drained { position, ..Drained::default() };
    let mut all = Vec::new();
    while let Some(piece) = region.next_piece(buffers, &drained, &snapshot, true).expect("a piece")
    {
        let mut bytes = vec![0; (piece.end - piece.start) as usize];
        region.copy(buffers, &piece, &mut bytes).expect("its bytes");
        let (before, mut last) = (all.len(), piece.begin_ts);
        let mut cursor = Cursor(&bytes);
        while !cursor.0.is_empty() {
            let word = cursor.unsigned(4) as u32;
            let (id, time_ns) = match word & 31 {
                31 => {
                    let high = cursor.unsigned(1) as u32;
                    let id = word >> 8 | high << 24;
                    (id as usize, cursor.unsigned(8))
                }
                tag => {
                    let time = u64::from(word >> 5);
                    let passed = time.wrapping_sub(last) & ((1 << 27) - 1);
                    let id = if tag == 30 { cursor.unsigned(2) as usize } else { tag as usize };
                    (id, last + passed)
                }
            };
            assert!(time_ns >= last, "time goes back");
            last = time_ns;
            let tid = cursor.unsigned(4);
            let fields = events[id].fields.iter();
            let fields =
                fields.map(|field| (field.name.clone(), cursor.value(&field.kind))).collect();
            all.push(Record { time_ns, id, tid, fields });
        }
        assert_eq!(piece.events - piece.events_before, (all.len() - before) as u64, "{piece:?}");
        assert_eq!(last, piece.end_ts);
        let moved = Drained {
            position: piece.resume,
            last_ts: piece.end_ts,
            events: piece.events,
            ..drained
        };
        if moved.position == drained.position {
            break;
        }
        drained = moved;
    }
    all
}
