//! Prints tables of sessions.
//!
//! Longer than 600 lines: every command that shows sessions prints from the same few tables.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use trackway_console::{Style, Target, message};
use trackway_recorder::control::RunFolder;
use trackway_recorder::control::client::Session;
use trackway_recorder::diagnosis::{Reason, Selection, SilentSession, diagnose_session};
use trackway_recorder::protocol::{
    Answer, ChannelStatus, Counts, KernelStatus, Notice, Request, Status,
};
use trackway_recorder::{
    ByteCount, ChannelSpec, Counted, Grouped, KernelBackend, KernelSpec, Levels, Mode, RecordError,
    RuleSpec, Time, Tracefiles, USERS_MAX,
};
use trackway_sys::users::name_of;

use crate::common::format::Format;
use crate::common::json::reason_to_json;

/// A session that was found in a run folder.
struct FoundSession {
    /// Status of the session; if its recorder does not answer, only its name and the known parts.
    status: Box<Status>,
    state: SessionState,
    /// The reason why the session's recorder does not answer.
    error: Option<RecordError>,
}

/// The state of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SessionState {
    Recording,
    Stopped,
    /// The recorder was killed, and the trace is incomplete.
    Dead,
    /// The recorder was killed, and the trace is complete.
    Recovered,
    /// The recorder process is stopped, for example by SIGSTOP.
    StandsStill,
    /// The recorder does not answer.
    Silent,
}

impl SessionState {
    fn of(status: &Status) -> Self {
        if status.is_recording { Self::Recording } else { Self::Stopped }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Recording => "recording",
            Self::Stopped => "stopped",
            Self::Dead => "dead",
            Self::Recovered => "recovered",
            Self::StandsStill => "stands still",
            Self::Silent => "silent",
        }
    }
}

impl FoundSession {
    fn from_status(status: Box<Status>) -> Self {
        Self { state: SessionState::of(&status), status, error: None }
    }

    fn from_error(run: &RunFolder, name: String, error: RecordError) -> Self {
        let mut status = Box::new(Status { name, ..Status::default() });
        let state = match &error {
            RecordError::SessionDead(..) => match run.find_dead_session(&status.name) {
                Ok(left) => {
                    let state = if left.is_recoverable() {
                        SessionState::Dead
                    } else {
                        SessionState::Recovered
                    };
                    status.folder = left.folder.unwrap_or_default();
                    state
                }
                Err(_) => SessionState::Dead,
            },
            RecordError::SessionStopped(_, pid) => {
                status.pid = *pid;
                SessionState::StandsStill
            }
            _ => SessionState::Silent,
        };
        Self { status, state, error: Some(error) }
    }

    fn is_responding(&self) -> bool {
        self.error.is_none()
    }
}

fn find_sessions() -> Result<Vec<FoundSession>, RecordError> {
    let mut found = BTreeMap::new();
    for (place, folder) in RunFolder::all().into_iter().enumerate() {
        let names = match folder.names() {
            // Errors in further run folders concern the user who called sudo.
            Err(_) if place > 0 => continue,
            names => names?,
        };
        for name in names {
            // A name that several users have selects the first user's session.
            found.entry(name).or_insert_with(|| folder.clone());
        }
    }
    let ask = |(name, folder): (String, RunFolder)| {
        let answer = Session::connect(&folder, &name)
            .and_then(|mut session| session.request(Request::Status));
        match answer {
            Ok(Answer::Status(status)) => Some(FoundSession::from_status(status)),
            Ok(_) => None,
            // The session has ended meanwhile.
            Err(RecordError::NoSession(_)) => None,
            Err(error) => Some(FoundSession::from_error(&folder, name, error)),
        }
    };
    Ok(found.into_iter().filter_map(ask).collect())
}

/// Returns a session as JSON: its recorder's status, or zeros if its recorder does not answer, with
/// the session's state (`state`) and the reason for a missing answer (`error`), or null.
fn session_to_json(
    status: &Status,
    state: SessionState,
    error: Option<String>,
) -> serde_json::Result<Value> {
    // Replaces invalid UTF-8 in the path, like the text output.
    let folder = status.folder.to_string_lossy().into_owned().into();
    let mut object = serde_json::to_value(&Status { folder, ..status.clone() })?;
    for channel in object["channels"].as_array_mut().into_iter().flatten() {
        let filters = channel["spec"].get_mut("filters").and_then(Value::as_array_mut);
        filters.into_iter().flatten().for_each(replace_object_bytes);
    }
    let kernel = object.get_mut("kernel").and_then(|kernel| kernel.get_mut("spec"));
    let filters = kernel.and_then(|spec| spec.get_mut("filters"));
    let filters = filters.and_then(Value::as_array_mut);
    filters.into_iter().flatten().for_each(replace_object_bytes);
    object["state"] = state.word().into();
    object["error"] = error.into();
    Ok(object)
}

