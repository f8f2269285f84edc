//! Imports between the folders of a crate must not form circles.
//!
//! A module is identified by the first part of its path below the crate: its folder, or its file if
//! it is in no folder. An import leads to the module that defines the imported item, through any
//! number of `pub use`. The crate's root belongs to no circle: it may import everything, and
//! re-export it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use syn::visit::{self, Visit};
use trackway_tests::source_dir;

/// Crates that must have no circle. The other crates still have one, which must be cut.
const ACYCLIC_CRATES: [&str; 20] = [
    "abi",
    "agent",
    "capi",
    "cli",
    "command_line",
    "console",
    "ctf",
    "filter",
    "jit",
    "kernel",
    "reader",
    "recorder",
    "render",
    "ring",
    "rust",
    "schema",
    "session",
    "sys",
    "testkit",
    "window",
];
/// Folders of other packages that must have no circle.
const OTHER_ACYCLIC_FOLDERS: [&str; 3] = ["bench/engine", "bench/suites", "bench/cli"];
/// Most `pub use` items that one name may pass through.
const HOPS_MAX: usize = 16;

/// The names of the path from the crate's root to a module, or to an item.
type ItemPath = Vec<String>;

/// Paths, re-exports and items of a module.
#[derive(Default)]
struct Module {
    /// Paths in the module's code, as they are written.
    paths: Vec<ItemPath>,
    /// Names that it re-exports under another path, with their origins.
    offered: BTreeMap<String, ItemPath>,
    /// Modules from which the module re-exports all names.
    offered_whole: Vec<ItemPath>,
    /// Names of the items that it defines.
    items: BTreeSet<String>,
}

/// The modules of a crate, by their paths.
type Modules = BTreeMap<ItemPath, Module>;

impl Module {
    fn parse(text: &str) -> Self {
        let mut module = Self::default();
        let file = syn::parse_file(text).expect("Rust");
        module.items = file.items.iter().filter_map(item_name).collect();
        module.visit_file(&file);
        module
    }

    fn take_use(&mut self, tree: &syn::UseTree, before: &[String], is_offered: bool) {
        match tree {
            syn::UseTree::Path(path) => {
                let before = [before, &[path.ident.to_string()]].concat();
                self.take_use(&path.tree, &before, is_offered);
            }
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.take_use(tree, before, is_offered));
            }
            syn::UseTree::Name(name) => {
                let name = name.ident.to_string();
                self.take_name(name.clone(), name, before, is_offered);
            }
            syn::UseTree::Rename(rename) => {
                let (name, new) = (rename.ident.to_string(), rename.rename.to_string());
                self.take_name(name, new, before, is_offered);
            }
            syn::UseTree::Glob(_) => {
                self.paths.push(before.to_vec());
                if is_offered {
                    self.offered_whole.push(before.to_vec());
                }
            }
        }
    }

    fn take_name(&mut self, name: String, new: String, before: &[String], is_offered: bool) {
        let path = match name.as_str() {
            "self" => before.to_vec(),
            _ => [before, std::slice::from_ref(&name)].concat(),
        };
        if is_offered {
            let new = if new == "self" { path.last().cloned().unwrap_or_default() } else { new };
            self.offered.insert(new, path.clone());
        }
        self.paths.push(path);
    }
}

