//! The parts of an event, and the assignment of instructions to parts.
//!
//! The part of an instruction depends on the available information. Trackway's library has
//! debugging information: the part follows from the functions that the instruction was inlined
//! from. LTTng-UST's packages have none: the part follows from the call of the probe that contains
//! the instruction. The probe makes three calls, in this order: reserve, write (one for each
//! field), commit. An instruction that several parts execute, such as those of `__tls_get_addr`,
//! belongs to each in proportion to its executions.

use std::collections::BTreeMap;

use trackway_bench_engine::host::ptrace::InstructionKind;

/// A part of the work for an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// The loop, and the check whether the event is enabled.
    Site,
    /// Preparing the arguments, and the call.
    Staging,
    /// Finding the sessions, the thread and the CPU.
    Session,
    /// Reading the clock.
    Clock,
    /// Reserving a place in the buffer, and excluding other writers.
    Reserve,
    /// Writing the record's header.
    Header,
    /// Copying the payload.
    Copy,
    /// Publishing the record.
    Commit,
    /// Code outside an ordinary event: switches of sub-buffers, and the loop over batches.
    Rest,
}

impl Part {
    /// All parts, in the order of their execution.
    pub(super) const ALL: [Self; 9] = [
        Self::Site,
        Self::Staging,
        Self::Session,
        Self::Clock,
        Self::Reserve,
        Self::Header,
        Self::Copy,
        Self::Commit,
        Self::Rest,
    ];

    /// Returns the part's name, which is the case of its row.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Site => "site",
            Self::Staging => "staging and call",
            Self::Session => "session",
            Self::Clock => "clock",
            Self::Reserve => "reserve",
            Self::Header => "header",
            Self::Copy => "copy",
            Self::Commit => "commit",
            Self::Rest => "rest",
        }
    }
}

/// The address of an instruction, independent of the process: the module's name, and the address
/// within the module.
pub(super) type Address = (String, u64);

/// An executed instruction of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Instruction {
    pub(super) at: Address,
    pub(super) kind: InstructionKind,
    /// The first bytes of the instruction.
    pub(super) code: [u8; 2],
    /// Functions that contain the instruction, the innermost first.
    pub(super) functions: Vec<String>,
}

/// Module name of the program itself.
pub(super) const PROGRAM_MODULE: &str = "program";
/// Name of the program's function with the loop.
const LOOP_FUNCTION: &str = "number";

/// Number of executions of each address by each part of an event.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct PartCounts {
    times: BTreeMap<Address, BTreeMap<Part, u32>>,
}

impl PartCounts {
    /// Counts the addresses of an event, with the part of each instruction.
    pub(super) fn of(event: &[Instruction], parts: &[Part]) -> Self {
        let mut times: BTreeMap<Address, BTreeMap<Part, u32>> = BTreeMap::new();
        for (instruction, part) in event.iter().zip(parts) {
            *times.entry(instruction.at.clone()).or_default().entry(*part).or_default() += 1;
        }
        Self { times }
    }

    /// Returns the number of instructions of a part.
    pub(super) fn instructions(&self, part: Part) -> u32 {
        self.times.values().filter_map(|parts| parts.get(&part)).sum()
    }

    /// Adds a sample at an address to the shares of the parts that execute this address.
    pub(super) fn share(&self, at: &Address, shares: &mut BTreeMap<Part, f64>) {
        match self.times.get(at) {
            None => *shares.entry(Part::Rest).or_default() += 1.0,
            Some(parts) => {
                let all: u32 = parts.values().sum();
                for (part, times) in parts {
                    *shares.entry(*part).or_default() += f64::from(*times) / f64::from(all);
                }
            }
        }
    }
}

/// Returns the part of an instruction in the program, by its functions: the loop, or the code that
/// the header generates for the event.
fn part_of_program(functions: &[String]) -> Part {
    if functions.iter().any(|name| name == LOOP_FUNCTION) { Part::Site } else { Part::Staging }
}

fn is_vdso(module: &str) -> bool {
    module.contains("vdso")
}

/// Returns true if functions have names from the debugging information of Trackway's library.
pub(super) fn has_function_names(event: &[Instruction]) -> bool {
    event.iter().any(|one| one.functions.iter().any(|name| name.contains("trackway_agent::")))
}

