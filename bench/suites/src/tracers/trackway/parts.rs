//! The parts of Trackway that the adapter and other modules use: the header and library, a window
//! of the bench, and the summary of a recording.

use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::workspace::{BuildTools, Workspace, create_private_dir};
use trackway_bench_engine::results::Account;
use trackway_bench_engine::tracer::Availability;

use crate::trace_check::{self, RecorderSummary};
use crate::tracers::baseline::check_compiler;

/// Sets the trace of `trackway record`, and the summary file next to the trace.
pub(crate) fn set_trace_output(command: &mut Command, trace: &Path) {
    command.arg("-o").arg(trace).arg("--summary-json").arg(summary_path(trace));
}

/// Returns the path of the summary of the recording into the folder `trace`.
fn summary_path(trace: &Path) -> PathBuf {
    let mut path = trace.as_os_str().to_owned();
    path.push(".json");
    path.into()
}

/// Returns the summary of the user events of the recording into the folder `trace`.
///
/// # Errors
///
/// If there is no summary.
pub(crate) fn read_summary(trace: &Path) -> Result<RecorderSummary> {
    RecorderSummary::read(&summary_path(trace), "programs")
}

/// Returns the summary of the kernel events.
///
/// # Errors
///
/// If there is no summary.
pub(crate) fn read_kernel_summary(trace: &Path) -> Result<RecorderSummary> {
    RecorderSummary::read(&summary_path(trace), "kernel")
}

/// Computes the account of a recording from its summary and its trace.
pub(crate) fn account_of_trace(trace: &Path, emitted: u64) -> Result<Account> {
    account_of_streams(trace, &read_summary(trace)?, emitted)
}

/// Computes the account of the streams in this folder, which may be a part of the trace.
pub(crate) fn account_of_streams(
    streams: &Path,
    summary: &RecorderSummary,
    emitted: u64,
) -> Result<Account> {
    let counted = trace_check::count_trace(streams)?.unwrap_or_default();
    summary.check_count("recorded", summary.recorded, counted.events)?;
    Ok(Account {
        emitted,
        recorded: summary.recorded,
        lost: summary.lost,
        overwritten: summary.overwritten,
        record_bytes: counted.record_bytes,
    })
}

/// Computes the account of a single thread by the numbers of its events, as for other tracers.
pub(crate) fn account_of_thread(trace: &Path, emitted: u64) -> Result<Account> {
    trace_check::account_by_summary(trace, emitted, &read_summary(trace)?)
}

/// Returns the flags to compile a program with the header and link it with the library.
pub(crate) fn link_flags(workspace: &Workspace) -> Result<Vec<String>> {
    let (Some(include), Some(library)) = (&workspace.tools.include, &workspace.tools.library)
    else {
        return Err(Error::output("trackway", "its header and library are not found"));
    };
    // A checkout may lack the file name under which programs load the library.
    let folder = workspace.path("lib");
    create_private_dir(&folder)?;
    for name in ["libtrackway.so", "libtrackway.so.1"] {
        let link = folder.join(name);
        if !link.exists() {
            symlink(library, &link).map_err(Error::io(format!("cannot make {link:?}")))?;
        }
    }
    let folder = folder.display();
    Ok(vec![
        format!("-I{}", include.display()),
        format!("-L{folder}"),
        // The program has only weak references to the library: some linkers would leave it out.
        "-Wl,--no-as-needed".to_owned(),
        "-ltrackway".to_owned(),
        format!("-Wl,-rpath,{folder}"),
        // The path must precede LD_LIBRARY_PATH, which may contain another version.
        "-Wl,--disable-new-dtags".to_owned(),
    ])
}

/// Returns the folder of a window that never had a session.
pub(crate) fn make_idle_window_dir(workspace: &Workspace) -> Result<PathBuf> {
    let folder = workspace.window_dir().join("off");
    create_private_dir(&folder)?;
    Ok(folder)
}

/// Makes the program and its descendants use the bench's own window, and none of the user's
/// sessions.
pub(crate) fn set_window(command: &mut Command, window_dir: &Path) {
    command.env("TRACKWAY_WINDOW_DIR", window_dir);
    command.env_remove("TRACKWAY_TOKEN").env_remove("LD_PRELOAD");
}

pub(crate) fn check_availability(tools: &BuildTools, has_compiler: bool) -> Availability {
    if tools.include.is_none() {
        Availability::Missing("trackway/trackway.h is not beside this executable".to_owned())
    } else if tools.library.is_none() {
        Availability::Missing("libtrackway.so is not beside this executable".to_owned())
    } else {
        check_compiler(has_compiler)
    }
}

/// Returns the allocated memory of the files in `folder`: their blocks, not their lengths.
pub(crate) fn allocated_bytes(folder: &Path) -> Result<u64> {
    /// Unit of `st_blocks`, for any block size of the file system: stat(2).
    const BLOCK_BYTES: u64 = 512;
    let what = || format!("cannot read {folder:?}");
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder).map_err(Error::io(what()))? {
        let metadata = entry.and_then(|entry| entry.metadata()).map_err(Error::io(what()))?;
        if metadata.is_file() {
            bytes += metadata.blocks() * BLOCK_BYTES;
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_name_what_is_missing() {
        let mut tools = BuildTools::of("/nowhere/trackway".into());
        let missing = |tools: &BuildTools| match check_availability(tools, true) {
            Availability::Missing(reason) => reason,
            Availability::Ready => String::new(),
        };
        assert_eq!(missing(&tools), "trackway/trackway.h is not beside this executable");
        tools.include = Some("include".into());
        assert_eq!(missing(&tools), "libtrackway.so is not beside this executable");
        tools.library = Some("libtrackway.so".into());
        assert_eq!(check_availability(&tools, true), Availability::Ready);
        assert_ne!(check_availability(&tools, false), Availability::Ready);
    }
}
