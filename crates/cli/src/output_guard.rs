//! Rejects outputs inside the inputs of a command.

use std::fs;
use std::path::{Path, PathBuf};

/// Rejects an output folder inside an input folder: the next command would read the output, too.
///
/// # Errors
///
/// If the output is inside an input.
pub(crate) fn refuse_folder(output: &Path, inputs: &[PathBuf]) -> anyhow::Result<()> {
    // A folder that does not exist yet is in its nearest existing ancestor.
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

/// Rejects an output file that is, or would look like, a part of a trace.
///
/// # Errors
///
/// If the file is in a trace's folder.
pub(crate) fn refuse_file(output: &Path) -> anyhow::Result<()> {
    let folder = or_here(output.parent().unwrap_or(output));
    let is_trace = |folder: &Path| folder.join("metadata").is_file();
    let is_index = folder.ends_with("index") && is_trace(&folder.join(".."));
    anyhow::ensure!(!is_trace(folder) && !is_index, "{output:?} is in a trace's folder");
    Ok(())
}

/// Replaces an empty path by the current folder.
fn or_here(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}
