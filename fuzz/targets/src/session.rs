//! Inputs of a session: its configuration file, and the lines on its control socket.

use std::time::Duration;

use trackway_recorder::control::RequestParser;
use trackway_recorder::is_valid_name;
use trackway_session::machine::{CREATOR, Effect, Machine, Outcome};
use trackway_session::protocol::{
    Answer, Counts, LINE_BYTES_MAX, Message, PROTOCOL_VERSION, Refusal, Request, SnapshotFacts,
};
use trackway_session::{ChannelSpec, SessionSpec};

use crate::Bound;

/// Limit of values: the channels of a file, or answers.
pub(crate) const VALUES: Bound = Bound { per_byte: 1, base: 1 };
/// Limit of memory: a document's values, and the errors that quote it.
pub(crate) const MEMORY: Bound = Bound { per_byte: 512, base: 1 << 20 };
/// Limit of allocations: as for memory, and a session's channels for each change.
pub(crate) const ALLOCATIONS: Bound = Bound { per_byte: 128, base: 64 << 10 };

/// Maximum number of channels in one user's sessions, and maximum bytes of a channel's rules.
const CHANNELS_MAX: usize = 32;
const RULES_BYTES_MAX: usize = 2048;
const PROCESS_RULES_BYTES_MAX: usize = 512;

/// Reads a session's configuration file. The work is the number of channels.
pub fn read_spec(bytes: &[u8]) -> u64 {
    let Ok(text) = core::str::from_utf8(bytes) else { return 0 };
    match SessionSpec::from_toml(text) {
        Err(error) => {
            assert!(!error.to_string().is_empty());
            0
        }
        Ok(spec) => {
            check_spec(&spec);
            let saved = spec.to_toml().expect("what was text can be text again");
            assert_eq!(SessionSpec::from_toml(&saved).as_ref(), Ok(&spec), "{saved}");
            spec.channels.len() as u64
        }
    }
}

/// Checks that an accepted configuration can be recorded.
fn check_spec(spec: &SessionSpec) {
    assert_eq!(spec.check(), Ok(()));
    assert!(spec.name.is_empty() || is_valid_name(&spec.name));
    assert!((1..=CHANNELS_MAX).contains(&spec.channels.len()));
    for channel in &spec.channels {
        assert!(is_valid_name(&channel.name));
        let plan = channel.plan().expect("sizes");
        assert!(channel.context_list().is_ok());
        let files = channel.tracefiles();
        assert_eq!(files.check(&plan, channel.mode), Ok(()));
        assert!(!files.is_bounded() || files.size_bytes >= 1 << plan.sub_shift);
        assert!(files.is_bounded() || files.count == 0);
        let rules = channel.rules_text().expect("rules");
        assert!(rules.len() <= RULES_BYTES_MAX);
        let asked = channel.on.as_ref().map_or(1, Vec::len);
        let lines = rules.lines().count();
        assert!(lines == asked || lines == asked + 1, "each rule is a line of {rules:?}");
        check_process_rules(channel);
    }
}

/// Checks that no process rule is ambiguous when encoded with the others.
fn check_process_rules(channel: &ChannelSpec) {
    let globs = channel.executables.iter().map(|glob| "exe=\n".len() + glob.len()).sum::<usize>();
    assert!(globs <= PROCESS_RULES_BYTES_MAX);
    let is_one = |glob: &String| glob.lines().count() == 1 && !glob.ends_with('\n');
    assert!(channel.executables.iter().all(is_one));
}

/// Reads a client's lines, and passes them to a session's state machine: each line has one answer,
/// and every accepted configuration could begin a session. The work is the number of answers.
///
/// ```text
/// size of the pieces u8, 0: all in one piece | lines
/// ```
pub fn read_control(bytes: &[u8]) -> u64 {
    let Some((&size, sent)) = bytes.split_first() else { return 0 };
    let whole = read_requests([sent].into_iter());
    if size > 0 {
        assert!(read_requests(sent.chunks(size.into())) == whole, "lines depend on how they come");
    }
    let lines = sent.iter().filter(|&&byte| byte == b'\n').count();
    assert!(whole.len() == lines || sent.len() > LINE_BYTES_MAX, "each line is one request");
    let mut session = Session::begin();
    for request in whole.iter().flatten() {
        check_round_trip(request);
        // A session answers no request after its end.
        if !session.has_ended {
            session.send(request.clone());
        }
    }
    whole.len() as u64
}

/// Returns the requests that a server reads from a client that sends these pieces.
fn read_requests<'bytes>(
    pieces: impl Iterator<Item = &'bytes [u8]>,
) -> Vec<Result<Request, Refusal>> {
    let mut requests = RequestParser::default();
    let mut read = Vec::new();
    for piece in pieces {
        requests.push(piece);
        while requests.has_request() {
            read.push(requests.next_request().expect("it has one"));
        }
        assert!(requests.next_request().is_none());
    }
    read
}

/// Checks that an encoded request decodes to the same request.
fn check_round_trip(request: &Request) {
    let message = Message { version: PROTOCOL_VERSION, request: request.clone() };
    let mut line = serde_json::to_vec(&message).expect("texts and numbers");
    line.push(b'\n');
    assert_eq!(read_requests([&line[..]].into_iter()), [Ok(message.request)]);
}

/// A session in which all effects succeed, except one in [`FAILURES`].
struct Session {
    machine: Machine,
    effects: u64,
    has_ended: bool,
}

/// One in this many effects fails.
const FAILURES: u64 = 5;

impl Session {
    fn begin() -> Self {
        let machine = Machine::new(SessionSpec::default());
        let mut session = Self { machine, effects: 0, has_ended: false };
        assert_eq!(session.carry_out(), [CREATOR]);
        session
    }

    fn send(&mut self, request: Request) {
        const CLIENT: u64 = 7;
        self.machine.submit(CLIENT, request);
        assert_eq!(self.carry_out(), [CLIENT], "one answer for each request");
        check_spec(self.machine.spec());
        assert!(self.machine.channels().count() == self.machine.spec().channels.len());
    }

    /// Performs all pending effects; returns the clients that got an answer.
    fn carry_out(&mut self) -> Vec<u64> {
        let mut answered = Vec::new();
        while let Some(effect) = self.machine.next_effect() {
            if effect.has_outcome() {
                self.effects += 1;
                let outcome = self.outcome(&effect);
                self.machine.complete(outcome);
            }
            match effect {
                Effect::Answer(client, answer) => {
                    assert!(serde_json::to_string::<Answer>(&answer).is_ok());
                    answered.push(client);
                }
                Effect::ReportStatus(client) | Effect::Follow(client) => answered.push(client),
                Effect::Exit => self.has_ended = true,
                _ => {}
            }
        }
        answered
    }

    fn outcome(&self, effect: &Effect) -> Outcome {
        if self.effects.is_multiple_of(FAILURES) {
            return Outcome::Failed(Refusal::new("it cannot be"));
        }
        match effect {
            Effect::Snapshot(_) => Outcome::Snapshot(SnapshotFacts::default()),
            Effect::Finish => Outcome::Ended(Box::<Counts>::default()),
            Effect::SetBlocking { time, .. } => {
                assert!(time.is_none_or(|time| time <= Duration::from_nanos(u64::MAX)));
                Outcome::Done
            }
            _ => Outcome::Done,
        }
    }
}