fn item_name(item: &syn::Item) -> Option<String> {
    let name = match item {
        syn::Item::Const(item) => &item.ident,
        syn::Item::Enum(item) => &item.ident,
        syn::Item::Fn(item) => &item.sig.ident,
        syn::Item::Static(item) => &item.ident,
        syn::Item::Struct(item) => &item.ident,
        syn::Item::Trait(item) => &item.ident,
        syn::Item::Type(item) => &item.ident,
        syn::Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

fn is_test_only(attributes: &[syn::Attribute]) -> bool {
    let is_test = |attribute: &syn::Attribute| match &attribute.meta {
        syn::Meta::List(list) => {
            list.path.is_ident("cfg") && list.tokens.to_string().contains("test")
        }
        _ => false,
    };
    attributes.iter().any(is_test)
}

impl<'ast> Visit<'ast> for Module {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test_only(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_test_only(&item.attrs) {
            self.take_use(&item.tree, &[], !matches!(item.vis, syn::Visibility::Inherited));
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: ItemPath = path.segments.iter().map(|part| part.ident.to_string()).collect();
        if names.len() > 1 {
            self.paths.push(names);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, of: &'ast syn::Macro) {
        // The expansion of a macro is unknown; a path from the crate's root in its tokens is an
        // import.
        let text = of.tokens.to_string().replace(' ', "");
        for rest in text.split("crate::").skip(1) {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
            let path = rest[..end.unwrap_or(rest.len())].split("::").map(str::to_owned);
            self.paths.push(["crate".to_owned()].into_iter().chain(path).collect());
        }
        visit::visit_macro(self, of);
    }
}

/// Returns the modules in the files of a crate's folder `src`.
fn parse_modules(folder: &Path) -> Modules {
    fn collect_modules(folder: &Path, names: &ItemPath, modules: &mut Modules) {
        for entry in fs::read_dir(folder).expect("a folder").flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            if path.is_dir() {
                if name == "tests" {
                    continue;
                }
                collect_modules(&path, &[&names[..], &[name]].concat(), modules);
            } else if let Some(stem) = name.strip_suffix(".rs").filter(|stem| *stem != "tests") {
                let names = match stem {
                    "lib" | "main" | "mod" => names.clone(),
                    stem => [&names[..], &[stem.to_owned()]].concat(),
                };
                let text = fs::read_to_string(&path).expect("a source");
                modules.insert(names, Module::parse(&text));
            }
        }
    }
    let mut modules = Modules::new();
    collect_modules(folder, &ItemPath::new(), &mut modules);
    modules
}

/// Returns the path from the crate's root for `path` in the module `from`; `None` for another
/// crate's path.
fn absolute_path(modules: &Modules, from: &[String], path: &[String]) -> Option<ItemPath> {
    let (mut at, mut rest) = (from.to_vec(), path);
    match path.first()?.as_str() {
        "crate" => (at, rest) = (ItemPath::new(), &path[1..]),
        "self" => rest = &path[1..],
        "super" => {
            while let Some(("super", behind)) = rest.split_first().map(|(a, b)| (a.as_str(), b)) {
                at.pop();
                rest = behind;
            }
        }
        first => {
            let child = [from, &[first.to_owned()]].concat();
            let is_known = modules.contains_key(&child)
                || modules.get(from).is_some_and(|module| module.offered.contains_key(first));
            if !is_known {
                return None;
            }
        }
    }
    at.extend_from_slice(rest);
    Some(at)
}

/// Returns the module into which a path leads, without following re-exports, and the remaining
/// path.
fn split_module_path<'p>(
    modules: &Modules,
    path: &'p [String],
) -> Option<(&'p [String], &'p [String])> {
    let end = (0..=path.len()).rev().find(|&end| modules.contains_key(&path[..end]))?;
    Some(path.split_at(end))
}

/// Returns the module that defines the item at this path, or `None` if it is not found.
fn defining_module(modules: &Modules, path: &[String], hops: usize) -> Option<ItemPath> {
    let (at, rest) = split_module_path(modules, path)?;
    let module = modules.get(at)?;
    let Some((name, behind)) = rest.split_first() else { return Some(at.to_vec()) };
    if module.items.contains(name) {
        return Some(at.to_vec());
    }
    if hops == HOPS_MAX {
        return None;
    }
    if let Some(from) = module.offered.get(name) {
        let from = absolute_path(modules, at, from)?;
        return defining_module(modules, &[&from, behind].concat(), hops + 1);
    }
    let whole = module.offered_whole.iter().filter_map(|from| absolute_path(modules, at, from));
    whole.filter_map(|from| defining_module(modules, &[&from, rest].concat(), hops + 1)).next()
}

/// Returns the imports between folders: from, to, and each imported path with its module.
fn folder_imports(modules: &Modules) -> BTreeMap<(String, String), BTreeSet<String>> {
    let mut imports: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for (from, module) in modules {
        for path in &module.paths {
            let Some(path_here) = absolute_path(modules, from, path) else { continue };
            // If no definition is found, for example of items that a macro makes, the module into
            // which the path leads is used.
            let into = || split_module_path(modules, &path_here).map(|(module, _)| module.to_vec());
            let defined = defining_module(modules, &path_here, 0).or_else(into).unwrap_or_default();
            if let (Some(own), Some(other)) = (from.first(), defined.first())
                && own != other
            {
                let what = format!("{} of {}", path.join("::"), from.join("::"));
                imports.entry((own.clone(), other.clone())).or_default().insert(what);
            }
        }
    }
    imports
}

/// Returns the imports that belong to a circle, one per line.
fn find_import_cycles(modules: &Modules) -> Vec<String> {
    let imports = folder_imports(modules);
    let reaches = |from: &String, to: &String| {
        let (mut pending, mut known) = (vec![from], BTreeSet::from([from]));
        while let Some(at) = pending.pop() {
            let next = imports.keys().filter(|(own, _)| own == at).map(|(_, other)| other);
            pending.extend(next.filter(|other| known.insert(*other)));
        }
        known.contains(to)
    };
    let in_circle = imports.iter().filter(|((own, other), _)| reaches(other, own));
    in_circle
        .map(|((own, other), why)| {
            let why: Vec<_> = why.iter().map(String::as_str).collect();
            format!("{own} imports {other}: {}", why.join(", "))
        })
        .collect()
}

#[test]
fn folders_of_a_crate_import_each_other_one_way() {
    let mut found = Vec::new();
    let crates = ACYCLIC_CRATES.map(|name| format!("crates/{name}")).into_iter();
    for name in crates.chain(OTHER_ACYCLIC_FOLDERS.map(str::to_owned)) {
        let modules = parse_modules(&source_dir().join(&name).join("src"));
        assert!(!modules.is_empty(), "{name} has no sources");
        found
            .extend(find_import_cycles(&modules).into_iter().map(|line| format!("{name}: {line}")));
    }
    assert!(found.is_empty(), "circles of imports:\n{}", found.join("\n"));
}

/// Returns the modules of a made-up crate.
fn make_modules(files: &[(&str, &str)]) -> Modules {
    let names = |path: &str| -> ItemPath {
        path.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect()
    };
    files.iter().map(|(path, text)| (names(path), Module::parse(text))).collect()
}

#[test]
fn circles_are_found_through_what_is_offered_elsewhere() {
    let modules = make_modules(&[
        ("", "mod a; mod b; mod c; pub use b::deep::Thing; pub use c::*;"),
        ("a", "use crate::Thing; fn f(_: Thing) {} fn g() { super::helper(); }"),
        ("b", "pub mod deep; #[cfg(test)] mod tests { use crate::c::helper; }"),
        ("b::deep", "pub struct Thing; fn f() { crate::a::f(); }"),
        ("c", "pub fn helper() {} fn f() { println!(\"{}\", crate::a::X); }"),
    ]);
    let circles = find_import_cycles(&modules);
    let expected = ["a imports b: ", "a imports c: ", "b imports a: ", "c imports a: "];
    assert_eq!(circles.len(), expected.len(), "{circles:#?}");
    for (line, begin) in circles.iter().zip(expected) {
        assert!(line.starts_with(begin), "{circles:#?}");
    }
}

#[test]
fn imports_in_one_direction_are_no_circle() {
    let modules = make_modules(&[
        ("", "mod a; mod b; pub use a::A;"),
        ("a", "use crate::b::{self, B}; use std::fmt; pub struct A; fn f() { b::g(); self::f(); }"),
        ("b", "pub struct B; pub fn g() {} mod inner { use super::B; }"),
        ("b::child", "use super::B; use crate::b::g;"),
    ]);
    assert_eq!(find_import_cycles(&modules), Vec::<String>::new());
}
