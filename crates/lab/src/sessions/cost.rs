//! What an event costs with one session, and with several that all record it.

use super::host::{Buffers, Host};
use super::results::{Kind, SessionCost, Slope, Who};
use crate::child;
use crate::error::Result;
use crate::place::Place;
use crate::results::Account;
use crate::stats::Spread;
use crate::tracers::trackway::{in_window, off_window_dir};
use crate::workload::{self, Batch};

/// How many sessions ours are measured with; a window has room for 32.
pub(super) const OURS: [u32; 5] = [0, 1, 2, 4, 32];
/// The same for LTTng's.
pub(super) const THEIRS: [u32; 4] = [0, 1, 2, 4];
/// Events of a batch that one session records. With more sessions there are fewer, so that a batch
/// takes as long, a fraction of a millisecond, and most are not interrupted; but not too few.
const BATCH_EVENTS: u64 = 10_000;
const BATCH_EVENTS_MIN: u64 = 1000;
/// Events that go round a ring.
const ROUND_EVENTS: u64 = 200_000;
/// The same while they are off.
const OFF_EVENTS: u64 = 400_000;
/// Bursts to a folder that do not count.
const DISK_WARM_UP: u32 = 10;
/// Time from one burst to the next where a recorder drains, in µs: time enough for 32 recorders.
const PERIOD_US: u64 = 50_000;

/// How much a run does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    /// Batches that count, of a flight recorder.
    pub(super) batches: u32,
    /// The same where a recorder drains, each [`PERIOD_US`] after the one before.
    pub(super) bursts: u32,
}

/// What was measured in one way, round by round.
pub(super) struct Series {
    pub(super) who: Who,
    pub(super) kind: Kind,
    pub(super) sessions: u32,
    /// ns per event; `None` where the run failed.
    pub(super) rounds_ns: Vec<Option<f64>>,
    /// What became of the events, in all sessions and rounds together.
    account: Account,
}

/// All ways of a host. Without a session there is nothing that could differ in kind.
pub(super) fn series(who: Who) -> Vec<Series> {
    let counts: &[u32] = if who == Who::Trackway { &OURS } else { &THEIRS };
    let mut all = Vec::new();
    for kind in Kind::ALL {
        for &sessions in counts.iter().filter(|&&count| count > 0 || kind == Kind::Flight) {
            let (rounds_ns, account) = (Vec::new(), Account::default());
            all.push(Series { who, kind, sessions, rounds_ns, account });
        }
    }
    all
}

impl Series {
    /// In words.
    pub(super) fn words(&self) -> String {
        let plural = if self.sessions == 1 { "" } else { "s" };
        format!("{}, {} session{plural}, {}", self.who.name(), self.sessions, self.kind.name())
    }

    /// One run: sessions made, events emitted, all of them looked for, sessions ended.
    pub(super) fn run(&mut self, host: &dyn Host, place: &Place, plan: &Plan) -> Result<()> {
        let names: Vec<String> =
            (1..=self.sessions).map(|number| format!("lab-{number}")).collect();
        for name in &names {
            host.create(name, self.kind, Buffers::Ring, true)?;
        }
        let mut command = host.program();
        if self.sessions == 0 && self.who == Who::Trackway {
            // Where no session ever was, as in the other tables.
            in_window(&mut command, &off_window_dir(place)?);
        }
        command.args(self.arguments(plan));
        let batches = workload::batches(&child::run(&mut command, &self.words())?.stdout)?;
        let emitted = batches.iter().map(|batch| batch.events).sum();
        for name in &names {
            let account = host.end(name, self.kind, emitted)?;
            self.account.add(&account);
        }
        let warm_up = self.warm_up();
        let counted = batches.iter().filter(|batch| batch.number >= warm_up);
        let figures: Vec<f64> = counted.map(Batch::event_ns).collect();
        self.rounds_ns.push(Spread::of(&figures).map(|spread| spread.median));
        Ok(())
    }

