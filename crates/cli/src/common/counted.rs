//! Formats counts with their nouns.

use trackway_render::format_grouped;

/// Formats a count with its noun: `1,234 events`.
pub(crate) fn format_count(count: u64, what: &str) -> String {
    format!("{} {what}{}", format_grouped(count), if count == 1 { "" } else { "s" })
}
