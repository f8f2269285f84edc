//! Histories against the model: random long ones, and all short ones.

use proptest::prelude::*;

use super::simulator::{BODY_BYTES_MIN, Fate, Simulator, Step};

/// Random histories of each kind of region; fewer where Miri interprets them.
const CASES: u32 = if cfg!(miri) { 1 } else { 400 };
/// Maximum steps of a random history.
const STEPS_MAX: usize = if cfg!(miri) { 10 } else { 80 };
/// Length of the histories that are tried exhaustively.
const EXHAUSTIVE_STEPS_MAX: u32 = if cfg!(miri) { 1 } else { 5 };
/// Longest body that a 4 KiB sub-buffer holds.
const BODY_BYTES_MAX: usize = 4096 - 84 - 13 - 8;

fn any_id() -> impl Strategy<Value = u32> {
    let edges = prop::sample::select(vec![0, 29, 30, 31, 65_535, 65_536, u32::MAX]);
    prop_oneof![3 => 0_u32..30, 2 => edges, 1 => any::<u32>()]
}

fn any_gap() -> impl Strategy<Value = i64> {
    const WRAP: i64 = 1 << 27;
    prop_oneof![
        6 => 0_i64..1000,
        2 => WRAP - 2..WRAP + 2,
        1 => WRAP..1 << 40,
        2 => -2 * WRAP..0,
    ]
}

fn any_body_bytes() -> impl Strategy<Value = usize> {
    prop_oneof![
        4 => BODY_BYTES_MIN..40,
        3 => BODY_BYTES_MIN..1500,
        1 => BODY_BYTES_MAX - 3..=BODY_BYTES_MAX,
    ]
}

fn any_fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        6 => Just(Fate::Committed),
        2 => Just(Fate::Claimed),
        2 => any::<u16>().prop_map(|copied| Fate::Killed(copied % 5000)),
        1 => Just(Fate::Overtaken),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (any_id(), any_body_bytes(), any_gap(), any_fate())
            .prop_map(|(id, body_bytes, gap, fate)| Step::Record { id, body_bytes, gap, fate }),
        1 => (any_gap(), any::<bool>())
            .prop_map(|(gap, new_epoch)| Step::Switch { gap, new_epoch }),
        1 => Just(Step::LateSwitch),
        1 => Just(Step::KilledSwitch),
        1 => Just(Step::Discard),
        1 => Just(Step::Grow),
        4 => (1..4_u8, any::<bool>()).prop_map(|(pieces, partial)| {
            Step::Drain { pieces, partial }
        }),
        2 => Just(Step::Recycle),
    ]
}

fn run_history(sub_shift: u32, count_shift: u32, backed: u64, overwrite: bool, steps: &[Step]) {
    let mut simulator = Simulator::new(sub_shift, count_shift, backed, overwrite);
    for step in steps {
        simulator.run(step);
    }
    simulator.finish();
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: CASES,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn discard_mode_agrees_with_the_model(
        sub_shift in 12_u32..14,
        count_shift in 1_u32..4,
        backed in 0_u64..5,
        steps in prop::collection::vec(any_step(), 1..STEPS_MAX),
    ) {
        run_history(sub_shift, count_shift, backed, false, &steps);
    }

    #[test]
    fn flight_recorder_agrees_with_the_model(
        count_shift in 1_u32..4,
        backed in 0_u64..9,
        steps in prop::collection::vec(any_step(), 1..STEPS_MAX),
    ) {
        run_history(12, count_shift, backed, true, &steps);
    }
}

/// Runs every history of up to `EXHAUSTIVE_STEPS_MAX` of these steps: two sub-buffers, each filled
/// by two records.
#[test]
fn all_short_histories_agree_with_the_model() {
    let record = |fate| Step::Record { id: 3, body_bytes: 1900, gap: 1 << 26, fate };
    let alphabet = [
        record(Fate::Committed),
        record(Fate::Killed(5000)),
        record(Fate::Overtaken),
        Step::LateSwitch,
        Step::Drain { pieces: 1, partial: true },
        Step::Drain { pieces: 2, partial: false },
        Step::Recycle,
    ];
    for length in 1..=EXHAUSTIVE_STEPS_MAX {
        for mut number in 0..alphabet.len().pow(length) {
            let steps: Vec<_> = (0..length)
                .map(|_| {
                    let step = alphabet[number % alphabet.len()].clone();
                    number /= alphabet.len();
                    step
                })
                .collect();
            run_history(12, 1, 2, false, &steps);
        }
    }
}

/// A flight recorder of two sub-buffers trusts the open one only; a larger one, all but one.
#[test]
fn flight_recorder_keeps_the_newest() {
    // Miri runs one round of the smallest ring.
    let (shifts, records) = if cfg!(miri) { (1..2, 6) } else { (1..4, 40) };
    for count_shift in shifts {
        let mut steps = Vec::new();
        for id in 0..records {
            let record = Step::Record { id, body_bytes: 1200, gap: 5, fate: Fate::Claimed };
            steps.push(record);
            run_history(12, count_shift, 8, true, &steps);
            let killed = [steps.as_slice(), &[Step::KilledSwitch]].concat();
            run_history(12, count_shift, 8, true, &killed);
        }
    }
}
