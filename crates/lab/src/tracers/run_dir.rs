//! Root's folder of LTTng's sockets, which cannot be configured: processes of ours lay a folder of
//! their own over it, each in a mount namespace of its own, so there must be one to lay it over.
//! To remove it while another bench needs it would take that one's folders away with it.
//!
//! Main invariant: beside a folder that one of us has made there is a mark, a file, and whoever
//! needs the folder has a shared lock on it. Both go with the last of them: also if that is one
//! that came after the others were killed. A folder without a mark is somebody else's, and stays.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::daemon::run_dir;

/// Root's mark.
const MARK: &str = "/var/run/trackway-lab-lttng";
/// How often a mark may be removed under our hands.
const ATTEMPTS_MAX: u32 = 100;

/// The folder, as long as it is needed.
#[derive(Debug)]
pub(super) struct RunDir {
    folder: PathBuf,
    mark: PathBuf,
    /// The mark, with our lock.
    file: File,
}

impl RunDir {
    /// Root's folder; `None` if it is somebody else's.
    pub(super) fn claim() -> io::Result<Option<Self>> {
        Self::claim_at(run_dir(), Path::new(MARK))
    }

    fn claim_at(folder: &Path, mark: &Path) -> io::Result<Option<Self>> {
        for _ in 0..ATTEMPTS_MAX {
            // Looked at before and after: what one of us has made has its mark at one of the two.
            if !mark.exists() && folder.is_dir() && !mark.exists() {
                return Ok(None);
            }
            let mut options = OpenOptions::new();
            let file = options.append(true).create(true).mode(0o600).open(mark)?;
            let claimed = Self { folder: folder.to_owned(), mark: mark.to_owned(), file };
            // Who has it alone is about to remove both.
            claimed.file.lock_shared()?;
            if !claimed.is_there()? {
                continue;
            }
            match DirBuilder::new().mode(0o700).create(folder) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                _ => return Ok(Some(claimed)),
            }
        }
        Err(io::Error::other(format!("{} goes whenever it is made", mark.display())))
    }

    /// Whether the file that we have is still the one of that name.
    fn is_there(&self) -> io::Result<bool> {
        let ours = self.file.metadata()?;
        match fs::symlink_metadata(&self.mark) {
            Ok(there) => Ok((there.dev(), there.ino()) == (ours.dev(), ours.ino())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        if self.file.try_lock().is_ok() && self.is_there().unwrap_or(false) {
            // Fails if somebody else has begun to use it: then it is no longer ours.
            let _ = fs::remove_dir(&self.folder);
            let _ = fs::remove_file(&self.mark);
        }
    }
}

/// Removes what benches left that were killed.
pub(crate) fn sweep() {
    sweep_at(run_dir(), Path::new(MARK));
}

fn sweep_at(folder: &Path, mark: &Path) {
    // What cannot be opened is not there, or another user's.
    let Ok(file) = OpenOptions::new().append(true).open(mark) else { return };
    drop(RunDir { folder: folder.to_owned(), mark: mark.to_owned(), file });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A place for a folder and its mark.
    fn place(name: &str) -> [PathBuf; 3] {
        let root = std::env::temp_dir().join(format!("trackway-{name}-{}", std::process::id()));
        fs::create_dir(&root).expect("a folder");
        [root.join("lttng"), root.join("mark"), root]
    }

    #[test]
    fn a_folder_goes_with_the_last_who_needs_it() {
        let [folder, mark, root] = place("run-dir");
        let claim = || RunDir::claim_at(&folder, &mark).expect("a claim").expect("ours");
        let (one, other) = (claim(), claim());
        assert!(folder.is_dir());
        // The one that made it.
        drop(one);
        sweep_at(&folder, &mark);
        assert!(folder.is_dir() && mark.exists());
        let third = claim();
        drop(other);
        assert!(folder.is_dir());
        drop(third);
        assert!(!folder.exists() && !mark.exists());
        fs::remove_dir(root).expect("empty");
    }

    #[test]
    fn what_others_made_or_use_stays_and_what_the_dead_left_goes() {
        let [folder, mark, root] = place("run-dir-others");
        fs::create_dir(&folder).expect("a folder");
        assert!(RunDir::claim_at(&folder, &mark).expect("a look").is_none() && !mark.exists());
        // As a bench leaves it that is killed.
        fs::write(&mark, "").expect("a mark");
        drop(RunDir::claim_at(&folder, &mark).expect("a claim").expect("ours"));
        assert!(!folder.exists() && !mark.exists());
        let claimed = RunDir::claim_at(&folder, &mark).expect("a claim").expect("ours");
        fs::write(folder.join("socket"), "").expect("somebody's");
        drop(claimed);
        assert!(folder.join("socket").exists() && !mark.exists());
        fs::remove_dir_all(root).expect("removed");
    }

    #[test]
    fn a_mark_that_goes_while_it_is_waited_for_is_made_anew() {
        let [folder, mark, root] = place("run-dir-race");
        let last = RunDir::claim_at(&folder, &mark).expect("a claim").expect("ours");
        last.file.lock().expect("alone");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| RunDir::claim_at(&folder, &mark));
            // Whether it has come to wait yet or not, it must not take what goes now.
            std::thread::yield_now();
            drop(last);
            let claimed = waiting.join().expect("no panic").expect("a claim").expect("ours");
            assert!(folder.is_dir() && claimed.is_there().expect("a look"));
        });
        assert!(!folder.exists() && !mark.exists());
        fs::remove_dir(root).expect("empty");
    }
}
