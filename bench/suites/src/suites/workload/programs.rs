//! The programs that are traced as a whole: installed programs with constant work, and the figure
//! of each.
//!
//! No word of a command is empty or contains a space: bpftrace splits a command at spaces.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::child;
use trackway_bench_engine::host::workspace::{Workspace, has};
use trackway_bench_engine::results::Unit;

/// Name of the helper that starts a server and runs a command under load.
pub(super) const SERVED: &str = "served";
/// Ports of the servers, in a separate network namespace.
const WEB_PORT: u16 = 8080;
const REDIS_PORT: u16 = 6379;
/// The port of tbench's server, which has no option for it.
const TBENCH_PORT: u16 = 7003;
/// Folder that the web server serves: it belongs to the server's package, so that the server can
/// read its files as any user.
const WEB_ROOT: &str = "/usr/lib/apache2/modules";
const WEB_FILE: &str = "httpd.exp";
/// Load file of dbench and tbench, from their package.
const DBENCH_LOAD: &str = "/usr/share/dbench/client.txt";
/// Number of compiled C files, and number of functions in each.
const C_FILES: usize = 4;
const C_FUNCTIONS: usize = 30;

/// A traced program with its work.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Program {
    /// Name of the program's case.
    pub(super) name: &'static str,
    /// The unit of the program's figure.
    pub(super) unit: Unit,
    /// The source of the program's figure.
    pub(super) figure_source: FigureSource,
    /// Port and command of the server that the program puts under load, if there is one.
    server: Option<(u16, Vec<String>)>,
    /// The command.
    command: Vec<String>,
    /// The reason if the program is not available.
    pub(super) absent: Option<String>,
}

/// The source of a program's figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FigureSource {
    /// No output: the figure is the duration of the program.
    Nothing,
    /// `Throughput N MB/sec`.
    Throughput,
    /// ab's line `Requests per second: N`; no request may have failed.
    Ab,
    /// redis-benchmark's table: requests per second of each kind.
    Redis,
}

impl Program {
    /// Returns the words of the command before the tracer's processes, and the words after them.
    pub(super) fn words(&self, workspace: &Workspace, runner: &str) -> (Vec<String>, Vec<String>) {
        match &self.server {
            None => {
                let runner = workspace.path(runner).display().to_string();
                (vec![runner, "load".to_owned()], self.command.clone())
            }
            Some((port, server)) => {
                let count = [port.to_string(), server.len().to_string()];
                let behind = [&count[..], server, &self.command].concat();
                (vec![workspace.path(SERVED).display().to_string()], behind)
            }
        }
    }

    fn of(name: &'static str, command: &str) -> Self {
        Self {
            name,
            unit: Unit::Ms,
            figure_source: FigureSource::Nothing,
            server: None,
            command: split_words(command),
            absent: None,
        }
    }

    fn with_server(self, port: u16, server: &str) -> Self {
        Self { server: Some((port, split_words(server))), ..self }
    }

    fn with_figure(self, figure_source: FigureSource) -> Self {
        let unit = match figure_source {
            FigureSource::Nothing => Unit::Ms,
            FigureSource::Throughput => Unit::MbPerSecond,
            FigureSource::Ab | FigureSource::Redis => Unit::RequestsPerSecond,
        };
        Self { figure_source, unit, ..self }
    }

    /// Stores the reason of the first condition that is true.
    fn with_absence(self, reasons: &[(bool, &str)]) -> Self {
        let reason = reasons.iter().find(|(is_missing, _)| *is_missing);
        Self { absent: reason.map(|(_, reason)| (*reason).to_owned()), ..self }
    }
}

