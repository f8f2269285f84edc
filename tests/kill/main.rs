//! A writer that is killed, aborted, preempted or interrupted after every instruction of one event.
//! The test steps through the event, and after each step reads forks of the state: the writer's
//! registers and memory, and the window. Committed records must be present and complete, the event
//! at most once, and everything else counted.
//!
//! ```text
//! cargo test -p trackway-tests --test kill      a choice of events: what `make test` runs
//! scripts/kill [BYTES]                          every text up to BYTES at every fit
//! ```
//!
//! After each instruction, forks of the state go on in these ways:
//!
//! * the writer is killed, and the window is read (where it changed, a real recorder takes over and
//!   a real reader reads the trace);
//! * the writer is killed, and another writer goes on;
//! * the writer's sequence is aborted by a jump to its abort handler, and goes on;
//! * another writer preempts it, which aborts the sequence, and both go on;
//! * a signal arrives whose handler emits an event; the kernel aborts the sequence.
//!
//! Each fork runs the program's own code with the built library. Registers, private memory and the
//! window are saved before it and restored after it.

#[cfg(target_arch = "x86_64")]
mod claims;
#[cfg(target_arch = "x86_64")]
mod lockless;
#[cfg(target_arch = "x86_64")]
mod mutants;
#[cfg(target_arch = "x86_64")]
mod reading;
#[cfg(target_arch = "x86_64")]
mod stage;
#[cfg(target_arch = "x86_64")]
mod stepping;
#[cfg(target_arch = "x86_64")]
mod tracee;

#[cfg(not(target_arch = "x86_64"))]
#[test]
fn nothing_is_stepped_through() {
    trackway_tests::report_skipped("stepping through sequences is written for x86-64");
}

#[cfg(target_arch = "x86_64")]
mod every_instruction {
    use trackway_testkit::Random;

    use crate::reading::EventFate;
    use crate::stage::{Stage, StageSettings, StageWriterPath};
    use crate::stepping::{ClockRelation, Fit, Scenario, StepCounts, WriterPair};

    /// Fewer instructions than any event takes.
    const EVENT_INSTRUCTIONS_MIN: usize = 50;
    /// Lower bound of a sequence's instructions: three comparisons, a word copied, three stores.
    const SEQUENCE_INSTRUCTIONS_MIN: usize = 16;
    /// Bytes of text in the events of the short form.
    const SHORT_FORM_TEXT_BYTES: [usize; 4] = [0, 3, 21, 200];

    /// Steps through an event, with every continuation at every point.
    fn step_through_event(
        players: &mut WriterPair,
        scenario: &Scenario,
        recover: bool,
    ) -> StepCounts {
        let settings = players.stage.settings();
        let fail = |wrong: String| -> ! { panic!("{scenario:?}, {settings:?}: {wrong}") };
        players.set(scenario);
        let mut more = StepCounts::default();
        let mut fate = EventFate::Absent;
        let walked = players.walk(|players, point, is_new| {
            fate = point.fate;
            more.forks += players.all_continuations(point, is_new)?;
            if recover && is_new {
                players.recovered(point)?;
                more.recovered += 1;
            }
            Ok(())
        });
        let mut steps = walked.unwrap_or_else(|wrong| fail(wrong));
        if let Err(wrong) = check_coverage(settings, scenario, &steps, fate) {
            fail(format!("{wrong}: {steps:?}"));
        }
        steps += &more;
        steps
    }

