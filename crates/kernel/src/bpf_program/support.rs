//! Checks if this process can record with BPF: creates a map and loads a program, and drops both.
//! The program is attached to no event.

use std::fmt;
use std::io;

use trackway_console::IoError;
use trackway_jit::insn::alu;

use super::attach::{LoadedProgram, check_tracepoint_access};
use super::scope::Scope;
use crate::bpf_sys::asm::Asm;
use crate::bpf_sys::bpf::LoadError;

/// The reason why recording with BPF is impossible.
#[derive(Debug)]
pub struct Refusal {
    /// The operation that failed.
    pub what: &'static str,
    /// The kernel's error; `None`: the kernel was not called.
    pub error: Option<IoError>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.error {
            Some(error) => write!(f, "{}: {error}", self.what),
            None => f.write_str(self.what),
        }
    }
}

impl Refusal {
    /// Returns true if a process with more privileges might succeed.
    pub fn is_permission_denied(&self) -> bool {
        let code = self.error.as_ref().and_then(|error| error.raw_os_error());
        matches!(code, Some(libc::EPERM | libc::EACCES))
    }
}

/// Checks that events can be recorded with BPF.
///
/// # Errors
///
/// If this process cannot record with BPF.
pub fn check_support() -> Result<(), Refusal> {
    let refused = |what| move |error: io::Error| Refusal { what, error: Some(error.into()) };
    // The reader relies on the order of the program's stores, which only x86-64 keeps.
    if !cfg!(target_arch = "x86_64") {
        return Err(Refusal { what: "recording with BPF on this processor", error: None });
    }
    // A map that processes can mmap requires Linux 5.5.
    Scope::new().map_err(refused("a map of bpf(2)"))?;
    let program = generate_newest_instruction().unwrap_or_default();
    LoadedProgram::load(&program).map(drop).map_err(|error| {
        let (LoadError::Unavailable(error) | LoadError::Refused(error, _)) = error;
        Refusal { what: "a program of bpf(2)", error: Some(error) }
    })?;
    check_tracepoint_access().map_err(refused("perf_event_open(2) of kernel events"))
}

/// Generates a program with the newest instruction that recording uses: exchange, of Linux 5.12.
fn generate_newest_instruction() -> Option<Vec<u8>> {
    /// RFC 9669, 5.3: XCHG.
    const EXCHANGE: i32 = 0xe1;
    let (stack, word) = (10, -8);
    let mut asm = Asm::default();
    asm.movi(1, 0);
    asm.store(stack, word, 1);
    asm.atomic(EXCHANGE, stack, word, 1);
    asm.alui(alu::AND, 1, 0);
    asm.exit_with(0);
    asm.bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_name_the_operation() {
        let of = |error| Refusal { what: "a map", error };
        let eperm = of(Some(io::Error::from_raw_os_error(libc::EPERM).into()));
        assert!(
            eperm.is_permission_denied() && eperm.to_string().starts_with("a map: "),
            "{eperm}"
        );
        let absent = of(Some(io::Error::from_raw_os_error(libc::ENOSYS).into()));
        assert!(!absent.is_permission_denied() && !of(None).is_permission_denied());
        assert_eq!(of(None).to_string(), "a map");
        assert!(generate_newest_instruction().is_some_and(|program| program.len() == 8 * 6));
    }
}
