//! Installed programs: their work in a run, and the input of this work.
//!
//! The effect of a helper depends on the allocations of a program, and only programs in common use
//! are representative. Each program does some tenths of a second of its usual work. The input is
//! generated and equal on every machine; only the programs' versions differ.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::child;
use trackway_bench_engine::host::workspace::{Workspace, create_private_dir, has};

/// An installed program with its arguments.
pub(super) struct InstalledProgram {
    /// Name of the program.
    pub(super) name: &'static str,
    /// Path of the executable itself: the command of this name may be a script that starts the
    /// executable.
    executable: String,
    arguments: Vec<String>,
}

/// A program that is not measured, with the reason.
pub(super) struct AbsentProgram {
    /// Name of the program.
    pub(super) name: &'static str,
    /// The reason, in words that follow `because`.
    pub(super) reason: String,
}

/// Folder of all generated files, in the scratch folder.
const FOLDER: &str = "programs";
/// Number of words of the generated text.
const WORDS: usize = 300_000;
/// Ratio of words in the text to records in the JSON input.
const RECORDED: usize = 8;
/// Number of functions of the generated C file.
const FUNCTIONS: usize = 60;
/// Number of commits of the generated history.
const COMMITS: usize = 1500;

/// Counts words, makes objects of them, and writes and reads them as JSON.
const PYTHON: &str = "
import json, sys
counts = {}
for line in open(sys.argv[1]):
    for word in line.split():
        counts[word] = counts.get(word, 0) + 1
records = [{'word': word, 'count': count, 'tags': [word[:2], word[-2:]]}
           for word, count in counts.items()]
records = json.loads(json.dumps(records))
records.sort(key=lambda record: (-record['count'], record['word']))
print(sum(len(record['word']) for record in records))
";

/// Counts words by their beginnings, and sorts them.
const PERL: &str = r#"
my (%counts, %by);
while (<>) { $counts{$_}++ for split; }
push @{ $by{ substr $_, 0, 2 } }, $_ for keys %counts;
for my $key (sort keys %by) {
    print join(",", map { "$_=$counts{$_}" } sort @{ $by{$key} }), "\n";
}
"#;

/// Fills a table and an index, and queries sums and orders.
const SQLITE: &str = "
create table t (id integer primary key, word text, number int);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 60000)
insert into t select i, printf('w%x', i * 2654435761 % 99991), i % 977 from n;
create index by_word on t (word);
select number, count(*), group_concat(substr(word, 1, 3)) from t group by number;
select count(*) from t a join t b on a.word = b.word where a.id < b.id;
select word from t order by number, word limit 20000;
";

/// Splits, joins and counts words in the shell itself.
const BASH: &str = r#"
declare -A counts
while read -r -a words; do
    for word in "${words[@]}"; do
        key=${word:0:2}
        (( counts[$key]++ ))
        list="$key $word"
    done
done < <(head -n 2500 "$1")
for key in "${!counts[@]}"; do echo "$key ${counts[$key]} $list"; done
"#;

/// Groups records by first letter, then writes and reads them as JSON.
const JQ: &str = "map(. + {first: .word[0:1]}) | group_by(.first) | map({key: .[0].first, \
                  words: map(.word)}) | tojson | fromjson";

