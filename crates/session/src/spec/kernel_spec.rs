//! The kernel events of a session, as the user specifies them.
//!
//! ```toml
//! [kernel]
//! on = ["sched", "syscalls:openat", "!sched_stat_*"]
//! buffer-size = "16M"
//! cgroups = ["/system.slice/nginx.service"]
//! cpus = "0,2-3"
//! via = "tracefs"
//! contexts = ["pid", "prio"]
//! filters = ["sched_switch: prev_state != 0"]
//! ```

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{
    ByteCount, ChannelSpec, FILTERS_MAX, FilterSource, FilterSpec, Mode, SpecError, Tracefiles,
    TracefilesError,
};

/// Most bytes of all patterns, process ids and other names together.
const BYTES_MAX: usize = 64 << 10;
/// Size of a sub-buffer of kernel buffers in bytes; a trace file must be able to hold one.
const SUB_BYTES: u64 = 1 << 16;
/// A pattern that excludes all events; it replaces the last pattern when that is removed.
const EXCLUDE_ALL: &str = "!*";

/// Specification of a session's kernel events.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct KernelSpec {
    /// Patterns of events, like those of `trackway list --kernel`.
    pub on: Vec<String>,
    /// True if the session records no events of programs: it has no channels.
    #[serde(skip_serializing_if = "crate::spec::is_no")]
    pub only: bool,
    /// The processes whose events are recorded, including their future children; empty: all
    /// processes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pids: Vec<u32>,
    /// The control groups (version 2) whose processes are recorded, as an alternative to `pids`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cgroups: Vec<PathBuf>,
    /// The CPUs whose events are recorded, in the kernel's list format (`0,2-3`); `None`: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<String>,
    /// The kernel backend; `None`: BPF where the kernel allows it, else tracefs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub via: Option<KernelBackend>,
    /// Contexts of records, in addition to `tid`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub contexts: Vec<String>,
    /// Filters: an event is recorded if all filters that apply to it are true.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<FilterSpec>,
    /// The fate of records for which the buffer has no room.
    pub mode: Mode,
    /// Buffer bytes for each CPU.
    #[serde(skip_serializing_if = "Option::is_none", with = "crate::units::toml::size")]
    pub buffer_size: Option<u64>,
    /// Most bytes of a trace file, as in channels ([`crate::ChannelSpec`]).
    #[serde(skip_serializing_if = "Option::is_none", with = "crate::units::toml::size")]
    pub tracefile_size: Option<u64>,
    /// Most trace files of a stream, as in channels ([`crate::ChannelSpec`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracefile_count: Option<u64>,
}

/// A mechanism that records kernel events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KernelBackend {
    /// BPF programs of Trackway, which write to Trackway's buffers.
    Bpf,
    /// The kernel's own ring buffers, whose records are converted.
    Tracefs,
}

impl KernelSpec {
    /// Checks the specification, as far as that is possible without the kernel's catalogue.
    ///
    /// # Errors
    ///
    /// If no session can have this specification.
    pub fn check(&self) -> Result<(), SpecError> {
        let bytes = |names: &[String]| names.iter().map(|name| name.len() + 1).sum::<usize>();
        let groups = self.cgroups.iter().map(|path| path.as_os_str().len() + 1).sum::<usize>();
        if self.on.is_empty() || self.on.iter().any(String::is_empty) {
            return Err(SpecError::Kernel("no event is named (on = [\"sched\"])".into()));
        }
        if !self.pids.is_empty() && !self.cgroups.is_empty() {
            let why = "of processes, or of what is in control groups: pids or cgroups, not both";
            return Err(SpecError::Kernel(why.into()));
        }
        let cpus = self.cpus.as_ref().map_or(0, String::len);
        let names = bytes(&self.on) + bytes(&self.contexts) + groups + cpus;
        if names + 8 * self.pids.len() > BYTES_MAX {
            let most = ByteCount(BYTES_MAX as u64);
            return Err(SpecError::Kernel(format!("patterns and processes are over {most}")));
        }
        // A channel's check covers the number, size and syntax of filters.
        let channel = ChannelSpec { filters: self.filters.clone(), ..ChannelSpec::default() };
        channel.check_filters().map_err(|error| SpecError::Kernel(error.to_string()))?;
        self.check_tracefiles().map_err(|error| SpecError::Kernel(error.to_string()))
    }

