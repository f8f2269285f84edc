//! Points of a plot of Tracy, as its users write them: a number with its time is Tracy's smallest
//! event. Tracy keeps events in memory until a viewer connects. No viewer connects during the
//! measurement; afterwards the bench connects, and counts the events that arrive.
//!
//! The protocol is that of Tracy's version in Cargo.lock, from its sources: TracyProtocol.hpp,
//! TracyQueue.hpp. Another version rejects the connection, and any unknown item is an error.

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

/// Version of the protocol.
const PROTOCOL: u32 = 82;
/// The greeting of a viewer, and the expected answer.
const GREETING: &[u8] = b"TracyPrf";
const WELCOME: u8 = 1;
/// Bytes of the welcome message, and offset of the process id in it.
const WELCOME_BYTES: usize = 1170;
const PID_AT: usize = 48;
/// Most bytes of an uncompressed block, and of a compressed block.
const BLOCK_BYTES: usize = 256 * 1024;
const COMPRESSED_BYTES: usize = BLOCK_BYTES + BLOCK_BYTES / 255 + 16;
/// Largest distance of a reference from a block to earlier blocks.
const HISTORY_BYTES: usize = 64 * 1024;
/// Longest time without data from the client.
const PATIENCE: Duration = Duration::from_secs(3);
/// Kind of an item with a number and its time.
const PLOT: u8 = 57;

/// Emits events.
#[unsafe(no_mangle)]
pub extern "C" fn peer_number(first: u64, count: u64) {
    let client = tracy_client::Client::start();
    for number in first..first + count {
        client.plot(tracy_client::plot_name!("number"), number as f64);
    }
}

/// Prints the events that have arrived.
#[unsafe(no_mangle)]
pub extern "C" fn peer_arrived(emitted: u64) {
    let mut arrived = Arrived::default();
    if let Err(error) = arrived.take(emitted) {
        eprintln!("what Tracy sends: {error}");
    }
    eprintln!("arrived {} {}", arrived.events, arrived.sum);
}

/// Numbers of the events that have arrived.
#[derive(Default)]
struct Arrived {
    events: u64,
    sum: u64,
}

impl Arrived {
    /// Receives events until as many have arrived as were emitted.
    fn take(&mut self, emitted: u64) -> Result<(), Box<dyn Error>> {
        let port: u16 = std::env::var("TRACY_PORT")?.parse()?;
        let mut stream = connect(port)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(GREETING)?;
        stream.write_all(&PROTOCOL.to_le_bytes())?;
        let mut welcome = [0; 1 + WELCOME_BYTES];
        stream.read_exact(&mut welcome[..1])?;
        if welcome[0] != WELCOME {
            return Err(format!("it does not speak version {PROTOCOL} of its protocol").into());
        }
        stream.read_exact(&mut welcome[1..])?;
        let pid = u64::from_le_bytes(welcome[1 + PID_AT..][..8].try_into()?);
        if pid != u64::from(std::process::id()) {
            return Err(format!("another program listens on port {port}").into());
        }
        let mut blocks = Blocks { stream, history: Vec::new() };
        while self.events < emitted {
            self.add(&blocks.next()?)?;
        }
        Ok(())
    }

    /// Adds the items of a block.
    fn add(&mut self, mut items: &[u8]) -> Result<(), Box<dyn Error>> {
        while let Some(&kind) = items.first() {
            let bytes = item_bytes(items).ok_or_else(|| format!("it has an item of kind {kind}"))?;
            let (item, rest) = items.split_at_checked(bytes).ok_or("its last item is cut off")?;
            if kind == PLOT {
                self.events += 1;
                self.sum += f64::from_le_bytes(item[17..].try_into()?) as u64;
            }
            items = rest;
        }
        Ok(())
    }
}

/// Connects to the client, whose separate thread begins to listen some time after the first event.
fn connect(port: u16) -> io::Result<TcpStream> {
    let end = Instant::now() + PATIENCE;
    loop {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
        let is_refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        if !stream.as_ref().is_err_and(is_refused) || Instant::now() >= end {
            return stream;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the bytes of the first item, if its kind is known.
fn item_bytes(items: &[u8]) -> Option<usize> {
    Some(match *items.first()? {
        PLOT => 25,
        // The thread of the following items; a keep-alive.
        75 => 5,
        74 => 1,
        // The load of the whole machine; the place of a CPU in the topology.
        97 => 13,
        111 => 17,
        // A message, whose text precedes it.
        2 => 10,
        114 => 2 + usize::from(*items.get(1)?),
        112 => 3 + 256 + usize::from(u16::from_le_bytes([*items.get(1)?, *items.get(2)?])),
        _ => return None,
    })
}

/// Blocks, each compressed with references to earlier blocks.
struct Blocks {
    stream: TcpStream,
    history: Vec<u8>,
}

impl Blocks {
    fn next(&mut self) -> Result<Vec<u8>, Box<dyn Error>> {
        let mut size = [0; 4];
        self.stream.read_exact(&mut size)?;
        let size = u32::from_le_bytes(size) as usize;
        if size > COMPRESSED_BYTES {
            return Err(io::Error::other("a block is too large").into());
        }
        let mut compressed = vec![0; size];
        self.stream.read_exact(&mut compressed)?;
        let mut block = vec![0; BLOCK_BYTES];
        let bytes = lz4_flex::block::decompress_into_with_dict(
            &compressed, &mut block, &self.history,
        )?;
        block.truncate(bytes);
        self.history.extend(&block);
        self.history.drain(..self.history.len().saturating_sub(HISTORY_BYTES));
        Ok(block)
    }
}
