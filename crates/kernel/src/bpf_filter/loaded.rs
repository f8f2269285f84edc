//! A filter in the kernel, which is asked by running its program.

use std::io;
use std::os::fd::OwnedFd;

use super::adapt::Adapted;
use super::area::{AREA_BYTES, Area};
use crate::bpf_sys::bpf::{
    ArrayMap, Functions, LoadError, PROG_TYPE_RAW_TRACEPOINT, ProgramKind, constant_map, load_btf,
    load_program, run_program,
};

/// The licence, as the kernel asks for it: nothing that it keeps for its own is used.
const LICENSE: &[u8] = b"MIT\0";
/// Bytes for what the kernel's verifier says of a program that it refuses.
const LOG_BYTES: usize = 1 << 20;

/// A filter in the kernel, with its area.
#[derive(Debug)]
pub struct Loaded {
    map: ArrayMap,
    /// What its patterns are, if there are some.
    _masks: Option<ArrayMap>,
    program: OwnedFd,
}

impl Loaded {
    /// Loads it.
    ///
    /// # Errors
    ///
    /// If there is no BPF here, or the program is refused.
    pub fn new(adapted: &Adapted) -> Result<Self, LoadError> {
        let map =
            ArrayMap::new(AREA_BYTES, 1).map_err(|error| LoadError::Unavailable(error.into()))?;
        let masks =
            constant_map(&adapted.masks).map_err(|error| LoadError::Unavailable(error.into()))?;
        let btf =
            load_btf(&adapted.btf.types).map_err(|error| LoadError::Unavailable(error.into()))?;
        let fds = (map.fd(), masks.as_ref().map_or(-1, ArrayMap::fd));
        let program = match load(adapted, fds, &btf, &mut []) {
            Ok(program) => program,
            // Its verifier has another word for what it refuses.
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                return Err(LoadError::Unavailable(error.into()));
            }
            // Once more, to be told why: what it says of a program that it takes may be too long.
            Err(error) => {
                let mut log = vec![0; LOG_BYTES];
                let _ = load(adapted, fds, &btf, &mut log);
                let end = log.iter().position(|&byte| byte == 0).unwrap_or(0);
                let log = String::from_utf8_lossy(&log[..end]).into_owned();
                return Err(LoadError::Refused(error.into(), log));
            }
        };
        Ok(Self { map, _masks: masks, program })
    }

    /// Whether the filter takes the event in the area, whose state is changed by being asked.
    ///
    /// # Errors
    ///
    /// If the kernel does not let us.
    pub fn takes(&self, area: &mut Area) -> io::Result<bool> {
        self.map.set(0, area.bytes_mut())?;
        let answer = self.ask_again()?;
        self.map.get(0, area.bytes_mut())?;
        Ok(answer)
    }

    /// The same for the area that the kernel has had last.
    ///
    /// # Errors
    ///
    /// As [`Self::takes`].
    pub fn ask_again(&self) -> io::Result<bool> {
        run_program(&self.program).map(|answer| answer != 0)
    }
}

/// Loads a program with the descriptors of its area's map and of that of its masks.
fn load(
    adapted: &Adapted,
    (area, masks): (i32, i32),
    btf: &OwnedFd,
    log: &mut [u8],
) -> io::Result<OwnedFd> {
    let functions = Functions::new(btf, &adapted.btf.infos);
    let kind = ProgramKind { prog_type: PROG_TYPE_RAW_TRACEPOINT, ..ProgramKind::default() };
    load_program(kind, &adapted.bytes(area, masks), LICENSE, Some(&functions), log)
}