    fn check_tracefiles(&self) -> Result<(), TracefilesError> {
        self.tracefiles().check_for(SUB_BYTES, self.mode)
    }

    /// Returns the bounds for the files of kernel streams.
    pub fn tracefiles(&self) -> Tracefiles {
        Tracefiles::new(self.tracefile_size, self.tracefile_count)
    }

    /// Returns the specification with one pattern in each entry, instead of lists with commas.
    #[must_use]
    pub fn split_lists(mut self) -> Self {
        self.on = split_patterns(&self.on).map(str::to_owned).collect();
        self
    }

    /// Adds patterns of recorded events; a pattern with `!` excludes events.
    pub fn switch_on(&mut self, patterns: &[String]) {
        for pattern in split_patterns(patterns) {
            let (excludes, bare) = split_exclusion(pattern);
            let opposite = if excludes { bare.to_owned() } else { format!("!{bare}") };
            if self.on.iter().any(|one| one == pattern) && !self.on.contains(&opposite) {
                continue;
            }
            let meant_all = self.on.iter().all(|one| split_exclusion(one).0) && !self.is_nothing();
            self.on.retain(|one| *one != opposite && *one != pattern && *one != EXCLUDE_ALL);
            if meant_all && self.on.is_empty() {
                // All events except these were recorded.
                self.on.push("*".into());
            }
            if excludes || !meant_all {
                self.on.push(pattern.to_owned());
            }
            // Exclusions alone would select all other events, but before no events were recorded.
            let is_left = meant_all || self.on.iter().any(|one| !split_exclusion(one).0);
            if self.is_nothing() || !is_left {
                self.on = vec![EXCLUDE_ALL.into()];
            }
        }
    }

    /// Replaces the filter of these patterns by `source`; an empty expression removes the filter.
    pub fn set_filter(&mut self, patterns: &[String], source: &FilterSource) {
        let filters = std::mem::take(&mut self.filters);
        let mut channel = ChannelSpec { filters, ..ChannelSpec::default() };
        // [`Self::check`] rejects more filters.
        let including = split_patterns(patterns).filter(|pattern| !split_exclusion(pattern).0);
        including.take(FILTERS_MAX + 1).for_each(|pattern| channel.set_filter(pattern, source));
        self.filters = channel.filters;
    }

    /// Excludes the events of patterns; a pattern with `!` removes that exclusion.
    pub fn switch_off(&mut self, patterns: &[String]) {
        for pattern in split_patterns(patterns) {
            if split_exclusion(pattern).0 {
                self.on.retain(|one| one != pattern);
                if self.on.is_empty() {
                    // All events except these were recorded.
                    self.on.push("*".into());
                }
            } else {
                self.switch_on(&[format!("!{pattern}")]);
            }
        }
    }

    /// Returns the first pattern that would remove a nonexistent exclusion.
    pub fn not_excluded<'patterns>(&self, patterns: &'patterns [String]) -> Option<&'patterns str> {
        // `EXCLUDE_ALL` is not an exclusion of the user.
        let is_there = |pattern: &str| {
            pattern != EXCLUDE_ALL && split_patterns(&self.on).any(|one| one == pattern)
        };
        split_patterns(patterns).find(|pattern| split_exclusion(pattern).0 && !is_there(pattern))
    }

    /// Returns true if the specification selects no events.
    pub fn is_nothing(&self) -> bool {
        self.on.iter().any(|one| one == EXCLUDE_ALL)
    }
}

