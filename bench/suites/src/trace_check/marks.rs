//! Marks that commands make at their begin, at their end, and in between. The marks in a tracer's
//! own output show that the tracer was on, and to which command the events belong. `marks.h`
//! defines them.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::ops::Range;
use std::path::Path;

use trackway_ctf::read::{DecodeError, Enumeration, EventBody, EventSink, Integer, Scope, Sink};

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::results::Account;

/// Number of the marks' system call; no other code uses their argument.
pub(crate) const CALL_NUMBER: u64 = libc::SYS_getpgid.cast_unsigned();
/// Prefix of the names of marks' threads.
pub(crate) const NAME: &str = "mark-";
/// Number of bytes that a mark allocates, less the mark's argument of the system call.
const ALLOCATION: u64 = 1 << 62;
/// Bits of a mark's number in the argument; the higher bits contain the run's nonce.
const NUMBER_BITS: u32 = 16;

/// The storage of events until they are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventStorage {
    /// Events are written to a file during the run.
    Disk,
    /// The newest events stay in memory until the command has ended.
    Flight,
}

/// The event of a mark that a tracer records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MarkEvent {
    /// The system call of the mark.
    Call,
    /// The end of the mark's thread, as an event of the scheduler.
    Exit,
    /// The mark's call to the allocator.
    Allocation,
}

impl MarkEvent {
    const fn words(self) -> &'static str {
        match self {
            Self::Call => "calls",
            Self::Exit => "exits",
            Self::Allocation => "allocations",
        }
    }
}

/// The marks found in a tracer's output; some may be of other runs.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct FoundMarks(BTreeSet<(MarkEvent, u32, u32)>);

impl FoundMarks {
    /// Adds the marks in another trace of the same run.
    pub(crate) fn add(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Adds the mark of a system call with this argument, if it is a mark.
    pub(crate) fn add_call(&mut self, argument: u64) {
        self.add_argument(MarkEvent::Call, argument);
    }

    /// Adds the mark of a thread with this name that has ended, if it is a mark.
    pub(crate) fn add_exit(&mut self, name: &str) {
        let numbers = name.strip_prefix(NAME).and_then(|rest| rest.split_once('-'));
        if let Some((nonce, number)) = numbers
            && let (Ok(nonce), Ok(number)) = (nonce.parse(), number.parse())
        {
            self.0.insert((MarkEvent::Exit, nonce, number));
        }
    }

    /// Adds the mark of an allocation with this number of bytes, if it is a mark.
    fn add_allocation(&mut self, bytes: u64) {
        if let Some(argument) = bytes.checked_sub(ALLOCATION) {
            self.add_argument(MarkEvent::Allocation, argument);
        }
    }

    fn add_argument(&mut self, side: MarkEvent, argument: u64) {
        if let Ok(nonce @ 1..) = u32::try_from(argument >> NUMBER_BITS) {
            self.0.insert((side, nonce, (argument & ((1 << NUMBER_BITS) - 1)) as u32));
        }
    }

    /// Adds the mark of an event in a CTF trace, if it is a mark.
    pub(crate) fn add_event(
        &mut self,
        name: &str,
        event: &mut EventBody<'_, '_, '_>,
    ) -> std::result::Result<(), DecodeError> {
        let side = match name {
            "syscall_entry_getpgid" => MarkEvent::Call,
            "sched_process_exit" => MarkEvent::Exit,
            "lttng_ust_libc:malloc" => MarkEvent::Allocation,
            _ => return Ok(()),
        };
        let mut first = FirstValues::default();
        event.peek(&mut first)?;
        match side {
            MarkEvent::Call => self.add_call(first.number.unwrap_or_default()),
            MarkEvent::Allocation => self.add_allocation(first.number.unwrap_or_default()),
            MarkEvent::Exit => self.add_exit(&String::from_utf8_lossy(&first.text)),
        }
        Ok(())
    }

    /// Reads the marks of the trace in `folder` or somewhere below.
    pub(crate) fn read_trace(folder: &Path) -> Result<Self> {
        let mut found = Self::default();
        let Some(folder) = super::find_trace_folder(folder, 0) else { return Ok(found) };
        let trace = super::read_metadata(&folder)?;
        for stream in super::list_stream_files(&folder)? {
            let bytes = fs::read(&stream).map_err(Error::io(format!("cannot read {stream:?}")))?;
            let what = stream.display().to_string();
            super::for_each_packet((&trace, &what), &bytes, |_, decoder, window| {
                while let Some(mut event) = decoder.begin_event(window)? {
                    if let Some(name) = event.header.class.name() {
                        found.add_event(name, &mut event)?;
                    }
                    event.skip()?;
                }
                Ok(())
            })?;
        }
        Ok(found)
    }
}

/// The first number and the first string of an event's fields.
#[derive(Debug, Default)]
struct FirstValues {
    in_fields: bool,
    number: Option<u64>,
    text: Vec<u8>,
}

impl EventSink for FirstValues {
    fn begin_scope(&mut self, scope: Scope) {
        self.in_fields = scope == Scope::Fields;
    }
}

impl Sink for FirstValues {
    fn integer(&mut self, _: &Integer, value: u64) {
        if self.in_fields {
            self.number = self.number.or(Some(value));
        }
    }
    fn text(&mut self, bytes: &[u8]) {
        if self.in_fields && self.text.is_empty() {
            self.text = bytes.to_vec();
        }
    }
    fn enumeration(&mut self, _: &Enumeration, _: u64) {}
    fn float(&mut self, _: f64) {}
}

/// The marks that a command made, from the command's own report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MadeMarks {
    nonce: u32,
    begin: u32,
    during: u32,
    end: u32,
    /// The CPU of each mark.
    cpus: Vec<u32>,
}

