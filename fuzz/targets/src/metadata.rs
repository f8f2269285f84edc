//! Metadata: whatever the bytes are, a trace or an error that says where.

use trackway_ctf::read::Trace;

/// Reads metadata, as text or as packets with text. The work: event classes that it declares.
pub fn tsdl(bytes: &[u8]) -> u64 {
    match Trace::parse(bytes) {
        Ok(trace) => {
            let classes = trace.streams().iter().map(|stream| stream.events().len() as u64);
            classes.sum()
        }
        Err(error) => {
            let lines = 1 + bytes.iter().filter(|&&byte| byte == b'\n').count();
            let line = error.line as usize;
            assert!(line <= lines, "line {line} of {lines}: {error}");
            assert!((error.line == 0) == (error.column == 0), "a line without a column: {error:?}");
            assert!(!error.to_string().is_empty());
            0
        }
    }
}
