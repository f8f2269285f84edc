//! `trackway session`, `channel` and `event`: sends the user's requests to session recorders.

pub(crate) mod args;
mod background;
mod notify;
mod show;

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, anyhow, bail};
use trackway_console::{message, stdout};
use trackway_recorder::control::RunFolder;
use trackway_recorder::control::client::Session;
use trackway_recorder::diagnosis::unmatched_rules;
use trackway_recorder::protocol::{Answer, ChannelChange, Refusal, Request};
use trackway_recorder::{
    ChannelSpec, ContextsError, Counted, FilterSource, FilterSpec, Grouped, KernelSpec, Levels,
    Mode, Notices, RecordError, RuleSpec, SessionSpec, Stranded, check_folder, is_name_of_record,
};

use crate::common::format::Format;
use crate::common::recovered::report_recovered;
use crate::filter::object::{self, build_filter_specs};
use args::{
    AddArguments, ChannelArguments, ChannelOptions, ChannelVerb, CreateArguments, EventArguments,
    EventVerb, LevelArguments, LoadArguments, OffArguments, OnArguments, RuleArguments,
    SaveArguments, SessionArguments, SessionVerb, SetArguments, SnapshotArguments,
};

/// Runs a subcommand of `trackway session`.
pub(crate) fn run(arguments: SessionArguments) -> anyhow::Result<ExitCode> {
    match arguments.verb {
        SessionVerb::Create(create) => return create_session(&create),
        SessionVerb::Load(load) => return load_session(&load),
        SessionVerb::Recorder => return background::run_background_recorder(),
        SessionVerb::Start(name) => send_session_command(name.name, Request::Start)?,
        SessionVerb::Stop(name) => send_session_command(name.name, Request::Stop)?,
        SessionVerb::Clear(name) => send_session_command(name.name, Request::Clear)?,
        SessionVerb::Destroy(destroy) if destroy.all => return destroy_all_sessions(),
        SessionVerb::Destroy(destroy) => destroy_session(&resolve_session_name(destroy.name)?, "")?,
        SessionVerb::List(list) => show::write_session_list(list.format, &mut stdout())?,
        SessionVerb::Status(status) => show_status(status.name, status.format)?,
        SessionVerb::Snapshot(snapshot) => write_snapshot(snapshot)?,
        SessionVerb::Save(save) => save_session(save)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a subcommand of `trackway channel`.
pub(crate) fn run_channel(arguments: ChannelArguments) -> anyhow::Result<ExitCode> {
    match arguments.verb {
        ChannelVerb::Add(add) => {
            let channel = build_channel_spec(&add).map_err(explain_kernel_context)?;
            let rules = channel.on.clone().unwrap_or_default();
            let rules = [rules, rules_from_filters(&channel)].concat();
            send_command(&add.session, Request::AddChannel { channel })?;
            warn_unmatched_rules(&add.session, &rules);
        }
        ChannelVerb::Set(set) => {
            let change = build_set_change(&set).map_err(explain_kernel_context)?;
            send_command(&set.session, Request::SetChannel { channel: set.channel, change })?;
        }
        ChannelVerb::Remove(remove) => {
            send_command(&remove.session, Request::RemoveChannel { channel: remove.channel })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a subcommand of `trackway event`.
pub(crate) fn run_event(arguments: EventArguments) -> anyhow::Result<ExitCode> {
    match arguments.verb {
        EventVerb::On(on) if on.kernel => {
            let filter = build_event_filter(&on)?;
            send_command(&on.session, Request::KernelOn { patterns: on.patterns, filter })?;
        }
        EventVerb::Off(OffArguments { session, patterns, kernel: true, .. }) => {
            send_command(&session, Request::KernelOff { patterns })?;
        }
        EventVerb::On(on) => {
            let filter = build_event_filter(&on)?;
            let OnArguments { session, patterns, channel, levels, only, .. } = on;
            let rules = build_rules(patterns, &levels);
            let request = Request::EventsOn { channel, rules: rules.clone(), only, filter };
            send_command(&session, request)?;
            warn_unmatched_rules(&session, &rules);
        }
        EventVerb::Off(OffArguments { session, patterns, channel, .. }) => {
            send_command(&session, Request::EventsOff { channel, patterns })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Explains an error: a channel cannot have contexts of kernel events.
fn explain_kernel_context(error: anyhow::Error) -> anyhow::Error {
    let Some(ContextsError::OfTheKernel(name)) = error.downcast_ref() else { return error };
    let why = format!(
        "'{name}' is a context of the kernel's events, which have those that were chosen when \
         their session began; channels have programs' events"
    );
    let hint = format!(
        "begin another session beside it (trackway session create NAME --kernel LIST --context \
         {name}), and destroy this one then"
    );
    RecordError::Refused(Refusal::new(why).with_hint(hint)).into()
}

/// Returns the filter for events that `event on` enables.
fn build_event_filter(on: &OnArguments) -> anyhow::Result<Option<FilterSource>> {
    match &on.filter_object {
        Some(file) => object::read_filter_source(file).map(Some),
        None => Ok(on.filter.clone().map(FilterSource::Expression)),
    }
}

/// Returns the given session name, or that of the only session. Sessions of `trackway record` count
/// only if there is no background session.
fn resolve_session_name(name: Option<String>) -> anyhow::Result<String> {
    if let Some(name) = name {
        return Ok(name);
    }
    let names = RunFolder::new().names()?;
    let (foreground, background): (Vec<_>, Vec<_>) =
        names.into_iter().partition(|name| is_foreground(name));
    let names = if background.is_empty() { foreground } else { background };
    match &names[..] {
        [name] => Ok(name.clone()),
        [] => bail!("there is no session (trackway session create makes one)"),
        names => bail!("which session? there are {}", names.join(", ")),
    }
}

/// Returns true if `trackway record` records the session, or did until it was killed.
fn is_foreground(name: &str) -> bool {
    // Other names need no request, which would wait for a stopped recorder.
    is_name_of_record(name)
        && match send_request(name, Request::Status) {
            Ok(Answer::Status(status)) => status.is_foreground,
            _ => true,
        }
}

/// Sends a request to a session's recorder.
fn send_request(name: &str, request: Request) -> Result<Answer, RecordError> {
    Session::connect(&RunFolder::of(name), name)?.request(request)
}

/// Sends a request that has no result, and prints the warnings in the answer.
fn send_command(name: &str, request: Request) -> anyhow::Result<()> {
    if let Answer::Done { warnings } = send_request(name, request)? {
        for warning in warnings {
            message!("trackway: {warning}");
        }
    }
    Ok(())
}

/// Warns about rules that match no event yet, unless the session records other users: only the
/// recorder can read their windows.
fn warn_unmatched_rules(session: &str, rules: &[RuleSpec]) {
    let is_own = match send_request(session, Request::Status) {
        Ok(Answer::Status(status)) => status.users_wanted.is_empty(),
        _ => false,
    };
    if is_own && !rules.is_empty() {
        show::report_reasons(&unmatched_rules(rules.iter()), "");
    }
}

fn send_session_command(name: Option<String>, request: Request) -> anyhow::Result<()> {
    send_command(&resolve_session_name(name)?, request)
}

fn create_session(arguments: &CreateArguments) -> anyhow::Result<ExitCode> {
    let created = build_and_begin_session(arguments);
    if let (true, Err(error)) = (arguments.foreground, &created) {
        notify::send_refusal(&trackway_command_line::error_text(error));
    }
    created
}

fn build_and_begin_session(arguments: &CreateArguments) -> anyhow::Result<ExitCode> {
    let mut spec = match &arguments.load {
        Some(file) => load_session_spec(file)?,
        None => build_session_spec(arguments)?,
    };
    if let Some(name) = &arguments.name {
        spec.name.clone_from(name);
    }
    if let Some(output) = &arguments.output {
        spec.output = Some(output.clone());
    }
    spec.start &= !arguments.no_start;
    spec.snapshot_on_crash |= arguments.snapshot_on_crash;
    begin_session(spec, arguments.foreground, arguments.quiet)
}

fn load_session(arguments: &LoadArguments) -> anyhow::Result<ExitCode> {
    let mut spec = load_session_spec(&arguments.file)?;
    if let Some(name) = &arguments.name {
        spec.name.clone_from(name);
    }
    begin_session(spec, false, arguments.quiet)
}

/// Reads a session file.
pub(crate) fn load_session_spec(file: &Path) -> anyhow::Result<SessionSpec> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {shown}"))?;
    let mut spec = SessionSpec::from_toml(&text).with_context(|| format!("in {shown}"))?;
    if spec.name.is_empty() {
        let stem = file.file_stem().and_then(|stem| stem.to_str());
        spec.name = stem.unwrap_or_default().to_owned();
    }
    Ok(spec)
}

fn begin_session(spec: SessionSpec, in_foreground: bool, quiet: bool) -> anyhow::Result<ExitCode> {
    spec.check()?;
    if spec.name.is_empty() {
        bail!("the session has no name");
    }
    if spec.snapshot_on_crash && !spec.has_flight_recorder() {
        bail!("--snapshot-on-crash is for --flight-recorder: else what happens is in the trace");
    }
    // Checks the folder here, too, because the recorder receives the path as JSON.
    check_folder(spec.output.as_deref())?;
    if in_foreground {
        return background::record_in_foreground(spec, quiet);
    }
    let status = background::start_background_recorder(&spec, quiet)?;
    if spec.users.is_empty() && !quiet {
        let channels = || status.channels.iter().map(|channel| &channel.spec);
        let filtered: Vec<RuleSpec> = channels().flat_map(rules_from_filters).collect();
        let rules = channels().flat_map(|channel| channel.on.iter().flatten());
        show::report_reasons(&unmatched_rules(rules.chain(&filtered)), "");
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns rules for the patterns of a channel's filters, except patterns of its own rules.
fn rules_from_filters(channel: &ChannelSpec) -> Vec<RuleSpec> {
    let named = channel.filters.iter().filter_map(|filter| filter.pattern.as_deref());
    let is_said = |rule: &RuleSpec| {
        let mut rules = channel.on.iter().flatten();
        rules.any(|other| other.full_pattern() == rule.full_pattern())
    };
    let each = named.flat_map(|list| list.split(','));
    each.map(|one| RuleSpec::new(one.trim())).filter(|rule| !is_said(rule)).collect()
}

fn build_session_spec(arguments: &CreateArguments) -> anyhow::Result<SessionSpec> {
    let (on, filters) = (build_channel_rules(&arguments.rules), build_filters(&arguments.rules)?);
    let mut channel = ChannelSpec { on, filters, ..ChannelSpec::default() };
    let users = arguments.user.clone();
    if arguments.kernel.is_empty() {
        apply_channel_options(&arguments.channel, &mut channel)?;
        return Ok(SessionSpec { users, channels: vec![channel], ..SessionSpec::default() });
    }
    let contexts =
        trackway_recorder::parse_context_lists(arguments.channel.context.as_deref(), true)?;
    channel = build_change_with_contexts(&arguments.channel, Some(contexts.programs.names()))
        .apply_to(&channel);
    let kernel = build_kernel_spec(&arguments.kernel, &channel, arguments.kernel_only);
    let kernel = kernel.map(|kernel| KernelSpec {
        cgroups: arguments.cgroup.clone(),
        cpus: arguments.cpu.clone(),
        via: arguments.kernel_backend.map(Into::into),
        contexts: contexts.kernel.iter().map(|context| context.name.to_owned()).collect(),
        ..kernel
    });
    if arguments.kernel_only {
        kernel.as_ref().map_or(Ok(()), trackway_recorder::check_kernel_only)?;
    }
    let channels = if arguments.kernel_only { Vec::new() } else { vec![channel] };
    Ok(SessionSpec { users, kernel, channels, ..SessionSpec::default() })
}

/// Returns kernel events with the buffers of a channel, and with its filters that apply to all
/// events; with `only`, all its filters.
pub(crate) fn build_kernel_spec(
    patterns: &[String],
    channel: &ChannelSpec,
    only: bool,
) -> Option<KernelSpec> {
    let ChannelSpec { mode, buffer_size, tracefile_size, tracefile_count, .. } = *channel;
    let filters = channel.filters.iter().filter(|filter| only || filter.is_for_all_events());
    (!patterns.is_empty()).then(|| KernelSpec {
        on: patterns.to_vec(),
        only,
        filters: filters.cloned().collect(),
        pids: channel.pids.clone(),
        mode,
        buffer_size,
        tracefile_size,
        tracefile_count,
        ..KernelSpec::default()
    })
}

fn build_channel_spec(arguments: &AddArguments) -> anyhow::Result<ChannelSpec> {
    let name = arguments.channel.clone();
    let (on, filters) = (build_channel_rules(&arguments.rules), build_filters(&arguments.rules)?);
    let mut channel = ChannelSpec { name, on, filters, ..ChannelSpec::default() };
    apply_channel_options(&arguments.options, &mut channel)?;
    Ok(channel)
}

fn build_filters(rules: &RuleArguments) -> anyhow::Result<Vec<FilterSpec>> {
    build_filter_specs(&rules.filter, &rules.filter_object)
}

/// Returns the rules of a new channel. No rules mean all events. Levels or exclusions alone mean
/// all events of these levels, without the excluded ones.
fn build_channel_rules(arguments: &RuleArguments) -> Option<Vec<RuleSpec>> {
    let mut patterns = arguments.event.clone();
    let has_levels = arguments.levels.level.or(arguments.levels.level_only).is_some();
    if patterns.iter().all(|pattern| pattern.starts_with('!')) && has_levels {
        patterns.insert(0, "*".into());
    }
    let mut rules = build_rules(patterns, &arguments.levels);
    rules.extend(arguments.exclude.iter().map(|pattern| RuleSpec::new(format!("!{pattern}"))));
    (!rules.is_empty()).then_some(rules)
}

/// Returns rules for these patterns with these levels; exclusions apply to all levels.
fn build_rules(patterns: Vec<String>, levels: &LevelArguments) -> Vec<RuleSpec> {
    let level = match (levels.level, levels.level_only) {
        (Some(level), _) => Levels::AtLeast(level),
        (None, Some(level)) => Levels::Exactly(level),
        (None, None) => Levels::All,
    };
    let rule = |pattern: String| {
        let level = if pattern.starts_with('!') { Levels::All } else { level };
        RuleSpec { pattern, level }
    };
    patterns.into_iter().map(rule).collect()
}

/// Applies the options to a new channel.
fn apply_channel_options(
    options: &ChannelOptions,
    channel: &mut ChannelSpec,
) -> anyhow::Result<()> {
    *channel = build_channel_change(options)?.apply_to(channel);
    Ok(())
}

/// Returns the changes of a channel that the options request.
fn build_channel_change(options: &ChannelOptions) -> anyhow::Result<ChannelChange> {
    let contexts = options.context.as_deref().map(parse_context_list).transpose()?;
    Ok(build_change_with_contexts(options, contexts))
}

/// Returns the changes of a channel that the options request, with these contexts.
fn build_change_with_contexts(
    options: &ChannelOptions,
    contexts: Option<Vec<String>>,
) -> ChannelChange {
    let some = |is_said: bool| is_said.then_some(());
    ChannelChange {
        mode: some(options.overwrite).map(|()| Mode::Overwrite),
        blocking_timeout_ns: options.blocking_timeout.map(|time| time.as_nanos() as u64),
        buffer_size: options.buffer_size,
        sub_buffers: options.sub_buffers,
        tracefile_size: options.tracefile_size,
        tracefile_count: options.tracefile_count,
        contexts,
        pids: some(!options.pid.is_empty()).map(|()| options.pid.clone()),
        executables: some(!options.executable.is_empty()).map(|()| options.executable.clone()),
        pid_namespaces: some(!options.pid_namespace.is_empty())
            .map(|()| options.pid_namespace.clone()),
    }
}

fn build_set_change(arguments: &SetArguments) -> anyhow::Result<ChannelChange> {
    let mut change = build_channel_change(&arguments.options)?;
    if arguments.discard {
        change.mode = Some(Mode::Discard);
    }
    if arguments.any_process {
        change.pids = Some(Vec::new());
        change.executables = Some(Vec::new());
        change.pid_namespaces = Some(Vec::new());
    }
    if change == ChannelChange::default() {
        bail!("say what is to be otherwise (see --help)");
    }
    Ok(change)
}

fn parse_context_list(list: &str) -> anyhow::Result<Vec<String>> {
    trackway_recorder::parse_context_lists(Some(list), false)?;
    let names = list.split(',').map(str::trim).filter(|name| !name.is_empty() && *name != "none");
    Ok(names.map(str::to_owned).collect())
}

/// Ends a session, and prints the notices of its recorder, each line after `which`.
fn destroy_session(name: &str, which: &str) -> anyhow::Result<()> {
    let run = RunFolder::of(name);
    let mut reasons = Vec::new();
    let asked = Session::connect(&run, name).and_then(|mut session| {
        // Requests the status first, because the session's rules are gone after its end.
        if let Ok(Answer::Status(status)) = session.request(Request::Status) {
            reasons = show::diagnose_missing_events(&status);
        }
        let answer = session.request(Request::Destroy);
        // Waits even if not all records could be written: the session ends in any case.
        session.wait_for_end();
        answer
    });
    match asked {
        Ok(Answer::Ended(counts)) => {
            for notice in &counts.notices {
                show::print_notice(notice, which);
            }
            if counts.notices.is_empty() {
                // A flight recorder has written only its snapshots.
                message!("trackway: session {name} has ended");
            }
            if counts.recorded == 0 && counts.lost == 0 && counts.overwritten == 0 {
                show::report_reasons(&reasons, which);
            }
            Ok(())
        }
        Ok(_) => Ok(()),
        // The recorder may only have closed this connection.
        Err(RecordError::SessionDead(..)) if run.is_own() && !run.is_alive(name) => {
            end_dead_session(&run, name)
        }
        Err(error) => Err(error.into()),
    }
}

/// Ends a session whose recorder is dead: first recovers its records in memory into its trace. A
/// session that cannot be recovered keeps its name.
fn end_dead_session(run: &RunFolder, name: &str) -> anyhow::Result<()> {
    let left = run.find_dead_session(name)?;
    let is_recoverable = left.is_recoverable();
    if let Some(folder) = left.folder.filter(|_| is_recoverable) {
        let notices = Notices::new(false);
        notices.report(format_args!("the recorder of session '{name}' was killed"));
        let stranded = Stranded::NewTrace;
        let recovered = trackway_recorder::recover(&notices, Some(&folder), stranded)
            .with_context(|| format!("session '{name}' is dead, and cannot be recovered"))?;
        report_recovered(&notices, &recovered.sessions, stranded)?;
        // The search above does not find sessions that another process is recovering.
        if run.find_dead_session(name)?.is_in_memory {
            let why = format!("session '{name}' is dead, and being recovered by another process");
            let hint = format!("once it has ended, trackway session destroy {name} ends this one");
            return Err(RecordError::Refused(Refusal::new(why).with_hint(hint)).into());
        }
    }
    run.clean(name);
    Ok(())
}

fn destroy_all_sessions() -> anyhow::Result<ExitCode> {
    let run = RunFolder::new();
    let mut names = run.names()?;
    // `destroy --all` also ends dead sessions of `trackway record`.
    names.retain(|name| !(is_foreground(name) && run.is_alive(name)));
    if names.is_empty() {
        message!("trackway: there is no session in the background");
    }
    let mut failed = 0;
    for name in names {
        let which = format!("session {name}: ");
        if let Err(error) = destroy_session(&name, &which) {
            crate::report_error(&error.context(format!("session {name}")));
            failed += 1;
        }
    }
    match failed {
        0 => Ok(ExitCode::SUCCESS),
        _ => Err(anyhow!("not every session was ended as it should be")),
    }
}

fn show_status(name: Option<String>, format: Format) -> anyhow::Result<()> {
    let Answer::Status(status) = send_request(&resolve_session_name(name)?, Request::Status)?
    else {
        bail!("the recorder did not say how it goes");
    };
    show::write_status(&status, format, &mut stdout())
}

fn write_snapshot(arguments: SnapshotArguments) -> anyhow::Result<()> {
    let output = arguments.output.map(std::path::absolute).transpose()?;
    if output.is_some() {
        check_folder(output.as_deref())?;
    }
    let last_ns = arguments.last.map(|time| time.as_nanos() as u64);
    let name = resolve_session_name(arguments.name)?;
    let Answer::Snapshot(facts) = send_request(&name, Request::Snapshot { output, last_ns })?
    else {
        bail!("the recorder did not say where the snapshot is");
    };
    facts.missing.iter().for_each(|what| message!("trackway: {what}"));
    message!("trackway: {}, {} bytes", Counted(facts.events, "event"), Grouped(facts.bytes));
    writeln!(stdout(), "{}", facts.folder.display())?;
    Ok(())
}

fn save_session(arguments: SaveArguments) -> anyhow::Result<()> {
    let Answer::Spec(mut spec) =
        send_request(&resolve_session_name(arguments.name)?, Request::Spec)?
    else {
        bail!("the recorder did not say what the session is");
    };
    // A later session needs another folder.
    spec.output = None;
    let text = spec.to_toml()?;
    match arguments.output {
        Some(file) => write_file(&file, &text, arguments.force)?,
        None => stdout().write_all(text.as_bytes())?,
    }
    Ok(())
}

/// Writes a file; replaces an existing file only if `force` is true.
fn write_file(file: &Path, text: &str, force: bool) -> anyhow::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).create_new(!force);
    match options.open(file) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let refusal = Refusal::new(format!("{} is there already", file.display()));
            Err(RecordError::Refused(refusal.with_hint("--force writes over it")).into())
        }
        opened => opened
            .and_then(|mut opened| opened.write_all(text.as_bytes()))
            .with_context(|| format!("cannot write {}", file.display())),
    }
}
