//! The readers, their work, and their traces.

use std::path::Path;
use std::process::Command;

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::workspace::Workspace;

/// Name of the compared reader's program.
pub(super) const BABELTRACE2: &str = "babeltrace2";

/// A program that reads traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tool {
    /// `trackway print`, with all CPUs.
    Trackway,
    /// `trackway print` on one CPU.
    OneCpu,
    /// babeltrace2, the reference implementation. It has one thread, and may use all CPUs.
    Babeltrace2,
}

/// The work of a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// Prints all events as lines of text.
    Text,
    /// Decodes all fields of all events, in the order of time, without text.
    Decode,
    /// Counts the events.
    Count,
}

/// The writer of traces, and the kind of their events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TraceKind {
    /// Generated in Trackway's format: one `u32` and the thread's id.
    Numbers,
    /// Generated in Trackway's format: numbers, requests with a path, messages.
    Strings,
    /// Recorded by LTTng-UST: one `u32` and the thread's id.
    Lttng,
}

/// The size of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    /// The trace that all readers read.
    Small,
    /// A trace many times as large: only Trackway's reader reads it, because its memory must not
    /// grow with the trace.
    Large,
}

impl TraceKind {
    /// All kinds of traces.
    pub(super) const ALL: [Self; 3] = [Self::Numbers, Self::Strings, Self::Lttng];

    /// Returns the name of the kind in file names.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Numbers => "numbers",
            Self::Strings => "strings",
            Self::Lttng => "lttng",
        }
    }

    /// Returns the description of the kind in words.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Numbers => "Trackway's, u32",
            Self::Strings => "Trackway's, strings",
            Self::Lttng => "LTTng's, u32",
        }
    }
}

impl Size {
    /// Both sizes.
    pub(super) const ALL: [Self; 2] = [Self::Small, Self::Large];

    /// Returns the suffix of a case for the size.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Small => "",
            Self::Large => ", large trace",
        }
    }
}

impl Work {
    /// All kinds of work.
    pub(super) const ALL: [Self; 3] = [Self::Text, Self::Decode, Self::Count];

    /// Returns the description of the work in words.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Decode => "decode only",
            Self::Count => "count",
        }
    }
}

impl Tool {
    /// All tools.
    pub(super) const ALL: [Self; 3] = [Self::Trackway, Self::OneCpu, Self::Babeltrace2];

    /// Returns the name of the tool's row.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Trackway => "trackway",
            Self::OneCpu => "trackway-one-cpu",
            Self::Babeltrace2 => BABELTRACE2,
        }
    }

    /// Returns the command for this work on `folder`, word by word, with the program first.
    pub(super) fn words(self, work: Work, folder: &str) -> Vec<String> {
        let options: &[&str] = match (self, work) {
            (Self::Babeltrace2, Work::Text) => &[BABELTRACE2],
            (Self::Babeltrace2, Work::Decode) => &[BABELTRACE2, "--output-format=dummy"],
            // babeltrace2 prints the count once, at the end. The sign distinguishes this number
            // from others.
            (Self::Babeltrace2, Work::Count) => {
                &[BABELTRACE2, "--component=sink.utils.counter", "--params=step=+0"]
            }
            (_, Work::Text) => &["trackway", "print"],
            (_, Work::Decode) => &["trackway", "print", "--format", "none"],
            (_, Work::Count) => &["trackway", "print", "--stats"],
        };
        options.iter().copied().chain([folder]).map(str::to_owned).collect()
    }

    /// Makes the command for this work on the trace in `folder`.
    pub(super) fn command(self, work: Work, workspace: &Workspace, folder: &Path) -> Command {
        let words = self.words(work, "");
        let mut command = match self {
            Self::Babeltrace2 => Command::new(BABELTRACE2),
            Self::Trackway | Self::OneCpu => Command::new(&workspace.tools.trackway),
        };
        command.args(&words[1..words.len() - 1]).arg(folder);
        command
    }

    /// Parses the number of events from the output of the command that counts them.
    pub(super) fn counted(self, output: &str) -> Result<u64> {
        let missing = || Error::output(self.name(), "it does not say how many events there are");
        let number = match self {
            // `   1234 Event messages`
            Self::Babeltrace2 => {
                let of_line =
                    |line: &str| line.trim().strip_suffix(" Event messages").map(str::to_owned);
                output.lines().rev().find_map(of_line)
            }
            // `1 trace, 4 streams, 12.5 MiB; 1,234 events`; for a single event: `1 event`
            Self::Trackway | Self::OneCpu => {
                let head = output.lines().next().unwrap_or_default();
                let events = head.rsplit_once("; ").map(|halves| halves.1);
                events.and_then(|events| Some(events.split_once(" event")?.0.to_owned()))
            }
        };
        let number = number.ok_or_else(missing)?.trim().replace(',', "");
        number.parse().map_err(|_| missing())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_tools_are_asked_for_the_same() {
        let workspace = Workspace::for_executable("trackway".into());
        let words =
            |tool: Tool, work| format!("{:?}", tool.command(work, &workspace, Path::new("t")));
        assert_eq!(words(Tool::Trackway, Work::Text), r#""trackway" "print" "t""#);
        assert_eq!(
            words(Tool::OneCpu, Work::Decode),
            r#""trackway" "print" "--format" "none" "t""#
        );
        assert_eq!(words(Tool::Babeltrace2, Work::Text), r#""babeltrace2" "t""#);
        assert_eq!(
            words(Tool::Babeltrace2, Work::Decode),
            r#""babeltrace2" "--output-format=dummy" "t""#
        );
        assert_eq!(Tool::Babeltrace2.words(Work::Count, "t").len(), 4);
    }

    #[test]
    fn counts_are_found_in_what_readers_say() {
        let ours = "2 traces, 8 streams, 1.2 MiB; 68,127 events\nlost: 0 events, 0 packets\n";
        assert_eq!(Tool::Trackway.counted(ours).expect("a count"), 68_127);
        let one = "1 trace, 1 stream, 4 KiB; 1 event\n";
        assert_eq!(Tool::OneCpu.counted(one).expect("a count"), 1);
        let theirs = "   9997 Event messages\n\n   68127 Event messages\n    8 messages (TOTAL)\n";
        assert_eq!(Tool::Babeltrace2.counted(theirs).expect("a count"), 68_127);
        for said in ["", "no events", "; many events", "x Event messages"] {
            Tool::Trackway.counted(said).expect_err(said);
            Tool::Babeltrace2.counted(said).expect_err(said);
        }
    }
}
