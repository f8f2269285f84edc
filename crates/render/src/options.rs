//! Options of babeltrace2's text output: `--names`, `--fields` and `--clock-…`.

use std::fmt;

/// Kinds of names that are shown before values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShownNames {
    /// Names of the payload's fields.
    pub payload: bool,
    /// Names of the contexts' fields.
    pub context: bool,
    /// Names of the parts before an event's contexts: `timestamp`, `name`.
    pub header: bool,
    /// Names of the scopes: `event.fields`.
    pub scope: bool,
}

impl Default for ShownNames {
    fn default() -> Self {
        Self { payload: true, context: true, header: false, scope: false }
    }
}

/// Optional fields between an event's time and its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it: they are those of the environment's entries")]
pub struct ShownFields {
    /// The trace's name.
    pub trace: bool,
    pub hostname: bool,
    pub domain: bool,
    pub procname: bool,
    pub vpid: bool,
    /// Log level of the event's class.
    pub loglevel: bool,
    /// URI of the event's model.
    pub emf: bool,
}

impl Default for ShownFields {
    fn default() -> Self {
        Self { hostname: true, procname: true, vpid: true, ..Self::with_all(false) }
    }
}

impl ShownFields {
    const fn with_all(shown: bool) -> Self {
        Self {
            trace: shown,
            hostname: shown,
            domain: shown,
            procname: shown,
            vpid: shown,
            loglevel: shown,
            emf: shown,
        }
    }
}

/// Content of babeltrace2's text output, set by its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PrettyOptions {
    /// `--names`
    pub names: ShownNames,
    /// `--fields`
    pub fields: ShownFields,
    /// `--clock-date`: the date before the time of day.
    pub clock_date: bool,
    /// `--clock-seconds`: seconds since the clock's origin instead of the time of day.
    pub clock_seconds: bool,
    /// `--clock-cycles`: clock values instead of times.
    pub clock_cycles: bool,
    /// `--no-delta`: hides the time since the previous event.
    pub no_delta: bool,
}

/// Reason why a list of names or fields is invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListError {
    /// A word in the list is unknown.
    Unknown(String),
    /// The list includes both `all` and `none`.
    AllAndNone,
}

impl fmt::Display for ListError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => write!(formatter, "unknown name '{name}'"),
            Self::AllAndNone => formatter.write_str("both all and none are asked for"),
        }
    }
}

impl std::error::Error for ListError {}

/// Returns true if the list includes `all`.
fn includes_all(list: &str) -> Result<bool, ListError> {
    let has = |wanted| split_list(list).any(|word| word == wanted);
    if has("all") && has("none") { Err(ListError::AllAndNone) } else { Ok(has("all")) }
}

/// Splits a list at its commas, without spaces.
fn split_list(list: &str) -> impl Iterator<Item = &str> {
    list.split([',', ' ', '\t', '\n']).filter(|word| !word.is_empty())
}

impl ShownNames {
    /// Parses a list: `payload`, `context`, `scope`, `header`, `all`, `none`. Without `all`, names
    /// that are not in it are not shown.
    ///
    /// # Errors
    ///
    /// Returns an error if the list has an unknown word, or both `all` and `none`.
    pub fn of_list(list: &str) -> Result<Self, ListError> {
        let all = includes_all(list)?;
        let mut names = Self { payload: all, context: all, header: all, scope: all };
        if split_list(list).next().is_none() {
            names = Self::default();
        }
        for word in split_list(list) {
            match word {
                "payload" | "args" | "arg" => names.payload = true,
                "context" | "ctx" => names.context = true,
                "header" => names.header = true,
                "scope" => names.scope = true,
                "all" | "none" => {}
                _ => return Err(ListError::Unknown(word.to_owned())),
            }
        }
        Ok(names)
    }
}

impl ShownFields {
    /// Parses a list: `trace`, `trace:hostname`, `trace:domain`, `trace:procname`, `trace:vpid`,
    /// `loglevel`, `emf`, `callsite` (which babeltrace2 accepts and never shows), `all`, `none`.
    /// Without `all`, fields that are not in the list are not shown.
    ///
    /// # Errors
    ///
    /// Returns an error if the list has an unknown word, or both `all` and `none`.
    pub fn of_list(list: &str) -> Result<Self, ListError> {
        let mut fields = Self::with_all(includes_all(list)?);
        if split_list(list).next().is_none() {
            fields = Self::default();
        }
        for word in split_list(list) {
            match word {
                "trace" => fields.trace = true,
                "trace:hostname" => fields.hostname = true,
                "trace:domain" => fields.domain = true,
                "trace:procname" => fields.procname = true,
                "trace:vpid" => fields.vpid = true,
                "loglevel" => fields.loglevel = true,
                "emf" => fields.emf = true,
                "callsite" | "all" | "none" => {}
                _ => return Err(ListError::Unknown(word.to_owned())),
            }
        }
        Ok(fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_show_what_they_name() {
        let none = ShownNames { payload: false, context: false, header: false, scope: false };
        assert_eq!(ShownNames::of_list("none"), Ok(none));
        assert_eq!(
            ShownNames::of_list("ctx, scope"),
            Ok(ShownNames { context: true, scope: true, ..none })
        );
        assert_eq!(ShownNames::of_list("all,none"), Err(ListError::AllAndNone));
        assert_eq!(ShownNames::of_list(""), Ok(ShownNames::default()));
        assert_eq!(ShownNames::of_list("scopes"), Err(ListError::Unknown("scopes".to_owned())));
        assert_eq!(ShownFields::of_list("all,trace"), Ok(ShownFields::with_all(true)));
        assert_eq!(
            ShownFields::of_list("emf"),
            Ok(ShownFields { emf: true, ..ShownFields::with_all(false) })
        );
        assert_eq!(ShownFields::of_list(","), Ok(ShownFields::default()));
    }
}
