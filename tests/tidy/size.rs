//! Sizes of folders, files and functions, and places of modules.
//!
//! Each rule is a function from text to faults, and has a test with a planted fault.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use syn::visit::{self, Visit};

use crate::{find_sources, relative_path};

/// Most Rust files in a folder of sources.
const FOLDER_FILES_MAX: usize = 20;
/// Most lines of a file without a reason for more.
const FILE_LINES_MAX: usize = 600;
/// Most lines of a function without a reason for more.
const FUNCTION_LINES_MAX: usize = 70;
/// Beginning of the reason for a long file (in its head) or function (above it).
const REASON_PREFIX: &str = "Longer than";

/// Lines of a function, from its signature to its closing brace.
#[derive(Debug, PartialEq, Eq)]
struct Function {
    name: String,
    line: usize,
    lines: usize,
}

/// Collects functions with bodies, nested ones included.
struct FunctionCollector(Vec<Function>);

impl FunctionCollector {
    fn add(&mut self, name: &syn::Ident, body: &syn::Block) {
        let (from, to) = (name.span().start().line, body.brace_token.span.close().end().line);
        self.0.push(Function { name: name.to_string(), line: from, lines: to + 1 - from });
    }
}

impl<'ast> Visit<'ast> for FunctionCollector {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.add(&item.sig.ident, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.add(&item.sig.ident, &item.block);
        visit::visit_impl_item_fn(self, item);
    }
}

/// Returns the functions that are too long and give no reason.
fn long_functions(text: &str) -> Vec<Function> {
    let mut functions = FunctionCollector(Vec::new());
    functions.visit_file(&syn::parse_file(text).expect("Rust"));
    let lines: Vec<&str> = text.lines().collect();
    let has_reason = |function: &Function| {
        let above = lines[..function.line - 1].iter().rev().map(|line| line.trim());
        let mut notes = above.take_while(|line| line.starts_with("//") || line.starts_with("#["));
        notes.any(|line| line.contains(REASON_PREFIX))
    };
    let found = functions.0.into_iter();
    found.filter(|one| one.lines > FUNCTION_LINES_MAX && !has_reason(one)).collect()
}

/// Returns the number of lines of a file that is too long without a reason in its head.
fn excess_lines(text: &str) -> Option<usize> {
    let lines = text.lines().count();
    let mut head = text.lines().take_while(|line| line.starts_with("//!"));
    (lines > FILE_LINES_MAX && !head.any(|line| line.contains(REASON_PREFIX))).then_some(lines)
}

/// Returns the paths of packages' sources below the root, without tests.
fn package_sources() -> Vec<String> {
    let is_source = |path: &String| path.contains("/src/") && path.ends_with(".rs");
    find_sources(&[".rs"]).iter().map(|path| relative_path(path)).filter(is_source).collect()
}

/// Returns the folders with more than [`FOLDER_FILES_MAX`] files.
fn overfull_folders(paths: &[String]) -> Vec<String> {
    let mut counts: BTreeMap<&Path, usize> = BTreeMap::new();
    for path in paths {
        *counts.entry(Path::new(path).parent().expect("a folder")).or_default() += 1;
    }
    let full = counts.into_iter().filter(|(_, count)| *count > FOLDER_FILES_MAX);
    full.map(|(folder, count)| format!("{}: {count} files", folder.display())).collect()
}

/// Returns the modules that have both `name.rs` and `name/`.
fn duplicate_module_files(paths: &[String]) -> Vec<String> {
    let known: BTreeSet<&Path> = paths.iter().filter_map(|path| Path::new(path).parent()).collect();
    let folder = |path: &String| path.strip_suffix(".rs").map(str::to_owned);
    let is_double = |path: &&String| {
        folder(path).is_some_and(|name| known.iter().any(|dir| dir.starts_with(&name)))
    };
    paths.iter().filter(is_double).cloned().collect()
}

/// Collects the names of the modules that a file declares.
#[derive(Default)]
struct DeclaredModules {
    modules: BTreeSet<String>,
}

impl<'ast> Visit<'ast> for DeclaredModules {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.modules.insert(item.ident.to_string());
        visit::visit_item_mod(self, item);
    }
}

/// Returns the files that no module declares, and that are therefore not compiled.
fn undeclared_modules(files: &BTreeMap<String, String>) -> Vec<String> {
    let roots = ["lib", "main", "build"];
    let parent_of = |path: &str| {
        let (folder, file) = path.rsplit_once('/')?;
        let (folder, name) = match file.strip_suffix(".rs")? {
            "mod" => folder.rsplit_once('/')?,
            name => (folder, name),
        };
        let candidates = ["mod.rs", "lib.rs", "main.rs"].map(|file| format!("{folder}/{file}"));
        // A module in the file of the folder above may hold the declaration.
        let above = folder.rsplit_once('/').map_or("", |(above, _)| above);
        let beside = [format!("{folder}.rs"), format!("{above}/mod.rs"), format!("{above}/lib.rs")];
        let is_there = |path: &String| files.contains_key(path);
        Some((candidates.into_iter().chain(beside).filter(is_there).collect(), name.to_owned()))
    };
    let declared = |text: &String| {
        let mut declarations = DeclaredModules::default();
        declarations.visit_file(&syn::parse_file(text).expect("Rust"));
        declarations.modules
    };
    let declared: BTreeMap<&String, BTreeSet<String>> =
        files.iter().map(|(path, text)| (path, declared(text))).collect();
    let is_dead = |path: &&String| {
        let stem = Path::new(path).file_stem().unwrap_or_default().to_string_lossy();
        if roots.contains(&&*stem) || path.contains("/src/bin/") {
            return false;
        }
        let Some((parents, name)): Option<(Vec<String>, String)> = parent_of(path) else {
            return true;
        };
        // A file may also be included by its path.
        let is_included = |text: &String| text.contains(&format!("{stem}.rs\""));
        !parents.iter().any(|parent| declared[parent].contains(&name))
            && !files.values().any(is_included)
    };
    files.keys().filter(is_dead).cloned().collect()
}

