//! What all reports have.

use crate::results::Bar;

/// Bytes, in MiB.
pub(crate) fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// The bars, line by line, under the suites that show them.
pub(crate) fn bars_text(bars: &[Bar]) -> Option<String> {
    /// Least width of what was measured.
    const MEASURED: usize = 20;
    let width = bars.iter().map(|bar| bar.measured.chars().count()).max()?.max(MEASURED);
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
        let line = format!("  {what:<62}  {measured:<width$}  {standing}");
        text += line.trim_end();
        text.push('\n');
    }
    Some(text)
}
