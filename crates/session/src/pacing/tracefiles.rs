//! The values of options `--tracefile-size` and `--tracefile-count`: a stream is cut into files of
//! at most that size, and the newest files are kept. As in LTTng, zero means no bound, and packets
//! are never cut.

use crate::{BufferPlan, ByteCount, Mode};

/// Largest bound for the number of a stream's files.
pub const TRACEFILES_MAX: u64 = 1 << 16;

/// The bounds for the files of each stream of a channel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tracefiles {
    /// Most bytes of a file; 0: a stream is a single file, which grows.
    pub size_bytes: u64,
    /// Most files of a stream, of which the newest are kept; 0: all files are kept.
    pub count: u64,
}

/// The error that a channel cannot have these bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TracefilesError {
    /// The number of files is bounded, but not their size.
    CountAlone,
    /// A file is smaller than a sub-buffer, which has this many bytes.
    TooSmall(u64),
    /// The bound exceeds [`TRACEFILES_MAX`] files.
    TooMany,
    /// A flight recorder cannot cut streams: it writes only snapshots.
    FlightRecorder,
}

impl core::fmt::Display for TracefilesError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::CountAlone => formatter.write_str(
                "a number of trace files bounds nothing without their size (--tracefile-size)",
            ),
            Self::TooSmall(bytes) => write!(
                formatter,
                "a trace file has to hold a sub-buffer: at least {}",
                ByteCount(*bytes)
            ),
            Self::TooMany => {
                write!(formatter, "a stream has at most {TRACEFILES_MAX} trace files")
            }
            Self::FlightRecorder => formatter.write_str(
                "a flight recorder is written as a whole: its size is that of its buffers",
            ),
        }
    }
}

impl core::error::Error for TracefilesError {}

impl Tracefiles {
    /// Creates bounds from the user's options.
    pub fn new(size_bytes: Option<u64>, count: Option<u64>) -> Self {
        Self { size_bytes: size_bytes.unwrap_or(0), count: count.unwrap_or(0) }
    }

    /// Checks that a channel with these buffers can have these bounds.
    ///
    /// # Errors
    ///
    /// If the channel cannot have the bounds.
    pub fn check(&self, buffers: &BufferPlan, mode: Mode) -> Result<(), TracefilesError> {
        self.check_for(1 << buffers.sub_shift, mode)
    }

    /// Checks the bounds like [`Self::check`], for sub-buffers of `least` bytes.
    pub(crate) fn check_for(&self, least: u64, mode: Mode) -> Result<(), TracefilesError> {
        // A packet has at most the size of a sub-buffer, and must fit one file.
        match *self {
            Self { size_bytes: 0, count: 0 } => Ok(()),
            _ if mode == Mode::Overwrite => Err(TracefilesError::FlightRecorder),
            Self { size_bytes: 0, .. } => Err(TracefilesError::CountAlone),
            Self { size_bytes, .. } if size_bytes < least => Err(TracefilesError::TooSmall(least)),
            Self { count, .. } if count > TRACEFILES_MAX => Err(TracefilesError::TooMany),
            _ => Ok(()),
        }
    }

    /// Returns true if streams are cut into files.
    pub const fn is_bounded(&self) -> bool {
        self.size_bytes > 0
    }

    /// Returns true if a packet of `packet_bytes` bytes needs a new file, because the current one
    /// has `file_bytes` bytes.
    pub const fn is_full(&self, file_bytes: u64, packet_bytes: u64) -> bool {
        self.is_bounded()
            && file_bytes > 0
            && file_bytes.saturating_add(packet_bytes) > self.size_bytes
    }

    /// Returns how many of a stream's `there` files must be deleted before a new file begins.
    pub const fn surplus(&self, there: u64) -> u64 {
        if self.count == 0 { 0 } else { (there + 1).saturating_sub(self.count) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BufferOptions;
    use proptest::prelude::*;

    fn check_bounds(
        size: Option<u64>,
        count: Option<u64>,
        mode: Mode,
    ) -> Result<(), TracefilesError> {
        // The default sub-buffers have 64 KiB.
        let buffers = BufferOptions::default().plan().expect("the default sizes");
        Tracefiles::new(size, count).check(&buffers, mode)
    }

    #[test]
    fn bounds_that_bound_nothing_or_hold_nothing_are_refused() {
        let (discard, overwrite) = (Mode::Discard, Mode::Overwrite);
        for (size, count) in [(None, None), (Some(0), Some(0)), (Some(64 << 10), None)] {
            assert_eq!(check_bounds(size, count, discard), Ok(()), "{size:?} {count:?}");
        }
        assert_eq!(check_bounds(Some(1 << 20), Some(1), discard), Ok(()));
        assert_eq!(check_bounds(None, Some(4), discard), Err(TracefilesError::CountAlone));
        let small = check_bounds(Some((64 << 10) - 1), None, discard);
        assert_eq!(small, Err(TracefilesError::TooSmall(64 << 10)));
        let many = check_bounds(Some(1 << 20), Some(TRACEFILES_MAX + 1), discard);
        assert_eq!(many, Err(TracefilesError::TooMany));
        assert_eq!(check_bounds(Some(0), None, overwrite), Ok(()));
        let flight = check_bounds(Some(1 << 20), None, overwrite);
        assert_eq!(flight, Err(TracefilesError::FlightRecorder));
    }

    proptest! {
        #[test]
        fn what_is_there_is_bounded_at_any_time(
            size in 1_u64..200, count in 1_u64..5,
            packets in prop::collection::vec(1_u64..200, 0..60),
        ) {
            let bounds = Tracefiles::new(Some(size), Some(count));
            let mut files: Vec<Vec<u64>> = vec![Vec::new()];
            for packet in packets.into_iter().map(|packet| packet.min(size)) {
                let current: u64 = files.last().expect("one").iter().sum();
                if bounds.is_full(current, packet) {
                    let surplus = bounds.surplus(files.len() as u64);
                    files.drain(..surplus as usize);
                    files.push(Vec::new());
                }
                files.last_mut().expect("one").push(packet);
                prop_assert!(files.len() as u64 <= count);
                prop_assert!(files.iter().all(|file| file.iter().sum::<u64>() <= size));
            }
            let unbounded = Tracefiles::default();
            prop_assert!(!unbounded.is_full(u64::MAX, u64::MAX));
            prop_assert_eq!(Tracefiles::new(Some(size), None).surplus(1 << 40), 0);
        }
    }
}
