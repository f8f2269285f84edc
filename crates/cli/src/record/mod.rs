//! `trackway record`: records a command and its children, or only the kernel.

mod args;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use trackway_recorder::{
    ChannelSpec, CommandEnd, KernelSpec, Mode, Reserve, RuleSpec, RunOptions, SessionSpec,
};

pub(crate) use self::args::{Arguments, ReserveBy};
use crate::filter::object::build_filter_specs;
use crate::session::build_kernel_spec;

/// Exit status of `record` if it failed before the command started, like env(1).
pub(crate) const EXIT_FAILED: u8 = 125;

/// Records a command; returns the command's exit status.
pub(crate) fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let spec = match &arguments.config {
        Some(file) => spec_in(file, &arguments)?,
        None => spec_of(&arguments)?,
    };
    let options = RunOptions {
        command: arguments.command.clone(),
        helpers: trackway_recorder::parse_preload(arguments.preload.as_deref().unwrap_or(""))?,
        user: arguments.user.clone(),
        reserve: match arguments.reserve {
            ReserveBy::Rseq => Reserve::Rseq,
            ReserveBy::Claim => Reserve::Claim,
            ReserveBy::Lockless => Reserve::Lockless,
        },
        is_system_wide: arguments.system_wide,
        is_from_file: arguments.config.is_some(),
        summary_json: arguments.summary_json.clone(),
    };
    let recorded = trackway_recorder::record(spec, &options, arguments.quiet);
    match recorded.map_err(anyhow::Error::new)? {
        CommandEnd::Exited(code) => Ok(ExitCode::from(code)),
        CommandEnd::Killed(signal) => trackway_sys::signal::end_by_signal(signal),
    }
}

/// Returns the specification of the session that the options describe.
fn spec_of(arguments: &Arguments) -> anyhow::Result<SessionSpec> {
    let size_of = |text: &Option<String>, what: &str| {
        let read = |text: &String| {
            trackway_recorder::parse_size(text)
                .with_context(|| format!("cannot read the {what} '{text}'"))
        };
        text.as_ref().map(read).transpose()
    };
    let has_kernel = !arguments.kernel.is_empty();
    let contexts =
        trackway_recorder::parse_context_lists(arguments.context.as_deref(), has_kernel)?;
    let rules = arguments.event.iter().map(RuleSpec::new);
    let channel = ChannelSpec {
        mode: if arguments.overwrite { Mode::Overwrite } else { Mode::Discard },
        buffer_size: size_of(&arguments.buffer_size, "buffer size")?,
        sub_buffers: arguments.sub_buffers,
        tracefile_size: size_of(&arguments.tracefile_size, "size of trace files")?,
        tracefile_count: arguments.tracefile_count,
        contexts: contexts.programs.names(),
        on: (!arguments.event.is_empty()).then(|| rules.collect()),
        filters: build_filter_specs(&arguments.filter, &arguments.filter_object)?,
        ..ChannelSpec::default()
    };
    let kernel =
        build_kernel_spec(&arguments.kernel, &channel, arguments.kernel_only).map(|kernel| {
            let contexts = contexts.kernel.iter().map(|context| context.name.to_owned()).collect();
            add_scope(KernelSpec { contexts, ..kernel }, arguments)
        });
    if arguments.kernel_only {
        kernel.as_ref().map_or(Ok(()), trackway_recorder::check_kernel_only)?;
    }
    let channels = if arguments.kernel_only { Vec::new() } else { vec![channel] };
    let output = arguments.output.clone();
    Ok(SessionSpec { output, kernel, channels, ..SessionSpec::default() })
}

/// Returns kernel events with the scope that the options give them.
fn add_scope(kernel: KernelSpec, arguments: &Arguments) -> KernelSpec {
    KernelSpec {
        pids: arguments.pid.clone(),
        cgroups: arguments.cgroup.clone(),
        cpus: arguments.cpu.clone(),
        via: arguments.kernel_backend.map(Into::into),
        ..kernel
    }
}

/// Reads a session file for a command: the session must have one user. The options may add kernel
/// events if the file has none.
fn spec_in(file: &Path, arguments: &Arguments) -> anyhow::Result<SessionSpec> {
    let spec = crate::session::load_session_spec(file)?;
    let shown = file.display();
    if !spec.users.is_empty() {
        anyhow::bail!("{shown} has users: trackway session load records them, in the background");
    }
    if spec.kernel.is_some() && !arguments.kernel.is_empty() {
        anyhow::bail!("{shown} says which of the kernel's events are recorded: not --kernel, too");
    }
    let given = build_kernel_spec(&arguments.kernel, &ChannelSpec::default(), false);
    let kernel = spec.kernel.or(given.map(|kernel| add_scope(kernel, arguments)));
    let output = arguments.output.clone();
    Ok(SessionSpec { output, kernel, start: true, snapshot_on_crash: false, ..spec })
}
