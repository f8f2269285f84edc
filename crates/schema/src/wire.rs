//! Constants that the encoder and the decoder of descriptions share.

/// First byte of every description; decoders refuse any other value.
pub(crate) const VERSION: u8 = 1;

/// Returns true if the bytes are valid in a name: printable ASCII without quotes or backslashes, so
/// that no name can break out of the metadata's quoting.
pub(crate) fn is_name(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| (0x20..0x7f).contains(&byte) && byte != b'"' && byte != b'\\')
}