/// Returns the part of each instruction of a Trackway event.
pub(super) fn parts_of_trackway(event: &[Instruction]) -> Vec<Part> {
    let is_in_sequence =
        |one: &Instruction| one.functions.iter().any(|name| name.contains("rseq::commit"));
    // The restartable sequence is written in assembly: first comparisons that leave it, then the
    // loop of the copy, then the slot and the committing store.
    let last = |jumps: [u8; 2]| {
        event.iter().rposition(|one| {
            is_in_sequence(one) && (one.code[0] == jumps[0] || one.code == [0x0f, jumps[1]])
        })
    };
    let (checked, copied) = (last([0x75, 0x85]), last([0x72, 0x82]));
    let part = |(at, one): (usize, &Instruction)| {
        if one.at.0 == PROGRAM_MODULE {
            part_of_program(&one.functions)
        } else if is_vdso(&one.at.0) || one.kind == InstructionKind::Clock {
            Part::Clock
        } else if !is_in_sequence(one) {
            one.functions.iter().find_map(|name| part_of_function(name)).unwrap_or(Part::Session)
        } else if checked.is_some_and(|checked| at <= checked) {
            Part::Reserve
        } else if copied.is_some_and(|copied| at <= copied) {
            Part::Copy
        } else {
            Part::Commit
        }
    };
    extend_over_stalls(event, event.iter().enumerate().map(part).collect())
}

/// Assigns the instruction after a stalling instruction to the same part: samples of the stall fall
/// on the next instruction.
fn extend_over_stalls(event: &[Instruction], mut parts: Vec<Part>) -> Vec<Part> {
    for (at, one) in event.iter().enumerate().rev() {
        if one.kind != InstructionKind::Plain && at + 1 < parts.len() {
            parts[at + 1] = parts[at];
        }
    }
    parts
}

/// Returns the part of a library function, if the function belongs to one.
fn part_of_function(name: &str) -> Option<Part> {
    let parts = [
        ("::now::", Part::Clock),
        ("trackway_sys::clock", Part::Clock),
        ("write_header", Part::Header),
        ("header_bytes", Part::Header),
        ("::copy", Part::Copy),
        ("Claim::commit", Part::Commit),
        ("Claim as", Part::Commit),
        ("ring::claim", Part::Reserve),
        ("ring::writer", Part::Reserve),
        ("ring::geometry", Part::Reserve),
    ];
    parts.iter().find(|part| name.contains(part.0)).map(|part| part.1)
}

/// Returns the part of each instruction of an LTTng-UST event.
pub(super) fn parts_of_lttng(event: &[Instruction]) -> Vec<Part> {
    // Ranges of instructions outside the program, one for each call from the program.
    let mut calls: Vec<std::ops::Range<usize>> = Vec::new();
    for (at, _) in event.iter().enumerate().filter(|(_, one)| one.at.0 != PROGRAM_MODULE) {
        match calls.last_mut().filter(|call| call.end == at) {
            Some(call) => call.end = at + 1,
            None => calls.push(at..at + 1),
        }
    }
    let is_of_probe =
        |call: &&std::ops::Range<usize>| event[(*call).clone()].iter().any(is_in_buffer_library);
    let of_probe: Vec<std::ops::Range<usize>> = calls.iter().filter(is_of_probe).cloned().collect();
    let mut parts: Vec<Part> = event
        .iter()
        .map(|one| match one.at.0.as_str() {
            PROGRAM_MODULE => part_of_program(&one.functions),
            _ => Part::Session,
        })
        .collect();
    for (number, call) in of_probe.iter().enumerate() {
        let part = match number {
            0 => Part::Reserve,
            last if last + 1 == of_probe.len() => Part::Commit,
            _ => Part::Copy,
        };
        parts[call.clone()].fill(part);
        // An atomic instruction reserves the space; the remaining instructions of the call write
        // the header.
        let locked =
            event[call.clone()].iter().rposition(|one| one.kind == InstructionKind::Locked);
        if let Some(locked) = locked.filter(|_| number == 0) {
            parts[call.start + locked + 1..call.end].fill(Part::Header);
        }
    }
    for (part, one) in parts.iter_mut().zip(event) {
        let is_clock = one.functions.iter().any(|name| name.contains("clock_gettime"));
        if is_vdso(&one.at.0) || (is_clock && one.at.0 != PROGRAM_MODULE) {
            *part = Part::Clock;
        }
    }
    extend_over_stalls(event, parts)
}