/// Splits lists of patterns at commas.
fn split_patterns(lists: &[String]) -> impl Iterator<Item = &str> {
    lists.iter().flat_map(|list| list.split(',')).map(str::trim)
}

/// Returns true if a pattern excludes events, with the bare pattern.
fn split_exclusion(pattern: &str) -> (bool, &str) {
    pattern.strip_prefix('!').map_or((false, pattern), |bare| (true, bare))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to_strings(list: &[&str]) -> Vec<String> {
        list.iter().map(|&text| text.to_owned()).collect()
    }

    #[test]
    fn events_are_switched_on_and_off_by_patterns() {
        for (before, on, off, then) in [
            (&["sched"][..], &["irq"][..], &[][..], &["sched", "irq"][..]),
            (&["sched"], &[], &["sched_switch"], &["sched", "!sched_switch"]),
            (&["sched", "!sched_switch"], &["sched_switch"], &[], &["sched", "sched_switch"]),
            (&["sched", "irq"], &[], &["irq"], &["sched", "!irq"]),
            (&["sched"], &[], &["sched"], &["!*"]),
            (&["sched"], &[], &["*"], &["!*"]),
            (&["!*"], &["sched,irq"], &[], &["sched", "irq"]),
            (&["!irq"], &["irq"], &[], &["*"]),
            (&["!irq", "!net"], &["irq"], &[], &["!net"]),
            (&["!irq"], &["sched"], &[], &["!irq"]),
            (&["sched", "!sched_switch"], &[], &["!sched_switch"], &["sched"]),
            (&["!irq"], &[], &["!irq"], &["*"]),
        ] {
            let mut spec = KernelSpec { on: to_strings(before), ..KernelSpec::default() };
            spec.switch_on(&to_strings(on));
            spec.switch_off(&to_strings(off));
            assert_eq!(spec.on, then, "{before:?} + {on:?} - {off:?}");
        }
        let spec = KernelSpec { on: to_strings(&["sched,!irq", "!net"]), ..KernelSpec::default() };
        assert_eq!(spec.not_excluded(&to_strings(&["sched_switch,!irq", "!net"])), None);
        assert_eq!(spec.not_excluded(&to_strings(&["!irq,!sched"])), Some("!sched"));
        let nothing = KernelSpec { on: to_strings(&[EXCLUDE_ALL]), ..KernelSpec::default() };
        assert_eq!(nothing.not_excluded(&to_strings(&[EXCLUDE_ALL])), Some(EXCLUDE_ALL));
        assert_eq!(spec.split_lists().on, ["sched", "!irq", "!net"]);
    }

    #[test]
    fn what_cannot_be_recorded_of_the_kernel_is_refused() {
        let sched = KernelSpec { on: to_strings(&["sched"]), ..KernelSpec::default() };
        assert_eq!(sched.check(), Ok(()));
        let flight = KernelSpec { mode: Mode::Overwrite, ..sched.clone() };
        for (wrong, why) in [
            (KernelSpec::default(), "no event is named"),
            (KernelSpec { tracefile_count: Some(2), ..sched.clone() }, "without their size"),
            (KernelSpec { tracefile_size: Some(4096), ..sched.clone() }, "at least 64.0 KiB"),
            (KernelSpec { tracefile_size: Some(1 << 20), ..flight }, "a flight recorder"),
            (KernelSpec { pids: vec![1], cgroups: vec!["/a".into()], ..sched.clone() }, "not both"),
            (
                KernelSpec { filters: vec![FilterSpec::new("sched: pid >")], ..sched.clone() },
                "pid >",
            ),
            (KernelSpec { pids: vec![1; 10_000], ..sched }, "64.0 KiB"),
        ] {
            let refused = wrong.check().expect_err("it cannot be").to_string();
            assert!(refused.contains(why), "{refused}");
        }
    }
}