fn split_words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Returns all programs, with their files in the scratch folder.
pub(super) fn make_programs(workspace: &Workspace, quick: bool) -> Result<Vec<Program>> {
    workspace.compile(SERVED, &[])?;
    let mut network = Command::new(workspace.path(SERVED));
    let network = child::run(network.arg("try"), "a network of its own").is_err();
    let no_network = (network, "there can be no network of its own for it here");
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let many = |full: usize, less: usize| if quick { less } else { full };
    let folder = |name: &str| workspace.path(name).display().to_string();
    let mut programs = vec![
        Program::of("hackbench", &format!("hackbench -g {cpus} -l {}", many(200, 60)))
            .with_absence(&[(!has("hackbench"), "hackbench is not installed (Debian: rt-tests)")]),
        Program::of(
            "stress-ng",
            &format!(
                "stress-ng -q --cpu {cpus} --cpu-method ackermann --cpu-ops {}",
                cpus * many(200, 50)
            ),
        )
        .with_absence(&[(!has("stress-ng"), "stress-ng is not installed")]),
        make_compiler_program(workspace)?,
        make_web_server_program(workspace, many(5000, 1500))?.with_absence(&[
            (!Path::new("/usr/sbin/apache2").is_file(), "apache2 is not installed (apache2-bin)"),
            (!has("ab"), "ab is not installed (Debian: apache2-utils)"),
            (!Path::new(WEB_ROOT).join(WEB_FILE).is_file(), "apache2 has no file to serve"),
            no_network,
        ]),
        make_redis_program(many(12_000, 5000), no_network),
        make_sqlite_program(workspace, many(60_000, 20_000))?
            .with_absence(&[(!has("sqlite3"), "sqlite3 is not installed")]),
    ];
    if !quick {
        let needs = |program: &'static str, words: &'static str| (!has(program), words);
        programs.push(
            Program::of("tbench", &format!("tbench -t 2 -c {DBENCH_LOAD} {cpus} 127.0.0.1"))
                .with_figure(FigureSource::Throughput)
                .with_server(TBENCH_PORT, "/usr/bin/tbench_srv tbench_srv")
                .with_absence(&[
                    needs("tbench", "tbench is not installed (Debian: dbench)"),
                    (!Path::new("/usr/bin/tbench_srv").is_file(), "tbench_srv is not installed"),
                    no_network,
                ]),
        );
        let data = folder("dbench");
        fs::create_dir_all(&data).map_err(Error::io("cannot make a folder for dbench"))?;
        programs.push(
            Program::of("dbench", &format!("dbench -t 2 -D {data} -c {DBENCH_LOAD} {cpus}"))
                .with_figure(FigureSource::Throughput)
                .with_absence(&[needs("dbench", "dbench is not installed")]),
        );
    }
    Ok(programs)
}

/// Makes the program of a compiler: one command compiles and links several files, with short-lived
/// processes that compute.
fn make_compiler_program(workspace: &Workspace) -> Result<Program> {
    let mut command =
        format!("cc -O1 -fPIC -shared -o {}", workspace.path("compiled.so").display());
    for number in 0..C_FILES {
        let path = workspace.path(&format!("compiled-{number}.c"));
        fs::write(&path, c_source(number)).map_err(Error::io(format!("cannot write {path:?}")))?;
        let _ = write!(command, " {}", path.display());
    }
    Ok(Program::of("compiler", &command)
        .with_absence(&[(!has("cc"), "no C compiler is installed")]))
}

/// Returns C code that needs no header.
fn c_source(file: usize) -> String {
    let mut text = String::from("struct node { struct node *next; long value[8]; };\n");
    for number in 0..C_FUNCTIONS {
        let name = file * C_FUNCTIONS + number;
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "long f_{name}(struct node *list, const char *text, unsigned count)\n{{\n\
             \tlong sum = {name};\n\tfor (; list; list = list->next)\n\
             \t\tfor (unsigned i = 0; i < count % 8; i++)\n\
             \t\t\tswitch ((sum += list->value[i] * (long)(i + {name})) & 7) {{\n\
             \t\t\tcase 0: sum ^= count; break;\n\
             \t\t\tcase 3: sum -= list->value[{slot}] / (1 + text[i % 3]); break;\n\
             \t\t\tdefault: sum += *text;\n\t\t\t}}\n\treturn sum;\n}}",
            slot = number % 8,
        );
    }
    text
}

