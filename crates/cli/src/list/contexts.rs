//! `trackway list --contexts`: values about the thread, process and situation of an event.
//!
//! The names are those that `--context` accepts, and that follow `$ctx.` in filters. Application
//! contexts (`$app.`) have no names before a program sets them: a pattern represents them.

use std::io::Write;
use std::process::ExitCode;

use trackway_filter::layout::Layout;
use trackway_kernel::bpf_program::contexts;
use trackway_kernel::tracefs;
use trackway_recorder::parse_contexts;
use trackway_schema::context::TABLE;

use crate::common::format::Format;
use crate::common::json::quote_json_string;

/// Name and description of application contexts.
const APPLICATION_CONTEXTS: (&str, &str) =
    ("$app.PROVIDER:NAME", "what the thread has set by trackway_set_context()");

/// Description of the context that only filters on kernel events use: in traces, packets have it.
const CPU_DESCRIPTION: &str = "the CPU";

/// A value that can be recorded with events, or used in filters.
struct Context {
    name: &'static str,
    about: &'static str,
    is_recorded: bool,
    is_asked: bool,
    /// For kernel events: true if the context is also available without BPF.
    by_tracefs: Option<bool>,
}

/// Lists all contexts.
pub(super) fn run(format: Format, output: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let (programs, kernel) = (list_program_contexts(), list_kernel_contexts());
    let text = match format {
        Format::Text => {
            let (programs, kernel) = (format_lines(&programs), format_lines(&kernel));
            format!("of programs' events\n{programs}of the kernel's events\n{kernel}")
        }
        Format::Json => {
            format!(
                "{{\"programs\":[{}],\"kernel\":[{}]}}\n",
                format_json(&programs),
                format_json(&kernel)
            )
        }
    };
    output.write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn list_program_contexts() -> Vec<Context> {
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
    named.into_iter().chain([APPLICATION_CONTEXTS]).map(context).collect()
}

fn list_kernel_contexts() -> Vec<Context> {
    let by_tracefs = |name| Some(tracefs::contexts::Context::find_by_name(name).is_some());
    let recorded = contexts::ALL.into_iter().map(|contexts::Context { name, about, .. }| Context {
        name,
        about,
        is_recorded: true,
        is_asked: contexts::Context::filterable().any(|asked| asked.name == name),
        by_tracefs: by_tracefs(name),
    });
    let is_recorded = |name: &str| contexts::Context::find_by_name(name).is_some();
    let others = contexts::Context::filterable().filter(|asked| !is_recorded(asked.name));
    let others = others.map(|contexts::Context { name, .. }| Context {
        name,
        about: CPU_DESCRIPTION,
        is_recorded: false,
        is_asked: true,
        by_tracefs: by_tracefs(name),
    });
    recorded.chain(others).collect()
}

fn format_lines(contexts: &[Context]) -> String {
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

fn format_json(contexts: &[Context]) -> String {
    let object = |one: &Context| {
        let tracefs = one.by_tracefs.map(|is_there| format!(",\"tracefs\":{is_there}"));
        format!(
            "{{\"name\":{},\"recorded\":{},\"filters\":{},\"about\":{}{}}}",
            quote_json_string(one.name),
            one.is_recorded,
            one.is_asked,
            quote_json_string(one.about),
            tracefs.unwrap_or_default()
        )
    };
    contexts.iter().map(object).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list_to_string(format: Format) -> String {
        let mut output = Vec::new();
        run(format, &mut output).expect("it writes");
        String::from_utf8(output).expect("text")
    }

    #[test]
    fn contexts_are_listed_with_what_they_are_for() {
        let text = list_to_string(Format::Text);
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
        let json = list_to_string(Format::Json);
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
        let (programs, kernel) = (names(list_program_contexts()), names(list_kernel_contexts()));
        let asked = Layout::program_contexts();
        assert!(asked.iter().all(|member| programs.contains(&member.name.as_str())));
        assert!(contexts::Context::filterable().all(|context| kernel.contains(&context.name)));
        assert!(contexts::ALL.iter().all(|context| kernel.contains(&context.name)));
        let filtered = tracefs::contexts::Context::ALL;
        assert!(filtered.iter().all(|(name, _)| kernel.contains(name)));
    }
}
