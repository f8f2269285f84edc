//! Parsing of words on the command line.

use trackway_abi::record::context;
use trackway_abi::session::{APPLICATION_BYTES_MAX, NAME_BYTES_MAX, RULES_BYTES_MAX};
use trackway_schema::context::{Context, TABLE, join_names};

use crate::{ByteCount, FILTER_OBJECTS_BYTES_MAX, FILTERS_BYTES_MAX, FILTERS_MAX};

/// Longest list of contexts, in bytes, because the list is stored as the user wrote it.
pub(crate) const CONTEXTS_BYTES_MAX: usize = 512;

/// The error that a word has no meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptionError {
    /// No context has this name.
    Context(String),
    /// No application context can have this name.
    Application(String),
    /// The list has more application contexts than a channel can have.
    TooManyApplications,
    /// The list contains `none` together with other contexts.
    NoneAmongContexts,
    /// No preload helper has this name.
    Preload(String),
    /// A pattern is empty or contains an invalid byte.
    Pattern(String),
    /// An executable's pattern is empty or contains an invalid byte.
    Executable(String),
    /// The list has more words than there are contexts.
    TooManyContexts,
    /// A pattern excludes all events.
    ExcludesAll(String),
    /// There are more patterns than a session can have.
    TooManyPatterns,
    /// A filter is invalid: lines with the reason and the place in the filter.
    Filter(String),
    /// There are more filters than a channel can have.
    TooManyFilters,
    /// The filters in C have more bytes than a channel can have.
    TooLargeObjects,
}

impl core::fmt::Display for OptionError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Context(name) => write!(
                formatter,
                "no context '{name}' (there are {}, and of programs \
                 '$app.PROVIDER:NAME'; none for none at all)",
                join_names()
            ),
            Self::Application(name) => write!(
                formatter,
                "'{name}' is no context of a program (those are '$app.PROVIDER:NAME': letters, \
                 digits and _, at most {APPLICATION_BYTES_MAX} of them with the colon)"
            ),
            Self::TooManyApplications => write!(
                formatter,
                "there are more than {} contexts of programs, '$app.PROVIDER:NAME'",
                context::APPLICATIONS_MAX
            ),
            Self::NoneAmongContexts => write!(
                formatter,
                "'none' stands alone: it means no context at all (else {})",
                join_names()
            ),
            Self::Preload(name) => {
                let names: Vec<&str> = PRELOAD_HELPERS.iter().map(|helper| helper.0).collect();
                let names = names.join(", ");
                write!(formatter, "no preload helper '{name}' (there are {names}; all for all)")
            }
            Self::Pattern(text) => write!(formatter, "'{text}' is not a pattern"),
            Self::Executable(text) => write!(formatter, "'{text}' can be no executable"),
            Self::TooManyContexts => write!(
                formatter,
                "the contexts are longer than {CONTEXTS_BYTES_MAX} bytes together"
            ),
            Self::ExcludesAll(text) => write!(formatter, "'{text}' excludes all events"),
            Self::Filter(lines) => write!(formatter, "filter:\n{lines}"),
            Self::TooManyFilters => write!(
                formatter,
                "there are more than {FILTERS_MAX} filters, or {FILTERS_BYTES_MAX} bytes of them"
            ),
            Self::TooLargeObjects => {
                let most = ByteCount(FILTER_OBJECTS_BYTES_MAX as u64);
                write!(formatter, "the filters in C are larger than {most} together")
            }
            Self::TooManyPatterns => {
                write!(formatter, "the patterns are longer than {RULES_BYTES_MAX} bytes together")
            }
        }
    }
}

impl core::error::Error for OptionError {}

/// Returns true if a session or a channel can have this name, which becomes a part of file names.
pub fn is_valid_name(name: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(is_good)
        && !name.starts_with(['.', '-'])
}