/// Replaces the bytes of a filter in C by their number; `trackway session save` writes the bytes.
fn replace_object_bytes(filter: &mut Value) {
    let Some(filter) = filter.as_object_mut() else { return };
    if let Some(Value::String(digits)) = filter.remove("object") {
        filter.insert("bytes".into(), (digits.len() / 2).into());
    }
}

/// Lists sessions.
pub(super) fn write_session_list(format: Format, output: &mut dyn Write) -> anyhow::Result<()> {
    let found = find_sessions()?;
    if let Format::Json = format {
        let object = |one: &FoundSession| {
            session_to_json(&one.status, one.state, one.error.as_ref().map(RecordError::to_string))
        };
        let objects = found.iter().map(object).collect::<Result<Vec<_>, _>>()?;
        writeln!(output, "{}", serde_json::to_string_pretty(&objects)?)?;
        return Ok(());
    }
    if found.is_empty() {
        message!("trackway: there is no session (trackway session create makes one)");
        return Ok(());
    }
    let mut rows =
        vec![["NAME", "STATE", "EVENTS", "LOST", "MEMORY", "USERS", "FOLDER"].map(String::from)];
    rows.extend(found.iter().map(format_session_row));
    write_table(&rows, output)?;
    for one in &found {
        report_unreachable_session(one);
    }
    Ok(())
}

fn format_session_row(one: &FoundSession) -> [String; 7] {
    let status = &one.status;
    let counts = total_counts(status);
    let if_there = |text: String| if one.is_responding() { text } else { String::new() };
    [
        status.name.clone(),
        if one.is_responding() { format_state(status) } else { one.state.word() }.to_owned(),
        if_there(Grouped(counts.recorded).to_string()),
        if_there(Grouped(counts.lost).to_string()),
        if_there(ByteCount(status.memory_bytes).to_string()),
        if_there(format_short_sources(status)),
        format_path(&status.folder),
    ]
}

/// Returns the totals of recorded and lost events, of programs and of the kernel.
fn total_counts(status: &Status) -> Counts {
    let mut all = status.counts.clone();
    if let Some(kernel) = &status.kernel {
        all.recorded = all.recorded.saturating_add(kernel.recorded);
        all.lost = all.lost.saturating_add(kernel.lost);
        all.overwritten = all.overwritten.saturating_add(kernel.overwritten);
        all.deleted = all.deleted.saturating_add(kernel.deleted);
        all.bytes = all.bytes.saturating_add(kernel.bytes);
    }
    all
}

/// Returns true if a session records kernel events only.
fn is_kernel_only(status: &Status) -> bool {
    status.kernel.as_ref().is_some_and(|kernel| kernel.spec.only)
}

fn report_unreachable_session(one: &FoundSession) {
    let Some(error) = &one.error else { return };
    let name = &one.status.name;
    if one.state == SessionState::Recovered {
        message!("trackway: the recorder of session '{name}' is gone; nothing of it is lost");
        message!("hint: trackway session destroy {name} takes it from the list");
        return;
    }
    message!("trackway: {error}");
    if let Some(hint) = error.hint() {
        message!("hint: {hint}");
    }
}

/// Writes aligned columns: numbers to the right, the last column without padding.
fn write_table<const N: usize>(rows: &[[String; N]], output: &mut dyn Write) -> anyhow::Result<()> {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    for (number, row) in rows.iter().enumerate() {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = if column + 1 < N { width(column).unwrap_or(0) } else { 0 };
            let is_number = (2..5).contains(&column);
            let cell = match is_number {
                true => format!("{cell:>width$}"),
                false => format!("{cell:width$}"),
            };
            // Adds colours after the padding, because escape sequences have no width.
            let is_name = column == 0 && number > 0;
            let cell = if is_name { Target::Output.paint(Style::Name, &cell) } else { cell.into() };
            line += &format!("{cell}  ");
        }
        writeln!(output, "{}", line.trim_end())?;
    }
    Ok(())
}