/// Returns all installed programs, and generates their input.
pub(super) fn prepare_installed_programs(
    workspace: &Workspace,
) -> Result<(Vec<InstalledProgram>, Vec<AbsentProgram>)> {
    let folder = workspace.path(FOLDER);
    create_private_dir(&folder)?;
    let write = |name: &str, text: String| {
        let path = folder.join(name);
        fs::write(&path, text).map_err(Error::io(format!("cannot write {path:?}")))?;
        Ok::<_, Error>(path.to_string_lossy().into_owned())
    };
    let words = generate_words();
    let text = write("words.txt", generate_text(&words))?;
    let json = write("words.json", generate_json(&words))?;
    let source = write("functions.c", generate_c_source())?;
    let mut found = ProgramLists::default();
    let python = "import sys; print(sys.executable)";
    found.add("python3", &["-c", python], &["-I", "-S", "-c", PYTHON, &text]);
    found.add("perl", &[], &["-e", PERL, &text]);
    // cc1 compiles C; gcc itself only starts it.
    let compiler = ["-quiet", "-O2", &source, "-o", "/dev/null"];
    found.add_as("gcc", "cc1", &["-print-prog-name=cc1"], &compiler);
    found.add("clang", &[], &["-O2", "-S", &source, "-o", "/dev/null"]);
    if has("git") {
        let repository = folder.join("repository");
        make_git_history(&repository)?;
        let repository = repository.to_string_lossy();
        found.add("git", &[], &["-C", &repository, "--no-pager", "log", "-p", "--stat"]);
    } else {
        found.add("git", &[], &[]);
    }
    found.add("sqlite3", &[], &[":memory:", SQLITE]);
    found.add("jq", &[], &[JQ, &json]);
    found.add("bash", &[], &["-c", BASH, "bash", &text]);
    Ok((found.here, found.absent))
}

#[derive(Default)]
struct ProgramLists {
    here: Vec<InstalledProgram>,
    absent: Vec<AbsentProgram>,
}

impl ProgramLists {
    fn add(&mut self, name: &'static str, asking: &[&str], arguments: &[&str]) {
        self.add_as(name, name, asking, arguments);
    }

    /// Adds the program `name`. If `asking` is not empty, `PROGRAM ASKING` prints the path of the
    /// executable.
    fn add_as(
        &mut self,
        program: &'static str,
        name: &'static str,
        asking: &[&str],
        arguments: &[&str],
    ) {
        let executable = if !has(program) {
            Err(format!("{program} is not installed"))
        } else if asking.is_empty() {
            Ok(program.to_owned())
        } else {
            let asked = child::run(Command::new(program).args(asking), program);
            let path = asked.map(|finished| finished.stdout.trim().to_owned());
            match path {
                Ok(path) if Path::new(&path).is_file() => Ok(path),
                Ok(path) => Err(format!("'{path}', as {program} calls it, is no file")),
                Err(error) => Err(error.to_string()),
            }
        };
        match executable {
            Ok(executable) => {
                let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
                self.here.push(InstalledProgram { name, executable, arguments });
            }
            Err(reason) => self.absent.push(AbsentProgram { name, reason }),
        }
    }
}

impl InstalledProgram {
    /// Returns the command, word by word, as it follows a recorder's `--`.
    pub(super) fn words(&self) -> impl Iterator<Item = &str> {
        [self.executable.as_str()].into_iter().chain(self.arguments.iter().map(String::as_str))
    }

    /// Makes the command, in an environment that is equal on every machine.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        command.args(&self.arguments);
        set_neutral_environment(&mut command);
        command
    }
}

/// Removes the user's configuration from the environment.
pub(super) fn set_neutral_environment(command: &mut Command) {
    command.env("LC_ALL", "C").env("HOME", "/nonexistent").env("GIT_CONFIG_NOSYSTEM", "1");
    command.env_remove("LD_PRELOAD").env_remove("TRACKWAY_TOKEN");
}

/// Returns pseudo-random words of three to ten letters; some words are frequent.
fn generate_words() -> Vec<String> {
    let mut state = 88_172_645_463_325_252_u64; // xorshift64
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let word = |random: u64| {
        let length = 3 + random % 8;
        let letter = |at: u64| char::from(b'a' + (random >> (8 + 4 * at) & 15) as u8);
        (0..length).map(letter).collect::<String>()
    };
    // The smaller of two numbers is used: so small numbers, and the words of small numbers, are
    // more frequent.
    (0..WORDS).map(|_| word((next() & 0xFFFF).min(next() & 0xFFFF).pow(3))).collect()
}

fn generate_text(words: &[String]) -> String {
    words.chunks(10).map(|line| line.join(" ") + "\n").collect()
}

