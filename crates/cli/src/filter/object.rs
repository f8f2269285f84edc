//! Filters in C: converts clang's object files to filter objects, and explains them.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read as _, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use trackway_filter::elf::{self, FILE_BYTES_MAX, Filters};
use trackway_filter::object::Alternative;
use trackway_filter::parse::split_pattern;
use trackway_jit::object::Object;
use trackway_recorder::{ChannelSpec, FilterObject, FilterSource, FilterSpec};

/// Make an object of a filter in C: what is given to those who run filters.
///
/// Examples:
///
///   clang -O2 -target bpf -fno-jump-tables -c slow.c
///   trackway filter compile slow.o -o slow.twf
///
/// The filter is verified. What is refused is said with instruction, section and reason, and with
/// the line of the source if clang was called with -g.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Arguments {
    /// Object that clang -target bpf -c has made
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// File of the object to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

/// First bytes of an object that `trackway filter compile` has written.
const OBJECT_MAGIC: &[u8] = b"twf";

/// Builds filters from the user's words: expressions, and files of filters in C.
///
/// # Errors
///
/// If a filter is invalid.
pub(crate) fn build_filter_specs(
    texts: &[String],
    objects: &[PathBuf],
) -> anyhow::Result<Vec<FilterSpec>> {
    let mut filters: Vec<FilterSpec> = texts.iter().map(|text| FilterSpec::new(text)).collect();
    filters.extend(read_object_filters(objects)?);
    let channel = ChannelSpec { filters, ..ChannelSpec::default() };
    channel.check_filters()?;
    Ok(channel.filters)
}

/// Reads filters in C from the user's words, `[PATTERN: ]FILE`.
///
/// # Errors
///
/// If a file cannot be read, or clang's file contains no valid filter.
pub(crate) fn read_object_filters(objects: &[PathBuf]) -> anyhow::Result<Vec<FilterSpec>> {
    let filter = |object: &PathBuf| {
        let (pattern, path) = split_object_pattern(object);
        let pattern = pattern.map(str::to_owned);
        Ok(FilterSpec { pattern, source: read_filter_source(path)? })
    };
    objects.iter().map(filter).collect()
}

/// Reads a filter in C from a file; its name is the file's name, without the folder.
///
/// # Errors
///
/// See [`read_object_bytes`].
pub(crate) fn read_filter_source(path: &Path) -> anyhow::Result<FilterSource> {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let file = name.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    Ok(FilterSource::Object(FilterObject { file, bytes: read_object_bytes(path)?.into() }))
}

/// Returns the filter object in a file: converted and verified if it is clang's, unchanged if it
/// comes from `trackway filter compile`.
///
/// # Errors
///
/// If the file cannot be read, or clang's file contains no valid filter.
pub(crate) fn read_object_bytes(path: &Path) -> anyhow::Result<Vec<u8>> {
    let told = || format!("--filter-object {}", path.display());
    let bytes = read_file_limited(path).with_context(told)?;
    if bytes.starts_with(OBJECT_MAGIC) {
        return Ok(bytes);
    }
    elf::convert_to_object(&bytes).with_context(told)
}

/// Splits the optional pattern from a file's name.
pub(crate) fn split_object_pattern(object: &Path) -> (Option<&str>, &Path) {
    match object.to_str().map(split_pattern) {
        Some((Some(pattern), file)) => (Some(pattern), Path::new(file)),
        _ => (None, object),
    }
}

/// Reads a file, or its beginning if it is too long for a filter.
///
/// # Errors
///
/// If the file cannot be read.
fn read_file_limited(path: &Path) -> anyhow::Result<Vec<u8>> {
    let shown = path.display();
    let file = File::open(path).with_context(|| format!("cannot read {shown}"))?;
    let mut bytes = Vec::new();
    let most = FILE_BYTES_MAX as u64 + 1;
    file.take(most).read_to_end(&mut bytes).with_context(|| format!("cannot read {shown}"))?;
    Ok(bytes)
}

fn parse_object_file(path: &Path) -> anyhow::Result<Filters> {
    elf::read_filters(&read_file_limited(path)?)
        .map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))
}

/// Writes the filter object for clang's object file.
///
/// # Errors
///
/// If the file cannot be read or written, or contains no valid filter.
pub(super) fn compile(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let bytes = parse_object_file(&arguments.file)?.object.encode()?;
    let output = arguments.output.display();
    std::fs::write(&arguments.output, bytes).with_context(|| format!("cannot write {output}"))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes an explanation of the filters in clang's object file.
///
/// # Errors
///
/// If the file cannot be read, or contains no valid filter.
pub(super) fn explain(file: &Path, output: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let Filters { object, names } = parse_object_file(file)?;
    let bytes = object.encode()?;
    let read = Object::decode(&bytes).context("the object cannot be read back")?;
    let mut text = String::new();
    let alternatives = object.alternatives.iter().zip(read.alternatives());
    for (number, (name, (written, read))) in names.iter().zip(alternatives).enumerate() {
        let separator = if number > 0 { "\n" } else { "" };
        writeln!(text, "{separator}Filter {name}\n")?;
        if !written.constants.is_empty() {
            writeln!(text, "Constants\n  \"{}\"\n", written.constants.escape_ascii())?;
        }
        // The filter builds words of constants at run time, so no constant can be shown as a
        // string.
        let shown = Alternative { constants: Vec::new(), ..written.clone() };
        super::push_filter_forms(&mut text, &shown, read, &|_| String::new())?;
    }
    output.write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