impl MadeMarks {
    /// Parses a command's output; `None` if it makes no marks.
    pub(crate) fn of(stdout: &str) -> Result<Option<Self>> {
        let mut lines = stdout.lines().skip_while(|line| !line.starts_with("marks "));
        let Some(line) = lines.next() else { return Ok(None) };
        let wrong = || Error::output("workload", format!("'{line}' and its CPUs"));
        let numbers = trackway_bench_engine::host::workload::parse_numbers::<4>(line, "marks")?;
        let [nonce, begin, during, end] = numbers.map(u32::try_from);
        let cpus = lines.next().and_then(|line| line.strip_prefix("mark-cpus "));
        let cpus = cpus.ok_or_else(wrong)?.split(' ').map(str::parse);
        let made = Self {
            nonce: nonce.map_err(|_| wrong())?,
            begin: begin.map_err(|_| wrong())?,
            during: during.map_err(|_| wrong())?,
            end: end.map_err(|_| wrong())?,
            cpus: cpus.collect::<std::result::Result<_, _>>().map_err(|_| wrong())?,
        };
        if made.cpus.len() != made.count() as usize {
            return Err(wrong());
        }
        Ok(Some(made))
    }

    const fn count(&self) -> u32 {
        self.begin.saturating_add(self.during).saturating_add(self.end)
    }

    /// Returns the number of the first mark at the end.
    const fn end_from(&self) -> u32 {
        self.begin.saturating_add(self.during)
    }

