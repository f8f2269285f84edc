//! A filter loaded into the kernel, for tests: bpf(2) runs the filter.

use std::io;
use std::os::fd::OwnedFd;

use super::scratch::{AREA_BYTES, ScratchArea};
use super::translate::TranslatedFilter;
use crate::bpf_sys::bpf::{
    ArrayMap, Functions, LoadError, PROG_TYPE_RAW_TRACEPOINT, ProgramKind, create_constant_map,
    load_btf, load_program, run_program,
};

/// The program's licence: the program uses no functions that are reserved for the GPL.
const LICENSE: &[u8] = b"MIT\0";
/// Size in bytes of the verifier's log for a rejected program.
const LOG_BYTES: usize = 1 << 20;

/// A loaded filter with its scratch area.
#[derive(Debug)]
pub struct LoadedFilter {
    map: ArrayMap,
    /// Masks of the filter's automata, if the filter has automata.
    _masks: Option<ArrayMap>,
    program: OwnedFd,
}

impl LoadedFilter {
    /// Loads the filter.
    ///
    /// # Errors
    ///
    /// If BPF is not available to this process, or the verifier refuses the program.
    pub fn new(translated: &TranslatedFilter) -> Result<Self, LoadError> {
        let map =
            ArrayMap::new(AREA_BYTES, 1).map_err(|error| LoadError::Unavailable(error.into()))?;
        let masks = create_constant_map(&translated.masks)
            .map_err(|error| LoadError::Unavailable(error.into()))?;
        let btf = load_btf(&translated.btf.types)
            .map_err(|error| LoadError::Unavailable(error.into()))?;
        let fds = (map.fd(), masks.as_ref().map_or(-1, ArrayMap::fd));
        let program = match load_with_maps(translated, fds, &btf, &mut []) {
            Ok(program) => program,
            // If the verifier rejects the program, the error number is another one.
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                return Err(LoadError::Unavailable(error.into()));
            }
            // The second attempt gets the log, which may be too long for an accepted program.
            Err(error) => {
                let mut log = vec![0; LOG_BYTES];
                let _ = load_with_maps(translated, fds, &btf, &mut log);
                let end = log.iter().position(|&byte| byte == 0).unwrap_or(0);
                let log = String::from_utf8_lossy(&log[..end]).into_owned();
                return Err(LoadError::Refused(error.into(), log));
            }
        };
        Ok(Self { map, _masks: masks, program })
    }

    /// Returns true if the filter passes the event in the area; updates the area's state.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to run the filter.
    pub fn passes(&self, area: &mut ScratchArea) -> io::Result<bool> {
        self.map.set(0, area.bytes_mut())?;
        let answer = self.run_again()?;
        self.map.get(0, area.bytes_mut())?;
        Ok(answer)
    }

    /// Runs the filter again on the scratch area that is in the kernel.
    ///
    /// # Errors
    ///
    /// See [`Self::passes`].
    pub fn run_again(&self) -> io::Result<bool> {
        run_program(&self.program).map(|answer| answer != 0)
    }
}

/// Loads a program with the descriptors of its scratch area map and mask map.
fn load_with_maps(
    translated: &TranslatedFilter,
    (area, masks): (i32, i32),
    btf: &OwnedFd,
    log: &mut [u8],
) -> io::Result<OwnedFd> {
    let functions = Functions::new(btf, &translated.btf.infos);
    let kind = ProgramKind { prog_type: PROG_TYPE_RAW_TRACEPOINT, ..ProgramKind::default() };
    load_program(kind, &translated.bytes(area, masks), LICENSE, Some(&functions), log)
}
