//! Outputs that lie in what is read.

use std::fs;
use std::path::{Path, PathBuf};

/// Refuses a folder to write to that would be in one of those that are read: the next time it
/// would be read, too.
///
/// # Errors
///
/// If it is.
pub(crate) fn refuse_folder(output: &Path, inputs: &[PathBuf]) -> anyhow::Result<()> {
    // What is not there yet is in its nearest folder that is.
    let place = output.ancestors().find_map(|path| fs::canonicalize(or_here(path)).ok());
    let is_in = |input: &&PathBuf| {
        let input = fs::canonicalize(input).ok();
        place.as_ref().zip(input).is_some_and(|(place, input)| place.starts_with(input))
    };
    match inputs.iter().find(is_in) {
        Some(input) => anyhow::bail!("{output:?} is in {input:?}, which is read"),
        None => Ok(()),
    }
}

/// Refuses a file to write to that is, or would be taken for, a part of a trace.
///
/// # Errors
///
/// If it is.
pub(crate) fn refuse_file(output: &Path) -> anyhow::Result<()> {
    let folder = or_here(output.parent().unwrap_or(output));
    let is_trace = |folder: &Path| folder.join("metadata").is_file();
    let is_index = folder.ends_with("index") && is_trace(&folder.join(".."));
    anyhow::ensure!(!is_trace(folder) && !is_index, "{output:?} is in a trace's folder");
    Ok(())
}

/// An empty path is the folder that we are in.
fn or_here(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}