/// Returns the users whose programs a session records, in short form.
fn format_users(status: &Status) -> String {
    match &status.users_wanted[..] {
        [] => "own".into(),
        users => users.join(","),
    }
}

/// Returns the users and the kernel, if a session records their events, in short form.
fn format_short_sources(status: &Status) -> String {
    match &status.kernel {
        None => format_users(status),
        Some(_) if is_kernel_only(status) => "kernel".into(),
        Some(_) => format!("{},kernel", format_users(status)),
    }
}

fn format_state(status: &Status) -> &'static str {
    match (status.is_recording, status.is_foreground) {
        (true, false) => "recording",
        (false, false) => "stopped",
        (true, true) => "foreground",
        (false, true) => "foreground, stopped",
    }
}

/// Prints a recorder's notice; `which` names the session if there are several.
pub(super) fn print_notice(notice: &Notice, which: &str) {
    match notice {
        Notice::Hint { .. } => message!("{notice}"),
        Notice::Info(text) => message!("trackway: {which}{text}"),
    }
}

/// Reports the reasons why the session `which` has no event.
pub(super) fn report_reasons(reasons: &[Reason], which: &str) {
    for reason in reasons {
        message!("trackway: {which}{reason}");
        if let Some(hint) = reason.hint() {
            message!("hint: {hint}");
        }
    }
}

/// Writes the status of a session.
pub(super) fn write_status(
    status: &Status,
    format: Format,
    output: &mut dyn Write,
) -> anyhow::Result<()> {
    if let Format::Json = format {
        let mut object = session_to_json(status, SessionState::of(status), None)?;
        object["no-events-because"] =
            diagnose_missing_events(status).iter().map(reason_to_json).collect::<Vec<_>>().into();
        writeln!(output, "{}", serde_json::to_string_pretty(&object)?)?;
        return Ok(());
    }
    let Status { name, pid, folder, snapshots, .. } = status;
    let counts = total_counts(status);
    let since = format_age(status.seconds);
    let state = format_state(status);
    let name = Target::Output.paint(Style::Name, name);
    writeln!(output, "session {name}: {state}, there for {since}, process {pid}")?;
    let overwritten = match counts.overwritten {
        0 => String::new(),
        overwritten => format!(", {} overwritten", Grouped(overwritten)),
    };
    writeln!(
        output,
        "  events    {} recorded, {}{overwritten}, of {}",
        Grouped(counts.recorded),
        format_loss(counts.lost),
        format_event_sources(status),
    )?;
    writeln!(output, "  trace     {}, {}", ByteCount(counts.bytes), format_path(folder))?;
    if counts.deleted > 0 {
        let deleted = Grouped(counts.deleted);
        writeln!(output, "  deleted   {deleted} of the events, with their trace files")?;
    }
    writeln!(output, "  memory    {}", ByteCount(status.memory_bytes))?;
    write_users(status, output)?;
    if *snapshots > 0 {
        writeln!(output, "  snapshots {snapshots}")?;
    }
    for channel in &status.channels {
        write_channel(channel, output)?;
    }
    status.kernel.as_ref().map_or(Ok(()), |kernel| write_kernel(kernel, output))?;
    for reason in diagnose_missing_events(status) {
        writeln!(output, "  no events {reason}")?;
        reason.hint().map_or(Ok(()), |hint| writeln!(output, "            hint: {hint}"))?;
    }
    for notice in &status.notices {
        writeln!(output, "  said      {}", notice.to_string().replace('\n', "\n            "))?;
    }
    Ok(())
}

/// Returns the number of lost events as text; in colour, if any were lost.
fn format_loss(lost: u64) -> String {
    let text = format!("{} lost", Grouped(lost));
    if lost == 0 { text } else { Target::Output.paint(Style::Loss, &text).into_owned() }
}

/// Formats a path on one line.
fn format_path(path: &Path) -> String {
    Target::Output.one_line(&path.display().to_string()).into_owned()
}

