//! Whether the kernel lets us record by BPF: asked by doing a little of it. What is made for that
//! is gone at once, and no event is attached to.

use std::fmt;
use std::io;

use trackway_console::IoError;
use trackway_jit::insn::alu;

use super::attach::{Loaded, may_open_events};
use super::scope::Scope;
use crate::bpf_sys::asm::Asm;
use crate::bpf_sys::bpf::LoadError;

/// Why there is no recording by BPF: what was refused.
#[derive(Debug)]
pub struct Refusal {
    /// What was asked for.
    pub what: &'static str,
    /// The kernel's answer; `None`: it was not asked.
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
    /// Whether somebody with more rights would have been let.
    pub fn is_of_rights(&self) -> bool {
        let code = self.error.as_ref().and_then(|error| error.raw_os_error());
        matches!(code, Some(libc::EPERM | libc::EACCES))
    }
}

/// Whether events can be recorded by BPF here.
///
/// # Errors
///
/// If they cannot.
pub fn check() -> Result<(), Refusal> {
    let refused = |what| move |error: io::Error| Refusal { what, error: Some(error.into()) };
    // What a program writes is seen in this order by those who read it there alone.
    if !cfg!(target_arch = "x86_64") {
        return Err(Refusal { what: "not on this processor, so far", error: None });
    }
    // (A map that can be mapped: Linux 5.5.)
    Scope::new().map_err(refused("a map of bpf(2)"))?;
    let program = smallest().unwrap_or_default();
    Loaded::new(&program).map(drop).map_err(|error| {
        let (LoadError::Unavailable(error) | LoadError::Refused(error, _)) = error;
        Refusal { what: "a program of bpf(2)", error: Some(error) }
    })?;
    may_open_events().map_err(refused("perf_event_open(2) of the kernel's events"))
}

/// A program with the newest instruction that recording uses: an exchange, of Linux 5.12.
fn smallest() -> Option<Vec<u8>> {
    /// RFC 9669, 5.3: XCHG.
    const EXCHANGE: i32 = 0xe1;
    let (stack, word) = (10, -8);
    let mut asm = Asm::default();
    asm.movi(1, 0);
    asm.store(stack, word, 1);
    asm.atomic(EXCHANGE, stack, word, 1);
    asm.alui(alu::AND, 1, 0);
    asm.answer(0);
    asm.bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_say_what_was_refused() {
        let of = |error| Refusal { what: "a map", error };
        let eperm = of(Some(io::Error::from_raw_os_error(libc::EPERM).into()));
        assert!(eperm.is_of_rights() && eperm.to_string().starts_with("a map: "), "{eperm}");
        let absent = of(Some(io::Error::from_raw_os_error(libc::ENOSYS).into()));
        assert!(!absent.is_of_rights() && !of(None).is_of_rights());
        assert_eq!(of(None).to_string(), "a map");
        assert!(smallest().is_some_and(|program| program.len() == 8 * 6));
    }
}