    /// Returns the names of the marks' threads.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> + use<> {
        let nonce = self.nonce;
        (0..self.count()).map(move |number| format!("{NAME}{nonce}-{number}"))
    }

    /// Computes the account of the marks of these events, for a tracer with this storage and this
    /// account of all events: missing marks must be among the events that the tracer lost or
    /// overwrote. The buffer of each CPU overwrites its oldest events. So of a CPU's marks, only
    /// those before the first recorded one can have been overwritten. Marks that are missing after
    /// it are lost, or make an account that does not add up.
    ///
    /// # Errors
    ///
    /// If the tracer was not on all the time: its output has no mark of the end, or no mark of the
    /// begin although it keeps all events, or lacks some marks although it reports no loss.
    pub(crate) fn account(
        &self,
        tracer: &str,
        (found, sides): (&FoundMarks, &[MarkEvent]),
        keep: EventStorage,
        all: &Account,
    ) -> Result<Account> {
        let (mut recorded, mut oldest) = (0, 0);
        for &side in sides {
            let is_seen = |number: u32| found.0.contains(&(side, self.nonce, number));
            let of = |numbers: Range<u32>| numbers.filter(|number| is_seen(*number)).count() as u64;
            let begin = MarkCounts { found: of(0..self.begin), made: self.begin.into() };
            let end =
                MarkCounts { found: of(self.end_from()..self.count()), made: self.end.into() };
            let is_whole = end.proves(all.lost)
                && match keep {
                    EventStorage::Disk => begin.proves(all.lost),
                    EventStorage::Flight => {
                        begin.found == begin.made || all.lost + all.overwritten > 0
                    }
                };
            if !is_whole {
                let message = format!(
                    "it was not on all the time: of the marks' {} it has {begin} at the begin and \
                     {end} at the end; of all events it says: {}",
                    side.words(),
                    all.words()
                );
                return Err(Error::output(tracer, message));
            }
            recorded += of(0..self.count());
            oldest += self.before_first(is_seen);
        }
        let emitted = u64::from(self.count()) * sides.len() as u64;
        let overwritten = oldest.min(all.overwritten);
        Ok(Account {
            emitted,
            recorded,
            lost: (emitted - recorded - overwritten).min(all.lost),
            overwritten,
            record_bytes: all.bytes_of(recorded),
        })
    }

    /// Returns the number of marks before the first recorded mark of their CPU. Marks of the end
    /// are not counted: the newest events are overwritten last.
    fn before_first(&self, is_seen: impl Fn(u32) -> bool) -> u64 {
        let (mut begun, mut before) = (BTreeSet::new(), 0);
        for (number, cpu) in (0..self.end_from()).zip(&self.cpus) {
            if is_seen(number) {
                begun.insert(cpu);
            }
            before += u64::from(!begun.contains(cpu));
        }
        before
    }
}

/// Counts of the marks of the begin, or of the end.
#[derive(Debug, Clone, Copy)]
struct MarkCounts {
    found: u64,
    made: u64,
}

impl MarkCounts {
    /// Returns true if the marks show that the tracer was on at this time, given the number of lost
    /// events.
    const fn proves(self, lost: u64) -> bool {
        self.found > 0 && (self.found == self.made || lost > 0)
    }
}

