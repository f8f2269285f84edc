//! The folders and file names of traces in the output folder.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::input::Input;

/// Name for a trace in a folder without a name, i.e. `/`.
const ROOT_TRACE_NAME: &str = "trace";

/// The place where a trace was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Origin {
    /// Folder of the trace.
    pub(super) path: PathBuf,
    /// Folder that was searched.
    root: PathBuf,
    /// Path of the trace's folder relative to the searched folder.
    below: PathBuf,
}

impl Origin {
    pub(super) fn new<B>(input: &Input<B>, path: &Path) -> Self {
        let below = PathBuf::from(&input.folder);
        let root = path.ancestors().nth(below.components().count()).unwrap_or(path).to_owned();
        Self { path: path.to_owned(), root, below }
    }
}

/// Returns the output path of each trace: its path relative to the searched folder. If several
/// folders were searched, the path begins with that folder's name.
pub(super) fn output_paths(origins: &[Origin]) -> Vec<PathBuf> {
    let mut names = UniqueNames::default();
    let mut roots: Vec<(&Path, String)> = Vec::new();
    for origin in origins {
        if !roots.iter().any(|(root, _)| *root == origin.root) {
            let name = origin.root.file_name().map(|name| name.to_string_lossy());
            roots.push((&origin.root, names.claim(name.as_deref().unwrap_or(ROOT_TRACE_NAME))));
        }
    }
    let place = |origin: &Origin| match roots.iter().find(|(root, _)| *root == origin.root) {
        Some((_, name)) if roots.len() > 1 => Path::new(name).join(&origin.below),
        _ => origin.below.clone(),
    };
    origins.iter().map(place).collect()
}

/// Keeps each folder once, however often it was named or found.
pub(super) fn remove_duplicate_folders<B>(
    inputs: Vec<(Input<B>, PathBuf)>,
) -> Vec<(Input<B>, PathBuf)> {
    let mut seen = HashSet::new();
    inputs.into_iter().filter(|(_, path)| seen.insert(path.clone())).collect()
}

/// Unique names: a repeated name gets a number.
#[derive(Default)]
pub(super) struct UniqueNames {
    given: HashSet<String>,
}

impl UniqueNames {
    /// Returns `wanted`, or, if it is taken, `wanted` with a number appended.
    pub(super) fn claim(&mut self, wanted: &str) -> String {
        let mut name = wanted.to_owned();
        let mut number = 2;
        while !self.given.insert(name.clone()) {
            name = format!("{wanted}-{number}");
            number += 1;
        }
        name
    }

    /// Returns a unique file name, based on the name of the file at `path`.
    pub(super) fn claim_like(&mut self, path: &str) -> String {
        let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy();
        self.claim(if name.is_empty() { "stream" } else { &name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output_paths_of(places: &[(&str, &str)]) -> Vec<PathBuf> {
        let origin = |&(root, below): &(&str, &str)| Origin {
            path: Path::new(root).join(below),
            root: root.into(),
            below: below.into(),
        };
        super::output_paths(&places.iter().map(origin).collect::<Vec<_>>())
    }

    #[test]
    fn traces_keep_their_place() {
        let all = |wanted: &[&str]| wanted.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(output_paths_of(&[("/t", "")]), all(&[""]));
        assert_eq!(output_paths_of(&[("/t", "ust"), ("/t", "kernel")]), all(&["ust", "kernel"]));
        assert_eq!(
            output_paths_of(&[("/a", "x"), ("/b", ""), ("/a", "y")]),
            all(&["a/x", "b", "a/y"])
        );
        assert_eq!(output_paths_of(&[("/a/t", ""), ("/b/t", "")]), all(&["t", "t-2"]));
        assert_eq!(output_paths_of(&[("/", ""), ("/b", "")]), all(&["trace", "b"]));
    }

    #[test]
    fn names_are_given_once() {
        let mut names = UniqueNames::default();
        let given = ["a", "b", "a", "a-2", "a"].map(|name| names.claim(name));
        assert_eq!(given, ["a", "b", "a-2", "a-2-2", "a-3"]);
        assert_eq!([names.claim_like("/x/a"), names.claim_like("")], ["a-4", "stream"]);
    }
}
