//! What recording takes of the CPUs besides the program: while it emits a million events a second,
//! and while it emits none.

use std::time::{Duration, Instant};

use super::host::{Buffers, Host};
use super::results::{Kind, Load, Who};
use super::usage;
use crate::child::{self, Running};
use crate::error::{Error, Result};
use crate::results::Account;
use crate::stats::Spread;
use crate::workload;

const SESSION: &str = "lab-load";
/// Events of a burst, and time from one to the next: a million a second.
const BURST_EVENTS: u64 = 1000;
const PERIOD_US: u64 = 1000;
const BURSTS_PER_SECOND: u32 = 1000;
/// How long a program that emits nothing is there besides, in ms.
const SPARE_MS: u64 = 200;

/// What was measured in one way, round by round.
pub(super) struct Series {
    pub(super) who: Who,
    pub(super) kind: Kind,
    /// Parts of a CPU in percent, while the program emits nothing.
    idle_percent: Vec<f64>,
    /// The same while it emits.
    percent: Vec<f64>,
    /// Events a second.
    rates: Vec<f64>,
    account: Account,
}

/// All ways of a host.
pub(super) fn series(who: Who) -> Vec<Series> {
    let new = |kind| Series {
        who,
        kind,
        idle_percent: Vec::new(),
        percent: Vec::new(),
        rates: Vec::new(),
        account: Account::default(),
    };
    Kind::ALL.map(new).into()
}

impl Series {
    /// In words.
    pub(super) fn words(&self) -> String {
        format!("{}, {}: time of recorders", self.who.name(), self.kind.name())
    }

    /// One run of so many seconds each.
    pub(super) fn run(&mut self, host: &dyn Host, seconds: u32) -> Result<()> {
        host.create(SESSION, self.kind, Buffers::Default, true)?;
        let recorders = host.recorders(SESSION)?;
        self.idle_percent.push(idle(host, &recorders, seconds)?);
        let mut command = host.program();
        let numbers = [u64::from(seconds * BURSTS_PER_SECOND), BURST_EVENTS, PERIOD_US];
        command.arg("paced").args(numbers.map(|number| number.to_string()));
        let before = Moment::now(&recorders)?;
        let finished = child::run(&mut command, &self.words())?;
        let (percent, elapsed_s) = before.until_now(&recorders)?;
        let batches = workload::batches(&finished.stdout)?;
        let emitted = batches.iter().map(|batch| batch.events).sum::<u64>();
        self.account.add(&host.end(SESSION, self.kind, emitted)?);
        self.percent.push(percent);
        self.rates.push(emitted as f64 / elapsed_s);
        Ok(())
    }

    /// What it came to.
    pub(super) fn load(&self) -> Option<Load> {
        Some(Load {
            who: self.who,
            kind: self.kind,
            idle_percent: Spread::of(&self.idle_percent)?,
            percent: Spread::of(&self.percent)?,
            events_per_second: Spread::of(&self.rates)?.median,
            account: self.account,
        })
    }
}

/// While a program is there that emits nothing.
fn idle(host: &dyn Host, recorders: &[u32], seconds: u32) -> Result<f64> {
    let milliseconds = u64::from(seconds) * 1000;
    let mut command = host.program();
    command.arg("idle").arg((milliseconds + SPARE_MS).to_string());
    let mut running = Running::start(&mut command, "a program that sleeps")?;
    let ready = running.line()?;
    let before = Moment::now(recorders)?;
    std::thread::sleep(Duration::from_millis(milliseconds));
    let (percent, _) = before.until_now(recorders)?;
    running.finish()?;
    match ready == "ready" {
        true => Ok(percent),
        false => Err(Error::output("workload", format_args!("'{ready}' is not 'ready'"))),
    }
}

/// Time, and time on CPUs.
struct Moment {
    at: Instant,
    cpu_ns: u64,
}

impl Moment {
    fn now(pids: &[u32]) -> Result<Self> {
        Ok(Self { at: Instant::now(), cpu_ns: usage::cpu_ns(pids)? })
    }

    /// Percent of a CPU since then, and seconds.
    fn until_now(&self, pids: &[u32]) -> Result<(f64, f64)> {
        let now = Self::now(pids)?;
        let seconds = (now.at - self.at).as_secs_f64();
        let cpu_seconds = now.cpu_ns.saturating_sub(self.cpu_ns) as f64 / 1e9;
        Ok((cpu_seconds / seconds * 100.0, seconds))
    }
}