/// The contexts of each record in a channel.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContextList {
    /// Bits of [`trackway_abi::record::context`] for the built-in contexts.
    pub bits: u32,
    /// Application contexts, `provider:name`, each once.
    pub applications: Vec<String>,
}

/// Prefix of an application context's name.
const APPLICATION_PREFIX: &str = "$app.";

impl ContextList {
    /// Returns the names of the contexts, as users write them.
    pub fn names(&self) -> Vec<String> {
        let recorded = TABLE.iter().filter(|context| context.is_in(self.bits));
        let applications =
            self.applications.iter().map(|name| format!("{APPLICATION_PREFIX}{name}"));
        recorded.map(|context| context.name.to_owned()).chain(applications).collect()
    }

    fn add(&mut self, name: &str) -> Result<(), OptionError> {
        if let Some(application) = name.strip_prefix(APPLICATION_PREFIX) {
            return self.add_application(application, name);
        }
        let found = Context::named(name).ok_or_else(|| OptionError::Context(name.to_owned()))?;
        self.bits |= found.bit;
        Ok(())
    }

    fn add_application(&mut self, application: &str, name: &str) -> Result<(), OptionError> {
        let is_name = |part: &str| {
            let is_good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            !part.is_empty() && part.bytes().all(is_good)
        };
        let parts = application.split_once(':');
        if !parts.is_some_and(|(provider, of)| is_name(provider) && is_name(of))
            || application.len() > APPLICATION_BYTES_MAX
        {
            return Err(OptionError::Application(name.to_owned()));
        }
        if self.applications.iter().any(|known| known == application) {
            return Ok(());
        }
        if self.applications.len() == context::APPLICATIONS_MAX {
            return Err(OptionError::TooManyApplications);
        }
        self.applications.push(application.to_owned());
        self.bits |= context::APPLICATIONS;
        Ok(())
    }
}

/// Parses a list of contexts (`vpid,vtid,procname,$app.myapp:request_id`, or `none`).
pub fn parse_contexts(list: &str) -> Result<ContextList, OptionError> {
    let mut contexts = ContextList::default();
    if split_words(list).any(|name| name == "none") {
        let is_alone = split_words(list).all(|name| name == "none");
        return if is_alone { Ok(contexts) } else { Err(OptionError::NoneAmongContexts) };
    }
    for name in split_words(list) {
        contexts.add(name)?;
    }
    Ok(contexts)
}

/// The preload helpers: their names for users, and their files (`preload/`).
const PRELOAD_HELPERS: [(&str, &str); 5] = [
    ("libc", "libtrackway-libc.so"),
    ("pthread", "libtrackway-pthread.so"),
    ("dl", "libtrackway-dl.so"),
    ("fd", "libtrackway-fd.so"),
    ("fork", "libtrackway-fork.so"),
];

/// Parses a list of preload helpers (`libc,pthread`, or `all`); returns names of library files,
/// each once, in the order of the list.
pub fn parse_preload(list: &str) -> Result<Vec<&'static str>, OptionError> {
    let mut files = Vec::new();
    for name in split_words(list) {
        let mut found = PRELOAD_HELPERS.iter().filter(|helper| helper.0 == name || name == "all");
        let first = found.next().ok_or_else(|| OptionError::Preload(name.to_owned()))?;
        for &(_, file) in core::iter::once(first).chain(found) {
            if !files.contains(&file) {
                files.push(file);
            }
        }
    }
    Ok(files)
}

fn split_words(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|word| !word.is_empty())
}

