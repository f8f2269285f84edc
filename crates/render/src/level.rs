//! Log levels of events.

use trackway_schema::LEVEL_NAMES;

/// Returns the name of a level, or its number if it has no name.
pub(crate) fn level_name(level: i64) -> String {
    let name = usize::try_from(level).ok().and_then(|level| LEVEL_NAMES.get(level));
    name.map_or_else(|| level.to_string(), |&name| name.to_owned())
}
