//! `trackway doctor`: reports this machine's abilities, missing parts, and remedies.
//!
//! A check consists of an inspection, which reads and changes nothing, and a judgement, a pure
//! function of the inspected state. Decisions of the recorder come from its own code
//! (`trackway_recorder::checkup`), so that this report and a recording agree.

mod args;
mod install;
mod kernel_events;
mod machine;
mod window;

use std::io::Write as _;
use std::process::ExitCode;

use trackway_console::{Style, Target, escape_unprintable, stdout};

pub(crate) use self::args::Arguments;
use crate::EXIT_NEGATIVE;
use crate::common::format::Format;
use crate::common::json::quote_json_string;

/// The outcome of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Good,
    /// The part works, but slower or with limits.
    Limited,
    /// The part does not work, or does not exist.
    Missing,
}

impl Verdict {
    const fn word(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Limited => "limited",
            Self::Missing => "missing",
        }
    }

    const fn style(self) -> Style {
        match self {
            Self::Good => Style::Good,
            Self::Limited => Style::Loss,
            Self::Missing => Style::Error,
        }
    }
}

/// The result of a check.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    verdict: Verdict,
    /// The fact that the check found, in one line.
    fact: String,
    /// A remedy, in one line; `None` if the verdict is good.
    hint: Option<String>,
}

impl Finding {
    fn good(fact: impl Into<String>) -> Self {
        Self { verdict: Verdict::Good, fact: fact.into(), hint: None }
    }

    fn limited(fact: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { verdict: Verdict::Limited, fact: fact.into(), hint: Some(hint.into()) }
    }

    fn missing(fact: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { verdict: Verdict::Missing, fact: fact.into(), hint: Some(hint.into()) }
    }
}

/// A completed check.
struct Check {
    name: &'static str,
    /// True if recording is impossible without the checked part.
    is_needed: bool,
    finding: Finding,
}

impl Check {
    fn prevents_recording(&self) -> bool {
        self.is_needed && self.finding.verdict == Verdict::Missing
    }
}

/// Makes all checks and prints their results.
///
/// # Errors
///
/// If standard output cannot be written.
pub(crate) fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let checks = run_checks();
    let text = match arguments.format {
        Format::Text => format_text(&checks),
        Format::Json => format_json(&checks),
    };
    stdout().write_all(text.as_bytes())?;
    let works = !checks.iter().any(Check::prevents_recording);
    Ok(if works { ExitCode::SUCCESS } else { ExitCode::from(EXIT_NEGATIVE) })
}

/// Makes all checks: first of parts that recording needs, then of parts that make it fast and
/// complete, then the rest.
fn run_checks() -> Vec<Check> {
    let needed = |name, finding| Check { name, is_needed: true, finding };
    let useful = |name, finding| Check { name, is_needed: false, finding };
    let window = window::WindowState::inspect();
    let kernel = kernel_events::KernelEvents::inspect();
    vec![
        needed("user", machine::User::inspect().check()),
        needed("proc", machine::Processes::inspect().check()),
        needed("window", window.check()),
        needed("recordings", window.check_recordings()),
        useful("leftovers", window.check_leftovers()),
        useful("programs", install::check_programs()),
        needed("memory", machine::Memory::inspect(&window).check()),
        needed("library", install::Libraries::inspect().check()),
        useful("helpers", install::PreloadHelpers::inspect().check()),
        useful("loader", install::LoaderLibrary::inspect().check()),
        useful(
            "sequences",
            machine::RestartableSequences::inspect(window.disables_sequences()).check(),
        ),
        useful("clock", machine::Clock::inspect().check()),
        useful("cpus", machine::check_cpus(&trackway_recorder::checkup::Cpus::detect())),
        useful("kernel", machine::Kernel::inspect().check()),
        useful("crashes", machine::ExitStatusAccess::inspect().check()),
        useful("bpf", kernel.check_bpf()),
        useful("tracefs", kernel.check_tracefs()),
        useful("kernel-events", kernel.check_backend()),
        useful("sessions", install::SocketFolder::inspect().check()),
        useful("babeltrace2", install::Babeltrace::inspect().check()),
    ]
}

fn format_text(checks: &[Check]) -> String {
    let width = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    let indent = width + 2 + Verdict::Limited.word().len() + 2;
    let mut text = String::new();
    for Check { name, finding, .. } in checks {
        let word = finding.verdict.word();
        let (on, off) = Target::Output.marks(finding.verdict.style());
        // Pads explicitly, because escape sequences for colours have no width.
        let pad = indent - 2 - width - word.len();
        text += &format!(
            "{name:width$}  {on}{word}{off}{:pad$}{}\n",
            "",
            escape_unprintable(&finding.fact)
        );
        if let Some(hint) = &finding.hint {
            text += &format!("{:indent$}hint: {}\n", "", escape_unprintable(hint));
        }
    }
    let preventing: Vec<&str> =
        checks.iter().filter(|check| check.prevents_recording()).map(|check| check.name).collect();
    match preventing.as_slice() {
        [] => text += "\nrecording works here\n",
        names => text += &format!("\nrecording does not work here: {}\n", names.join(", ")),
    }
    text
}

fn format_json(checks: &[Check]) -> String {
    let objects: Vec<String> = checks
        .iter()
        .map(|Check { name, is_needed, finding }| {
            format!(
                "{{\"name\":{},\"result\":{},\"needed\":{is_needed},\"fact\":{},\"hint\":{}}}",
                quote_json_string(name),
                quote_json_string(finding.verdict.word()),
                quote_json_string(&finding.fact),
                finding.hint.as_deref().map_or("null".into(), quote_json_string)
            )
        })
        .collect();
    let works = !checks.iter().any(Check::prevents_recording);
    format!("{{\"recording\":{works},\"checks\":[{}]}}\n", objects.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example_checks() -> Vec<Check> {
        let check = |name, is_needed, finding| Check { name, is_needed, finding };
        vec![
            check("a", true, Finding::good("all well")),
            check("bcd", true, Finding::limited("slow\x1b[2J", "do \"this\"")),
            check("e", false, Finding::missing("none", "get one")),
        ]
    }

    #[test]
    fn reports_are_aligned() {
        assert_eq!(
            format_text(&example_checks()),
            "a    good     all well\n\
             bcd  limited  slow\\u001b[2J\n              hint: do \"this\"\n\
             e    missing  none\n              hint: get one\n\
             \nrecording works here\n"
        );
    }

    #[test]
    fn only_what_is_needed_and_missing_prevents_recording() {
        let mut checks = example_checks();
        checks[2].is_needed = true;
        assert!(format_text(&checks).ends_with("\nrecording does not work here: e\n"));
        assert!(format_json(&checks).starts_with("{\"recording\":false,"));
    }

    #[test]
    fn reports_are_json() {
        assert_eq!(
            format_json(&example_checks()[1..]),
            "{\"recording\":true,\"checks\":[{\"name\":\"bcd\",\"result\":\"limited\",\
             \"needed\":true,\"fact\":\"slow\\u001b[2J\",\"hint\":\"do \\\"this\\\"\"},\
             {\"name\":\"e\",\"result\":\"missing\",\"needed\":false,\"fact\":\"none\",\
             \"hint\":\"get one\"}]}\n"
        );
    }
}
