//! Sources for the location of a dead recorder's trace, for one window.

use crate::control::origin_file::{Origin, OriginFile};

/// Source of one window's origin, in a dead recorder's session over several users.
pub(super) enum OriginSource {
    /// Origin file that the recorder wrote.
    File(OriginFile),
    /// Origin from the trace that the user named.
    RequestedTrace(Origin),
}

impl OriginSource {
    /// Returns the origin from either source.
    pub(super) fn origin(&self) -> &Origin {
        match self {
            Self::File(kept) => &kept.origin,
            Self::RequestedTrace(origin) => origin,
        }
    }

    /// Removes the origin file, if there is one, after the recovery.
    pub(super) fn forget(self) {
        if let Self::File(kept) = self {
            kept.remove();
        }
    }
}
