//! Words: names, openings of doc comments, pronouns in comments, and the glossary.
//!
//! The rules are those of STYLE.md that a program can check.

use std::collections::BTreeSet;
use std::fs;

use syn::visit::{self, Visit};

use crate::{find_sources, relative_path, source_dir};

/// Most terms of the glossary.
const TERMS_MAX: usize = 90;

/// Pronouns, prepositions, participles and similar words, which alone are no name of an item.
const BARE_NAMES: [&str; 41] = [
    "above", "after", "ahead", "alone", "anew", "anybody", "apart", "around", "asked", "before",
    "behind", "below", "beside", "besides", "between", "beyond", "both", "given", "gone", "held",
    "here", "his", "how", "its", "kept", "meant", "nobody", "others", "ours", "said", "seen",
    "somebody", "taken", "theirs", "there", "those", "told", "way", "what", "who", "whose",
];
/// Words that alone are no name of a field or parameter, which have a type.
const BARE_VALUE_NAMES: [&str; 16] = [
    "asked", "beside", "besides", "beyond", "how", "meant", "nobody", "others", "ours", "said",
    "seen", "taken", "theirs", "told", "who", "whose",
];
/// First words of functions that attribute speech to software.
const SPEECH_VERBS: [&str; 9] =
    ["say", "says", "tell", "tells", "ask", "asks", "hear", "want", "look"];
/// Names of one word that a free function may have: verbs where the module names the object, and
/// names that C, system calls and the public API give. All others are a verb with its object.
const WHOLE_NAMES: [&str; 38] = [
    "abort",
    "bpf",
    "bytes",
    "clone",
    "commit",
    "compile",
    "connect",
    "contains",
    "crc32",
    "deserialize",
    "diagnose",
    "emit",
    "encode",
    "evaluate",
    "explain",
    "handle",
    "has",
    "hex",
    "init",
    "layer",
    "main",
    "once",
    "panic",
    "parse",
    "record",
    "recover",
    "run",
    "send",
    "serialize",
    "snapshot",
    "start",
    "stderr",
    "stdout",
    "subscriber",
    "tokenize",
    "unlink",
    "verify",
    "vfork",
];
/// Everyday nouns that once named a role; each has a name of the field now.
const EVERYDAY_NOUNS: [&str; 24] = [
    "Circumstances",
    "Desk",
    "Entrance",
    "Footprint",
    "Ground",
    "Guardian",
    "Hall",
    "Home",
    "Kit",
    "Lack",
    "Looker",
    "Making",
    "Parts",
    "Place",
    "Quarters",
    "Room",
    "Stray",
    "Talk",
    "Thrift",
    "Unasked",
    "Unfit",
    "Way",
    "Whole",
    "World",
];
/// First words of doc comments that announce a relative clause instead of a thing or an action.
const CLAUSE_OPENINGS: [&str; 14] = [
    "what", "who", "whose", "of", "as", "that", "those", "such", "where", "how", "whether",
    "which", "likewise", "whatever",
];
/// Pronouns that stand for a thing with a name.
const PRONOUNS: [&str; 10] = [
    "nobody",
    "somebody",
    "whoever",
    "anybody",
    "everybody",
    "he",
    "his",
    "him",
    "whomever",
    "nobody's",
];

/// Returns true if `name` is one of these words alone: `Taken`, `taken`, `TAKEN`.
fn is_bare_name(name: &str) -> bool {
    BARE_NAMES.contains(&&*name.to_lowercase()) || EVERYDAY_NOUNS.contains(&name)
}

/// Returns true if a function is named after an act of speech: `say_news`.
fn is_speech_name(name: &str) -> bool {
    name.split('_').next().is_some_and(|first| SPEECH_VERBS.contains(&first))
}

/// Collects names that the rules forbid.
#[derive(Default)]
struct BadNames(BTreeSet<String>);

impl BadNames {
    fn check(&mut self, name: &syn::Ident) {
        let name = name.to_string();
        if is_bare_name(&name) {
            self.0.insert(name);
        }
    }

    fn check_value(&mut self, name: &syn::Ident) {
        let name = name.to_string();
        if BARE_VALUE_NAMES.contains(&&*name) {
            self.0.insert(name);
        }
    }

    fn check_function(&mut self, signature: &syn::Signature) {
        self.check(&signature.ident);
        let name = signature.ident.to_string();
        if is_speech_name(&name) {
            self.0.insert(name);
        }
        for input in &signature.inputs {
            if let syn::FnArg::Typed(input) = input
                && let syn::Pat::Ident(pattern) = &*input.pat
            {
                self.check_value(&pattern.ident);
            }
        }
    }
}

impl<'ast> Visit<'ast> for BadNames {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        match item {
            syn::Item::Const(item) => self.check(&item.ident),
            syn::Item::Enum(item) => self.check(&item.ident),
            syn::Item::Mod(item) => self.check(&item.ident),
            syn::Item::Static(item) => self.check(&item.ident),
            syn::Item::Struct(item) => self.check(&item.ident),
            syn::Item::Trait(item) => self.check(&item.ident),
            syn::Item::Type(item) => self.check(&item.ident),
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        self.check_function(signature);
        visit::visit_signature(self, signature);
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        let name = function.sig.ident.to_string();
        let is_test = function.attrs.iter().any(|attribute| attribute.path().is_ident("test"));
        if !is_test && !name.contains('_') && !WHOLE_NAMES.contains(&&*name) {
            self.0.insert(name);
        }
        visit::visit_item_fn(self, function);
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        field.ident.iter().for_each(|name| self.check_value(name));
        visit::visit_field(self, field);
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        self.check(&variant.ident);
        visit::visit_variant(self, variant);
    }
}

