//! Recovery of killed recorders' traces before a new recording begins.

use crate::notices::Notices;
use crate::recovery::recover_in_passing;

/// Completes and reports the traces that can be completed in place; reports the number of other
/// traces in one line.
pub(crate) fn recover_others(notices: &Notices) {
    match recover_in_passing(notices) {
        Ok(recovered) => {
            let (done, left): (Vec<_>, Vec<_>) =
                recovered.into_iter().partition(|one| one.result.is_ok());
            for one in done {
                notices.report(format_args!(
                    "recovered {}, whose recorder was killed",
                    one.folder.display()
                ));
            }
            match left.len() {
                0 => {}
                1 => notices.report(format_args!("1 unfinished recording: trackway recover")),
                many => {
                    notices.report(format_args!("{many} unfinished recordings: trackway recover"))
                }
            }
        }
        Err(error) => notices.report(format_args!("cannot recover earlier recordings: {error}")),
    }
}
