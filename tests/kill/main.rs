//! Killed, aborted, preempted or interrupted after every instruction: a writer is stepped through
//! one event, and after each step forks of its world are read. What was committed must be whole
//! and there, the event at most once, and everything else counted.
//!
//! ```text
//! cargo test -p trackway-tests --test kill      a choice of events: what `make test` runs
//! scripts/kill [BYTES]                          every text up to BYTES at every place
//! ```
//!
//! After each instruction, forks of the world go on in these ways:
//!
//! * the writer is killed, and readers look (and, where the window changed, a real recorder takes
//!   over and a real reader reads);
//! * the writer is killed, and another one goes on;
//! * the writer's sequence is aborted by moving it to its abort handler, and goes on;
//! * another writer comes in, which aborts the sequence, and both go on;
//! * a signal comes in whose handler traces; the kernel aborts the sequence.
//!
//! Each is the program's own code with the library as it is built, from the state in which it was:
//! registers, private memory and window are taken and put back.

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
    trackway_tests::skipped("stepping through sequences is written for x86-64");
}

#[cfg(target_arch = "x86_64")]
mod every_instruction {
    use trackway_testkit::Random;

    use crate::reading::Fate;
    use crate::stage::{By, Settings, Stage};
    use crate::stepping::{Place, Players, Scenario, Steps, Time};

    /// Fewer instructions than any event takes.
    const INSTRUCTIONS_MIN: usize = 50;
    /// Fewer than a sequence has: three comparisons, a word copied, three stores.
    const LIVE_MIN: usize = 16;
    /// Bytes of text that a record may have in all places, in the short form.
    const TEXTS: [usize; 4] = [0, 3, 21, 200];

    /// Steps through an event with every continuation at every point.
    fn step_through(players: &mut Players, scenario: &Scenario, recover: bool) -> Steps {
        let settings = players.stage.settings();
        let fail = |wrong: String| -> ! { panic!("{scenario:?}, {settings:?}: {wrong}") };
        players.set(scenario);
        let mut more = Steps::default();
        let mut fate = Fate::Absent;
        let walked = players.walk(|players, point, is_new| {
            fate = point.fate;
            more.worlds += players.all_continuations(point, is_new)?;
            if recover && is_new {
                players.recovered(point)?;
                more.recovered += 1;
            }
            Ok(())
        });
        let mut steps = walked.unwrap_or_else(|wrong| fail(wrong));
        if let Err(wrong) = check(settings, scenario, &steps, fate) {
            fail(format!("{wrong}: {steps:?}"));
        }
        steps += &more;
        steps
    }