#[test]
fn functions_are_short_or_give_a_reason() {
    let mut bad = Vec::new();
    for path in find_sources(&[".rs"]) {
        let text = fs::read_to_string(&path).expect("a source file");
        for Function { name, line, lines } in long_functions(&text) {
            bad.push(format!("{}:{line}: {name} has {lines} lines", relative_path(&path)));
        }
    }
    assert!(
        bad.is_empty(),
        "shorten them, or say `// {REASON_PREFIX} 70 lines: why`:\n{}",
        bad.join("\n")
    );
}

#[test]
fn files_are_short_or_give_a_reason() {
    let mut bad = Vec::new();
    for path in find_sources(&[".rs"]) {
        let text = fs::read_to_string(&path).expect("a source file");
        if let Some(lines) = excess_lines(&text) {
            bad.push(format!("{}: {lines} lines", relative_path(&path)));
        }
    }
    assert!(
        bad.is_empty(),
        "split them, or say `//! {REASON_PREFIX} 600 lines: why`:\n{}",
        bad.join("\n")
    );
}

#[test]
fn folders_are_seen_at_one_look() {
    let paths = package_sources();
    assert!(paths.len() > 300, "the sources were not found");
    let bad = [overfull_folders(&paths), duplicate_module_files(&paths)].concat();
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn every_file_is_compiled() {
    let read = |path: String| {
        let text = fs::read_to_string(crate::source_dir().join(&path)).expect("a source file");
        (path, text)
    };
    let bad = undeclared_modules(&package_sources().into_iter().map(read).collect());
    assert!(bad.is_empty(), "no module declares\n{}", bad.join("\n"));
}

#[test]
fn a_long_function_is_found_unless_it_gives_a_reason() {
    let body = "    step();\n".repeat(FUNCTION_LINES_MAX);
    let long = format!("//! Head.\nstruct S;\nimpl S {{\n    fn long() {{\n{body}    }}\n}}\n");
    let lines = FUNCTION_LINES_MAX + 2;
    let found = Function { name: "long".into(), line: 4, lines };
    assert_eq!(long_functions(&long), [found]);
    let argued = long.replace(
        "    fn long",
        "    // Longer than 70 lines: one step after the other.\n    fn long",
    );
    assert_eq!(long_functions(&argued), []);
    assert_eq!(long_functions(&long.replacen("    step();\n", "", 2)), []);
}

#[test]
fn a_long_file_is_found_unless_it_gives_a_reason() {
    let long = format!("//! Head.\n{}", "fn f() {}\n".repeat(FILE_LINES_MAX));
    assert_eq!(excess_lines(&long), Some(FILE_LINES_MAX + 1));
    assert_eq!(
        excess_lines(&long.replace("Head.", "Head.\n//!\n//! Longer than 600 lines: a table.")),
        None
    );
    assert_eq!(excess_lines(&long.replacen("fn f() {}\n", "", 1)), None);
}

#[test]
fn full_folders_and_double_modules_are_found() {
    let many: Vec<String> = (0..=FOLDER_FILES_MAX).map(|n| format!("c/src/a/f{n}.rs")).collect();
    assert_eq!(overfull_folders(&many), [format!("c/src/a: {} files", FOLDER_FILES_MAX + 1)]);
    assert_eq!(overfull_folders(&many[1..]), Vec::<String>::new());
    let paths = |paths: &[&str]| paths.iter().map(|&path| path.to_owned()).collect::<Vec<_>>();
    assert_eq!(duplicate_module_files(&paths(&["c/src/a.rs", "c/src/a/b/d.rs"])), ["c/src/a.rs"]);
    assert!(
        duplicate_module_files(&paths(&["c/src/a/mod.rs", "c/src/a/b.rs", "c/src/ab.rs"]))
            .is_empty()
    );
}

#[test]
fn a_file_that_no_module_declares_is_found() {
    let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    let files = BTreeMap::from([
        file("c/src/lib.rs", "mod a; #[cfg(test)] mod tests;"),
        file("c/src/tests.rs", ""),
        file("c/src/a/mod.rs", "mod b;"),
        file("c/src/a/b.rs", "const TEXT: &str = include_str!(\"kept.rs\");"),
        file("c/src/a/kept.rs", ""),
        file("c/src/a/dead.rs", ""),
    ]);
    assert_eq!(undeclared_modules(&files), ["c/src/a/dead.rs"]);
}
