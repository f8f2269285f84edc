//! Trackway's filter, from its text to executable machine code.

use std::ptr;

use trackway_filter::compile::compile;
use trackway_filter::layout::Layout;
use trackway_jit::frame::Entry;
use trackway_jit::object::{Alternative, Object};
use trackway_jit::program::Program;
use trackway_jit::verify::{Rules, State, Verified, verify};
use trackway_jit::x86::{self, INSN_CODE_BYTES_MAX};

use trackway_bench_engine::error::{Error, Result};

/// Name of the filter in errors.
pub(super) const FILTER_NAME: &str = "the filter";

/// Compiles a filter to the bytes that a recorder would publish.
pub(super) fn compile_to_bytes(text: &str, layout: &Layout) -> Result<Vec<u8>> {
    let compiled = compile(text, layout);
    let compiled = compiled.map_err(|error| Error::output(FILTER_NAME, error))?;
    compiled.into_object().encode().map_err(|error| Error::output(FILTER_NAME, error))
}

/// Decodes an object, and returns its only alternative and its only program.
pub(super) fn decode_program(bytes: &[u8]) -> Result<(Alternative<'_>, Program<'_>)> {
    let object = Object::decode(bytes).map_err(|error| Error::output(FILTER_NAME, error))?;
    let alternative = object.alternatives().next();
    let alternative = alternative.ok_or_else(|| Error::output(FILTER_NAME, "no alternative"))?;
    let program = alternative.programs().next();
    Ok((alternative, program.ok_or_else(|| Error::output(FILTER_NAME, "no program"))?))
}

/// Verifies a program for a number of slots.
pub(super) fn verify_program<'p>(program: Program<'p>, slots: usize) -> Result<Verified<'p>> {
    let mut memory = vec![State::FREE; program.len() + 1];
    verify(program, Rules::new(slots), &mut memory)
        .map_err(|error| Error::output(FILTER_NAME, error))
}

/// Machine code in executable pages that are not writable.
#[derive(Debug)]
pub(super) struct MachineCode {
    start: *mut libc::c_void,
    bytes: usize,
}

impl MachineCode {
    /// Makes the machine code of a program.
    pub(super) fn new(verified: &Verified<'_>) -> Result<Self> {
        let len = verified.program().len();
        let (mut code, mut places) = (vec![0; len * INSN_CODE_BYTES_MAX], vec![0; len + 1]);
        let emitted = x86::emit_program(verified, &mut code, &mut places)
            .map_err(|error| Error::output(FILTER_NAME, error))?;
        Self::map_executable(&code[..emitted.size_bytes])
    }

    fn map_executable(code: &[u8]) -> Result<Self> {
        let failed = Error::io("cannot have pages for machine code");
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, anywhere.
        let start = unsafe { libc::mmap(ptr::null_mut(), code.len(), protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(failed(std::io::Error::last_os_error()));
        }
        let pages = Self { start, bytes: code.len() };
        let protection = libc::PROT_READ | libc::PROT_EXEC;
        // SAFETY: the mapping is ours, writable, as long as the code, and not shared yet.
        let result = unsafe {
            start.cast::<u8>().copy_from_nonoverlapping(code.as_ptr(), code.len());
            libc::mprotect(start, code.len(), protection)
        };
        if result != 0 {
            return Err(failed(std::io::Error::last_os_error()));
        }
        Ok(pages)
    }

    /// Returns the entry point. Callers must not use it after this value is dropped.
    pub(super) fn entry(&self) -> Entry {
        // SAFETY: the pages hold the emitted code, whose beginning is an entry.
        unsafe { std::mem::transmute::<*mut libc::c_void, Entry>(self.start) }
    }
}

impl Drop for MachineCode {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and each caller of the code borrows this value.
        unsafe { libc::munmap(self.start, self.bytes) };
    }
}