/// Returns the names in a source file that violate the rules.
fn bad_names(text: &str) -> BTreeSet<String> {
    let mut names = BadNames::default();
    names.visit_file(&syn::parse_file(text).expect("Rust"));
    names.0
}

/// Returns the words of a comment line, without text in backticks.
fn comment_words(line: &str) -> Vec<String> {
    let spoken = line.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    let words = spoken.split(|c: char| !c.is_alphanumeric() && c != '\'');
    words.filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
}

/// Returns the text of a doc comment's line.
fn doc_text(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?;
    (!text.starts_with('/')).then_some(text)
}

/// Returns the lines on which a doc comment opens with a word that announces a clause.
fn bad_openings(text: &str) -> Vec<usize> {
    let lines: Vec<Option<&str>> = text.lines().map(doc_text).collect();
    let is_first = |at: usize| at == 0 || lines[at - 1].is_none();
    let opens_badly = |at: &usize| {
        let Some(line) = lines[*at] else { return false };
        is_first(*at)
            && comment_words(line).first().is_some_and(|word| CLAUSE_OPENINGS.contains(&&**word))
    };
    (0..lines.len()).filter(opens_badly).map(|at| at + 1).collect()
}

/// Returns the lines of comments that use a pronoun for a thing with a name.
fn bad_pronouns(text: &str) -> Vec<usize> {
    let is_bad = |line: &str| {
        let Some((before, comment)) = line.split_once("//") else { return false };
        let is_comment = before.trim().is_empty() || before.ends_with(' ');
        is_comment && comment_words(comment).iter().any(|word| PRONOUNS.contains(&&**word))
    };
    let lines = text.lines().enumerate();
    lines.filter(|(_, line)| is_bad(line)).map(|(number, _)| number + 1).collect()
}

#[test]
fn names_and_comments_use_the_words_of_the_field() {
    let mut bad = Vec::new();
    for path in find_sources(&[".rs"]) {
        let (name, text) =
            (relative_path(&path), fs::read_to_string(&path).expect("a source file"));
        bad.extend(bad_names(&text).into_iter().map(|word| format!("{name}: the name {word}")));
        let lines = |kind: &'static str| move |line| format!("{kind} on line {line}");
        let openings = bad_openings(&text).into_iter().map(lines("an opening"));
        let pronouns = bad_pronouns(&text).into_iter().map(lines("a pronoun"));
        bad.extend(openings.chain(pronouns).map(|fault| format!("{name}: {fault}")));
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

/// Returns the terms of the glossary in its order.
fn glossary_terms(text: &str) -> Vec<String> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("| "));
    let terms = rows.filter_map(|row| row.split(" | ").next()).map(str::to_owned);
    terms.filter(|term| term != "term").collect()
}

/// Returns the faults of a glossary.
fn glossary_faults(text: &str) -> Vec<String> {
    let (terms, mut known, mut bad) = (glossary_terms(text), BTreeSet::new(), Vec::new());
    if terms.is_empty() || terms.len() > TERMS_MAX {
        bad.push(format!("{} terms", terms.len()));
    }
    for term in &terms {
        if !known.insert(term.to_lowercase()) {
            bad.push(format!("'{term}' is defined twice"));
        }
        if is_bare_name(term) {
            bad.push(format!("'{term}' is no term"));
        }
    }
    bad
}

#[test]
fn the_glossary_has_each_term_once() {
    let text = fs::read_to_string(source_dir().join("docs/glossary.md")).expect("the glossary");
    assert_eq!(glossary_faults(&text), Vec::<String>::new());
}

#[test]
fn names_that_are_none_are_found() {
    let text = "mod beside {} struct Desk { told: u8, kept_bytes: u8 } enum E { Taken, Full }
                trait T { fn say_news(whose: u8); fn saying(); }
                impl E { fn look() {} fn text() {} }
                fn text() {} fn parse() {} fn find_text() { fn judge() {} }";
    let expected =
        ["Desk", "Taken", "beside", "judge", "look", "say_news", "text", "told", "whose"];
    assert_eq!(bad_names(text).into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn openings_that_announce_a_clause_are_found() {
    let text = "//! What this is.\n\n/// Returns\n/// what is left.\nfn f() {}\n    /// `As` is.\n\
                //// Of no account.\n/// As before.\n";
    assert_eq!(bad_openings(text), [1, 8]);
}

#[test]
fn pronouns_are_found_in_comments_alone() {
    let text = "// Nobody waits.\nlet nobody = \"https://he\";\nf(); // he does\n/// The `his`.\n";
    assert_eq!(bad_pronouns(text), [1, 3]);
}

#[test]
fn a_glossary_that_has_a_term_twice_is_found() {
    let table = "| term | meaning |\n|---|---|\n| lease | a |\n| Lease | b |\n| beside | c |\n";
    assert_eq!(glossary_faults(table), ["'Lease' is defined twice", "'beside' is no term"]);
    let rows: String = (0..=TERMS_MAX).map(|n| format!("| t{n} | m |\n")).collect();
    assert_eq!(glossary_faults(&rows), [format!("{} terms", TERMS_MAX + 1)]);
}
