//! Texts and identities of a session in the window, where other processes also write.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use trackway_abi::record::context;
use trackway_abi::session::{
    APPLICATIONS_BYTES_MAX, NAME_BYTES_MAX, PATH_BYTES_MAX, PROCESS_RULES_BYTES_MAX, Session,
};
use trackway_ctf::write::Contexts;

/// Returns the path of the session's trace folder that is written in the window.
pub(crate) fn trace_path_of(session: &Session) -> PathBuf {
    let bytes =
        copy_bytes(&session.path, session.path_bytes.load(Ordering::Relaxed), PATH_BYTES_MAX);
    PathBuf::from(OsString::from_vec(bytes))
}

/// Returns the identity of the trace of a session in a window.
pub(crate) fn uuid_of(session: &Session) -> [u8; 16] {
    let mut uuid = [0; 16];
    for (bytes, half) in uuid.chunks_exact_mut(8).zip(&session.trace_uuid) {
        bytes.copy_from_slice(&half.load(Ordering::Relaxed).to_le_bytes());
    }
    uuid
}

/// Returns the name of the channel that is written in the window, if it is valid.
pub(crate) fn channel_name(session: &Session) -> Option<String> {
    let length = session.channel_bytes.load(Ordering::Relaxed);
    let name = String::from_utf8(copy_bytes(&session.channel, length, NAME_BYTES_MAX)).ok()?;
    trackway_session::is_valid_name(&name).then_some(name)
}

/// Returns the contexts of the channel's records that are written in the window, limited to those
/// that writers find.
pub(crate) fn contexts_of(session: &Session, bits: u32) -> Contexts {
    let names = if bits & context::APPLICATIONS != 0 {
        let length = session.applications_bytes.load(Ordering::Relaxed);
        copy_bytes(&session.applications, length, APPLICATIONS_BYTES_MAX)
    } else {
        Vec::new()
    };
    let names = names.split(|&byte| byte == b'\n').filter(|name| !name.is_empty());
    let name = |name| String::from_utf8_lossy(name).into_owned();
    Contexts {
        bits,
        kernel: Vec::new(),
        applications: names.take(context::APPLICATIONS_MAX).map(name).collect(),
    }
}

/// Returns the process rules that are written in the window.
pub(crate) fn process_rules(session: &Session) -> String {
    let length = session.process_rules_bytes.load(Ordering::Relaxed);
    let bytes = copy_bytes(&session.process_rules, length, PROCESS_RULES_BYTES_MAX);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Writes the part of a text that fits, and its length.
pub(crate) fn write_text(into: &[AtomicU8], length: &AtomicU32, bytes: &[u8]) {
    for (place, byte) in into.iter().zip(bytes) {
        place.store(*byte, Ordering::Relaxed);
    }
    length.store(bytes.len().min(into.len()) as u32, Ordering::Relaxed);
}

pub(crate) fn copy_bytes(from: &[AtomicU8], length: u32, most: usize) -> Vec<u8> {
    let length = (length as usize).min(most).min(from.len());
    from[..length].iter().map(|byte| byte.load(Ordering::Relaxed)).collect()
}