    /// Whether as much was stepped through as there is: a harness that does not step finds nothing.
    fn check(
        settings: Settings,
        scenario: &Scenario,
        steps: &Steps,
        fate: Fate,
    ) -> Result<(), &'static str> {
        let (commits, end) = match scenario.place {
            Place::Room(_) | Place::LastRoom => (1, Fate::Recorded),
            Place::Switch => (2, Fate::Recorded),
            Place::Full if settings.overwrite => (2, Fate::Recorded),
            Place::Full => (0, Fate::Discarded),
        };
        let entered = if settings.by == By::Claim { 0 } else { commits };
        let is_claimed = steps.claimed > 0;
        let claims = settings.by == By::Claim && scenario.place != Place::Full;
        match () {
            () if fate != end => Err("it came to another end"),
            () if steps.instructions < INSTRUCTIONS_MIN => Err("too few instructions"),
            () if steps.commits != commits => Err("another number of commits"),
            () if steps.entered != entered => Err("another number of sequences"),
            () if steps.live < entered * LIVE_MIN => Err("too few points in sequences"),
            () if steps.states <= commits => Err("the window did not change"),
            () if is_claimed && settings.by == By::Sequence => Err("a region was claimed"),
            () if claims && !is_claimed => Err("no region was claimed"),
            () => Ok(()),
        }
    }

    /// The scenarios of the long form, with texts up to so many bytes; `None`: the short form.
    fn long_form() -> Option<usize> {
        let bytes = std::env::var("TRACKWAY_KILL_BYTES").ok()?;
        Some(bytes.parse().expect("TRACKWAY_KILL_BYTES is a number"))
    }

    fn scenario(place: Place, text: Option<usize>, time: Time) -> Scenario {
        Scenario { place, time, text, is_cold: false }
    }

    /// What is stepped through in every kind of session.
    fn scenarios(seed: u64) -> Vec<Scenario> {
        let mut scenarios = Vec::new();
        let Some(bytes_max) = long_form() else {
            let mut random = Random::new(seed);
            for text in TEXTS {
                let time = *random.pick(&[Time::Near, Time::Far, Time::Back]);
                scenarios.push(scenario(Place::Room(random.next_below(8)), Some(text), time));
            }
            let text = Some(*random.pick(&TEXTS));
            scenarios.push(scenario(Place::Room(random.next_below(8)), None, Time::Near));
            scenarios.push(scenario(Place::LastRoom, text, Time::Far));
            scenarios.push(scenario(Place::Switch, text, Time::Near));
            scenarios.push(scenario(Place::Full, Some(200), Time::Back));
            let cold = scenario(Place::Room(0), Some(3), Time::Near);
            scenarios.push(Scenario { is_cold: true, ..cold });
            return scenarios;
        };
        for text in std::iter::once(None).chain((0..=bytes_max).map(Some)) {
            let places = (0..8).map(Place::Room);
            for place in places.chain([Place::LastRoom, Place::Switch, Place::Full]) {
                for time in [Time::Near, Time::Far, Time::Back] {
                    scenarios.push(scenario(place, text, time));
                }
            }
            let cold = scenario(Place::Room(0), text, Time::Near);
            scenarios.push(Scenario { is_cold: true, ..cold });
        }
        scenarios
    }

    /// Kinds of sessions: with contexts or not, with wide ids or not. The short form has `few`.
    fn in_all_places(overwrite: bool, by: By, few: &[(bool, bool)], seed: u64) {
        let all = [(false, false), (false, true), (true, false), (true, true)];
        let kinds = if long_form().is_some() { &all[..] } else { few };
        for &(contexts, wide_ids) in kinds {
            let settings = Settings { overwrite, contexts, wide_ids, by };
            let Some(stage) = Stage::new(settings) else { return };
            let mut players = Players::new(&stage);
            let rest = stage.rest();
            let mut sum = Steps::default();
            let scenarios = scenarios(seed);
            for scenario in &scenarios {
                sum += &step_through(&mut players, scenario, false);
            }
            assert!(rest == stage.rest(), "something else in the window changed");
            println!("{settings:?}: {} events, {sum:?}", scenarios.len());
        }
    }

    #[test]
    fn by_sequence_in_discard_mode() {
        in_all_places(false, By::Sequence, &[(false, false), (true, true)], 1);
    }

    #[test]
    fn by_sequence_in_a_flight_recorder() {
        in_all_places(true, By::Sequence, &[(false, true)], 2);
    }

    #[test]
    fn by_claim_in_discard_mode() {
        in_all_places(false, By::Claim, &[(true, false)], 3);
    }

    #[test]
    fn by_claim_in_a_flight_recorder() {
        in_all_places(true, By::Claim, &[(false, false)], 4);
    }

    /// Where the window changed, a real recorder takes over, and what it writes is read.
    #[test]
    fn recovered_from_every_state() {
        for overwrite in [false, true] {
            let settings =
                Settings { overwrite, contexts: true, wide_ids: false, by: By::Sequence };
            let Some(stage) = Stage::new(settings) else { return };
            let mut players = Players::new(&stage);
            for place in [Place::Room(5), Place::Switch, Place::Full] {
                let scenario = scenario(place, Some(12), Time::Near);
                let steps = step_through(&mut players, &scenario, true);
                assert_eq!(steps.recovered, steps.states);
            }
        }
    }
}
