//! Contexts of user events and of kernel events, from one list of names.
//!
//! A name that exists for both kinds selects both contexts. A list with only kernel contexts leaves
//! user events with their default context.

use trackway_kernel::bpf_program::contexts::{ALL, Context};
use trackway_session::{ContextList, OptionError, parse_contexts};

use crate::error::RecordError;

/// Default context of user events.
const DEFAULT_CONTEXT: &str = "vtid";

/// Contexts of a list, split by user events and kernel events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextLists {
    /// Contexts of user events.
    pub programs: ContextList,
    /// Contexts of kernel events, in addition to `tid`.
    pub kernel: Vec<Context>,
}

/// Error in a list of contexts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContextsError {
    /// The list has a word that is neither a user context nor a kernel context.
    Unknown(OptionError),
    /// The list has a context of kernel events only, and no kernel events are recorded.
    OfTheKernel(&'static str),
}

impl std::fmt::Display for ContextsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown(error @ OptionError::Context(_)) => {
                write!(f, "{error}; of the kernel's events there are {}", list_context_names())
            }
            Self::Unknown(error) => error.fmt(f),
            Self::OfTheKernel(name) => write!(
                f,
                "'{name}' is a context of the kernel's events alone, and none are recorded \
                 (--kernel; of programs there are {} and '$app.PROVIDER:NAME')",
                trackway_schema::context::join_names()
            ),
        }
    }
}

impl std::error::Error for ContextsError {}

/// Parses the names of contexts of kernel events.
///
/// # Errors
///
/// If a name is unknown.
pub(crate) fn parse_kernel_contexts(list: &[String]) -> Result<Vec<Context>, RecordError> {
    let known = |name: &String| {
        Context::find_by_name(name).ok_or_else(|| {
            let why = format!("there is no context '{name}' of the kernel's events");
            RecordError::Kernel(why, Some(format!("there are {}", list_context_names())))
        })
    };
    list.iter().map(known).collect()
}

/// Returns the names of all contexts of kernel events, as text.
fn list_context_names() -> String {
    ALL.map(|context| context.name).join(", ")
}

/// Parses a list of contexts; `None` selects the defaults.
///
/// # Errors
///
/// If a word is unknown, or names a kernel context while no kernel events are recorded.
pub fn parse_context_lists(
    list: Option<&str>,
    has_kernel: bool,
) -> Result<ContextLists, ContextsError> {
    let Some(list) = list else {
        let programs = parse_contexts(DEFAULT_CONTEXT).map_err(ContextsError::Unknown)?;
        return Ok(ContextLists { programs, kernel: Vec::new() });
    };
    let (mut programs, mut kernel) = (Vec::new(), Vec::new());
    for word in list.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let context = Context::find_by_name(word);
        let is_of_programs = parse_contexts(word).is_ok();
        if let Some(context) = context {
            if !has_kernel && !is_of_programs {
                return Err(ContextsError::OfTheKernel(context.name));
            }
            kernel.push(context);
        }
        if context.is_none() || is_of_programs {
            programs.push(word);
        }
    }
    // A list of kernel contexts alone leaves user events with their default context.
    if programs.is_empty() && !kernel.is_empty() {
        programs.push(DEFAULT_CONTEXT);
    }
    let programs = parse_contexts(&programs.join(",")).map_err(ContextsError::Unknown)?;
    Ok(ContextLists { programs, kernel })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_list(list: &str) -> (Vec<String>, Vec<&'static str>) {
        let both = parse_context_lists(Some(list), true).unwrap_or_else(|error| panic!("{error}"));
        (both.programs.names(), both.kernel.iter().map(|context| context.name).collect())
    }

    #[test]
    fn a_name_is_for_whoever_has_it() {
        let usual = vec!["vtid".to_owned()];
        assert_eq!(parse_list("ppid, prio"), (usual.clone(), vec!["ppid", "prio"]));
        let both = vec!["vtid".to_owned(), "procname".to_owned()];
        assert_eq!(parse_list("procname,vtid,uid"), (both, vec!["procname", "vtid", "uid"]));
        assert_eq!(parse_list("none,nice"), (Vec::new(), vec!["nice"]));
        assert_eq!(parse_list("$app.a:b"), (vec!["$app.a:b".to_owned()], Vec::new()));
        assert_eq!(parse_list(""), (Vec::new(), Vec::new()));
        let unsaid = parse_context_lists(None, true).expect("what is usual");
        assert_eq!((unsaid.programs.names(), unsaid.kernel), (usual, Vec::new()));
    }

    #[test]
    fn what_means_nothing_is_told_with_what_there_is() {
        let of =
            |list, has_kernel| parse_context_lists(Some(list), has_kernel).unwrap_err().to_string();
        let unknown = of("colour", true);
        assert!(unknown.contains("no context 'colour'") && unknown.contains("cgroup_id"));
        assert!(of("ppid", false).contains("--kernel"));
        assert!(of("none,vtid", true).contains("'none' stands alone"));
        assert!(parse_context_lists(Some("vpid,procname"), false).is_ok());
        assert_eq!(
            parse_kernel_contexts(&["prio".into()]).expect("there is such"),
            Context::find_by_name("prio").as_slice()
        );
        assert!(parse_kernel_contexts(&["$app.a:b".into()]).is_err());
    }
}
