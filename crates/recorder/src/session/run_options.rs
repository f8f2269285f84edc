//! Options of one `trackway record` run that are not part of the session's specification.

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

/// Options of one recording run.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// Traced command and its arguments; empty without a command.
    pub command: Vec<OsString>,
    /// File names of the preload helpers.
    pub helpers: Vec<&'static str>,
    /// Name or number of the user that the command runs as, if root records it; `None` selects the
    /// recorder's user.
    pub user: Option<String>,
    /// Writer path of the channels.
    pub reserve: Reserve,
    /// True if kernel events of all processes are recorded, not only of the command.
    pub is_system_wide: bool,
    /// True if the specification was read from a file.
    pub is_from_file: bool,
    /// Path of the summary file, in JSON.
    pub summary_json: Option<PathBuf>,
}

impl RunOptions {
    /// Does the work that needs root, then switches to the account of the recording's user.
    ///
    /// # Errors
    ///
    /// If the user does not exist, or the kernel events cannot be recorded.
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
            // Other processes of the user must not get the files that root opened. Such a process
            // could record another user's events, or write to the recording.
            if kernel.is_none() {
                trackway_sys::process::make_dumpable().map_err(RecordError::User)?;
            }
        }
        Ok((kernel, account))
    }

    /// Creates the summary file, if one is requested, as the user that this process switched to.
    ///
    /// # Errors
    ///
    /// If the file cannot be created.
    pub(crate) fn summary_file(&self) -> Result<Option<SummaryFile>, RecordError> {
        self.summary_json.as_deref().map(SummaryFile::create).transpose()
    }
}
