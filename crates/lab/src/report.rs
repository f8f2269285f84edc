//! What all reports have.

use crate::results::{Bar, Verdict};

/// Bytes, in MiB.
pub(crate) fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// The bars, line by line.
pub(crate) fn bars_text(bars: &[Bar]) -> Option<String> {
    let mut text = "What Trackway set out to reach\n\n".to_owned();
    for bar in bars {
        let verdict = match bar.verdict {
            Verdict::Holds => "holds",
            Verdict::Misses => "misses",
            Verdict::Unknown => "",
        };
        let line = format!("  {:<62}  {:<20}  {verdict}", bar.what, bar.measured);
        text += line.trim_end();
        text.push('\n');
    }
    (!bars.is_empty()).then_some(text)
}
