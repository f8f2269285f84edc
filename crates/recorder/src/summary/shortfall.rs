//! Causes of a channel's losses, and the settings that would have prevented them.
//!
//! Sizes are estimates. The buffer size is never reported as the cause of a loss that had another
//! cause than lack of space.

use std::fmt::{Display, Formatter};

use crate::common::numbers::Grouped;
use crate::notices::Notices;

/// Causes of a channel's losses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shortfall {
    /// Name of the channel.
    pub(crate) channel: String,
    /// Number of events lost for lack of buffer space.
    pub(crate) roomless: u64,
    /// Value of `buffer-size` that would have avoided the losses, in bytes; `None` if unknown.
    pub(crate) enough_bytes: Option<u64>,
    /// True if memory for buffers could not be allocated.
    pub(crate) is_memory_short: bool,
    /// Size of the largest record that no sub-buffer can hold, in bytes.
    pub(crate) oversized_bytes: Option<u64>,
    /// Value of `buffer-size` whose sub-buffers can hold the largest record, in bytes.
    pub(crate) holding_bytes: Option<u64>,
    /// Number of events that found no space in processes that have not mapped all buffers.
    pub(crate) unmapped: u64,
}

/// Place where the user specifies the size of a channel's buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SizeSource {
    /// A command-line option, for the only channel.
    Option,
    /// The specification of each channel.
    Channel,
    /// The specification of each channel in the file of `--config`.
    Config,
}

impl Shortfall {
    /// Returns true if the shortfall has nothing to report.
    pub(crate) fn is_empty(&self) -> bool {
        self.roomless == 0 && self.oversized_bytes.is_none() && self.unmapped == 0
    }

    /// Adds the shortfall of this channel in another window.
    pub(crate) fn add(&mut self, other: &Self) {
        // If the size is unknown for one window, it is unknown for all.
        let is_known = |part: &Self| part.roomless == 0 || part.enough_bytes.is_some();
        let are_known = is_known(self) && is_known(other);
        self.enough_bytes = self.enough_bytes.max(other.enough_bytes).filter(|_| are_known);
        self.roomless = self.roomless.saturating_add(other.roomless);
        self.is_memory_short |= other.is_memory_short;
        self.oversized_bytes = self.oversized_bytes.max(other.oversized_bytes);
        self.holding_bytes = self.holding_bytes.max(other.holding_bytes);
        self.unmapped = self.unmapped.saturating_add(other.unmapped);
    }

    /// Reports the settings that would have avoided this channel's share of the `lost` events.
    pub(crate) fn report(&self, lost: u64, source: SizeSource, notices: &Notices) {
        let size = |bytes| SizeOf { source, channel: &self.channel, bytes };
        let fewer = match source {
            SizeSource::Option => "fewer events, with --event, need less",
            SizeSource::Channel | SizeSource::Config => "fewer events need less",
        };
        let share = |count: u64, all: &str| match count >= lost {
            true => all.to_owned(),
            false => format!("{} of them", Grouped(count)),
        };
        match self.enough_bytes {
            _ if self.roomless == 0 => {}
            _ if self.is_memory_short => notices.hint(format_args!(
                "{} found no room because memory for buffers was short; {fewer}",
                share(self.roomless, "they")
            )),
            Some(bytes) => notices.hint(format_args!(
                "{} would have kept {}; {fewer}",
                size(Size::About(bytes)),
                share(self.roomless, "them")
            )),
            None => notices.hint(format_args!("{} keeps more; {fewer}", size(Size::Larger))),
        }
        if let Some(record_bytes) = self.oversized_bytes {
            let record_bytes = Grouped(record_bytes);
            let holds = self.holding_bytes.map(|bytes| size(Size::Exactly(bytes)));
            let holds = holds.map(|size| format!("; {size} has sub-buffers that can hold them"));
            notices.hint(format_args!(
                "events of up to {record_bytes} bytes are too large for a sub-buffer{}",
                holds.unwrap_or_default()
            ));
        }
        if self.unmapped > 0 {
            notices.hint(format_args!(
                "{} found no room in a process that cannot map all buffers, as with a limit on \
                 its address space (ulimit -v); {} needs less",
                share(self.unmapped, "they"),
                size(Size::Smaller)
            ));
        }
    }
}

/// Buffer size in a hint.
#[derive(Debug, Clone, Copy)]
enum Size {
    About(u64),
    Exactly(u64),
    Larger,
    Smaller,
}

/// Displays a size setting: `a --buffer-size of about 8M`, `a larger buffer-size of channel 'x'`.
struct SizeOf<'a> {
    source: SizeSource,
    channel: &'a str,
    bytes: Size,
}