/// Returns reasons why a session has no event of programs; none if it has some, or needs none.
pub(super) fn diagnose_missing_events(status: &Status) -> Vec<Reason> {
    let counts = total_counts(status);
    let is_silent = counts.recorded == 0 && counts.lost == 0 && counts.overwritten == 0;
    // The recorder of `trackway record` reports on its own command.
    if !is_silent || status.is_foreground || status.channels.is_empty() {
        return Vec::new();
    }
    let selection = Selection::of(status.channels.iter().map(|channel| &channel.spec));
    let users: Vec<u32> = status.users.iter().map(|user| user.uid).collect();
    diagnose_session(&SilentSession {
        name: &status.name,
        selection: &selection,
        users_wanted: &status.users_wanted,
        users_recorded: &users,
        is_recording: status.is_recording,
    })
}

/// Returns the sources of a session's events, in words.
fn format_event_sources(status: &Status) -> String {
    let plural = if status.counts.processes == 1 { "" } else { "es" };
    let processes = format!("{} process{plural}", Grouped(status.counts.processes));
    match &status.kernel {
        None => processes,
        Some(_) if is_kernel_only(status) => "the kernel".into(),
        Some(_) => format!("{processes} and the kernel"),
    }
}

fn write_kernel(status: &KernelStatus, output: &mut dyn Write) -> anyhow::Result<()> {
    let KernelStatus { spec, events, recorded, lost, overwritten, .. } = status;
    let way = if status.is_by_tracefs { ", by tracefs" } else { "" };
    writeln!(output, "kernel: {}{way}", format_channel_kind(spec.mode, None))?;
    let overwritten = match overwritten {
        0 => String::new(),
        overwritten => format!(", {} overwritten", Grouped(*overwritten)),
    };
    let (recorded, lost) = (Grouped(*recorded), format_loss(*lost));
    writeln!(output, "  events    {recorded} recorded, {lost}{overwritten}")?;
    write_kernel_losses(status, output)?;
    writeln!(output, "  on        {} ({})", spec.on.join(", "), Counted(*events as u64, "event"))?;
    if status.is_of_command {
        writeln!(output, "  only      the command, and what it starts")?;
    }
    if !spec.pids.is_empty() {
        let pids: Vec<String> = spec.pids.iter().map(u32::to_string).collect();
        writeln!(output, "  only      process {}, and what it starts", pids.join(" or "))?;
    }
    write_kernel_selection(spec, output)?;
    if let Some(files) = format_trace_files(spec.tracefiles()) {
        writeln!(output, "  files     {files}")?;
    }
    writeln!(output, "  buffers   {}", ByteCount(status.memory_bytes))?;
    writeln!(output, "  trace     {}", ByteCount(status.bytes))?;
    if status.deleted > 0 {
        let deleted = Grouped(status.deleted);
        writeln!(output, "  deleted   {deleted} of the events, with their trace files")?;
    }
    Ok(())
}

/// Writes the losses of kernel events, certain and possible.
fn write_kernel_losses(status: &KernelStatus, output: &mut dyn Write) -> anyhow::Result<()> {
    let KernelStatus { spec, too_deep, unasked, .. } = status;
    for (event, lost) in &status.lost_by_event {
        writeln!(output, "  lost      {} × {event}", Grouped(*lost))?;
    }
    if *too_deep > 0 {
        let too_deep = Grouped(*too_deep);
        writeln!(output, "  too deep  {too_deep} of those lost: they interrupted too many others")?;
    }
    if *unasked > 0 {
        let why = "interrupted too many others for filters to be asked";
        writeln!(output, "  unasked   up to {} more: they {why}", Grouped(*unasked))?;
    }
    if status.passed_over > 0 {
        let is_of_all = spec.pids.is_empty()
            && spec.cgroups.is_empty()
            && spec.cpus.is_none()
            && !status.is_of_command
            && spec.filters.is_empty();
        let passed_over = Grouped(status.passed_over);
        let (most, event_sources) = match is_of_all {
            true => ("", "of those lost"),
            false => ("up to ", "more, counted of everything"),
        };
        let why = "passed over while another event was recorded";
        writeln!(output, "  passed    {most}{passed_over} {event_sources}: {why}")?;
    }
    if status.unread > 0 {
        let unread = Grouped(status.unread);
        writeln!(output, "  unread    {unread} events: what a filter asks for was not in memory")?;
    }
    let at_most = if status.has_calls_without_number { "up to " } else { "" };
    let kinds = [("numbers", at_most), ("numbers of 32 bits", "")];
    for (count, (kind, at_most)) in status.unknown_calls.into_iter().zip(kinds) {
        if count > 0 {
            let count = Grouped(count);
            writeln!(output, "  calls     {at_most}{count} by unknown {kind}: not recorded")?;
        }
    }
    Ok(())
}

