//! What all reports have.

use crate::results::Bar;

/// Bytes, in MiB.
pub(crate) fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// The bars, line by line, under the suites that show them.
pub(crate) fn bars_text(bars: &[Bar]) -> Option<String> {
    /// Least widths of what is asked, and of what was measured.
    const WIDTHS: (usize, usize) = (62, 20);
    let most = |of: fn(&Bar) -> &str| bars.iter().map(|bar| of(bar).chars().count()).max();
    let (asked, width) = (most(|bar| &bar.what)?.max(WIDTHS.0), most(|bar| &bar.measured)?);
    let width = width.max(WIDTHS.1);
    let mut text = "What Trackway set out to reach\n".to_owned();
    let mut heading = None;
    for bar in bars {
        // No suite has rounds that was not measured; its bars name it themselves.
        let suite = if bar.rounds > 0 { bar.suite.as_str() } else { "" };
        if heading != Some(suite) {
            text.push('\n');
            text += suite;
            text += if suite.is_empty() { "" } else { "\n" };
            heading = Some(suite);
        }
        let (what, measured, standing) = (&bar.what, &bar.measured, bar.standing());
        let line = format!("  {what:<asked$}  {measured:<width$}  {standing}");
        text += line.trim_end();
        text.push('\n');
    }
    Some(text)
}
