//! The specification of a session: as users write it, and as recorders receive it.

mod filter_spec;
mod kernel_spec;
mod level;
mod options;
mod rule_spec;
mod session_spec;

pub use filter_spec::{
    FILTER_OBJECTS_BYTES_MAX, FILTERS_BYTES_MAX, FILTERS_MAX, FilterObject, FilterSource,
    FilterSpec,
};
pub use kernel_spec::{KernelBackend, KernelSpec};
pub use level::{Level, LevelError};
pub use options::{
    ContextList, OptionError, is_valid_name, parse_contexts, parse_preload, rules_text,
};
pub use rule_spec::{Levels, RuleSpec};
pub use session_spec::{ALL_USERS, ChannelSpec, SessionSpec, SpecError, USERS_MAX};
pub(crate) use session_spec::{CHANNELS_MAX, is_no};
