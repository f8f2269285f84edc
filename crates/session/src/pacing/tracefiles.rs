//! The values of `--tracefile-size` and `--tracefile-count`: streams are cut into files of at most
//! that size, of which the newest are kept. As in LTTng, zero is no bound, and packets are never
//! cut.

use crate::{BufferPlan, ByteCount, Mode};

/// Most files of a stream that a bounded number of them can be.
pub const TRACEFILES_MAX: u64 = 1 << 16;

/// The bounds of the files of each stream of a channel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tracefiles {
    /// Most bytes of a file; 0: a stream is one file, which grows.
    pub size_bytes: u64,
    /// Most files of a stream, the newest; 0: all are kept.
    pub count: u64,
}

/// Bounds that no channel can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TracefilesError {
    /// A number of files, whose size is not bounded.
    CountAlone,
    /// A sub-buffer, of so many bytes, is larger than a file.
    TooSmall(u64),
    /// More than [`TRACEFILES_MAX`] files.
    TooMany,
    /// A flight recorder writes only snapshots.
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
    /// Bounds as the user said them.
    pub fn new(size_bytes: Option<u64>, count: Option<u64>) -> Self {
        Self { size_bytes: size_bytes.unwrap_or(0), count: count.unwrap_or(0) }
    }

    /// Checks that a channel with such buffers can have them.
    ///
    /// # Errors
    ///
    /// If it cannot.
    pub fn check(&self, buffers: &BufferPlan, mode: Mode) -> Result<(), TracefilesError> {
        self.check_for(1 << buffers.sub_shift, mode)
    }

    /// The same, for sub-buffers of so many bytes.
    pub(crate) fn check_for(&self, least: u64, mode: Mode) -> Result<(), TracefilesError> {
        // A packet is a sub-buffer at most, and goes into one file.
        match *self {
            Self { size_bytes: 0, count: 0 } => Ok(()),
            _ if mode == Mode::Overwrite => Err(TracefilesError::FlightRecorder),
            Self { size_bytes: 0, .. } => Err(TracefilesError::CountAlone),
            Self { size_bytes, .. } if size_bytes < least => Err(TracefilesError::TooSmall(least)),
            Self { count, .. } if count > TRACEFILES_MAX => Err(TracefilesError::TooMany),
            _ => Ok(()),
        }
    }

    /// Returns true if streams are cut into files at all.
    pub const fn is_bounded(&self) -> bool {
        self.size_bytes > 0
    }

    /// Returns true if a packet of so many bytes goes into another file than the one that has so
    /// many.
    pub const fn is_full(&self, file_bytes: u64, packet_bytes: u64) -> bool {
        self.is_bounded()
            && file_bytes > 0
            && file_bytes.saturating_add(packet_bytes) > self.size_bytes
    }

    /// Returns the number of a stream's files, `there` in all, that have to go before one more
    /// begins.
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
        // Sub-buffers of 64 KiB.
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
