//! Rust workloads: packages that cargo builds in the scratch folder, against the crate `trackway`
//! of the checkout that the bench belongs to.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::availability::Availability;
use crate::error::{Error, Result};
use crate::host::child;
use crate::host::workspace::{BuildTools, Workspace, create_private_dir, has};

/// Longest time of a cargo build, in seconds: some compared crates are large.
const BUILD_LIMIT_S: u64 = 600;

/// A package of `workloads/rust`.
#[derive(Debug)]
pub struct Package {
    /// Name of the package.
    pub name: &'static str,
    /// Contents of `Cargo.toml`.
    pub manifest: &'static str,
    /// Contents of `lib.rs`.
    pub source: &'static str,
    /// Lock file with the versions of foreign crates.
    pub lock: Option<&'static str>,
}

/// Placeholder for the crate's folder in a manifest.
const CRATE_PLACEHOLDER: &str = "@TRACKWAY@";

/// Checks that Trackway's Rust workloads can be built.
pub fn check_availability(tools: &BuildTools) -> Availability {
    if tools.rust_crate.is_none() {
        Availability::Missing("the crate's sources are not beside this executable".to_owned())
    } else if !has("cargo") {
        Availability::Missing("cargo is not installed".to_owned())
    } else {
        Availability::Ready
    }
}

impl Package {
    fn folder(&self, workspace: &Workspace) -> PathBuf {
        workspace.path(&format!("package-{}", self.name))
    }

    /// Writes the package into the scratch folder.
    fn write(&self, workspace: &Workspace) -> Result<()> {
        let mut manifest = self.manifest.to_owned();
        if manifest.contains(CRATE_PLACEHOLDER) {
            let Some(rust_crate) = &workspace.tools.rust_crate else {
                return Err(Error::output("trackway", "the crate is not found"));
            };
            let found = fs::canonicalize(rust_crate);
            let found = found.map_err(Error::io(format!("cannot find {rust_crate:?}")))?;
            manifest = manifest.replace(CRATE_PLACEHOLDER, &found.display().to_string());
        }
        let folder = self.folder(workspace);
        create_private_dir(&folder)?;
        let files = [("Cargo.toml", Some(manifest.as_str())), ("lib.rs", Some(self.source))];
        for (name, text) in files.into_iter().chain([("Cargo.lock", self.lock)]) {
            let path = folder.join(name);
            let Some(text) = text else { continue };
            fs::write(&path, text).map_err(Error::io(format!("cannot write {path:?}")))?;
        }
        Ok(())
    }

    fn cargo(&self, workspace: &Workspace, arguments: &[&str]) -> Result<()> {
        let mut cargo = Command::new("cargo");
        cargo.args(arguments).arg("--quiet").current_dir(self.folder(workspace));
        cargo.env("CARGO_TARGET_DIR", workspace.path("rust-target")).env_remove("RUSTFLAGS");
        let what = format!("cargo {} ({})", arguments.join(" "), self.name);
        child::run_for(&mut cargo, &what, BUILD_LIMIT_S).map(|_| ())
    }

    /// Fetches the dependencies of the package that are not on this machine yet.
    pub fn fetch(&self, workspace: &Workspace) -> Result<()> {
        self.write(workspace)?;
        self.cargo(workspace, &["fetch", "--locked"])
    }

    /// Builds the package with these features; returns the path of its static library.
    pub fn build(&self, workspace: &Workspace, features: &str) -> Result<PathBuf> {
        self.write(workspace)?;
        self.cargo(workspace, &["build", "--release", "--offline", "--features", features])?;
        let library = format!("liblab_{}.a", self.name);
        Ok(workspace.path("rust-target").join("release").join(library))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_can_be_built_where_the_crate_and_cargo_are() {
        let mut tools = BuildTools::of("/nowhere/trackway".into());
        assert!(matches!(check_availability(&tools), Availability::Missing(_)));
        tools.rust_crate = Some("crates/rust".into());
        assert_eq!(check_availability(&tools) == Availability::Ready, has("cargo"));
    }
}
