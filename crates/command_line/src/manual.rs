//! Manual pages: one page for a command and for each of its subcommands.

use std::io;
use std::path::Path;

use clap::Command;

use crate::help;

/// Writes the manual pages of `command` to `folder`, and creates the folder if it is missing.
/// `elsewhere` names direct subcommands of `command` whose pages another program writes.
///
/// # Errors
///
/// If writing to the file system fails.
pub fn write_pages(command: Command, folder: &Path, elsewhere: &[&str]) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let mut command = help::with_manual_descriptions(command).disable_help_subcommand(true);
    command.build();
    let is_here = |one: &&Command| !elsewhere.contains(&one.get_name());
    for one in visible_subcommands(&command).filter(is_here) {
        write_subcommand_pages(one, folder)?;
    }
    clap_mangen::Man::new(command).generate_to(folder).map(drop)
}

fn write_subcommand_pages(command: &Command, folder: &Path) -> io::Result<()> {
    for one in visible_subcommands(command) {
        write_subcommand_pages(one, folder)?;
    }
    clap_mangen::Man::new(command.clone()).generate_to(folder).map(drop)
}

fn visible_subcommands(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|one| !one.is_hide_set())
}