/// Makes the program of Apache: one process with threads serves a file to eight connections.
fn make_web_server_program(workspace: &Workspace, requests: usize) -> Result<Program> {
    let folder = workspace.path("web");
    fs::create_dir_all(&folder).map_err(Error::io("cannot make a folder for apache2"))?;
    let path = folder.join("httpd.conf");
    let folder = folder.display();
    let configuration = format!(
        "ServerRoot /usr/lib/apache2\nDefaultRuntimeDir {folder}\nPidFile {folder}/pid\n\
         LoadModule mpm_event_module modules/mod_mpm_event.so\n\
         LoadModule authz_core_module modules/mod_authz_core.so\n\
         Listen 127.0.0.1:{WEB_PORT}\nServerName localhost\nUser nobody\nGroup nogroup\n\
         Mutex posixsem\nErrorLog {folder}/errors\nMaxKeepAliveRequests 0\n\
         DocumentRoot {WEB_ROOT}\n<Directory {WEB_ROOT}>\nRequire all granted\n</Directory>\n"
    );
    fs::write(&path, configuration).map_err(Error::io("cannot configure apache2"))?;
    let load = format!("ab -q -k -n {requests} -c 8 http://127.0.0.1:{WEB_PORT}/{WEB_FILE}");
    let server = format!("/usr/sbin/apache2 apache2 -X -f {}", path.display());
    Ok(Program::of("apache2", &load).with_figure(FigureSource::Ab).with_server(WEB_PORT, &server))
}

/// Makes the program of Redis. The server is the same executable as its tools, and differs only in
/// the name by which it is started.
fn make_redis_program(requests: usize, no_network: (bool, &str)) -> Program {
    let executables = ["/usr/bin/redis-server", "/usr/bin/redis-check-rdb"];
    let executable = executables.into_iter().find(|path| Path::new(path).is_file());
    let server = format!(
        "{} redis-server --port {REDIS_PORT} --bind 127.0.0.1 --appendonly no \
         --shutdown-on-sigterm nosave --loglevel warning",
        executable.unwrap_or(executables[0])
    );
    let load = format!("redis-benchmark -p {REDIS_PORT} -n {requests} -c 8 -t set,get --csv");
    Program::of("redis", &load)
        .with_figure(FigureSource::Redis)
        .with_server(REDIS_PORT, &server)
        .with_absence(&[
            (executable.is_none(), "redis-server is not installed (Debian: redis-tools)"),
            (!has("redis-benchmark"), "redis-benchmark is not installed (Debian: redis-tools)"),
            no_network,
        ])
}

/// Makes the program of SQLite: a table, an index and a join, in a file.
fn make_sqlite_program(workspace: &Workspace, rows: usize) -> Result<Program> {
    let script = workspace.path("work.sql");
    let text = format!(
        "PRAGMA synchronous = OFF;\nDROP TABLE IF EXISTS words;\n\
         CREATE TABLE words (number INTEGER PRIMARY KEY, word TEXT);\n\
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})\n\
         INSERT INTO words SELECT i, printf('%08x', i * 2654435761 % 4294967296) FROM n;\n\
         CREATE INDEX by_word ON words (word);\n\
         SELECT count(*), sum(length(b.word)) FROM words a JOIN words b\n\
         ON b.word = printf('%08x', (a.number + 7) * 2654435761 % 4294967296);\n"
    );
    fs::write(&script, text).map_err(Error::io("cannot write what sqlite3 does"))?;
    let (script, data) = (script.display(), workspace.path("work.db"));
    Ok(Program::of("sqlite3", &format!("sqlite3 -batch -init {script} {} .exit", data.display())))
}

