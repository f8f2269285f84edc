//! A program's loop of events, observed from outside: its duration, the instruction at each sample
//! (by perf), and the instructions of an event (by single steps).

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::child::{self, RunningProgram};
use trackway_bench_engine::host::ptrace::Tracee;
use trackway_bench_engine::host::workload::{median_event_ns, parse_batches, parse_numbers};

use super::parts::{Address, Instruction, PROGRAM_MODULE};

/// Most instructions that are stepped through: a hundred times the usual number.
const STEPS_MAX: u64 = 400_000;
/// Number of events that are stepped through; the program emits more for this purpose.
const STEPPED_EVENTS: usize = 12;
/// Most events that the program emits for stepping, a limit of the program itself.
pub(super) const STEPPED_MORE: u64 = 16;
/// Interval between samples, in ns.
pub(super) const PERIOD_NS: u64 = 50_000;
/// Batches that are not counted.
const WARM_UP: u32 = 20;

/// Code of one ELF file in a process.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Module {
    base: u64,
    begin: u64,
    end: u64,
    name: String,
}

/// All code modules of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Modules(Vec<Module>);

impl Modules {
    /// Parses a line `module BASE BEGIN END NAME` and adds the module; returns false for any other
    /// line.
    fn take(&mut self, line: &str) -> bool {
        let mut words = line.splitn(5, ' ');
        if words.next() != Some("module") {
            return false;
        }
        let mut number = || words.next().and_then(|word| word.parse().ok());
        let (base, begin, end) = (number(), number(), number());
        if let (Some(base), Some(begin), Some(end), Some(name)) = (base, begin, end, words.next()) {
            self.0.push(Module { base, begin, end, name: name.to_owned() });
        }
        true
    }

    fn find(&self, address: u64) -> Address {
        let found = self.0.iter().find(|one| (one.begin..one.end).contains(&address));
        found.map_or(("elsewhere".to_owned(), address), |one| {
            (one.name.clone(), address.wrapping_sub(one.base))
        })
    }
}

/// The loop that a program reported.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct LoopReport {
    /// Duration of an event in ns: the median of the batches.
    pub(super) event_ns: f64,
    /// Number of events emitted.
    pub(super) emitted: u64,
    modules: Modules,
    /// Begin and end of the loop, in ns.
    begin_ns: u64,
    end_ns: u64,
}

impl LoopReport {
    pub(super) fn parse(output: &str) -> Result<Self> {
        let mut looped = Self::default();
        let mut rest = String::new();
        for line in output.lines() {
            if line.starts_with("loop ") {
                [looped.begin_ns, looped.end_ns] = parse_numbers(line, "loop")?;
            } else if !looped.modules.take(line) {
                rest.push_str(line);
                rest.push('\n');
            }
        }
        let batches = parse_batches(&rest)?;
        looped.emitted = batches.iter().map(|batch| batch.events).sum();
        looped.event_ns = median_event_ns(&batches, WARM_UP)?;
        Ok(looped)
    }

    /// Returns the number of samples at each instruction within the loop, from perf's output file.
    pub(super) fn samples(&self, file: &Path) -> Result<BTreeMap<Address, u64>> {
        let mut command = Command::new("perf");
        command.args(["script", "--ns", "-F", "time,ip", "-i"]).arg(file);
        let found = child::run(&mut command, "perf script")?;
        let mut samples = BTreeMap::new();
        for line in found.stdout.lines() {
            let Some((ns, address)) = parse_sample(line) else { continue };
            if (self.begin_ns..self.end_ns).contains(&ns) {
                *samples.entry(self.modules.find(address)).or_default() += 1;
            }
        }
        if samples.is_empty() {
            return Err(Error::output("perf script", "no sample is within the loop"));
        }
        Ok(samples)
    }
}

/// Parses the time in ns and the address in a line `SECONDS.NNNNNNNNN:  ADDRESS`.
fn parse_sample(line: &str) -> Option<(u64, u64)> {
    let (time, address) = line.trim().split_once(':')?;
    let (seconds, ns) = time.split_once('.')?;
    let seconds: u64 = seconds.parse().ok()?;
    let ns: u64 = if ns.len() == 9 { ns.parse().ok()? } else { return None };
    let address = address.split_whitespace().next()?;
    Some((seconds.checked_mul(1_000_000_000)? + ns, u64::from_str_radix(address, 16).ok()?))
}

/// Returns the perf command that samples the command `words`.
pub(super) fn perf_record_command<'a>(
    file: &'a str,
    period: &'a str,
    words: &[&'a str],
) -> Vec<&'a str> {
    let perf = ["perf", "record", "-q", "-k", "CLOCK_MONOTONIC", "-e", "cpu-clock:u", "-c", period];
    [&perf[..], &["-o", file, "--"], words].concat()
}

/// Starts a program by `command`, and steps through its events, for which the program waits.
/// Returns the instructions of the most frequent event.
pub(super) fn step_through_usual_event(
    command: &mut Command,
    what: &str,
) -> Result<Vec<Instruction>> {
    let mut running = RunningProgram::start(command, what)?;
    let mut modules = Modules::default();
    let [pid, go, entry, area] = loop {
        let line = running.line()?;
        if line.is_empty() {
            running.finish()?;
            return Err(Error::output(what, "it ended before it was stepped through"));
        }
        if !modules.take(&line) {
            break parse_numbers(&line, "step")?;
        }
    };
    let stepped = step_through_events(pid as u32, go, entry, area, &modules);
    if stepped.is_err() {
        running.terminate();
    }
    let finished = running.finish();
    let mut found = stepped?;
    finished?;
    // An event with the most frequent number of instructions is the usual event.
    let lengths: Vec<usize> = found.iter().map(Vec::len).collect();
    let times = |length: usize| lengths.iter().filter(|other| **other == length).count();
    let usual = (0..found.len()).max_by_key(|&at| times(lengths[at]));
    let usual = usual.ok_or_else(|| Error::output(what, "no event was stepped through"))?;
    Ok(found.swap_remove(usual))
}

