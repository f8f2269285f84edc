//! Options of a recording of the kernel's events: which events, and of which processes.

use std::path::PathBuf;

use trackway_kernel::record::context::Context;
use trackway_session::{FilterSpec, KernelSpec};

use crate::error::RecordError;
use crate::kernel::backend::KernelVia;
use crate::kernel::contexts;
use crate::kernel::filters::Whose;

/// Which of the kernel's events are recorded, and of whom.
#[derive(Debug, Clone, Default)]
pub struct KernelOptions {
    /// Patterns, as `trackway list --kernel` takes them.
    pub patterns: Vec<String>,
    /// And nothing of programs.
    pub only: bool,
    /// Of everything that runs, not of the command and what it starts alone.
    pub system: bool,
    /// What records say besides their fields, and `tid`.
    pub contexts: Vec<Context>,
    /// What must be true of events: those about others are left alone.
    pub filters: Vec<FilterSpec>,
    /// Those are about the kernel's events alone: of what is switched on later, too.
    pub has_own_filters: bool,
    /// But that these are asked of programs' events, too.
    pub shared_filters: Vec<FilterSpec>,
    /// By which way; `None`: by BPF where the kernel lets us, else by tracefs.
    pub via: Option<KernelVia>,
    /// Of the processes in these control groups, and below, instead.
    pub cgroups: Vec<PathBuf>,
    /// Of these CPUs alone, as the kernel lists them (`0,2-3`); `None`: of all.
    pub cpus: Option<String>,
    /// Of these processes instead, and of what they start from now on.
    pub pids: Vec<u32>,
    /// Nothing is recorded until it is started.
    pub is_stopped: bool,
}

impl KernelOptions {
    /// Whose its filters are.
    pub(crate) fn whose(&self) -> Whose<'_> {
        match self.has_own_filters {
            true => Whose::Kernels(&self.shared_filters),
            false => Whose::Anybodys,
        }
    }

    /// Of a command, as a session's file says it.
    ///
    /// # Errors
    ///
    /// If a context has no meaning, or the file names processes instead.
    pub fn of_command(spec: &KernelSpec) -> Result<Self, RecordError> {
        if !spec.pids.is_empty() {
            let why = "the file has processes whose kernel events are recorded (pids), not CMD's";
            let hint = "trackway session load records them, in the background".to_owned();
            return Err(RecordError::Kernel(why.into(), Some(hint)));
        }
        Ok(Self { system: false, ..Self::of(spec, false)? })
    }

    /// Of a session in the background.
    ///
    /// # Errors
    ///
    /// If a context has no meaning.
    pub(crate) fn of(spec: &KernelSpec, is_stopped: bool) -> Result<Self, RecordError> {
        Ok(Self {
            patterns: spec.on.clone(),
            only: spec.only,
            system: spec.pids.is_empty() && spec.cgroups.is_empty(),
            contexts: contexts::of_kernel(&spec.contexts)?,
            filters: spec.filters.clone(),
            has_own_filters: true,
            shared_filters: Vec::new(),
            via: spec.via,
            cgroups: spec.cgroups.clone(),
            cpus: spec.cpus.clone(),
            pids: spec.pids.clone(),
            is_stopped,
        })
    }
}