impl fmt::Display for MarkCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.found, self.made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIDES: [MarkEvent; 2] = [MarkEvent::Call, MarkEvent::Exit];

    fn parse_test_marks() -> MadeMarks {
        let stdout = "noise\nmarks 20000 2 3 4\nmark-cpus 0 1 0 0 1 0 1 0 1\nload 1 2 3\n";
        MadeMarks::of(stdout).expect("numbers").expect("marks")
    }

    /// Computes the account of these marks for a tracer with this account of all events.
    fn account_of_numbers(
        numbers: impl IntoIterator<Item = u32>,
        keep: EventStorage,
        lost: u64,
        overwritten: u64,
    ) -> Result<Account> {
        let mut found = FoundMarks::default();
        for number in numbers {
            found.add_call(u64::from(20_000_u32 << NUMBER_BITS | number));
            found.add_exit(&format!("mark-20000-{number}"));
        }
        let all = Account { emitted: 1000, recorded: 500, lost, overwritten, record_bytes: 5000 };
        parse_test_marks().account("it", (&found, &SIDES), keep, &all)
    }

    #[test]
    fn marks_are_what_commands_say() {
        let cpus = vec![0, 1, 0, 0, 1, 0, 1, 0, 1];
        assert_eq!(
            parse_test_marks(),
            MadeMarks { nonce: 20_000, begin: 2, during: 3, end: 4, cpus }
        );
        assert_eq!(parse_test_marks().names().last().as_deref(), Some("mark-20000-8"));
        assert_eq!(MadeMarks::of("load 1 2 3\n").expect("nothing wrong"), None);
        for wrong in ["marks 1 2 x 4\nmark-cpus 0", "marks 1 1 0 1", "marks 1 1 0 1\nmark-cpus 0"] {
            assert!(MadeMarks::of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn all_that_are_seen_make_an_account() {
        let found = account_of_numbers(0..9, EventStorage::Disk, 0, 0).expect("all of it");
        assert_eq!((found.emitted, found.recorded, found.record_bytes), (18, 18, 180));
        assert!(found.is_complete());
        let some = account_of_numbers([0, 1, 5, 6, 7, 8], EventStorage::Disk, 400, 0)
            .expect("with losses");
        assert_eq!((some.emitted, some.recorded, some.lost), (18, 12, 6));
    }

    #[test]
    fn what_is_overwritten_is_the_oldest_of_each_cpu() {
        // The newest events on each CPU are recorded. Marks cannot distinguish a recorder that was
        // off before from a recorder that has overwritten as many events: only its own count can.
        let found = account_of_numbers(4..9, EventStorage::Flight, 0, 900).expect("the newest");
        assert_eq!((found.recorded, found.overwritten, found.is_complete()), (10, 8, true));
        let none = account_of_numbers([1, 4, 5, 6, 7, 8], EventStorage::Flight, 0, 900)
            .expect("all of one CPU");
        assert_eq!((none.overwritten, none.is_complete()), (6, true));
        let few =
            account_of_numbers(4..9, EventStorage::Flight, 0, 7).expect("fewer than are missing");
        assert!(!few.is_complete());
        // The tracer is on at the begin, then off for a while: a hole on one CPU, or on both.
        for numbers in [&[0, 1, 3, 4, 5, 6, 7, 8][..], &[0, 1, 5, 6, 7, 8]] {
            let numbers = || numbers.iter().copied();
            let hole =
                account_of_numbers(numbers(), EventStorage::Flight, 0, 900).expect("both ends");
            assert!(!hole.is_complete() && hole.overwritten == 0, "{hole:?}");
            let lost =
                account_of_numbers(numbers(), EventStorage::Flight, 6, 900).expect("it says so");
            assert!(lost.is_complete());
        }
        account_of_numbers(0..8, EventStorage::Flight, 0, 900).expect_err("the last is not there");
        let lost =
            account_of_numbers(4..8, EventStorage::Flight, 2, 900).expect("the last are lost");
        assert_eq!((lost.lost, lost.overwritten, lost.is_complete()), (2, 8, true));
    }

    #[test]
    fn who_was_not_on_at_the_begin_or_at_the_end_has_none() {
        // Only the marks of the first half; only those of the second half; marks of another run.
        account_of_numbers(0..5, EventStorage::Disk, 0, 0).expect_err("the end");
        account_of_numbers(0..5, EventStorage::Disk, 700, 0)
            .expect_err("the end, whatever it lost");
        account_of_numbers(3..9, EventStorage::Disk, 0, 0).expect_err("the begin");
        account_of_numbers(3..9, EventStorage::Disk, 700, 0)
            .expect_err("the begin, whatever it lost");
        account_of_numbers(3..9, EventStorage::Flight, 0, 0)
            .expect_err("the begin, of which nothing was overwritten");
        account_of_numbers(0..5, EventStorage::Flight, 0, 700)
            .expect_err("the newest are not there");
        account_of_numbers([], EventStorage::Disk, 0, 0).expect_err("nothing");
        // The tracer was off for a while in between, and does not report losses.
        let found = account_of_numbers([0, 1, 5, 6, 7, 8], EventStorage::Disk, 0, 0)
            .expect("begin and end");
        assert!(!found.is_complete());
    }

    #[test]
    fn a_side_that_was_off_shows() {
        let mut found = FoundMarks::default();
        (0..9).for_each(|number| found.add_exit(&format!("mark-20000-{number}")));
        let all = Account { emitted: 9, recorded: 9, ..Account::default() };
        let account =
            |sides| parse_test_marks().account("it", (&found, sides), EventStorage::Disk, &all);
        assert!(account(&[MarkEvent::Exit]).is_ok());
        let error = account(&SIDES).unwrap_err().to_string();
        assert!(error.contains("calls it has 0 of 2 at the begin"), "{error}");
    }

    #[test]
    fn what_others_do_is_no_mark() {
        let mut found = FoundMarks::default();
        found.add_call(4711);
        for name in ["mark-", "mark-x-1", "mark-1", "bookmark-1-2", "cc"] {
            found.add_exit(name);
        }
        found.add_allocation(4096);
        assert_eq!(found, FoundMarks::default());
        found.add_allocation(ALLOCATION + (20_000 << NUMBER_BITS) + 7);
        assert_eq!(found.0.first(), Some(&(MarkEvent::Allocation, 20_000, 7)));
    }
}
