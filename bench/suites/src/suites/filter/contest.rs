//! The contestants: each evaluates the same question for the same event, a given number of times.
//!
//! Main invariant: a batch returns the number of true answers. A batch with one wrong answer has no
//! figure.

use std::hint::black_box;

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::affinity::thread_cpu_ns;
use trackway_console::IoError;
use trackway_jit::frame::{Environment, Frame};
use trackway_jit::interpret;
use trackway_jit::verify::Verified;

use super::chains::Runner;
use super::machine_code::{self, FILTER_NAME, MachineCode};
use super::peer::{CLibrary, Function};
use super::questions::{Event, Question};

/// A contestant: evaluates the question a number of times, and returns the number of true answers.
pub(super) type Batch<'a> = Box<dyn FnMut(u64) -> Result<u64> + 'a>;

/// Duration of a batch, in ns of CPU time of the thread.
const BATCH_NS: u64 = 1_000_000;
/// Most calls of a batch.
const CALLS_MAX: u64 = 1 << 24;

/// A question, compiled for the contestants.
pub(super) struct PreparedQuestion<'a> {
    question: Question,
    bytes: Vec<u8>,
    peer: Option<&'a CLibrary>,
}

/// Placeholder for the helpers of an `Environment`. It is never called, because no filter here has
/// state.
extern "C" fn unused_helper() -> u64 {
    0
}

impl<'a> PreparedQuestion<'a> {
    /// Prepares a question, including its C function if there is a compiler.
    pub(super) fn new(question: Question, peer: Option<&'a CLibrary>) -> Result<Self> {
        let bytes = machine_code::compile_to_bytes(&question.text(), &question.layout())?;
        Ok(Self { question, bytes, peer })
    }

    /// Runs `act` with these contestants, in this order, prepared to evaluate the question for
    /// `event`.
    pub(super) fn run_with_runners<T>(
        &self,
        event: &Event,
        runners: &[Runner],
        act: impl FnOnce(&mut [Batch<'_>]) -> Result<T>,
    ) -> Result<T> {
        let (alternative, program) = machine_code::decode_program(&self.bytes)?;
        let verified = machine_code::verify_program(program, alternative.needs_count())?;
        let environment =
            Environment::new(alternative.constants(), &[], unused_helper, unused_helper);
        let frame = build_frame(&environment, event);
        let code =
            runners.contains(&Runner::Compiled).then(|| MachineCode::new(&verified)).transpose()?;
        let mut all: Vec<Batch<'_>> = Vec::with_capacity(runners.len());
        for &runner in runners {
            let absent = || Error::output(runner.name(), "it is not here");
            let memory = || event.slots.iter().flat_map(|slot| slot.to_le_bytes()).collect();
            all.push(match runner {
                Runner::C => {
                    c_batch(self.peer.ok_or_else(absent)?.function(self.question)?, &frame)
                }
                Runner::Compiled => {
                    compiled_batch(code.as_ref().ok_or_else(absent)?, &verified, &frame)
                }
                Runner::Interpreted => interpreted_batch(&verified, &frame),
                Runner::RbpfCompiled => rbpf_compiled_batch(program.bytes(), memory())?,
                Runner::RbpfInterpreted => rbpf_interpreted_batch(program.bytes(), memory())?,
            });
        }
        act(&mut all)
    }
}

/// Decodes the filter in `bytes`, and returns its first answer to `event`.
pub(super) fn first_answer(bytes: &[u8], event: &Event) -> Result<u64> {
    let (alternative, program) = machine_code::decode_program(bytes)?;
    let verified = machine_code::verify_program(program, alternative.needs_count())?;
    let environment = Environment::new(alternative.constants(), &[], unused_helper, unused_helper);
    let frame = build_frame(&environment, event);
    let code = MachineCode::new(&verified)?;
    compiled_batch(&code, &verified, &frame)(1)
}

fn build_frame<'a>(environment: &'a Environment<'a>, event: &'a Event) -> Frame<'a> {
    let mut frame = Frame::new(environment, &event.bytes);
    for &slot in &event.slots {
        // The frame has room for all slots; a missing slot would give a wrong answer.
        frame.push(slot);
    }
    frame
}

/// True if filters become machine code on this processor: Trackway's and rbpf's support the same
/// one.
pub(super) const HAS_MACHINE_CODE: bool = cfg!(target_arch = "x86_64");

/// Makes a contestant of a C function, called through a pointer that the compiler cannot resolve.
fn c_batch<'a>(function: Function, frame: &'a Frame<'_>) -> Batch<'a> {
    Box::new(move |calls| {
        let function = black_box(function);
        let mut trues = 0;
        for _ in 0..calls {
            let frame = black_box(frame);
            // SAFETY: the frame has as many slots as the question has fields, and their words refer
            // to its bytes.
            let answer = unsafe { function(frame.as_slots(), frame.bytes().as_ptr()) };
            trues += u64::from(answer != 0);
        }
        Ok(trues)
    })
}

/// Makes a contestant that calls an empty function in the same loop.
fn empty_batch<'a>(frame: &'a Frame<'_>) -> Batch<'a> {
    unsafe extern "C" fn answer_true(_slots: *const u64, _bytes: *const u8) -> u64 {
        1
    }
    c_batch(answer_true, frame)
}

fn compiled_batch<'a>(
    code: &'a MachineCode,
    verified: &Verified<'_>,
    frame: &'a Frame<'_>,
) -> Batch<'a> {
    let slots = verified.rules().slots;
    Box::new(move |calls| {
        let entry = black_box(code.entry());
        let mut trues = 0;
        for _ in 0..calls {
            // SAFETY: the code of a program that was verified for this number of slots.
            trues += u64::from(unsafe { black_box(frame).run(entry, slots) } != 0);
        }
        Ok(trues)
    })
}

