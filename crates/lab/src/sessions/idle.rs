//! Memory of a session in which a program takes part that emits nothing.

use std::time::Duration;

use super::host::{Buffers, Host};
use super::ours::Ours;
use super::results::{IdleSession, Kind};
use super::usage;
use crate::child::Running;
use crate::error::{Error, Result};

const SESSION: &str = "lab-idle";

/// Makes such a session, as a user does who says nothing of buffers, and looks.
pub(super) fn measure(host: &dyn Host, kind: Kind) -> Result<IdleSession> {
    let create = || host.create(SESSION, kind, Buffers::Default, true);
    measure_one(host, kind, None, create)
}

/// The same of one of ours as on a machine that could have so many CPUs.
pub(super) fn measure_as_if(ours: &Ours<'_>, kind: Kind, cpus: u32) -> Result<IdleSession> {
    let create = || ours.create_as_if(SESSION, kind, cpus);
    measure_one(ours, kind, Some(cpus), create)
}

fn measure_one(
    host: &dyn Host,
    kind: Kind,
    possible_cpus: Option<u32>,
    create: impl FnOnce() -> Result<()>,
) -> Result<IdleSession> {
    let before = settled_bytes(host)?;
    create()?;
    let mut command = host.program();
    let mut running = Running::start(command.args(["idle", "500"]), "a program that sleeps")?;
    let ready = running.line()?;
    let looked = look(host);
    running.finish()?;
    if ready != "ready" {
        return Err(Error::output("workload", format_args!("'{ready}' is not 'ready'")));
    }
    let (shared_bytes, resident) = looked?;
    host.end(SESSION, kind, 0)?;
    Ok(IdleSession {
        who: host.who(),
        kind,
        possible_cpus,
        shared_bytes: shared_bytes.saturating_sub(before),
        resident_bytes: resident.all_bytes,
        own_bytes: resident.own_bytes,
    })
}

/// Shared memory while there is no session. What the one before had may be given back somewhat
/// later: so the least of a second's readings.
fn settled_bytes(host: &dyn Host) -> Result<u64> {
    let mut least = host.shared_bytes()?;
    for _ in 0..10 {
        std::thread::sleep(Duration::from_millis(100));
        least = least.min(host.shared_bytes()?);
    }
    Ok(least)
}

fn look(host: &dyn Host) -> Result<(u64, usage::Resident)> {
    Ok((host.shared_bytes()?, usage::resident(&host.recorders(SESSION)?)?))
}
