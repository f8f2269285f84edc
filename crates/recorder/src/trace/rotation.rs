//! The numbered files of a stream that is cut by size: their names, their discovery, and the repair
//! after an incomplete rotation.
//!
//! ```text
//! channel0_1.0   channel0_1.1   channel0_1.2 …          index/channel0_1.2.idx
//! ```
//!
//! Numbers increase: no file is ever reused, so readers keep the file that they opened, and the
//! progress in the window identifies its file by number. The point distinguishes these names from
//! the streams of other channels, whose names end in `_` and a CPU, or in `_claim` and a number.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Name of the index folder in the streams folder.
const INDEX_FOLDER: &str = "index";

/// Returns the path of the stream file with this name.
pub(crate) fn data_path(folder: &Path, name: &str) -> PathBuf {
    folder.join(name)
}

/// Returns the path of the index of the stream file with this name.
pub(crate) fn index_path(folder: &Path, name: &str) -> PathBuf {
    folder.join(INDEX_FOLDER).join(format!("{name}.idx"))
}

/// Returns the name of the stream file with this number.
pub(crate) fn numbered_file_name(stem: &str, number: u64) -> String {
    format!("{stem}.{number}")
}

/// Removes a stream file: first the file, then its index, which is useless alone.
pub(crate) fn remove_file_and_index(folder: &Path, name: &str) -> io::Result<()> {
    remove_if_there(&data_path(folder, name))?;
    remove_if_there(&index_path(folder, name))
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Existing files of a stream before the current one: number and size in bytes, in order.
pub(crate) type EarlierFiles = Vec<(u64, u64)>;

/// Repairs the stream `stem` of a recorder that died while it wrote file `current`. Returns true if
/// that file exists, and the earlier files. A rotation may have been interrupted: then the next
/// file, which has no counted packet, or an index without a file may exist. Both are removed.
///
/// # Errors
///
/// Also if there are later files: then `current` is not the recorder's real progress.
pub(crate) fn repair_stream(
    folder: &Path,
    stem: &str,
    current: u64,
) -> io::Result<(bool, EarlierFiles)> {
    let number = |entry: io::Result<fs::DirEntry>, end: &str| -> io::Result<Option<(u64, u64)>> {
        let entry = entry?;
        let file = entry.file_name();
        let digits = file.to_str().and_then(|it| it.strip_prefix(stem)?.strip_prefix('.'));
        let digits = digits.and_then(|it| it.strip_suffix(end));
        let Some(number) = digits.and_then(parse_file_number) else { return Ok(None) };
        Ok(Some((number, entry.metadata()?.len())))
    };
    let numbers = |folder: &Path, end: &str| -> io::Result<EarlierFiles> {
        let found = fs::read_dir(folder)?.map(|entry| number(entry, end));
        found.filter_map(Result::transpose).collect()
    };
    let mut files = numbers(folder, "")?;
    let indexes = numbers(&folder.join(INDEX_FOLDER), ".idx")?;
    let next = current.saturating_add(1);
    if files.iter().any(|&(number, _)| number > next) {
        return Err(ErrorKind::InvalidData.into());
    }
    for (index, _) in indexes {
        if !files.iter().any(|&(file, _)| file == index && file <= current) {
            remove_file_and_index(folder, &numbered_file_name(stem, index))?;
        }
    }
    remove_file_and_index(folder, &numbered_file_name(stem, next))?;
    let is_there = files.iter().any(|&(number, _)| number == current);
    files.retain(|&(number, _)| number < current);
    files.sort_unstable();
    Ok((is_there, files))
}

/// Returns the highest file number of the stream `stem`; `None` if the stream has no numbered
/// files.
pub(crate) fn last_file_number(folder: &Path, stem: &str) -> io::Result<Option<u64>> {
    let mut last = None;
    for entry in fs::read_dir(folder)? {
        let file = entry?.file_name();
        let digits = file.to_str().and_then(|it| it.strip_prefix(stem)?.strip_prefix('.'));
        last = last.max(digits.and_then(parse_file_number));
    }
    Ok(last)
}

/// Parses a file number in the format of [`numbered_file_name`].
fn parse_file_number(digits: &str) -> Option<u64> {
    let number: u64 = digits.parse().ok()?;
    (number.to_string() == digits).then_some(number)
}

#[cfg(test)]
mod tests {
    use trackway_testkit::TemporaryFolder;

    use super::*;

    fn make_stream_folder(files: &[&str], indexes: &[&str]) -> TemporaryFolder {
        let folder = TemporaryFolder::new();
        fs::create_dir(folder.join(INDEX_FOLDER)).expect("a folder");
        for name in files {
            fs::write(data_path(folder.path(), name), "12345").expect("a file");
        }
        for name in indexes {
            fs::write(index_path(folder.path(), name), "").expect("a file");
        }
        folder
    }

    fn files_in(folder: &TemporaryFolder) -> Vec<String> {
        let names = |folder: &Path| {
            let entries = fs::read_dir(folder).expect("a folder").flatten();
            let names = entries.map(|entry| entry.file_name().into_string().expect("a name"));
            names.filter(|name| name != INDEX_FOLDER).collect::<Vec<_>>()
        };
        let mut all = names(folder.path());
        all.extend(names(&folder.join(INDEX_FOLDER)));
        all.sort();
        all
    }

    #[test]
    fn a_rotation_that_was_cut_short_is_repaired() {
        let of_others = ["a_1", "a_1.x", "a_1.03", "a_1_claim0.9", "b_1.9", "xa_1.9"];
        let mut files = vec!["a_1.3", "a_1.2", "a_1.10", "a_1.11"];
        files.extend(of_others);
        // The next file was begun; one old file was removed, but not its index.
        let folder = make_stream_folder(&files, &["a_1.1", "a_1.2", "a_1.3", "a_1.10", "a_1.11"]);
        let (is_there, earlier) = repair_stream(folder.path(), "a_1", 10).expect("a stream");
        assert_eq!((is_there, earlier), (true, vec![(2, 5), (3, 5)]));
        let mut left = vec!["a_1.2", "a_1.3", "a_1.10", "a_1.2.idx", "a_1.3.idx", "a_1.10.idx"];
        left.extend(of_others);
        left.sort_unstable();
        assert_eq!(files_in(&folder), left);
    }

    #[test]
    fn progress_that_is_not_of_these_files_removes_none() {
        let files = ["a_1.3", "a_1.4", "a_1.5"];
        let folder = make_stream_folder(&files, &[]);
        for current in [0, 3] {
            let refused =
                repair_stream(folder.path(), "a_1", current).expect_err("later ones are there");
            assert_eq!(refused.kind(), ErrorKind::InvalidData);
        }
        let (is_there, earlier) = repair_stream(folder.path(), "a_1", u64::MAX).expect("a stream");
        assert_eq!((is_there, earlier.len()), (false, 3));
        assert_eq!(files_in(&folder), files);
    }
}