/// Writes the further selection of kernel events: control groups, CPUs, backend, filters.
fn write_kernel_selection(spec: &KernelSpec, output: &mut dyn Write) -> anyhow::Result<()> {
    for group in &spec.cgroups {
        writeln!(output, "  only      control group {}, and below", group.display())?;
    }
    if let Some(cpus) = &spec.cpus {
        let plural = if cpus.parse::<u32>().is_ok() { "" } else { "s" };
        writeln!(output, "  only      CPU{plural} {cpus}")?;
    }
    match spec.via {
        None => {}
        Some(KernelBackend::Bpf) => writeln!(output, "  via       bpf")?,
        Some(KernelBackend::Tracefs) => writeln!(output, "  via       tracefs")?,
    }
    for filter in &spec.filters {
        writeln!(output, "  if        {filter}")?;
    }
    if !spec.contexts.is_empty() {
        writeln!(output, "  contexts  {}", spec.contexts.join(", "))?;
    }
    Ok(())
}

/// Writes the status of each user, if a session has several.
fn write_users(status: &Status, output: &mut dyn Write) -> anyhow::Result<()> {
    if !status.users_wanted.is_empty() {
        writeln!(output, "  users     {}", format_users(status))?;
    }
    for user in &status.users {
        let plural = if user.processes == 1 { "" } else { "es" };
        writeln!(
            output,
            "  user      {}: {} events recorded, {} lost, of {} process{plural}",
            format_user(user.uid),
            Grouped(user.recorded),
            Grouped(user.lost),
            Grouped(user.processes),
        )?;
    }
    if status.users_beyond > 0 {
        writeln!(output, "  not recorded: {} users beyond {USERS_MAX}", status.users_beyond)?;
    }
    Ok(())
}

/// Returns a user's name, if there is one, and number.
fn format_user(uid: u32) -> String {
    let mut name = [0; 64];
    match name_of(uid, &mut name) {
        0 => uid.to_string(),
        length => format!("{} ({uid})", String::from_utf8_lossy(&name[..length])),
    }
}

fn write_channel(channel: &ChannelStatus, output: &mut dyn Write) -> anyhow::Result<()> {
    let ChannelStatus { spec, recorded, lost, memory_bytes, interpreters } = channel;
    let kind = format_channel_kind(spec.mode, spec.blocking_timeout);
    writeln!(output, "channel {}: {kind}", spec.name)?;
    writeln!(output, "  events    {} recorded, {}", Grouped(*recorded), format_loss(*lost))?;
    writeln!(output, "  on        {}", format_rules(spec))?;
    for filter in &spec.filters {
        writeln!(output, "  if        {filter}")?;
    }
    if *interpreters > 0 {
        let (count, plural) = (Grouped(*interpreters), if *interpreters == 1 { "" } else { "es" });
        writeln!(
            output,
            "  slow      filters are interpreted in {count} process{plural}: {INTERPRETER_REASON}"
        )?;
    }
    if !spec.contexts.is_empty() {
        writeln!(output, "  contexts  {}", spec.contexts.join(", "))?;
    }
    if let Some(processes) = format_process_rules(spec) {
        writeln!(output, "  only      {processes}")?;
    }
    let size =
        spec.buffer_size.map_or_else(|| "up to 4 MiB".into(), |bytes| ByteCount(bytes).to_string());
    writeln!(output, "  buffers   {size} for each CPU; {} now", ByteCount(*memory_bytes))?;
    if let Some(files) = format_trace_files(spec.tracefiles()) {
        writeln!(output, "  files     {files}")?;
    }
    Ok(())
}

/// The reason why processes may have to interpret filters.
const INTERPRETER_REASON: &str = "no memory for machine code is to be had there (a sandbox, \
     SELinux, another kind of processor, or the process was forked)";

fn format_trace_files(bounds: Tracefiles) -> Option<String> {
    let Tracefiles { size_bytes, count } = bounds;
    let size = ByteCount(size_bytes);
    match (size_bytes, count) {
        (0, _) => None,
        (_, 0) => Some(format!("of {size} at most")),
        (_, 1) => Some(format!("one of {size} at most, of each stream")),
        _ => Some(format!("the newest {count} of {size} at most, of each stream")),
    }
}