    /// Checks that stepping covered every instruction: a harness that does not step detects
    /// nothing.
    fn check_coverage(
        settings: StageSettings,
        scenario: &Scenario,
        steps: &StepCounts,
        fate: EventFate,
    ) -> Result<(), &'static str> {
        let (commits, end) = match scenario.fit {
            Fit::Spare(_) | Fit::Exact => (1, EventFate::Recorded),
            Fit::Switch => (2, EventFate::Recorded),
            Fit::Full if settings.overwrite => (2, EventFate::Recorded),
            Fit::Full => (0, EventFate::Discarded),
        };
        let entered = if settings.by == StageWriterPath::Claim { 0 } else { commits };
        let is_claimed = steps.claimed > 0;
        let claims = settings.by == StageWriterPath::Claim && scenario.fit != Fit::Full;
        match () {
            () if fate != end => Err("it came to another end"),
            () if steps.instructions < EVENT_INSTRUCTIONS_MIN => Err("too few instructions"),
            () if steps.commits != commits => Err("another number of commits"),
            () if steps.entered != entered => Err("another number of sequences"),
            () if steps.live < entered * SEQUENCE_INSTRUCTIONS_MIN => {
                Err("too few points in sequences")
            }
            () if steps.states <= commits => Err("the window did not change"),
            () if is_claimed && settings.by == StageWriterPath::Sequence => {
                Err("a region was claimed")
            }
            () if claims && !is_claimed => Err("no region was claimed"),
            () => Ok(()),
        }
    }

    /// Returns the longest text of the long form, in bytes; `None` in the short form.
    fn long_form_text_bytes() -> Option<usize> {
        let bytes = std::env::var("TRACKWAY_KILL_BYTES").ok()?;
        Some(bytes.parse().expect("TRACKWAY_KILL_BYTES is a number"))
    }

    fn make_scenario(fit: Fit, text: Option<usize>, time: ClockRelation) -> Scenario {
        Scenario { fit, time, text, is_cold: false }
    }

    /// Returns the scenarios that every kind of session steps through.
    fn list_scenarios(seed: u64) -> Vec<Scenario> {
        let mut scenarios = Vec::new();
        let Some(bytes_max) = long_form_text_bytes() else {
            let mut random = Random::new(seed);
            for text in SHORT_FORM_TEXT_BYTES {
                let time =
                    *random.pick(&[ClockRelation::Near, ClockRelation::Far, ClockRelation::Back]);
                scenarios.push(make_scenario(Fit::Spare(random.next_below(8)), Some(text), time));
            }
            let text = Some(*random.pick(&SHORT_FORM_TEXT_BYTES));
            scenarios.push(make_scenario(
                Fit::Spare(random.next_below(8)),
                None,
                ClockRelation::Near,
            ));
            scenarios.push(make_scenario(Fit::Exact, text, ClockRelation::Far));
            scenarios.push(make_scenario(Fit::Switch, text, ClockRelation::Near));
            scenarios.push(make_scenario(Fit::Full, Some(200), ClockRelation::Back));
            let cold = make_scenario(Fit::Spare(0), Some(3), ClockRelation::Near);
            scenarios.push(Scenario { is_cold: true, ..cold });
            return scenarios;
        };
        for text in std::iter::once(None).chain((0..=bytes_max).map(Some)) {
            let fits = (0..8).map(Fit::Spare);
            for fit in fits.chain([Fit::Exact, Fit::Switch, Fit::Full]) {
                for time in [ClockRelation::Near, ClockRelation::Far, ClockRelation::Back] {
                    scenarios.push(make_scenario(fit, text, time));
                }
            }
            let cold = make_scenario(Fit::Spare(0), text, ClockRelation::Near);
            scenarios.push(Scenario { is_cold: true, ..cold });
        }
        scenarios
    }

    /// Runs kinds of sessions: with contexts or not, with wide ids or not. The short form has
    /// `few`.
    fn step_through_sessions(
        overwrite: bool,
        by: StageWriterPath,
        few: &[(bool, bool)],
        seed: u64,
    ) {
        let all = [(false, false), (false, true), (true, false), (true, true)];
        let kinds = if long_form_text_bytes().is_some() { &all[..] } else { few };
        for &(contexts, wide_ids) in kinds {
            let settings = StageSettings { overwrite, contexts, wide_ids, by };
            let Some(stage) = Stage::new(settings) else { return };
            let mut players = WriterPair::new(&stage);
            let rest = stage.rest();
            let mut sum = StepCounts::default();
            let scenarios = list_scenarios(seed);
            for scenario in &scenarios {
                sum += &step_through_event(&mut players, scenario, false);
            }
            assert!(rest == stage.rest(), "something else in the window changed");
            println!("{settings:?}: {} events, {sum:?}", scenarios.len());
        }
    }

    #[test]
    fn by_sequence_in_discard_mode() {
        step_through_sessions(false, StageWriterPath::Sequence, &[(false, false), (true, true)], 1);
    }

    #[test]
    fn by_sequence_in_a_flight_recorder() {
        step_through_sessions(true, StageWriterPath::Sequence, &[(false, true)], 2);
    }

    #[test]
    fn by_claim_in_discard_mode() {
        step_through_sessions(false, StageWriterPath::Claim, &[(true, false)], 3);
    }

    #[test]
    fn by_claim_in_a_flight_recorder() {
        step_through_sessions(true, StageWriterPath::Claim, &[(false, false)], 4);
    }

    /// A real recorder takes over wherever the window changed, and its trace is read.
    #[test]
    fn recovered_from_every_state() {
        for overwrite in [false, true] {
            let settings = StageSettings {
                overwrite,
                contexts: true,
                wide_ids: false,
                by: StageWriterPath::Sequence,
            };
            let Some(stage) = Stage::new(settings) else { return };
            let mut players = WriterPair::new(&stage);
            for fit in [Fit::Spare(5), Fit::Switch, Fit::Full] {
                let scenario = make_scenario(fit, Some(12), ClockRelation::Near);
                let steps = step_through_event(&mut players, &scenario, true);
                assert_eq!(steps.recovered, steps.states);
            }
        }
    }
}
