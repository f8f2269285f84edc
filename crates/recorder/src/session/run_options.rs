//! Options of one run of `trackway record` that are not part of the session's specification.

use std::ffi::OsString;
use std::path::PathBuf;

use trackway_session::{Reserve, SessionSpec};

use crate::error::RecordError;
use crate::kernel::backend::PreparedKernel;
use crate::kernel::filters::routing::shared_filters;
use crate::kernel::request::KernelRequest;
use crate::notices::Notices;
use crate::session::run_as::Account;
use crate::session::summary_file::SummaryFile;

/// Options of a run.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// The traced command and its arguments; empty: none.
    pub command: Vec<OsString>,
    /// Preload helpers, as file names.
    pub helpers: Vec<&'static str>,
    /// The user that the command runs as, by name or number, if root records it; `None`: the
    /// recorder's.
    pub user: Option<String>,
    /// The writer path of the channels.
    pub reserve: Reserve,
    /// True if kernel events of all processes are recorded, not of the command alone.
    pub is_system_wide: bool,
    /// True if the specification was read from a file.
    pub is_from_file: bool,
    /// The file for the summary, as JSON.
    pub summary_json: Option<PathBuf>,
}

impl RunOptions {
    /// Prepares the work that needs root, then enters the account of the user of the recording.
    ///
    /// # Errors
    ///
    /// If there is no such user, or the kernel events cannot be recorded.
    pub(crate) fn acquire_privileged(
        &self,
        spec: &SessionSpec,
        notices: &Notices,
    ) -> Result<(Option<PreparedKernel>, Option<Account>), RecordError> {
        let account = match self.user.as_deref() {
            Some(user) => Some(Account::of(user)?),
            None => Account::of_sudo_user()?,
        };
        let kernel = spec.kernel.as_ref().map(|kernel| {
            let request = KernelRequest {
                spec: kernel,
                shared_filters: &shared_filters(kernel, &spec.channels),
                follows_command: !self.command.is_empty() && !self.is_system_wide,
                is_stopped: false,
            };
            PreparedKernel::prepare(&request, notices)
        });
        let kernel = kernel.transpose()?;
        if let Some(account) = &account {
            account.switch_user(notices)?;
            // The files that root opened are not for other processes of the user: one of them could
            // record another user's events, or write to the recording.
            if kernel.is_none() {
                trackway_sys::process::make_dumpable().map_err(RecordError::User)?;
            }
        }
        Ok((kernel, account))
    }

    /// Makes the file for the summary, if one is requested; in the entered account.
    ///
    /// # Errors
    ///
    /// If it cannot be made.
    pub(crate) fn summary_file(&self) -> Result<Option<SummaryFile>, RecordError> {
        self.summary_json.as_deref().map(SummaryFile::create).transpose()
    }
}