/// Returns the instructions of some events; each begins and ends with the loop's code.
fn step_through_events(
    pid: u32,
    go: u64,
    entry: u64,
    area: u64,
    modules: &Modules,
) -> Result<Vec<Vec<Instruction>>> {
    let tracee = Tracee::attach(pid)?;
    let mut tracee = tracee.ok_or_else(|| Error::output("ptrace", "it is not allowed here"))?;
    tracee.write(go, &1_u64.to_ne_bytes())?;
    let mut found = Vec::new();
    let mut event: Option<(u64, Vec<Instruction>)> = None;
    for _ in 0..STEPS_MAX {
        let at = tracee.at()?;
        let is_back = event.as_ref().is_some_and(|(stack, _)| at.stack == stack + 8);
        found.extend(event.take_if(|_| is_back).map(|event| event.1));
        if found.len() == STEPPED_EVENTS {
            return Ok(found);
        }
        if event.is_none() && at.instruction == entry {
            event = Some((at.stack, Vec::new()));
        }
        if let Some((_, instructions)) = &mut event {
            let (kind, code) = tracee.code_at(at.instruction)?;
            let at = modules.find(at.instruction);
            instructions.push(Instruction { at, kind, code, functions: Vec::new() });
        }
        if !tracee.step()? {
            break;
        }
        tracee.leave_sequence(area)?;
    }
    Err(Error::output("stepping", format_args!("found {} events", found.len())))
}

/// Finds the functions of each instruction in these modules by `addr2line`, which is part of the
/// compiler's binutils. `files` returns the file of a module.
pub(super) fn name_functions(
    event: &mut [Instruction],
    files: impl Fn(&str) -> Option<String>,
) -> Result<()> {
    let mut modules: Vec<String> = event.iter().map(|one| one.at.0.clone()).collect();
    modules.sort();
    modules.dedup();
    for module in modules {
        let Some(file) = files(&module) else { continue };
        let mut of_it: Vec<&mut Instruction> =
            event.iter_mut().filter(|one| one.at.0 == module).collect();
        let mut command = Command::new("addr2line");
        command.args(["-a", "-i", "-f", "-C", "-e", &file]);
        command.args(of_it.iter().map(|one| format!("{:#x}", one.at.1)));
        let found = child::run(&mut command, "addr2line")?;
        let mut names = parse_functions(&found.stdout);
        if names.len() != of_it.len() {
            let message = format!("{} answers to {} questions", names.len(), of_it.len());
            return Err(Error::output("addr2line", message));
        }
        for (one, names) in of_it.iter_mut().zip(&mut names) {
            one.functions = std::mem::take(names);
        }
    }
    Ok(())
}

/// Parses the functions of each address in addr2line's output: a line with the address, then for
/// each inlined function a line with its name and a line with its place in the source.
fn parse_functions(output: &str) -> Vec<Vec<String>> {
    let mut found: Vec<Vec<String>> = Vec::new();
    let mut lines = output.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("0x") {
            found.push(Vec::new());
        } else if let Some(names) = found.last_mut() {
            names.push(line.to_owned());
            lines.next();
        }
    }
    found
}

/// Returns the path of a module's file, if the module has one.
pub(super) fn module_file(module: &str, program: &Path) -> Option<String> {
    match module {
        PROGRAM_MODULE => Some(program.display().to_string()),
        name if name.starts_with('/') => Some(name.to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_programs_say_of_their_loop_is_read() {
        let mut output = "module 1000 1100 1200 /lib/a b.so\nmodule x\n".to_owned();
        for batch in 0..23 {
            output += &format!("batch 0 {batch} 10 {}\n", if batch < 20 { 9000 } else { 200 });
        }
        output += "loop 5 900\n";
        let looped = LoopReport::parse(&output).expect("a loop");
        assert_eq!((looped.event_ns, looped.emitted), (20.0, 230));
        assert_eq!((looped.begin_ns, looped.end_ns), (5, 900));
        assert_eq!(looped.modules.find(1150), ("/lib/a b.so".to_owned(), 150));
        assert_eq!(looped.modules.find(1200).0, "elsewhere");
        assert!(LoopReport::parse("loop 1 2\n").is_err());
    }

    #[test]
    fn samples_are_read_and_what_is_none_is_not() {
        assert_eq!(
            parse_sample("60795.892934078:      7f488eb46c2a "),
            Some((60_795_892_934_078, 0x7f48_8eb4_6c2a))
        );
        for line in ["", "60795.89: 12", "x.123456789: 12", "1.123456789: x", "1.123456789:"] {
            assert_eq!(parse_sample(line), None, "{line}");
        }
    }

    #[test]
    fn functions_are_read_from_the_innermost_outward() {
        let output = "0x01\ninner\na.rs:1\nouter\nb.rs:2\n0x02\n??\n??:0\n";
        assert_eq!(parse_functions(output), [vec!["inner", "outer"], vec!["??"]]);
    }
}
