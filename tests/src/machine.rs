//! Emulated machines: a kernel, a file system in memory, and the console output of the first
//! process (`tests/machine/init.c`).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::Fixture;
use crate::steps::RunningProgram;

/// Longest time of a machine, from its start to its end.
const RUN_TIME_MAX: Duration = Duration::from_secs(400);

/// Console output of a machine's first process: commands with their output and exit status, and
/// files.
#[derive(Default)]
pub struct Console {
    /// Commands with their output and status.
    pub commands: Vec<(String, String, i32)>,
    files: BTreeMap<String, Vec<u8>>,
    is_whole: bool,
}

impl Console {
    fn read(text: &str) -> Self {
        let mut console = Self::default();
        let mut lines = text.lines().map(|line| line.trim_end_matches('\r'));
        while let Some(line) = lines.next() {
            let Some(command) = line.strip_prefix(">> ") else { continue };
            console.is_whole |= command == "off";
            if command.starts_with("take ") {
                continue;
            }
            let mut said = String::new();
            let mut bytes = Vec::new();
            let file = command.strip_prefix("file ");
            for line in lines.by_ref() {
                if let Some(status) = line.strip_prefix("<< ") {
                    let status = status.parse().unwrap_or(0);
                    console.commands.push((command.into(), std::mem::take(&mut said), status));
                    break;
                }
                if file.is_some() {
                    decode_base64(line, &mut bytes);
                } else {
                    // The beginning of the next line overwrites a progress line.
                    said.push_str(line.rsplit("\x1b[K").next().unwrap_or(line));
                    said.push('\n');
                }
            }
            if let Some(path) = file {
                console.commands.pop();
                console.files.insert(path.into(), bytes);
            }
        }
        console
    }

    /// Writes the files below `from` to the folder `to`.
    pub fn save(&self, from: &str, to: &Path) {
        for (path, bytes) in &self.files {
            let Some(path) = path.strip_prefix(from) else { continue };
            let path = to.join(path.trim_start_matches('/'));
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, bytes).expect("a file");
        }
    }
}

fn decode_base64(line: &str, into: &mut Vec<u8>) {
    for four in line.as_bytes().chunks_exact(4) {
        let mut bits = 0_u32;
        let mut count = 3;
        for &digit in four {
            let value = match digit {
                b'A'..=b'Z' => digit - b'A',
                b'a'..=b'z' => digit - b'a' + 26,
                b'0'..=b'9' => digit - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => {
                    count -= 1;
                    0
                }
            };
            bits = bits << 6 | u32::from(value);
        }
        into.extend(&bits.to_be_bytes()[1..1 + count]);
    }
}

/// Packs a file system into the file from which a machine boots.
pub fn pack_file_system(fixture: &Fixture, root: &Path) -> PathBuf {
    let image = fixture.path("image");
    let pack = format!("find . | cpio -o -H newc --quiet > {}", image.display());
    let status = Command::new("sh").args(["-c", &pack]).current_dir(root).status();
    assert!(status.expect("cpio runs").success());
    image
}

/// Starts a machine by this emulator command, with this kernel and file system, and a console with
/// this name; waits until the machine is off.
pub fn run_machine(
    fixture: &Fixture,
    mut machine: Command,
    kernel: &Path,
    image: &Path,
    console: &str,
) -> Console {
    let said = fixture.path("console");
    machine.args(["-accel", "tcg", "-smp", "2", "-m", "1024"]);
    machine.args(["-nic", "none", "-display", "none", "-monitor", "none"]);
    machine.arg("-no-reboot").arg("-serial").arg(format!("file:{}", said.display()));
    machine.arg("-kernel").arg(kernel).arg("-initrd").arg(image);
    machine.arg("-append").arg(format!("console={console} quiet panic=-1"));
    let begin = Instant::now();
    let mut machine = RunningProgram::start(&mut machine);
    while machine.runs() && begin.elapsed() < RUN_TIME_MAX {
        std::thread::sleep(Duration::from_millis(100));
    }
    let text = String::from_utf8_lossy(&fs::read(&said).unwrap_or_default()).into_owned();
    let messages = if machine.runs() { "it did not end".into() } else { machine.finish().stderr };
    let console = Console::read(&text);
    let end: String = text.lines().rev().take(20).collect::<Vec<_>>().join("\n");
    assert!(console.is_whole, "{}\n{end}", String::from_utf8_lossy(&messages));
    console
}
