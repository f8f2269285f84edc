//! A dead claimer, as the kernel reports it. No writer uses its region until the region is freed;
//! then the region works as before.

use std::sync::atomic::Ordering;

use trackway_ring::claim::Claim;
use trackway_window::Owner;

use crate::reading::EventFate;
use crate::stage::{Stage, StageSettings, StageWriterPath};
use crate::stepping::{ClockRelation, Fit, Scenario, WriterPair};

#[test]
fn the_region_of_a_dead_claimer_waits_until_it_is_freed() {
    let settings = StageSettings {
        overwrite: false,
        contexts: true,
        wide_ids: false,
        by: StageWriterPath::Claim,
    };
    let Some(stage) = Stage::new(settings) else { return };
    for fit in [Fit::Spare(6), Fit::Switch] {
        let scenario = Scenario { fit, time: ClockRelation::Near, text: Some(17), is_cold: false };
        let mut players = WriterPair::new(&stage);
        players.set(&scenario);
        // Points at which the window changed while its region was claimed.
        let mut moments = Vec::new();
        let walked = players.walk(|players, point, is_new| {
            let region = players.stage.region(players.stage.live());
            if is_new && region.control.owner.load(Ordering::Relaxed) != 0 {
                moments.push(point.number);
            }
            Ok(())
        });
        walked.expect("stepping finds nothing");
        assert!(moments.len() > 3, "{moments:?}");
        drop(players);
        for moment in moments {
            kill_writer_at(&stage, &scenario, moment)
                .unwrap_or_else(|wrong| panic!("{scenario:?}, killed after {moment}: {wrong}"));
        }
        stage.begin_again();
    }
}

/// Kills a writer after `moment` instructions, and runs another writer before and after the region
/// is freed.
fn kill_writer_at(stage: &Stage, scenario: &Scenario, moment: usize) -> Result<(), String> {
    stage.begin_again();
    let mut players = WriterPair::new(stage);
    players.set(scenario);
    let region = stage.region(stage.live());
    for _ in 0..moment {
        players.writer.step();
    }
    let owner = region.control.owner.load(Ordering::Relaxed);
    if owner == 0 || stage.live().owner_is_dead(Owner::from_word(owner)) {
        return Err(format!("owner {owner:x} is not alive"));
    }
    players.writer.kill();
    if !stage.live().owner_is_dead(Owner::from_word(owner)) {
        return Err("its owner is dead, and nobody can tell".into());
    }
    let fate = players.check_after_death()?;
    let word = region.expected();
    players.others_emit(1)?;
    if (region.expected(), region.control.owner.load(Ordering::Relaxed)) != (word, owner) {
        return Err("the region of the dead was written".into());
    }
    if !Claim::free_dead(region, owner) {
        return Err("it could not be freed".into());
    }
    players.others_emit(2)?;
    if region.expected() == word {
        return Err("a freed region is not used".into());
    }
    if fate == EventFate::Discarded { Err("it was discarded".into()) } else { Ok(()) }
}