fn interpreted_batch<'a>(verified: &'a Verified<'_>, frame: &'a Frame<'_>) -> Batch<'a> {
    Box::new(move |calls| {
        let mut trues = 0;
        for _ in 0..calls {
            let outcome = interpret::run(std::slice::from_ref(verified), black_box(frame));
            let answer = outcome.map_err(|fault| Error::output(FILTER_NAME, fault))?.answer;
            trues += u64::from(answer != 0);
        }
        Ok(trues)
    })
}

fn rbpf_error(error: std::io::Error) -> Error {
    Error::output("rbpf", IoError::from(error))
}

fn rbpf_interpreted_batch(program: &[u8], mut memory: Vec<u8>) -> Result<Batch<'_>> {
    let machine = rbpf::EbpfVmRaw::new(Some(program)).map_err(rbpf_error)?;
    Ok(Box::new(move |calls| {
        let mut trues = 0;
        for _ in 0..calls {
            let answer = machine.execute_program(black_box(&mut memory)).map_err(rbpf_error)?;
            trues += u64::from(answer != 0);
        }
        Ok(trues)
    }))
}

fn rbpf_compiled_batch(program: &[u8], mut memory: Vec<u8>) -> Result<Batch<'_>> {
    let mut machine = rbpf::EbpfVmRaw::new(Some(program)).map_err(rbpf_error)?;
    machine.jit_compile().map_err(rbpf_error)?;
    Ok(Box::new(move |calls| {
        let mut trues = 0;
        for _ in 0..calls {
            // SAFETY: the program was verified for as many slots as this memory has.
            let answer = unsafe { machine.execute_program_jit(black_box(&mut memory)) };
            trues += u64::from(answer.map_err(rbpf_error)? != 0);
        }
        Ok(trues)
    }))
}

/// Checks a contestant's answers about many events: with all predicates true, with none true, and
/// with each predicate as the only true or the only false one.
pub(super) fn check_answers(prepared: &PreparedQuestion<'_>, runner: Runner) -> Result<()> {
    let question = prepared.question;
    let count = question.predicates;
    let uniform = [vec![true; count], vec![false; count]];
    let single = (0..2 * count).map(|number| {
        let mut truths = vec![number < count; count];
        truths[number % count] ^= true;
        truths
    });
    for truths in uniform.into_iter().chain(single) {
        let expected = u64::from(question.answer(&truths));
        prepared.run_with_runners(&question.event(&truths), &[runner], |contestants| {
            for batch in contestants {
                let answer = batch(1)?;
                if answer != expected {
                    let about = format!("{} for {truths:?}: {answer}", question.text());
                    return Err(Error::output(runner.name(), about));
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Returns the number of calls in a batch of the intended duration.
pub(super) fn find_batch_calls(batch: &mut Batch<'_>, answer: bool) -> Result<u64> {
    let mut calls = 64;
    while calls < CALLS_MAX {
        let ns = measure_call_ns(batch, calls, answer)?;
        let needed = (BATCH_NS as f64 / ns.max(0.01)).ceil() as u64;
        if needed <= 2 * calls {
            return Ok(needed.max(1));
        }
        calls = needed.min(calls * 16);
    }
    Ok(CALLS_MAX)
}

/// Returns the duration of a call in a batch, in ns of CPU time of the thread.
pub(super) fn measure_call_ns(batch: &mut Batch<'_>, calls: u64, answer: bool) -> Result<f64> {
    let begin = thread_cpu_ns();
    let trues = batch(calls)?;
    let ns = thread_cpu_ns() - begin;
    if trues != if answer { calls } else { 0 } {
        let message = format!("{trues} of {calls} answers were yes, instead of all or none");
        return Err(Error::output(FILTER_NAME, message));
    }
    Ok(ns as f64 / calls as f64)
}

/// Runs `act` with an empty frame, to measure a call of an empty function.
pub(super) fn run_with_empty_frame<T>(act: impl FnOnce(&mut Batch<'_>) -> Result<T>) -> Result<T> {
    let environment = Environment::new(&[], &[], unused_helper, unused_helper);
    act(&mut empty_batch(&Frame::new(&environment, &[])))
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::suites::filter::chains::Operands;

    const QUESTION: Question =
        Question { operands: Operands::Integers, is_or: false, predicates: 3 };

    #[test]
    fn a_wrong_answer_is_found_before_anything_is_measured() {
        let mut prepared = PreparedQuestion::new(QUESTION, None).expect("a filter");
        for runner in [Runner::Interpreted, Runner::RbpfInterpreted] {
            check_answers(&prepared, runner).expect("right answers");
        }
        // The bytecode is of another question, as if a compiler had confused && with ||.
        prepared.bytes =
            PreparedQuestion::new(Question { is_or: true, ..QUESTION }, None).expect("one").bytes;
        let error = check_answers(&prepared, Runner::Interpreted).unwrap_err().to_string();
        assert!(error.contains("f0 == 404 && "), "{error}");
    }

    #[test]
    fn a_batch_with_a_wrong_answer_has_no_figure() {
        let mut calls_left = 100;
        let mut batch: Batch<'_> = Box::new(|calls| {
            calls_left -= 1;
            Ok(if calls_left == 0 { calls - 1 } else { calls })
        });
        for _ in 0..99 {
            measure_call_ns(&mut batch, 10, true).expect("a figure");
        }
        measure_call_ns(&mut batch, 10, true).unwrap_err();
        measure_call_ns(&mut batch, 10, false).unwrap_err();
    }
}
