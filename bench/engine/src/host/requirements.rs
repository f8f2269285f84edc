//! Requirements of suites on a machine: a program or header, the Debian package that has it, and
//! the rows that depend on it.

use std::path::Path;

use super::workspace::has;

/// A program, or a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// Its name; of a header the path below `include`.
    pub name: &'static str,
    /// Debian's package.
    pub package: &'static str,
    /// The rows that depend on it.
    pub rows: &'static str,
    /// The option that prints its version; empty if there is none.
    pub version: &'static str,
}

/// All that suites need.
#[derive(Debug, Clone, Copy)]
pub struct Requirements {
    /// Programs.
    pub programs: &'static [Need],
    /// Headers.
    pub headers: &'static [Need],
}

impl Requirements {
    /// Returns the missing requirements.
    pub fn lacking(&self) -> Vec<Need> {
        let multiarch = format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH);
        let include = ["/usr/include", "/usr/local/include", &multiarch];
        let has_header = |name: &str| include.iter().any(|dir| Path::new(dir).join(name).is_file());
        let programs = self.programs.iter().filter(|need| !has(need.name));
        programs.chain(self.headers.iter().filter(|need| !has_header(need.name))).copied().collect()
    }
}
