//! `trackway record`: a command and its children recorded, or the kernel alone.

mod args;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use trackway_recorder::{
    BufferOptions, CommandEnd, KernelOptions, Mode, Notices, RecordOptions, Reserve, SessionSpec,
    Tracefiles, as_asked, take_filters,
};

pub(crate) use self::args::{Arguments, ReserveBy};
use crate::filter::object::filters_of;

/// Exit status of `record` when it failed before the command started, as env(1) has it.
pub(crate) const FAILED: u8 = 125;

/// Records a command; the exit status is its own.
pub(crate) fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let size_of = |text: &Option<String>, what: &str| {
        let read = |text: &String| {
            trackway_recorder::parse_size(text)
                .with_context(|| format!("cannot read the {what} '{text}'"))
        };
        text.as_ref().map(read).transpose()
    };
    let size_bytes = size_of(&arguments.buffer_size, "buffer size")?;
    let tracefile_size = size_of(&arguments.tracefile_size, "size of trace files")?;
    let has_kernel = !arguments.kernel.is_empty();
    let contexts = trackway_recorder::parse_both(arguments.context.as_deref(), has_kernel)?;
    let filters = filters_of(&arguments.filter, &arguments.filter_object)?;
    let file = arguments.config.as_deref().map(in_file).transpose()?;
    // Nothing says whose.
    let is_everything =
        arguments.command.is_empty() && arguments.pid.is_empty() && arguments.cgroup.is_empty();
    let mut options = RecordOptions {
        output: arguments.output.clone(),
        patterns: arguments.on.clone(),
        filters: filters.clone(),
        contexts: contexts.programs,
        helpers: trackway_recorder::parse_preload(arguments.preload.as_deref().unwrap_or(""))?,
        buffers: BufferOptions {
            size_bytes,
            sub_buffers: arguments.sub_buffers,
            overwrite: arguments.overwrite,
        },
        tracefiles: Tracefiles::new(tracefile_size, arguments.tracefile_count),
        reserve: match arguments.reserve {
            ReserveBy::Rseq => Reserve::Rseq,
            ReserveBy::Claim => Reserve::Claim,
            ReserveBy::Lockless => Reserve::Lockless,
        },
        kernel: has_kernel.then(|| KernelOptions {
            patterns: arguments.kernel.clone(),
            only: arguments.kernel_only,
            system: arguments.system || is_everything,
            pids: arguments.pid.clone(),
            is_stopped: false,
            contexts: contexts.kernel,
            filters,
            has_own_filters: false,
            shared_filters: Vec::new(),
            via: arguments.kernel_via.map(Into::into),
            cgroups: arguments.cgroup.clone(),
            cpus: arguments.cpu.clone(),
        }),
        user: arguments.user.clone(),
        channels: Vec::new(),
        summary_json: arguments.summary_json.clone(),
        command: arguments.command.clone(),
    };
    if let Some(spec) = file {
        take_file(spec, &arguments, &mut options)?;
    }
    let notices = Notices::new(arguments.quiet);
    if options.command.is_empty() {
        trackway_recorder::record_kernel(&options, arguments.quiet).map_err(anyhow::Error::new)?;
        return Ok(ExitCode::SUCCESS);
    }
    match trackway_recorder::record(&options, &notices).map_err(anyhow::Error::new)? {
        CommandEnd::Exited(code) => Ok(ExitCode::from(code)),
        CommandEnd::Killed(signal) => trackway_sys::signal::die_of(signal),
    }
}

/// A session's file, for a command: that is one user's.
fn in_file(file: &Path) -> anyhow::Result<SessionSpec> {
    let spec = crate::session::load(file)?;
    if !spec.users.is_empty() {
        let file = file.display();
        anyhow::bail!("{file} has users: trackway session load records them, in the background");
    }
    Ok(spec)
}

/// Records what a session's file says: its channels, and its events of the kernel, unless the
/// command line says which. Filters that are about those are theirs, wherever they stand.
fn take_file(
    mut spec: SessionSpec,
    arguments: &Arguments,
    options: &mut RecordOptions,
) -> anyhow::Result<()> {
    if let Some(kernel) = &spec.kernel {
        if options.kernel.is_some() {
            let file = arguments.config.as_deref().unwrap_or(Path::new("the file")).display();
            anyhow::bail!(
                "{file} says which of the kernel's events are recorded: not --kernel, too"
            );
        }
        kernel.check()?;
        options.kernel = Some(KernelOptions::of_command(kernel)?);
        options.buffers.size_bytes = kernel.buffer_size;
        options.buffers.overwrite = kernel.mode == Mode::Overwrite;
        options.tracefiles = kernel.tracefiles();
    }
    if let Some(kernel) = &mut options.kernel {
        kernel.filters.extend(take_filters(&kernel.patterns, &mut spec.channels)?);
        as_asked(&kernel.filters, &mut spec.channels);
        kernel.has_own_filters = true;
    }
    options.channels = spec.channels;
    Ok(())
}
