//! Random bytes and identities.

use std::fs::File;
use std::io;

use crate::error::RecordError;

/// Returns random bytes from the kernel.
pub(crate) fn random_bytes<const N: usize>() -> Result<[u8; N], RecordError> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")
        .and_then(|mut file| io::Read::read_exact(&mut file, &mut bytes))
        .map_err(RecordError::io("read", "/dev/urandom"))?;
    Ok(bytes)
}

/// Returns a random UUID (RFC 9562, version 4).
pub(crate) fn random_uuid() -> Result<[u8; 16], RecordError> {
    let mut bytes = random_bytes::<16>()?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Ok(bytes)
}
