//! Requirements of suites on a machine: a program or header, the Debian package that contains it,
//! and the rows that need it.

use std::path::Path;

use super::workspace::has;

/// A required program or header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// Name of the program, or path of the header below `include`.
    pub name: &'static str,
    /// Debian package that contains the program or header.
    pub package: &'static str,
    /// Rows that need the program or header.
    pub rows: &'static str,
    /// Option that prints the program's version; empty if there is none.
    pub version: &'static str,
}

/// All requirements of the suites.
#[derive(Debug, Clone, Copy)]
pub struct Requirements {
    /// Required programs.
    pub programs: &'static [Need],
    /// Required headers.
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
