//! The kernel events that a session records, as its user describes them.
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

/// Most bytes of patterns, of processes' numbers, and of other names.
const BYTES_MAX: usize = 64 << 10;
/// A file has to hold a sub-buffer of the kernel's buffers, which are of this size.
const SUB_BYTES: u64 = 1 << 16;
/// Excludes everything: what stands where the last pattern was taken away.
const EXCLUDE_ALL: &str = "!*";

/// Kernel events of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct KernelSpec {
    /// Patterns of events, as `trackway list --kernel` has them.
    pub on: Vec<String>,
    /// And nothing of programs: the session has no channels.
    #[serde(skip_serializing_if = "crate::spec::is_no")]
    pub only: bool,
    /// The processes whose events are recorded, with those that they start from then on; none: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pids: Vec<u32>,
    /// The control groups (of version 2) whose processes are recorded, instead.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cgroups: Vec<PathBuf>,
    /// The CPUs whose events are recorded, as the kernel lists them (`0,2-3`); none: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<String>,
    /// By which way; none: by BPF where the kernel allows it, else by tracefs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub via: Option<KernelBackend>,
    /// Contexts of records, in addition to `tid`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub contexts: Vec<String>,
    /// Conditions: an event is recorded if all filters that apply to it are true.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<FilterSpec>,
    /// The fate of records that find no room.
    pub mode: Mode,
    /// Bytes for each CPU.
    #[serde(skip_serializing_if = "Option::is_none", with = "crate::units::toml::size")]
    pub buffer_size: Option<u64>,
    /// Most bytes of a trace file, as of channels ([`crate::ChannelSpec`]).
    #[serde(skip_serializing_if = "Option::is_none", with = "crate::units::toml::size")]
    pub tracefile_size: Option<u64>,
    /// Most trace files, as of channels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracefile_count: Option<u64>,
}

/// A way to record kernel events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KernelBackend {
    /// Programs of ours, which record into buffers of ours.
    Bpf,
    /// The kernel's own buffers, converted.
    Tracefs,
}

impl KernelSpec {
    /// Checks the specification, as far as that is possible without the kernel.
    ///
    /// # Errors
    ///
    /// If there can be none.
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
        // They are bounded, and checked, as a channel's.
        let channel = ChannelSpec { filters: self.filters.clone(), ..ChannelSpec::default() };
        channel.check_filters().map_err(|error| SpecError::Kernel(error.to_string()))?;
        self.check_tracefiles().map_err(|error| SpecError::Kernel(error.to_string()))
    }

    fn check_tracefiles(&self) -> Result<(), TracefilesError> {
        self.tracefiles().check_for(SUB_BYTES, self.mode)
    }

    /// Returns the bounds of the files of its streams.
    pub fn tracefiles(&self) -> Tracefiles {
        Tracefiles::new(self.tracefile_size, self.tracefile_count)
    }

    /// The same, with a pattern in each place.
    #[must_use]
    pub fn split_lists(mut self) -> Self {
        self.on = split_patterns(&self.on).map(str::to_owned).collect();
        self
    }

    /// Switches events on, too.
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
                // All were on but these.
                self.on.push("*".into());
            }
            if excludes || !meant_all {
                self.on.push(pattern.to_owned());
            }
            // Exclusions alone would mean all but those; here nothing was left.
            let is_left = meant_all || self.on.iter().any(|one| !split_exclusion(one).0);
            if self.is_nothing() || !is_left {
                self.on = vec![EXCLUDE_ALL.into()];
            }
        }
    }

    /// Filters the events of these patterns by `source` instead of what it was; an empty expression
    /// takes that away.
    pub fn set_filter(&mut self, patterns: &[String], source: &FilterSource) {
        let filters = std::mem::take(&mut self.filters);
        let mut channel = ChannelSpec { filters, ..ChannelSpec::default() };
        // More are refused ([`Self::check`]).
        let including = split_patterns(patterns).filter(|pattern| !split_exclusion(pattern).0);
        including.take(FILTERS_MAX + 1).for_each(|pattern| channel.set_filter(pattern, source));
        self.filters = channel.filters;
    }

    /// Switches events off; with `!` in front, takes that exclusion back.
    pub fn switch_off(&mut self, patterns: &[String]) {
        for pattern in split_patterns(patterns) {
            if split_exclusion(pattern).0 {
                self.on.retain(|one| one != pattern);
                if self.on.is_empty() {
                    // All were on but these.
                    self.on.push("*".into());
                }
            } else {
                self.switch_on(&[format!("!{pattern}")]);
            }
        }
    }

    /// The first of these patterns that would take back an exclusion that there is not.
    pub fn not_excluded<'patterns>(&self, patterns: &'patterns [String]) -> Option<&'patterns str> {
        // What stands where nothing is left is no exclusion of anybody's.
        let is_there = |pattern: &str| {
            pattern != EXCLUDE_ALL && split_patterns(&self.on).any(|one| one == pattern)
        };
        split_patterns(patterns).find(|pattern| split_exclusion(pattern).0 && !is_there(pattern))
    }

    /// Returns true if it records no events.
    pub fn is_nothing(&self) -> bool {
        self.on.iter().any(|one| one == EXCLUDE_ALL)
    }
}

/// Patterns, of lists with commas between them.
fn split_patterns(lists: &[String]) -> impl Iterator<Item = &str> {
    lists.iter().flat_map(|list| list.split(',')).map(str::trim)
}

/// Returns true if a pattern excludes, with the bare pattern.
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