    /// Events of a batch.
    fn events(&self) -> u64 {
        match self.sessions {
            0 => OFF_EVENTS,
            sessions => (BATCH_EVENTS / u64::from(sessions)).max(BATCH_EVENTS_MIN),
        }
    }

    /// Batches that do not count: until rings that are overwritten have come round, and others
    /// have been written to.
    fn warm_up(&self) -> u32 {
        match self.kind {
            Kind::Flight => ROUND_EVENTS.div_ceil(self.events()) as u32,
            Kind::Disk => DISK_WARM_UP,
        }
    }

    fn arguments(&self, plan: &Plan) -> Vec<String> {
        let (warm_up, events) = (self.warm_up(), self.events());
        match self.kind {
            Kind::Flight => {
                let count = warm_up + plan.batches;
                let words = ["batches", "number", "1"].map(str::to_owned).into_iter();
                words.chain([count.to_string(), events.to_string()]).collect()
            }
            Kind::Disk => {
                let count = warm_up + plan.bursts;
                let numbers = [u64::from(count), events, PERIOD_US].map(|one| one.to_string());
                ["paced".to_owned()].into_iter().chain(numbers).collect()
            }
        }
    }

    /// What it came to, beside one session of the same kind in the same round.
    pub(super) fn cost(&self, all: &[Self]) -> Option<SessionCost> {
        let is_one =
            |one: &&Self| one.who == self.who && one.kind == self.kind && one.sessions == 1;
        let one = all.iter().find(is_one)?;
        let pairs = self.rounds_ns.iter().zip(&one.rounds_ns);
        let times: Vec<f64> = pairs.filter_map(|(ours, one)| Some((*ours)? / (*one)?)).collect();
        let figures: Vec<f64> = self.rounds_ns.iter().flatten().copied().collect();
        Some(SessionCost {
            who: self.who,
            kind: self.kind,
            sessions: self.sessions,
            event_ns: Spread::of(&figures)?,
            times: Spread::of(&times)?,
            account: (self.sessions > 0).then_some(self.account),
        })
    }
}

/// What a further session adds, by the straight line through the medians that fits them best.
pub(super) fn slopes(costs: &[SessionCost]) -> Vec<Slope> {
    let mut found = Vec::new();
    for who in Who::ALL {
        for kind in Kind::ALL {
            let of = |cost: &&SessionCost| {
                cost.who == who && cost.kind == kind && cost.sessions > 0 && cost.is_complete()
            };
            let points: Vec<(f64, f64)> = costs
                .iter()
                .filter(of)
                .map(|cost| (f64::from(cost.sessions), cost.event_ns.median))
                .collect();
            if let Some(per_session_ns) = slope(&points) {
                found.push(Slope { who, kind, per_session_ns });
            }
        }
    }
    found
}

/// The slope of the line with the least squares of distances; `None` if there is not one.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let over: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    let under: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    (under > 0.0).then(|| over / under)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slope_is_that_of_the_line() {
        assert_eq!(slope(&[(1.0, 25.0), (2.0, 45.0), (4.0, 85.0), (32.0, 645.0)]), Some(20.0));
        assert_eq!(slope(&[(1.0, 3.0), (2.0, 4.0), (3.0, 3.0), (4.0, 6.0)]), Some(0.8));
        assert_eq!(slope(&[(1.0, 25.0)]), None);
        assert_eq!(slope(&[]), None);
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        let mut all = series(Who::Trackway);
        assert_eq!(all.len(), 9);
        assert_eq!((all[1].events(), all[1].warm_up()), (10_000, 20));
        assert_eq!((all[4].events(), all[4].warm_up()), (1000, 200));
        all[1].rounds_ns = vec![Some(10.0), Some(20.0), None];
        all[2].rounds_ns = vec![Some(30.0), Some(60.0), Some(500.0)];
        let cost = all[2].cost(&all).expect("a cost");
        assert_eq!((cost.sessions, cost.times.count, cost.times.median), (2, 2, 3.0));
        assert!(all[3].cost(&all).is_none());
    }
}