fn generate_json(words: &[String]) -> String {
    let record = |(number, word)| format!("{{\"word\":\"{word}\",\"number\":{number}}}");
    let records: Vec<String> = words.iter().step_by(RECORDED).enumerate().map(record).collect();
    format!("[{}]\n", records.join(","))
}

/// Returns C code that needs no header.
fn generate_c_source() -> String {
    let mut text = String::from("struct node { struct node *next; long value[8]; };\n");
    for number in 0..FUNCTIONS {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "long function_{number}(struct node *list, const char *name, unsigned count)\n{{\n\
             \tlong sum = {number};\n\tfor (; list; list = list->next) {{\n\
             \t\tfor (unsigned i = 0; i < count % 8; i++)\n\
             \t\t\tsum += list->value[i] * (long)(i + {number}) - name[i % 3];\n\
             \t\tswitch (sum & 7) {{\n\t\tcase 0: sum ^= count; break;\n\
             \t\tcase 3: sum -= list->value[{slot}]; break;\n\t\tdefault: sum += *name;\n\t\t}}\n\
             \t}}\n\treturn sum{call};\n}}",
            slot = number % 8,
            call = match number {
                0 => String::new(),
                _ => format!(" + function_{}(list, name, count / 2)", number - 1),
            },
        );
    }
    text
}

/// Makes a repository with the history of a file that changes in several places.
fn make_git_history(folder: &Path) -> Result<()> {
    let mut stream = String::new();
    for commit in 0..COMMITS {
        let line = |number: usize| {
            let version = (commit + number * 7) / 40;
            format!("line {number} of version {version} of this text\n")
        };
        let content: String = (0..300).map(line).collect();
        let message = format!("change {commit}\n");
        let _ = write!(
            stream,
            "commit refs/heads/main\ncommitter a <a@b> {time} +0000\ndata {length}\n{message}\
             M 100644 inline file\ndata {size}\n{content}\n",
            time = 1_700_000_000 + commit,
            length = message.len(),
            size = content.len(),
        );
    }
    let input = folder.with_extension("stream");
    fs::write(&input, stream).map_err(Error::io(format!("cannot write {input:?}")))?;
    let mut shell = Command::new("sh");
    shell.args([
        "-c",
        "git init -q \"$1\" && git -C \"$1\" fast-import --quiet < \"$2\" && \
                git -C \"$1\" symbolic-ref HEAD refs/heads/main",
        "sh",
    ]);
    shell.arg(folder).arg(&input);
    set_neutral_environment(&mut shell);
    child::run(&mut shell, "git fast-import").map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_the_same_each_time_and_have_what_programs_like() {
        let words = generate_words();
        assert_eq!(words, super::generate_words());
        assert_eq!(words.len(), WORDS);
        let different: std::collections::BTreeSet<_> = words.iter().collect();
        assert!((1000..WORDS / 2).contains(&different.len()), "{}", different.len());
        assert!(words.iter().all(|word| (3..=10).contains(&word.len())));
        assert_eq!(generate_text(&words).lines().count(), WORDS / 10);
        let records: serde_json::Value =
            serde_json::from_str(&generate_json(&words)).expect("JSON");
        assert_eq!(records.as_array().map(Vec::len), Some(WORDS / RECORDED));
    }

    #[test]
    fn what_is_not_installed_has_a_reason() {
        let mut found = ProgramLists::default();
        found.add("no-such-program-anywhere", &[], &[]);
        found.add_as("sh", "part", &["-c", "echo /nonexistent/part"], &[]);
        found.add_as("sh", "shell", &["-c", "echo /bin/sh"], &["-c", "exit 0"]);
        let reasons: Vec<&str> = found.absent.iter().map(|it| it.reason.as_str()).collect();
        let no_file = "'/nonexistent/part', as sh calls it, is no file";
        assert_eq!(reasons, ["no-such-program-anywhere is not installed", no_file]);
        assert_eq!(found.here[0].words().collect::<Vec<_>>(), ["/bin/sh", "-c", "exit 0"]);
        assert!(found.here[0].command().status().expect("it runs").success());
    }
}
