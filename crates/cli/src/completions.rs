//! Completion scripts of `trackway`.

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;

use trackway_console::stdout;

/// Print a completion script.
///
/// Examples:
///
///   trackway completions bash > /usr/share/bash-completion/completions/trackway
///   trackway completions zsh > _trackway
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

/// Prints the script of `command`.
///
/// # Errors
///
/// If standard output cannot be written.
pub(crate) fn run(arguments: Arguments, command: Command) -> anyhow::Result<ExitCode> {
    stdout().write_all(&generate_script(arguments.shell, command))?;
    Ok(ExitCode::SUCCESS)
}

/// Completes words after `trackway bench` in bash, with the script of `trackway-bench`, which is
/// loaded from that program on first use.
const BENCH_IN_BASH: &str = r#"
_trackway_or_bench() {
    if [[ "${COMP_WORDS[1]}" == bench && $COMP_CWORD -gt 1 ]]; then
        declare -F _trackway__bench >/dev/null ||
            source <("$1" bench completions bash 2>/dev/null)
        if declare -F _trackway__bench >/dev/null; then
            local words=(trackway-bench "${COMP_WORDS[@]:2}")
            local COMP_CWORD=$((COMP_CWORD - 1))
            local COMP_WORDS=("${words[@]}")
            _trackway__bench trackway-bench "$2" "$3"
            return
        fi
    fi
    _trackway "$@"
}
complete -F _trackway_or_bench -o bashdefault -o default trackway
"#;

/// Returns the script of `command` for a shell.
fn generate_script(shell: Shell, command: Command) -> Vec<u8> {
    let mut script =
        trackway_command_line::completions::generate_script(command, "trackway", shell);
    if shell == Shell::Bash {
        script.extend_from_slice(BENCH_IN_BASH.as_bytes());
    }
    script
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn what_is_hidden_is_not_offered_and_files_only_where_they_are_meant() {
        let command = crate::arguments::Arguments::command;
        let text = |shell| String::from_utf8(generate_script(shell, command())).expect("text");
        let bash = text(Shell::Bash).replace(BENCH_IN_BASH, "");
        let is_of_words = |letter: char| letter.is_ascii_alphabetic() || letter == '-';
        let mut words = bash.split(|letter| !is_of_words(letter));
        for hidden in ["--clock-force-correlate", "recorder", "completions"] {
            assert!(!words.clone().any(|word| word == hidden), "{hidden}");
        }
        assert!(words.any(|word| word == "--kernel-only"));
        let zsh = text(Shell::Zsh);
        for (option, offered) in [
            ("--pid=", ""),
            ("--user=", "_users"),
            ("--config=", "_files"),
            ("--output=", "_files"),
        ] {
            let line = zsh.lines().find(|line| line.contains(option)).expect("an option");
            let action = line.rsplit_once(':').expect("an action").1;
            assert!(action.starts_with(offered), "{line}");
            assert!(!offered.is_empty() || !action.starts_with('_'), "{line}");
        }
    }
}
