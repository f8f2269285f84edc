//! Parser of requests from the bytes that a client sends. Each complete line gives one request or
//! one refusal, whatever the bytes are and however they are split.
//!
//! The parser uses no socket: the server and the fuzzers parse in the same way.

use trackway_session::protocol::{LINE_BYTES_MAX, Message, PROTOCOL_VERSION, Refusal, Request};

/// Bytes from a client that have not been parsed.
#[derive(Debug, Default)]
pub struct RequestParser {
    bytes: Vec<u8>,
    /// Offset of the next line.
    begin: usize,
    /// Offset up to which the bytes after `begin` contain no line end.
    searched: usize,
    /// True if a line was too long: later bytes are ignored.
    is_over: bool,
}

impl RequestParser {
    /// Adds received bytes, which are kept until [`Self::next_request`] has returned their
    /// requests. To save memory, callers take these requests first.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.is_over {
            return;
        }
        self.bytes.drain(..self.begin);
        self.searched -= self.begin;
        self.begin = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the request in the next complete line, or a refusal; `None` if no line is complete.
    /// For a line longer than [`LINE_BYTES_MAX`] bytes, complete or not, returns a refusal once;
    /// [`Self::is_over`] is true afterwards.
    pub fn next_request(&mut self) -> Option<Result<Request, Refusal>> {
        self.search();
        let line = &self.bytes[self.begin..self.searched];
        if line.len() > LINE_BYTES_MAX {
            *self = Self { is_over: true, ..Self::default() };
            let why = format!("a request has at most {LINE_BYTES_MAX} bytes");
            return Some(Err(Refusal::new(why)));
        }
        if self.searched == self.bytes.len() {
            return None;
        }
        let request = parse_request(line);
        self.searched += 1;
        self.begin = self.searched;
        Some(request)
    }

    /// Returns true if [`Self::next_request`] has a result.
    pub fn has_request(&mut self) -> bool {
        self.search();
        self.searched < self.bytes.len() || self.searched - self.begin > LINE_BYTES_MAX
    }

    /// Returns true if no further request follows, whatever bytes arrive.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Advances `searched` to the next line end, or to the end of the bytes.
    fn search(&mut self) {
        let rest = &self.bytes[self.searched..];
        self.searched += rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
    }
}

/// Parses a request.
fn parse_request(line: &[u8]) -> Result<Request, Refusal> {
    let message: Message = match serde_json::from_slice(line) {
        Ok(message) => message,
        Err(error) => {
            // A request of another protocol version may have unknown fields.
            return Err(match version_of(line) {
                Some(version) if version != PROTOCOL_VERSION => version_refusal(version),
                _ => Refusal::new(format!("this is no request: {error}")),
            });
        }
    };
    match message.version {
        PROTOCOL_VERSION => Ok(message.request),
        version => Err(version_refusal(version)),
    }
}

fn version_of(line: &[u8]) -> Option<u32> {
    let value: serde_json::Value = serde_json::from_slice(line).ok()?;
    value.get("version")?.as_u64()?.try_into().ok()
}

fn version_refusal(version: u32) -> Refusal {
    Refusal::new(format!(
        "the recorder speaks version {PROTOCOL_VERSION} of the protocol, this is version {version}"
    ))
    .with_hint("use the trackway command that created the session")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(requests: &mut RequestParser) -> Vec<Result<Request, Refusal>> {
        core::iter::from_fn(|| requests.next_request()).collect()
    }

    #[test]
    fn each_line_is_a_request_or_a_reason_however_it_is_cut() {
        let text =
            b"{\"version\":1,\"ask\":\"status\"}\n\nno\n{\"version\":7,\"ask\":\"fly\"}\n{\"ver";
        let mut whole = RequestParser::default();
        whole.push(text);
        let expected = read_all(&mut whole);
        let [Ok(Request::Status), Err(empty), Err(no), Err(other)] = &expected[..] else {
            panic!("{expected:?}")
        };
        assert!(empty.why.contains("no request") && no.why.contains("no request"));
        assert!(other.why.contains("this is version 7"), "{}", other.why);
        for size in 1..text.len() {
            let mut requests = RequestParser::default();
            let mut found = Vec::new();
            for piece in text.chunks(size) {
                requests.push(piece);
                found.extend(read_all(&mut requests));
            }
            assert_eq!(found, expected, "in pieces of {size}");
        }
    }

    #[test]
    fn a_line_without_end_is_refused_once() {
        let mut requests = RequestParser::default();
        requests.push(b"\n");
        requests.push(&[b'x'; LINE_BYTES_MAX]);
        assert_eq!(read_all(&mut requests).len(), 1, "it may end yet");
        requests.push(b"x");
        assert!(requests.has_request());
        assert!(read_all(&mut requests)[0].as_ref().is_err_and(|why| why.why.contains("at most")));
        requests.push(b"\n{\"version\":1,\"ask\":\"status\"}\n");
        assert!(requests.is_over() && !requests.has_request() && requests.next_request().is_none());
    }
}
