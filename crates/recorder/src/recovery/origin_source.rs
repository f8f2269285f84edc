//! The place of a dead recorder's session over several users, for one window.

use crate::control::origin_file::{Origin, OriginFile};

/// The place of a dead recorder's session over several users, for one window.
pub(super) enum OriginSource {
    /// The file that its recorder wrote.
    File(OriginFile),
    /// The trace that the user named.
    RequestedTrace(Origin),
}

impl OriginSource {
    /// Returns the origin.
    pub(super) fn origin(&self) -> &Origin {
        match self {
            Self::File(kept) => &kept.origin,
            Self::RequestedTrace(origin) => origin,
        }
    }

    /// Removes the file, after the recovery.
    pub(super) fn forget(self) {
        if let Self::File(kept) = self {
            kept.remove();
        }
    }
}
