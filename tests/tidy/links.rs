//! Links in documents: each leads to a file, and its `#anchor` to a heading of that file.
//!
//! Anchors are those that GitHub makes from headings. Code contains no links.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::{find_sources, relative_path};

/// The text of documents, by their paths.
type Documents = BTreeMap<PathBuf, String>;

/// Returns the lines of a document that are not in fenced code.
fn lines_outside_code(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// Returns the targets of the links in a document.
fn link_targets(text: &str) -> Vec<String> {
    let prose: Vec<&str> = lines_outside_code(text).collect();
    let prose = prose.join("\n");
    let mut targets = Vec::new();
    for paragraph in prose.split("\n\n") {
        // Every second part is `code`.
        let words = paragraph.split('`').step_by(2).collect::<Vec<_>>().join("``");
        let ends = words.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        targets.extend(ends.map(|(target, _)| target.to_owned()));
    }
    targets
}

/// Returns the anchor of a heading's text, without a number that makes it unique.
fn heading_anchor(heading: &str) -> String {
    let text = heading.trim().to_lowercase().replace(' ', "-");
    text.chars().filter(|&c| c.is_alphanumeric() || c == '-' || c == '_').collect()
}

/// Returns the anchors of a document.
fn document_anchors(text: &str) -> BTreeSet<String> {
    let mut counts = BTreeMap::<String, usize>::new();
    let headings = lines_outside_code(text).filter(|line| line.starts_with('#'));
    let headings = headings.filter_map(|line| line.trim_start_matches('#').strip_prefix(' '));
    headings
        .map(|heading| {
            let anchor = heading_anchor(heading);
            let count = counts.entry(anchor.clone()).or_default();
            *count += 1;
            if *count > 1 { format!("{anchor}-{}", *count - 1) } else { anchor }
        })
        .collect()
}

/// Returns a path without `.` and `..`.
fn normalize_path(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => (),
            Component::ParentDir => drop(normal.pop()),
            part => normal.push(part),
        }
    }
    normal
}

/// Returns the broken links, one per line.
fn find_broken_links(documents: &Documents, exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let anchors: BTreeMap<_, _> =
        documents.iter().map(|(path, text)| (path.as_path(), document_anchors(text))).collect();
    let mut broken = Vec::new();
    for (from, text) in documents {
        for target in link_targets(text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let path = match file {
                "" => from.clone(),
                file => normalize_path(&from.parent().unwrap_or(Path::new("")).join(file)),
            };
            if !exists(&path) {
                broken.push(format!("{}: {target}: no such file", relative_path(from)));
            } else if !anchor.is_empty()
                && anchors.get(path.as_path()).is_some_and(|known| !known.contains(anchor))
            {
                broken.push(format!("{}: {target}: no such heading", relative_path(from)));
            }
        }
    }
    broken
}

#[test]
fn links_between_documents_lead_somewhere() {
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a document");
        (path, text)
    };
    let documents: Documents = find_sources(&[".md"]).into_iter().map(read).collect();
    assert!(!documents.is_empty(), "no documents");
    let broken = find_broken_links(&documents, Path::exists);
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}

/// Returns made-up documents.
fn make_documents(files: &[(&str, &str)]) -> Documents {
    files.iter().map(|(path, text)| (path.into(), (*text).to_owned())).collect()
}

#[test]
fn broken_links_and_anchors_are_found() {
    let documents = make_documents(&[
        (
            "README.md",
            "# One\n[a](docs/a.md) [b](docs/b.md) [c](docs/a.md#cost) [d](docs/a.md#costs)\n\
             [e](#one) [f](#two)",
        ),
        ("docs/a.md", "## Cost\n```\n## Costs\n[g](nowhere.md)\n```\n[h](../README.md#three)"),
    ]);
    let found = find_broken_links(&documents, |path| documents.contains_key(path));
    let expected = [
        "README.md: docs/b.md: no such file",
        "README.md: docs/a.md#costs: no such heading",
        "README.md: #two: no such heading",
        "docs/a.md: ../README.md#three: no such heading",
    ];
    assert_eq!(found, expected);
}

#[test]
fn anchors_are_those_of_github() {
    let documents = make_documents(&[(
        "a.md",
        "# What's new: `record --on`, *C++*\n## Cost\n## Cost\n## A_b – c\n\
         [1](#whats-new-record---on-c) [2](#cost) [3](#cost-1) [4](#a_b--c) [5](http://a/#b)\n\
         `[6](nowhere)` [`7`](a.md#cost) [8](./a.md)",
    )]);
    let found = find_broken_links(&documents, |path| documents.contains_key(path));
    assert_eq!(found, Vec::<String>::new());
}
