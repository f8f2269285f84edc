//! A folder for one test, removed when the test ends, however it ends.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of the process's next folder, so that names differ.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// A new, empty folder; removed with everything in it on drop.
#[derive(Debug)]
pub struct TemporaryFolder {
    path: PathBuf,
}

impl TemporaryFolder {
    /// Makes a folder below the system's folder for temporary files.
    ///
    /// # Panics
    /// Panics if the folder cannot be made, because a test cannot continue then.
    #[expect(clippy::new_without_default, reason = "a folder is made, not assumed")]
    pub fn new() -> Self {
        Self::new_in(&std::env::temp_dir())
    }

    /// Makes a folder below `parent` (for tests that care about the file system).
    ///
    /// # Panics
    /// Panics if the folder cannot be made.
    pub fn new_in(parent: &Path) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("trackway-test-{}-{number}", std::process::id()));
        // A process that had our id and was killed may have left one behind.
        let _ = std::fs::remove_dir_all(&path);
        if let Err(error) = std::fs::create_dir_all(&path) {
            panic!("cannot make {}: {error}", path.display());
        }
        Self { path }
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of `name` in the folder.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // A test that changed permissions must not fail a second time here.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::TemporaryFolder;

    #[test]
    fn is_removed_with_its_content() {
        let (first, second) = (TemporaryFolder::new(), TemporaryFolder::new());
        assert_ne!(first.path(), second.path());
        let path = first.path().to_owned();
        std::fs::write(first.join("file"), b"content").unwrap();
        drop(first);
        assert!(!path.exists() && second.path().is_dir());
    }
}