/// Returns a session's rules in the form that `trackway_schema::Rules` parses. A pattern without a
/// colon names a provider: `app` means `app:*`, and `*` means all events. Without patterns, all
/// events are selected. A leading `!` excludes events; exclusions alone select all other events.
pub fn rules_text(patterns: &[String]) -> Result<String, OptionError> {
    let mut text = String::new();
    if patterns.iter().all(|pattern| pattern.starts_with('!')) {
        text.push('*');
    }
    for pattern in patterns {
        let (mark, name) = match pattern.strip_prefix('!') {
            Some(name) => ("!", name),
            None => ("", pattern.as_str()),
        };
        if name.is_empty() || name.starts_with('!') || name.contains(char::is_control) {
            return Err(OptionError::Pattern(pattern.clone()));
        }
        if mark == "!" && matches!(name, "*" | "*:*") {
            return Err(OptionError::ExcludesAll(pattern.clone()));
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(mark);
        text.push_str(name);
        if !name.contains(':') && name != "*" {
            text.push_str(":*");
        }
    }
    if text.len() > RULES_BYTES_MAX {
        return Err(OptionError::TooManyPatterns);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules_text_of(patterns: &[&str]) -> Result<String, OptionError> {
        rules_text(&patterns.iter().map(|&pattern| pattern.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn patterns_become_rules() {
        assert_eq!(rules_text_of(&[]).unwrap(), "*");
        assert_eq!(rules_text_of(&["app:req*", "db"]).unwrap(), "app:req*\ndb:*");
        assert_eq!(rules_text_of(&["*"]).unwrap(), "*");
        assert_eq!(rules_text_of(&["!app:noise"]).unwrap(), "*\n!app:noise");
        assert_eq!(rules_text_of(&["!*"]), Err(OptionError::ExcludesAll("!*".into())));
        assert_eq!(rules_text_of(&["app", "!*:*"]), Err(OptionError::ExcludesAll("!*:*".into())));
        assert!(rules_text_of(&[""]).is_err());
        assert!(rules_text_of(&["a\nb"]).is_err());
        assert_eq!(rules_text_of(&["x".repeat(3000).as_str()]), Err(OptionError::TooManyPatterns));
    }

    #[test]
    fn contexts_of_applications_are_names_that_a_session_has_room_for() {
        let list = parse_contexts("$app.b:x, vtid, $app.a:y_2,$app.b:x").expect("contexts");
        assert_eq!(list.bits, context::VTID | context::APPLICATIONS);
        assert_eq!(list.names(), ["vtid", "$app.b:x", "$app.a:y_2"]);
        assert_eq!(parse_contexts(&list.names().join(",")), Ok(list));
        let long = format!("$app.a:{}", "n".repeat(APPLICATION_BYTES_MAX - 2));
        assert!(parse_contexts(&long).is_ok());
        for wrong in ["$app.", "$app.a", "$app.:b", "$app.a:", "$app.a:b:c", "$app.a-b:c"] {
            assert_eq!(parse_contexts(wrong), Err(OptionError::Application(wrong.into())));
        }
        assert!(parse_contexts(&format!("{long}n")).is_err());
        assert!(parse_contexts("$ctx.vpid").is_err());
        let five = "$app.a:a,$app.a:b,$app.a:c,$app.a:d,$app.a:e";
        assert_eq!(parse_contexts(five), Err(OptionError::TooManyApplications));
    }

    #[test]
    fn lists_are_read() {
        let bits = |list| parse_contexts(list).map(|contexts| contexts.bits);
        assert_eq!(bits("none"), Ok(0));
        assert_eq!(bits("vpid, procname"), Ok(context::VPID | context::PROCNAME));
        assert!(parse_contexts("pid").is_err());
        assert_eq!((bits(" none"), bits("none,none")), (Ok(0), Ok(0)));
        for list in ["none,vpid", "vpid,none"] {
            assert_eq!(parse_contexts(list), Err(OptionError::NoneAmongContexts), "{list}");
        }
        assert_eq!(parse_preload("libc").unwrap(), ["libtrackway-libc.so"]);
        let all = parse_preload("fd, all").unwrap();
        assert_eq!((all.len(), all[0], all[1]), (5, "libtrackway-fd.so", "libtrackway-libc.so"));
        assert_eq!(
            parse_preload("libm").unwrap_err().to_string(),
            "no preload helper 'libm' (there are libc, pthread, dl, fd, fork; all for all)"
        );
    }
}
