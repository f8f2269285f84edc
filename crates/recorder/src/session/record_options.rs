//! Options of `trackway record`, and its first steps, which need root.

use std::ffi::OsString;
use std::path::PathBuf;

use trackway_session::protocol::Refusal;
use trackway_session::{
    BufferOptions, ChannelSpec, ContextList, FilterSpec, KernelSpec, Mode, Reserve, RuleSpec,
    Tracefiles,
};

use crate::error::RecordError;
use crate::filters::unmatched::{self, Stray};
use crate::kernel::backend::Kernel;
use crate::kernel::filters::routing::of_programs;
use crate::kernel::options::KernelOptions;
use crate::notices::Notices;
use crate::session::controller::Making;
use crate::session::run_as::Account;
use crate::session::summary_file::SummaryFile;

/// What is to be recorded, and how.
#[derive(Debug, Clone, Default)]
pub struct RecordOptions {
    /// Trace folder; `None`: a new one.
    pub output: Option<PathBuf>,
    /// Event patterns, as the user wrote them.
    pub patterns: Vec<String>,
    /// What must be true of events.
    pub filters: Vec<FilterSpec>,
    /// Contexts of every record.
    pub contexts: ContextList,
    /// Preload helpers, as names of files.
    pub helpers: Vec<&'static str>,
    /// Sizes.
    pub buffers: BufferOptions,
    /// How the files of each stream are bounded.
    pub tracefiles: Tracefiles,
    /// How writers get exclusive access.
    pub reserve: Reserve,
    /// Events of the kernel, besides.
    pub kernel: Option<KernelOptions>,
    /// As whom the command runs, by name or number, where root records it; `None`: as who records.
    pub user: Option<String>,
    /// Channels, instead of the one that patterns, contexts and sizes make.
    pub channels: Vec<ChannelSpec>,
    /// A file for how it went, as JSON.
    pub summary_json: Option<PathBuf>,
    /// The command and its arguments.
    pub command: Vec<OsString>,
}

impl RecordOptions {
    /// Does what takes root, and becomes whoever the recording is of.
    pub(crate) fn begin_as_root(
        &self,
        notices: &Notices,
    ) -> Result<(Option<Kernel>, Option<Account>), RecordError> {
        let account = match self.user.as_deref() {
            Some(user) => Some(Account::of(user)?),
            None => Account::invoking()?,
        };
        let size_bytes = self.buffers.size_bytes.unwrap_or(0);
        let overwrite = self.buffers.overwrite;
        let prepare = |kernel| Kernel::prepare(kernel, size_bytes, overwrite, notices);
        let kernel = self.kernel.as_ref().map(prepare).transpose()?;
        kernel.iter().for_each(|kernel| kernel.say_size(size_bytes, notices));
        if let Some(account) = &account {
            account.enter(notices)?;
            // What was opened as root is for no other process of the user's: he could have another
            // one's events recorded, or write to what is recorded.
            if kernel.is_none() {
                trackway_sys::process::show_itself().map_err(RecordError::User)?;
            }
        }
        Ok((kernel, account))
    }

    /// The file for how it went, if there is to be one; as whoever the recording is of.
    pub(crate) fn summary_file(&self) -> Result<Option<SummaryFile>, RecordError> {
        self.summary_json.as_deref().map(SummaryFile::create).transpose()
    }

    /// The filters that are about none of the kernel's events that are recorded. Root alone may
    /// ask.
    pub(crate) fn strays(&self) -> Result<Vec<Stray>, RecordError> {
        let kernel = self.kernel.iter().filter(|kernel| !kernel.has_own_filters);
        let strays = kernel.map(|kernel| unmatched::strays(&kernel.patterns, &kernel.filters));
        Ok(strays.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    }

    /// The channels, as a session's file has them.
    pub(crate) fn specs(&self) -> Result<Vec<ChannelSpec>, RecordError> {
        if !self.channels.is_empty() {
            return Ok(self.channels.clone());
        }
        let mode = if self.buffers.overwrite { Mode::Overwrite } else { Mode::Discard };
        self.tracefiles.check(&self.buffers.plan()?, mode)?;
        let some = |bound: u64| (bound > 0).then_some(bound);
        let rules = self.patterns.iter().map(RuleSpec::new);
        Ok(vec![ChannelSpec {
            mode,
            buffer_size: self.buffers.size_bytes,
            sub_buffers: self.buffers.sub_buffers,
            tracefile_size: some(self.tracefiles.size_bytes),
            tracefile_count: some(self.tracefiles.count),
            contexts: self.contexts.names(),
            on: (!self.patterns.is_empty()).then(|| rules.collect()),
            filters: self.filters.clone(),
            ..ChannelSpec::default()
        }])
    }

    /// The same, without the filters that are about the kernel's events alone.
    pub(crate) fn specs_beside(
        &self,
        kernel: Option<&Kernel>,
    ) -> Result<Vec<ChannelSpec>, RecordError> {
        let mut specs = self.specs()?;
        if let Some(filters) = kernel.map(Kernel::filters) {
            if self.is_kernels_alone() {
                let others = self.filters.iter().find(|one| !filters.has_any(one));
                return others.map_or(Ok(Vec::new()), |filter| {
                    let why = format!("filter '{filter}' is about none of the kernel's events");
                    let hint = "--kernel-only records no others";
                    Err(RecordError::Refused(Refusal::new(why).with_hint(hint)))
                });
            }
            for spec in &mut specs {
                spec.filters.retain(|one| !filters.has_own(one));
                let taken = spec.filters.iter_mut().filter(|one| filters.takes(one));
                taken.for_each(|one| *one = of_programs(one));
            }
        }
        Ok(specs)
    }

    /// The kernel's events, as a session's file has them, with the filters that are about them.
    pub(crate) fn kernel_spec(&self, kernel: Option<&Kernel>) -> Option<KernelSpec> {
        let options = self.kernel.as_ref()?;
        let asked = kernel.map(Kernel::filters);
        let is_asked = |one: &&FilterSpec| {
            options.has_own_filters || asked.is_some_and(|asked| asked.has_any(one))
        };
        Some(KernelSpec {
            on: options.patterns.clone(),
            only: options.only,
            pids: options.pids.clone(),
            cgroups: options.cgroups.clone(),
            cpus: options.cpus.clone(),
            via: options.via,
            contexts: options.contexts.iter().map(|context| context.name.to_owned()).collect(),
            filters: options.filters.iter().filter(is_asked).cloned().collect(),
            mode: if self.buffers.overwrite { Mode::Overwrite } else { Mode::Discard },
            buffer_size: self.buffers.size_bytes,
            tracefile_size: (self.tracefiles.size_bytes > 0).then_some(self.tracefiles.size_bytes),
            tracefile_count: (self.tracefiles.count > 0).then_some(self.tracefiles.count),
        })
    }

    /// What is not said of a channel: memory is taken at once, as what is traced begins at once.
    pub(super) fn making(&self) -> Making {
        let reserve = if self.channels.is_empty() { self.reserve } else { Reserve::default() };
        Making { thrifty: false, reserve }
    }

    /// Whether nothing of programs is recorded.
    pub(super) fn is_kernels_alone(&self) -> bool {
        self.kernel.as_ref().is_some_and(|kernel| kernel.only)
    }

    /// Whether all that is recorded overwrites what is older.
    pub(super) fn is_overwriting(&self) -> bool {
        match &self.channels[..] {
            [] => self.buffers.overwrite,
            specs => specs.iter().all(|spec| spec.mode == Mode::Overwrite),
        }
    }
}
