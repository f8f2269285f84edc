//! `trackway list --contexts`: values about the thread, process and situation of an event.
//!
//! The names are those that `--context` accepts, and that filters have after `$ctx.`. The contexts
//! that programs set (`$app.`) have no names before a program sets them: a pattern represents them.

use std::io::Write;
use std::process::ExitCode;

use trackway_filter::layout::Layout;
use trackway_kernel::bpf_program::contexts;
use trackway_kernel::tracefs;
use trackway_recorder::parse_contexts;
use trackway_schema::context::TABLE;

use crate::common::format::Format;
use crate::common::json::quoted;

/// Contexts that programs set, for people.
const OF_APPLICATIONS: (&str, &str) =
    ("$app.PROVIDER:NAME", "what the thread has set by trackway_set_context()");

/// A context that only filters on kernel events use, because packets record it.
const CPU: &str = "the CPU";

/// A value that may be recorded with events, or used in filters.
struct Context {
    name: &'static str,
    about: &'static str,
    is_recorded: bool,
    is_asked: bool,
    /// For kernel events: true if the context exists without BPF, too.
    by_tracefs: Option<bool>,
}

/// Lists the contexts that there are.
pub(super) fn run(format: Format, output: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let (programs, kernel) = (of_programs(), of_kernel());
    let text = match format {
        Format::Text => {
            let (programs, kernel) = (lines(&programs), lines(&kernel));
            format!("of programs' events\n{programs}of the kernel's events\n{kernel}")
        }
        Format::Json => {
            format!("{{\"programs\":[{}],\"kernel\":[{}]}}\n", json(&programs), json(&kernel))
        }
    };
    output.write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn of_programs() -> Vec<Context> {
    let asked = Layout::program_contexts();
    let is_of_application = |name: &str| name.starts_with("$app.");
    let context = |(name, about)| Context {
        name,
        about,
        is_recorded: parse_contexts(name).is_ok(),
        is_asked: is_of_application(name) || asked.iter().any(|member| member.name == name),
        by_tracefs: None,
    };
    let named = TABLE.map(|one| (one.name, one.about));
    named.into_iter().chain([OF_APPLICATIONS]).map(context).collect()
}

fn of_kernel() -> Vec<Context> {
    let by_tracefs = |name| Some(tracefs::contexts::Context::named(name).is_some());
    let recorded = contexts::ALL.into_iter().map(|contexts::Context { name, about, .. }| Context {
        name,
        about,
        is_recorded: true,
        is_asked: contexts::Context::filterable().any(|asked| asked.name == name),
        by_tracefs: by_tracefs(name),
    });
    let is_recorded = |name: &str| contexts::Context::named(name).is_some();
    let others = contexts::Context::filterable().filter(|asked| !is_recorded(asked.name));
    let others = others.map(|contexts::Context { name, .. }| Context {
        name,
        about: CPU,
        is_recorded: false,
        is_asked: true,
        by_tracefs: by_tracefs(name),
    });
    recorded.chain(others).collect()
}

fn lines(contexts: &[Context]) -> String {
    let line = |one: &Context| {
        let by = match (one.is_recorded, one.is_asked) {
            (true, true) => "--context, filters",
            (true, false) => "--context",
            (false, _) => "filters",
        };
        let tracefs = if one.by_tracefs == Some(true) { " (by tracefs, too)" } else { "" };
        format!("    {:20}{by:20}{}{tracefs}\n", one.name, one.about)
    };
    contexts.iter().map(line).collect()
}

fn json(contexts: &[Context]) -> String {
    let object = |one: &Context| {
        let tracefs = one.by_tracefs.map(|is_there| format!(",\"tracefs\":{is_there}"));
        format!(
            "{{\"name\":{},\"recorded\":{},\"filters\":{},\"about\":{}{}}}",
            quoted(one.name),
            one.is_recorded,
            one.is_asked,
            quoted(one.about),
            tracefs.unwrap_or_default()
        )
    };
    contexts.iter().map(object).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(format: Format) -> String {
        let mut output = Vec::new();
        run(format, &mut output).expect("it writes");
        String::from_utf8(output).expect("text")
    }

    #[test]
    fn contexts_are_listed_with_what_they_are_for() {
        let text = listed(Format::Text);
        let (programs, kernel) = text.split_once("of the kernel's events\n").expect("both");
        for (part, line) in [
            (programs, "    vpid                --context, filters  process, for itself\n"),
            (programs, "    $app.PROVIDER:NAME  --context, filters  what the thread has set by "),
            (kernel, "    tid                 --context, filters  thread (by tracefs, too)\n"),
            (kernel, "    ppid                --context, filters  parent process\n"),
            (kernel, "    cpu_id              filters             the CPU (by tracefs, too)\n"),
        ] {
            assert!(part.contains(line), "{line}{text}");
        }
        let json = listed(Format::Json);
        assert!(json.starts_with("{\"programs\":[{\"name\":\"vpid\",\"recorded\":true,"), "{json}");
        assert!(
            json.contains(
                "{\"name\":\"cpu_id\",\"recorded\":false,\"filters\":true,\"about\":\"the CPU\",\
                 \"tracefs\":true}"
            ),
            "{json}"
        );
    }

    #[test]
    fn all_contexts_are_listed() {
        let names = |of: Vec<Context>| -> Vec<&str> { of.iter().map(|one| one.name).collect() };
        let (programs, kernel) = (names(of_programs()), names(of_kernel()));
        let asked = Layout::program_contexts();
        assert!(asked.iter().all(|member| programs.contains(&member.name.as_str())));
        assert!(contexts::Context::filterable().all(|context| kernel.contains(&context.name)));
        assert!(contexts::ALL.iter().all(|context| kernel.contains(&context.name)));
        let filtered = tracefs::contexts::Context::ALL;
        assert!(filtered.iter().all(|(name, _)| kernel.contains(name)));
    }
}
