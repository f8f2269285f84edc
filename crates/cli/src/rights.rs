//! Suggests commands to a user whose command failed because it needs root, to record kernel events
//! or programs of other users.
//!
//! Main invariant: every line is a command that the user can paste into a shell.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::arguments::Verb;
use crate::record;
use crate::session::args::{CreateArguments, SessionVerb};

/// Folders in which sudo(8) searches for commands, as distributions configure it (`secure_path`).
const SUDO_FOLDERS: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Commands to try instead of a command that needs root, each with its effect.
#[derive(Debug)]
pub(crate) struct NextCommands(Vec<(String, &'static str)>);

impl NextCommands {
    /// Returns commands to try instead of the command `words`; `None` if it does not need root.
    pub(crate) fn of(verb: &Verb, words: &[OsString]) -> Option<Self> {
        let alternatives = match verb {
            Verb::Record(record) if !record.kernel.is_empty() || record.user.is_some() => {
                Alternatives::of_record(record)
            }
            Verb::Session(session) => match &session.verb {
                SessionVerb::Create(create)
                    if !create.kernel.is_empty() || !create.user.is_empty() =>
                {
                    Alternatives::of_create(create)
                }
                _ => return None,
            },
            Verb::List(list) if list.kernel => Alternatives::of_list(),
            _ => return None,
        };
        let typed = words.first().cloned().unwrap_or_default();
        let as_root = vec![OsString::from("sudo"), sudo_program_name(&typed)];
        let as_root = as_root.into_iter().chain(words.iter().skip(1).cloned());
        let without = std::iter::once(typed.clone()).chain(alternatives.without);
        let mut commands = vec![
            (format_shell_line(as_root), alternatives.effect_as_root),
            (format_shell_line(without), alternatives.effect_without),
        ];
        if alternatives.has_kernel {
            let doctor = [typed, "doctor".into()];
            commands.push((format_shell_line(doctor), "shows which rights are missing"));
        }
        Some(Self(commands))
    }

    /// Returns lines for the user, with aligned effects.
    pub(crate) fn lines(&self) -> Vec<String> {
        const WIDTH_MAX: usize = 56;
        let widths = self.0.iter().map(|(command, _)| command.chars().count());
        let width = widths.filter(|width| *width <= WIDTH_MAX).max().unwrap_or_default();
        let line = |(command, effect): &(String, &str)| format!("  {command:<width$}  # {effect}");
        self.0.iter().map(line).collect()
    }
}

/// Alternatives to a command: the same command as root, and a smaller one without root.
#[derive(Debug)]
struct Alternatives {
    effect_as_root: &'static str,
    /// The words after the program's name, for the command without root.
    without: Vec<OsString>,
    effect_without: &'static str,
    /// True if the command requested kernel events.
    has_kernel: bool,
}

impl Alternatives {
    /// Returns alternatives to `trackway record`; without root, only options for programs remain.
    fn of_record(record: &record::Arguments) -> Self {
        let has_kernel = !record.kernel.is_empty();
        let is_as_caller = record.user.is_none() && !record.command.is_empty();
        let effect_as_root = match is_as_caller {
            true => "the same; the command runs as you",
            false => "the same",
        };
        let mut without = to_os_strings(&["record"]);
        if record.command.is_empty() {
            without = to_os_strings(&["session", "create", "programs"]);
            for pid in &record.pid {
                without.extend(to_os_strings(&["--pid", &pid.to_string()]));
            }
        } else {
            let preload = record.preload.as_deref();
            without.extend(program_options(record.output.as_deref(), &record.event));
            without
                .extend(preload.into_iter().flat_map(|list| to_os_strings(&["--preload", list])));
            without.push("--".into());
            without.extend(record.command.iter().cloned());
        }
        let effect_without = match has_kernel {
            true => "records events of programs only",
            false => "runs the command as you",
        };
        Self { effect_as_root, without, effect_without, has_kernel }
    }

    /// Returns alternatives to `session create`; without root, a session for this user's programs.
    fn of_create(create: &CreateArguments) -> Self {
        let mut without = to_os_strings(&["session", "create"]);
        without.extend(create.name.iter().map(OsString::from));
        without.extend(program_options(create.output.as_deref(), &create.rules.event));
        if create.channel.overwrite {
            without.push("--flight-recorder".into());
        }
        Self {
            effect_as_root: "the same, as a session of root",
            without,
            effect_without: "records your programs only",
            has_kernel: !create.kernel.is_empty(),
        }
    }

    fn of_list() -> Self {
        Self {
            effect_as_root: "the same",
            without: to_os_strings(&["list"]),
            effect_without: "lists the events of running programs",
            has_kernel: true,
        }
    }
}

/// Returns the options that apply to both programs and the kernel.
fn program_options(output: Option<&Path>, patterns: &[String]) -> Vec<OsString> {
    let output = output.map(|output| ["-o".into(), output.as_os_str().to_owned()]);
    let patterns = patterns.iter().flat_map(|pattern| to_os_strings(&["--event", pattern]));
    output.into_iter().flatten().chain(patterns).collect()
}

fn to_os_strings(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

/// Returns a name with which sudo(8) finds this program: its path, if sudo does not search there.
fn sudo_program_name(typed: &OsStr) -> OsString {
    let is_path = typed.to_string_lossy().contains('/');
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from(typed));
    let folder = program.parent().unwrap_or(Path::new(""));
    let is_found = SUDO_FOLDERS.iter().any(|known| folder == Path::new(known));
    if is_path || is_found { typed.to_owned() } else { program.into_os_string() }
}

/// Formats words as a shell command line.
fn format_shell_line(words: impl IntoIterator<Item = OsString>) -> String {
    let words: Vec<String> =
        words.into_iter().map(|word| quote_shell_word(&word.to_string_lossy())).collect();
    words.join(" ")
}

fn quote_shell_word(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_@%+=:,./-".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Arguments;

    fn next_commands(words: &[&str]) -> Option<Vec<String>> {
        let words = to_os_strings(words);
        let arguments = Arguments::parse_words(words.clone()).expect("a command line");
        let next = NextCommands::of(&arguments.verb, &words)?;
        Some(next.0.into_iter().map(|(command, _)| command).collect())
    }

    #[test]
    fn next_commands_are_those_that_were_typed_with_root_and_without_the_kernel() {
        let program = "./trackway";
        for (typed, instead) in [
            (
                &["record", "--kernel", "sched_*", "-o", "a b", "--", "echo", "it's"][..],
                r"record -o 'a b' -- echo 'it'\''s'",
            ),
            (&["record", "--kernel", "block"], "session create programs"),
            (&["record", "--kernel", "block", "--pid", "7"], "session create programs --pid 7"),
            (
                &["session", "create", "s", "--kernel", "irq", "--flight-recorder"],
                "session create s --flight-recorder",
            ),
            (&["list", "--kernel"], "list"),
            (&["record", "--user", "root", "--event", "a", "--", "id"], "record --event a -- id"),
            (&["session", "create", "s", "--user", "all"], "session create s"),
        ] {
            let typed = [&[program], typed].concat();
            let as_root = format!("sudo {}", format_shell_line(to_os_strings(&typed)));
            let mut expected = vec![as_root, format!("./trackway {instead}")];
            if typed.contains(&"--kernel") {
                expected.push("./trackway doctor".into());
            }
            assert_eq!(next_commands(&typed), Some(expected));
        }
        assert_eq!(next_commands(&[program, "record", "--", "true"]), None);
        assert_eq!(next_commands(&[program, "list"]), None);
    }

    #[test]
    fn words_are_quoted_where_a_shell_would_change_them() {
        assert_eq!(quote_shell_word("a/b-1.c"), "a/b-1.c");
        assert_eq!(quote_shell_word("sched_*"), "'sched_*'");
        assert_eq!(quote_shell_word(""), "''");
        assert_eq!(quote_shell_word("$HOME 'x'"), r"'$HOME '\''x'\'''");
    }
}
