//! Fields of kernel events that are not recorded: fields beyond an event's size limit, or of an
//! unknown kind. They are reported at the beginning, and named in the trace's `env`.

use crate::common::numbers::Counted;
use crate::notices::Notices;

/// Highest number of fields that the notice names.
const NAMED_MAX: usize = 4;

/// Reports the fields that are not recorded; names the first [`NAMED_MAX`] of them.
pub(crate) fn report_omitted_fields<'a>(
    fields: impl IntoIterator<Item = (&'a str, &'a str)>,
    notices: &Notices,
) {
    let all: Vec<(&str, &str)> = fields.into_iter().collect();
    if all.is_empty() {
        return;
    }
    let named = all.iter().take(NAMED_MAX).map(|(event, field)| format!("{field} of {event}"));
    let named: Vec<String> = named.collect();
    let more = if all.len() > NAMED_MAX { ", …" } else { "" };
    let are = if all.len() == 1 { "is" } else { "are" };
    notices.report(format_args!(
        "{} of the kernel's events {are} not recorded: {}{more}",
        Counted(all.len() as u64, "field"),
        named.join(", ")
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_are_left_out_are_said_the_first_ones_by_name() {
        let said = |fields: &[(&str, &str)]| {
            let notices = Notices::in_memory();
            report_omitted_fields(fields.iter().copied(), &notices);
            notices.lines().join("|")
        };
        assert_eq!(said(&[]), "");
        assert_eq!(said(&[("a", "x")]), "1 field of the kernel's events is not recorded: x of a");
        let five = [("a", "x"), ("a", "*y"), ("b", "x"), ("c", "x"), ("d", "x")];
        assert_eq!(
            said(&five),
            "5 fields of the kernel's events are not recorded: x of a, *y of a, x of b, x of c, …"
        );
    }
}
