//! Each protection puts the same records into its buffer.

use super::super::clock::{ConstantClock, CounterClock};
use super::*;

fn scale_for_threads(threads: usize) -> Scale {
    let geometry = Geometry::new(12, 3).expect("a geometry");
    let cpus =
        trackway_bench_engine::host::machine::allowed_cpus().expect("CPUs").pop().expect("one") + 1;
    Scale { geometry, cpus, threads }
}

fn available_protections() -> impl Iterator<Item = ProtectionKind> {
    ProtectionKind::ALL.into_iter().filter(|protection| protection_absence(*protection).is_none())
}

fn emit_numbers(
    contender: &Contender,
    staged: &mut Staged,
    numbers: std::ops::Range<u64>,
) -> Vec<RecordOutcome> {
    let (record, writer) = contender.parts();
    let one = |number| {
        staged.put(number);
        // SAFETY: the parts belong together, and the event is this thread's.
        unsafe { record(writer, staged) }
    };
    numbers.map(one).collect()
}

#[test]
fn every_way_records_every_event_once() {
    for protection in available_protections() {
        for body_bytes in [4, 32] {
            let contender =
                Contender::new(protection, scale_for_threads(1), CounterClock::calibrated())
                    .expect("buffers");
            // Somewhat fewer events than a ring can hold.
            let events = 6 * 4000 / (4 + body_bytes as u64);
            let did = emit_numbers(&contender, &mut Staged::new(0, body_bytes), 0..events);
            assert!(did.iter().all(|did| *did != RecordOutcome::Lost), "{protection:?}");
            let switches = did.iter().filter(|did| **did == RecordOutcome::Switched).count();
            // There are more switches if the thread was moved to another CPU.
            assert!(switches >= 6, "{protection:?}: {switches} switches");
            let found = contender.find(body_bytes).expect("records");
            let records: u64 = found.iter().map(|found| found.records).sum();
            assert_eq!(records, events, "{protection:?}");
        }
    }
}

#[test]
fn what_is_left_of_a_long_run_is_its_end_without_a_gap() {
    for protection in available_protections() {
        let contender = Contender::new(protection, scale_for_threads(1), ConstantClock::new())
            .expect("buffers");
        let mut staged = Staged::new(0, 4);
        for events in [0..30_000, 30_000..60_000, 60_000..100_000] {
            let did = emit_numbers(&contender, &mut staged, events);
            assert!(did.iter().all(|did| *did != RecordOutcome::Lost), "{protection:?}");
            // A search does not change the buffers.
            contender.find(4).expect("records");
        }
        emit_numbers(&contender, &mut staged, 100_000..100_001);
        let found = contender.find(4).expect("records");
        let last = found.iter().filter_map(|found| found.last).max();
        assert_eq!(last, Some(100_000), "{protection:?}");
        let counted: u64 = found.iter().map(|found| found.counted).sum();
        assert_eq!(counted, 100_001, "{protection:?}");
    }
}

#[test]
fn threads_share_the_buffers_of_cpus() {
    const EVENTS: u64 = 200;
    for protection in available_protections() {
        let contender =
            Contender::new(protection, scale_for_threads(8), CounterClock::calibrated())
                .expect("buffers");
        let run = |thread| emit_numbers(&contender, &mut Staged::new(thread, 4), 0..EVENTS);
        let did: Vec<RecordOutcome> = std::thread::scope(|scope| {
            let run = &run;
            let all: Vec<_> = (0..8).map(|n| scope.spawn(move || run(n))).collect();
            all.into_iter().flat_map(|thread| thread.join().expect("events")).collect()
        });
        // A claim is lost if the owners of all regions sleep.
        let recorded = did.iter().filter(|did| **did != RecordOutcome::Lost).count() as u64;
        assert!(
            recorded == 8 * EVENTS || protection == ProtectionKind::Claim && recorded > 0,
            "{protection:?}"
        );
        let found = contender.find(4).expect("records");
        let records: u64 = found.iter().map(|found| found.records).sum();
        assert_eq!(records, recorded, "{protection:?}");
    }
}
