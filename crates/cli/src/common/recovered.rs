//! Reports recovered traces, for `trackway recover` and other commands that recover.

use trackway_recorder::{Notices, RecoveredSession, RecoveryEnd, Stranded};

/// Reports recovered and unrecoverable sessions. `stranded` is the requested treatment of records
/// without a trace to complete.
///
/// # Errors
///
/// If a session could not be recovered.
pub(crate) fn report_recovered(
    notices: &Notices,
    recovered: &[RecoveredSession],
    stranded: Stranded,
) -> anyhow::Result<()> {
    let mut whole = true;
    for one in recovered {
        match &one.result {
            Ok(_) if one.end == RecoveryEnd::Discarded => {
                notices.report(format_args!("gave up what was left of {}", one.folder.display()));
            }
            Ok(summary) => {
                match &one.end {
                    RecoveryEnd::NewTrace(folder) => notices.report(format_args!(
                        "recovered what was left of {} into {}: {} events, {} lost in all",
                        one.folder.display(),
                        folder.display(),
                        summary.recorded,
                        summary.lost
                    )),
                    _ => notices.report(format_args!(
                        "recovered {}: {} more events, {} lost in all",
                        one.folder.display(),
                        summary.recorded,
                        summary.lost
                    )),
                }
                summary.report_deleted("events", notices);
                summary.report_cut(notices);
                summary.report_damage(notices);
                summary.report_departed(notices);
            }
            Err(error) => {
                whole = false;
                notices.report(format_args!("cannot recover {}: {error}", one.folder.display()));
                let again = match stranded {
                    Stranded::Discard => {
                        "what is missing is in memory still: run trackway recover --discard again \
                         once that is mended"
                    }
                    Stranded::Keep | Stranded::NewTrace => {
                        "what is missing is in memory still: run trackway recover again once that \
                         is mended, or trackway recover --discard to give it up"
                    }
                };
                notices.hint(format_args!("{}", error.hint().unwrap_or_else(|| again.into())));
            }
        }
    }
    anyhow::ensure!(whole, "not everything was recovered");
    Ok(())
}