/// Returns true if an instruction belongs to LTTng's buffer library.
fn is_in_buffer_library(one: &Instruction) -> bool {
    one.at.0.contains("liblttng-ust.so")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_instruction(module: &str, address: u64, functions: &[&str]) -> Instruction {
        let functions = functions.iter().map(|&name| name.to_owned()).collect();
        Instruction {
            at: (module.to_owned(), address),
            kind: InstructionKind::Plain,
            code: [0x90; 2],
            functions,
        }
    }

    #[test]
    fn ours_are_told_by_functions_and_the_sequence_by_its_jumps() {
        let library = "libtrackway.so";
        let in_sequence = |address, code| Instruction {
            code,
            ..test_instruction(library, address, &["trackway_ring::rseq::commit", "emit"])
        };
        let event = [
            test_instruction(PROGRAM_MODULE, 1, &["number"]),
            test_instruction(PROGRAM_MODULE, 2, &["trackway_emit_lab_DOT_number"]),
            test_instruction(library, 3, &["trackway_agent::emit::fast_path::emit"]),
            test_instruction(
                library,
                4,
                &["trackway_sys::clock::read_tsc", "trackway_agent::emit::timestamp::from_line"],
            ),
            test_instruction(
                library,
                5,
                &["core::x", "trackway_ring::writer::<impl Region>::plan_record"],
            ),
            test_instruction(library, 6, &["trackway_ring::writer::write_header"]),
            in_sequence(7, [0x75, 0x10]),
            in_sequence(8, [0x48, 0x8b]),
            in_sequence(9, [0x72, 0xf0]),
            in_sequence(10, [0x4d, 0x89]),
        ];
        assert_eq!(
            parts_of_trackway(&event),
            [
                Part::Site,
                Part::Staging,
                Part::Session,
                Part::Clock,
                Part::Reserve,
                Part::Header,
                Part::Reserve,
                Part::Copy,
                Part::Copy,
                Part::Commit,
            ]
        );
    }

    #[test]
    fn lttngs_are_told_by_calls() {
        let (buffer, common) = ("/lib/liblttng-ust.so.1", "/lib/liblttng-ust-tracepoint.so.1");
        let probe = |address| {
            test_instruction(PROGRAM_MODULE, address, &["lttng_ust__event_probe__lab___number"])
        };
        let locked =
            Instruction { kind: InstructionKind::Locked, ..test_instruction(buffer, 5, &["??"]) };
        let event = [
            test_instruction(PROGRAM_MODULE, 1, &["number"]),
            test_instruction(common, 2, &["lttng_ust_tp_rcu_read_lock"]),
            probe(3),
            test_instruction(buffer, 4, &["??"]),
            test_instruction("linux-vdso.so.1", 4, &["??"]),
            locked,
            test_instruction(buffer, 6, &["??"]),
            test_instruction(buffer, 7, &["??"]),
            probe(7),
            test_instruction(buffer, 8, &["??"]),
            probe(9),
            test_instruction(buffer, 10, &["??"]),
            test_instruction(PROGRAM_MODULE, 11, &["number"]),
        ];
        let expected = [
            Part::Site,
            Part::Session,
            Part::Staging,
            Part::Reserve,
            Part::Clock,
            Part::Reserve,
            Part::Reserve,
            Part::Header,
            Part::Staging,
            Part::Copy,
            Part::Staging,
            Part::Commit,
            Part::Site,
        ];
        assert_eq!(parts_of_lttng(&event), expected);
    }

    #[test]
    fn samples_are_shared_among_the_parts_that_go_through_and_none_is_hidden() {
        let event = [
            test_instruction("a", 1, &[]),
            test_instruction("a", 1, &[]),
            test_instruction("a", 1, &[]),
            test_instruction("a", 2, &[]),
        ];
        let parts = PartCounts::of(&event, &[Part::Copy, Part::Copy, Part::Commit, Part::Clock]);
        assert_eq!((parts.instructions(Part::Copy), parts.instructions(Part::Site)), (2, 0));
        let mut shares = BTreeMap::new();
        for at in [1, 1, 1, 2, 3] {
            parts.share(&("a".to_owned(), at), &mut shares);
        }
        let parts: Vec<(Part, f64)> = shares.into_iter().collect();
        let expected =
            [(Part::Clock, 1.0), (Part::Copy, 2.0), (Part::Commit, 1.0), (Part::Rest, 1.0)];
        assert!(parts.iter().zip(&expected).all(|(one, other)| one.0 == other.0), "{parts:?}");
        assert!(parts.iter().zip(&expected).all(|(one, other)| (one.1 - other.1).abs() < 1e-9));
    }
}