impl Display for SizeOf<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        let name = match self.source {
            SizeSource::Option => "--buffer-size",
            SizeSource::Channel | SizeSource::Config => "buffer-size",
        };
        match self.bytes {
            Size::About(bytes) => {
                write!(formatter, "a {name} of about {}", format_size_argument(bytes))?
            }
            Size::Exactly(bytes) => {
                write!(formatter, "a {name} of {}", format_size_argument(bytes))?
            }
            Size::Larger => write!(formatter, "a larger {name}")?,
            Size::Smaller => write!(formatter, "a smaller {name}")?,
        }
        match self.source {
            SizeSource::Option => Ok(()),
            SizeSource::Channel => write!(formatter, " of channel '{}'", self.channel),
            SizeSource::Config => {
                write!(formatter, " of channel '{}' in the file of --config", self.channel)
            }
        }
    }
}

/// Formats a size as the value of an option: `16M`.
fn format_size_argument(bytes: u64) -> String {
    let units = [(30, "G"), (20, "M"), (10, "K")];
    let whole =
        |&&(shift, _): &&(u32, &str)| bytes >= 1 << shift && bytes.trailing_zeros() >= shift;
    match units.iter().find(whole) {
        Some((shift, unit)) => format!("{}{unit}", bytes >> shift),
        None => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported_hints(shortfall: &Shortfall, lost: u64, source: SizeSource) -> String {
        let notices = Notices::in_memory();
        shortfall.report(lost, source, &notices);
        notices.lines().join("\n")
    }

    fn web_shortfall() -> Shortfall {
        Shortfall { channel: "web".into(), ..Shortfall::default() }
    }

    #[test]
    fn losses_for_want_of_room_come_with_a_size() {
        let full = Shortfall { roomless: 1200, enough_bytes: Some(8 << 20), ..web_shortfall() };
        assert_eq!(
            reported_hints(&full, 1200, SizeSource::Option),
            "hint: a --buffer-size of about 8M would have kept them; fewer events, with --event, \
             need less"
        );
        assert_eq!(
            reported_hints(&full, 1201, SizeSource::Config),
            "hint: a buffer-size of about 8M of channel 'web' in the file of --config would have \
             kept 1,200 of them; fewer events need less"
        );
        let unknown = Shortfall { enough_bytes: None, ..full.clone() };
        assert_eq!(
            reported_hints(&unknown, 1200, SizeSource::Channel),
            "hint: a larger buffer-size of channel 'web' keeps more; fewer events need less"
        );
        let short = Shortfall { is_memory_short: true, ..full };
        let text = reported_hints(&short, 1200, SizeSource::Option);
        assert!(
            text.starts_with("hint: they found no room because memory") && !text.contains("8M")
        );
    }

    #[test]
    fn of_other_losses_no_larger_buffer_is_said_to_keep_them() {
        assert!(web_shortfall().is_empty());
        assert_eq!(reported_hints(&web_shortfall(), 12, SizeSource::Option), "");
        let holding_bytes = Some(4 << 20);
        let large = Shortfall { oversized_bytes: Some(60_017), holding_bytes, ..web_shortfall() };
        assert_eq!(
            reported_hints(&large, 12, SizeSource::Option),
            "hint: events of up to 60,017 bytes are too large for a sub-buffer; a --buffer-size of \
             4M has sub-buffers that can hold them"
        );
        let unmapped = Shortfall { unmapped: 12, ..web_shortfall() };
        assert_eq!(
            reported_hints(&unmapped, 12, SizeSource::Option),
            "hint: they found no room in a process that cannot map all buffers, as with a limit \
             on its address space (ulimit -v); a smaller --buffer-size needs less"
        );
    }

    #[test]
    fn a_part_of_unknown_size_makes_that_of_the_channel_unknown() {
        let known = Shortfall { roomless: 2, enough_bytes: Some(1 << 20), ..web_shortfall() };
        let mut sum = Shortfall { roomless: 3, enough_bytes: Some(2 << 20), ..web_shortfall() };
        sum.add(&known);
        assert_eq!((sum.roomless, sum.enough_bytes), (5, Some(2 << 20)));
        sum.add(&Shortfall { unmapped: 1, ..web_shortfall() });
        assert_eq!((sum.unmapped, sum.enough_bytes), (1, Some(2 << 20)));
        sum.add(&Shortfall { roomless: 1, ..web_shortfall() });
        assert_eq!((sum.roomless, sum.enough_bytes), (6, None));
    }
}
