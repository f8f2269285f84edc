//! Counts in words.

use trackway_render::grouped;

/// `1,234 events`
pub(crate) fn counted(count: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(count), if count == 1 { "" } else { "s" })
}