fn format_channel_kind(mode: Mode, blocking_timeout: Option<Duration>) -> String {
    match (mode, blocking_timeout) {
        (Mode::Overwrite, _) => "flight recorder".into(),
        (Mode::Discard, None) => "discards what finds no room".into(),
        (Mode::Discard, Some(time)) => {
            format!("programs that allow it wait up to {} for room", Time(time))
        }
    }
}

fn format_rules(spec: &ChannelSpec) -> String {
    let rule = |rule: &RuleSpec| {
        let level = match rule.level {
            Levels::All => String::new(),
            Levels::AtLeast(level) => format!(" ({} and graver)", String::from(level)),
            Levels::Exactly(level) => format!(" ({})", String::from(level)),
        };
        format!("{}{level}", rule.full_pattern())
    };
    match spec.on.as_deref() {
        None => "all events".into(),
        Some([]) => "no events".into(),
        Some(rules) => {
            let (excluding, including): (Vec<_>, Vec<_>) =
                rules.iter().partition(|rule| rule.excludes());
            let list = |rules: Vec<&RuleSpec>| rules.into_iter().map(rule).collect::<Vec<_>>();
            let some = match including.is_empty() {
                true => "all events".into(),
                false => list(including).join(", "),
            };
            match excluding.is_empty() {
                true => some,
                false => format!("{some} but {}", list(excluding).join(", ").replace('!', "")),
            }
        }
    }
}

fn format_process_rules(spec: &ChannelSpec) -> Option<String> {
    let list = |kind: &str, items: Vec<String>| {
        (!items.is_empty()).then(|| format!("{kind} {}", items.join(" or ")))
    };
    let numbers = |numbers: Vec<u64>| numbers.iter().map(u64::to_string).collect::<Vec<_>>();
    let kinds = [
        list("process", numbers(spec.pids.iter().copied().map(u64::from).collect())),
        list("executable", spec.executables.clone()),
        list("process-id namespace", numbers(spec.pid_namespaces.clone())),
    ];
    let kinds: Vec<String> = kinds.into_iter().flatten().collect();
    (!kinds.is_empty()).then(|| kinds.join(", "))
}

/// Formats a duration for users.
fn format_age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use trackway_recorder::FilterSpec;

    use super::*;

    #[test]
    fn a_channel_says_its_filters_and_where_they_are_slow() {
        let shown = |interpreters| {
            let filters = vec![FilterSpec::new("web:*: status >= 400")];
            let spec = ChannelSpec { filters, ..ChannelSpec::default() };
            let channel = ChannelStatus { spec, interpreters, ..ChannelStatus::default() };
            let mut output = Vec::new();
            write_channel(&channel, &mut output).expect("room");
            String::from_utf8(output).expect("a text")
        };
        assert!(shown(0).contains("\n  if        web:*: status >= 400\n"));
        assert!(!shown(0).contains("interpreted"));
        assert!(shown(1).contains("\n  slow      filters are interpreted in 1 process: no memory"));
        assert!(shown(2000).contains("in 2,000 processes: "));
    }

    #[test]
    fn what_the_kernel_lost_is_said_with_its_reasons() {
        let shown = |status: KernelStatus| {
            let mut output = Vec::new();
            write_kernel_losses(&status, &mut output).expect("room");
            String::from_utf8(output).expect("a text")
        };
        assert_eq!(shown(KernelStatus::default()), "");
        let lost_by_event = vec![("sched_switch".into(), 3000), ("kfree".into(), 1)];
        let (unasked, unknown_calls) = (1234, [7, 1]);
        let status = KernelStatus { lost_by_event, too_deep: 2, ..KernelStatus::default() };
        assert_eq!(
            shown(KernelStatus { unasked, unknown_calls, ..status }),
            "  lost      3,000 × sched_switch\n  lost      1 × kfree\n  too deep  2 of those \
             lost: they interrupted too many others\n  unasked   up to 1,234 more: they \
             interrupted too many others for filters to be asked\n  calls     7 by unknown \
             numbers: not recorded\n  calls     1 by unknown numbers of 32 bits: not recorded\n"
        );
    }
}
