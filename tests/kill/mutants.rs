//! Seeded faults that the harness must detect: a commit word that is stored early, a sequence that
//! is not aborted, a region that is taken from a living owner.

use std::sync::atomic::Ordering;

use crate::reading::EventFate;
use crate::stage::{Stage, StageSettings, StageWriterPath};
use crate::stepping::{ClockRelation, Fit, Scenario, StepCounts, StepPoint, WriterPair};

const PLAIN_SETTINGS: StageSettings = StageSettings {
    overwrite: false,
    contexts: false,
    wide_ids: false,
    by: StageWriterPath::Sequence,
};
const EVENT_SCENARIO: Scenario =
    Scenario { fit: Fit::Spare(2), time: ClockRelation::Near, text: Some(40), is_cold: false };

/// Steps through an event. Returns for each point that `of` selects whether `wrong` finds a fault.
fn find_faults_by_point(
    players: &mut WriterPair,
    mut of: impl FnMut(&WriterPair, &StepPoint) -> bool,
    mut wrong: impl FnMut(&mut WriterPair, &StepPoint) -> Result<(), String>,
) -> (Vec<bool>, StepCounts) {
    players.set(&EVENT_SCENARIO);
    let mut found = Vec::new();
    let steps = players.walk(|players, point, _| {
        if of(players, point) {
            found.push(wrong(players, point).is_err());
        }
        Ok(())
    });
    (found, steps.expect("stepping itself finds nothing"))
}

#[test]
fn a_commit_word_that_is_stored_before_the_rest_is_seen() {
    let Some(stage) = Stage::new(PLAIN_SETTINGS) else { return };
    let mut players = WriterPair::new(&stage);
    players.set(&EVENT_SCENARIO);
    let mut points = Vec::new();
    let walked = players.walk(|players, point, _| {
        let word = players.stage.region(players.stage.live()).expected();
        points.push((point.bytes.clone(), point.live.is_some(), point.fate, word));
        Ok(())
    });
    walked.expect("stepping itself finds nothing");
    let committed = points.last().expect("points").3;
    let early = |bytes: &[u8]| {
        let fork = stage.fork(bytes);
        stage.region(fork).control.commit.store(committed, Ordering::Relaxed);
        players.check_window(fork)
    };
    let live: Vec<_> = points.iter().filter(|point| point.1).collect();
    assert!(live.iter().all(|point| point.2 == EventFate::Absent));
    // Before the last instruction, all data except the word is in place: a store there is not
    // early.
    let (last, others) = live.split_last().expect("points in a sequence");
    assert!(matches!(early(&last.0), Ok(EventFate::Recorded)));
    for (number, point) in others.iter().enumerate() {
        let seen = early(&point.0);
        assert!(seen.is_err(), "a word stored at point {number} of the sequence: {seen:?}");
    }
}

#[test]
fn a_sequence_that_is_not_aborted_is_seen() {
    let Some(stage) = Stage::new(PLAIN_SETTINGS) else { return };
    let mut players = WriterPair::new(&stage);
    let is_live = |_: &WriterPair, point: &StepPoint| point.live.is_some();
    let (found, _) = find_faults_by_point(&mut players, is_live, |players, point| {
        players.preempted(point, false)
    });
    // Before the commit word is compared, the comparison detects events of other writers. After the
    // comparison, only the abort protects the writer.
    let safe = found.iter().take_while(|is_found| !**is_found).count();
    assert!(safe < 10, "{found:?}");
    assert!(found.len() - safe > 10 && found[safe..].iter().all(|is_found| *is_found), "{found:?}");
    let (found, _) = find_faults_by_point(&mut players, is_live, |players, point| {
        players.preempted(point, true)
    });
    assert!(!found.contains(&true), "{found:?}");
}

#[test]
fn a_region_that_is_taken_from_a_living_owner_is_seen() {
    let Some(stage) = Stage::new(StageSettings { by: StageWriterPath::Claim, ..PLAIN_SETTINGS })
    else {
        return;
    };
    let mut players = WriterPair::new(&stage);
    let is_owned = |players: &WriterPair, point: &StepPoint| {
        let region = players.stage.region(players.stage.live());
        point.fate == EventFate::Absent && region.control.owner.load(Ordering::Relaxed) != 0
    };
    let (found, steps) = find_faults_by_point(&mut players, is_owned, |players, point| {
        let region = players.stage.region(players.stage.live());
        region.control.owner.store(0, Ordering::Relaxed);
        players.preempted(point, true)
    });
    // Points from the first load of the commit word to the commit.
    assert!(steps.claimed > 10 && found.last() == Some(&true), "{found:?}");
    let seen = found.iter().filter(|is_found| **is_found).count();
    assert!(seen * 2 > found.len(), "{found:?}");
}