/// Returns a program's figure, from its output and duration.
pub(super) fn parse_figure(figure_source: FigureSource, stdout: &str, ns: u64) -> Result<f64> {
    let figure = match figure_source {
        FigureSource::Nothing => Some(ns as f64 / 1e6),
        FigureSource::Throughput => {
            stdout.lines().find_map(|line| number_after(line, "Throughput "))
        }
        FigureSource::Ab => {
            let failed = stdout.lines().find_map(|line| number_after(line, "Failed requests: "));
            let is_other = stdout.lines().any(|line| line.starts_with("Non-2xx responses"));
            let found = stdout.lines().find_map(|line| number_after(line, "Requests per second: "));
            found.filter(|_| failed == Some(0.0) && !is_other)
        }
        FigureSource::Redis => redis_figure(stdout),
    };
    // A rate of zero is not a figure.
    let figure = figure.filter(|figure| figure.is_finite() && *figure > 0.0);
    figure.ok_or_else(|| Error::output("workload", "the program does not say what it has done"))
}

/// Returns the number after `words` at the beginning of a line.
fn number_after(line: &str, words: &str) -> Option<f64> {
    line.strip_prefix(words)?.split_whitespace().next()?.parse().ok()
}

/// Returns the requests per second over all kinds, if each kind has equally many requests.
fn redis_figure(stdout: &str) -> Option<f64> {
    let fields = |line: &str| -> Option<f64> {
        let mut fields = line.split(',').map(|field| field.trim_matches('"'));
        fields.next().filter(|kind| *kind == "SET" || *kind == "GET")?;
        fields.next()?.parse().ok().filter(|each| *each > 0.0)
    };
    let each: Vec<f64> = stdout.lines().filter_map(fields).collect();
    (each.len() == 2).then(|| 2.0 / each.iter().map(|each| 1.0 / each).sum::<f64>())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Makes a program whose figure is its duration.
    pub(in crate::suites::workload) fn make_plain_program() -> Program {
        Program::of("true", "true")
    }

    #[test]
    fn figures_are_what_programs_say() {
        let of = |figure_source, text: &str| parse_figure(figure_source, text, 1_500_000).ok();
        assert_eq!(of(FigureSource::Nothing, ""), Some(1.5));
        let tbench = " Flush 8 0.1\n\nThroughput 268.517 MB/sec  2 clients  2 procs\n";
        assert_eq!(of(FigureSource::Throughput, tbench), Some(268.517));
        assert_eq!(of(FigureSource::Throughput, "Throughput 0 MB/sec"), None);
        let ab = "Failed requests:        0\nRequests per second:    9637.70 [#/sec] (mean)\n";
        assert_eq!(of(FigureSource::Ab, ab), Some(9637.7));
        assert_eq!(of(FigureSource::Ab, &ab.replace("      0", "      1")), None);
        assert_eq!(of(FigureSource::Ab, &format!("Non-2xx responses:  5\n{ab}")), None);
        let redis = "\"test\",\"rps\"\n\"SET\",\"100.0\",\"1\"\n\"GET\",\"300.0\",\"1\"\n";
        assert_eq!(of(FigureSource::Redis, redis), Some(150.0));
        assert_eq!(of(FigureSource::Redis, "\"SET\",\"100.0\"\n"), None);
    }

    #[test]
    fn servers_are_run_with_their_words_counted() {
        let workspace = Workspace::for_executable("trackway".into());
        let program = Program::of("web", "ab -n 5").with_server(80, "/bin/server server -X");
        let (before, behind) = program.words(&workspace, "kernel");
        assert_eq!(before, ["served"]);
        assert_eq!(behind, ["80", "3", "/bin/server", "server", "-X", "ab", "-n", "5"]);
        let (before, behind) = Program::of("true", "true").words(&workspace, "kernel");
        assert_eq!((before, behind), (split_words("kernel load"), split_words("true")));
    }

    #[test]
    fn the_first_reason_is_given() {
        let program =
            Program::of("it", "it").with_absence(&[(false, "one"), (true, "two"), (true, "3")]);
        assert_eq!(program.absent.as_deref(), Some("two"));
        assert_eq!(program.with_absence(&[]).absent, None);
    }

    #[test]
    fn generated_c_is_the_same_each_time_and_other_in_each_file() {
        assert_eq!(c_source(1), c_source(1));
        assert!(c_source(0).contains("long f_0(") && !c_source(1).contains("long f_0("));
    }
}
