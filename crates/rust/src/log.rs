//! Messages of [`log`](https://docs.rs/log) as events: one additional line traces them.
//!
//! ```
//! trackway::log::init()?;
//! log::warn!("disk is {} % full", 93);
//! # Ok::<(), log::SetLoggerError>(())
//! ```
//!
//! The events are `log:error`, `log:warn`, `log:info`, `log:debug` and `log:trace`, with the fields
//! `message`, `target`, `file` and `line`; values that `log` does not provide are empty, or 0.
//! Messages are formatted only while their event is on, on the stack, and cut at the size of a
//! record.

use log::{Level, LevelFilter, Log, Metadata, Record, SetLoggerError};

use crate::event::Event;
use crate::payload::{Buffer, Stage};

/// Records all messages that are logged from now on, at all levels.
///
/// # Errors
///
/// If a logger is already installed: pass that logger to [`init_with`] instead of installing it.
pub fn init() -> Result<(), SetLoggerError> {
    static LOGGER: Logger = Logger { other: None, other_max: LevelFilter::Off };
    log::set_logger(&LOGGER)?;
    log::set_max_level(LevelFilter::Trace);
    Ok(())
}

/// Records messages like [`init`], and forwards those up to the level `max` to `other`.
///
/// # Errors
///
/// If a logger is already installed.
pub fn init_with(other: Box<dyn Log>, max: LevelFilter) -> Result<(), SetLoggerError> {
    log::set_logger(Box::leak(Box::new(Logger { other: Some(other), other_max: max })))?;
    log::set_max_level(LevelFilter::Trace);
    Ok(())
}

struct Logger {
    other: Option<Box<dyn Log>>,
    other_max: LevelFilter,
}

/// Defines the function that returns a level's event; its fields have the types of the call below.
macro_rules! events {
    ($($level:pat => $name:ident, $number:ident;)*) => {
        #[inline(always)]
        fn event_of(level: Level) -> &'static Event {
            match level {
                $($level => {
                    crate::__site!(log, $name, $number, message target file line);
                    let site = __trackway_site();
                    if false {
                        // Determines the types of the fields; never executed.
                        let text = crate::Value::kind("");
                        __trackway_record(site, text, text, text, 0_u32);
                    }
                    site.event()
                })*
            }
        }
    };
}

events! {
    Level::Error => error, ERR;
    Level::Warn => warn, WARNING;
    Level::Info => info, INFO;
    Level::Debug => debug, DEBUG_MODULE;
    Level::Trace => trace, DEBUG;
}

impl Logger {
    /// Returns the other logger, if it accepts messages with this metadata.
    fn other(&self, metadata: &Metadata<'_>) -> Option<&dyn Log> {
        self.other.as_deref().filter(|_| metadata.level() <= self.other_max)
    }
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        event_of(metadata.level()).is_on()
            || self.other(metadata).is_some_and(|other| other.enabled(metadata))
    }

    fn log(&self, record: &Record<'_>) {
        let event = event_of(record.level());
        if event.is_on() {
            let mut buffer = Buffer::uninit();
            let mut stage = Stage::new(&mut buffer, 4);
            stage.formatted(*record.args());
            stage.string(record.target());
            stage.string(record.file().unwrap_or(""));
            stage.number(record.line().unwrap_or(0).to_le_bytes());
            stage.record(event);
        }
        if let Some(other) = self.other(record.metadata()) {
            other.log(record);
        }
    }

    fn flush(&self) {
        if let Some(other) = &self.other {
            other.flush();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    static RECORDED: Mutex<Vec<String>> = Mutex::new(Vec::new());

    struct OtherLogger;

    impl Log for OtherLogger {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn log(&self, record: &Record<'_>) {
            RECORDED.lock().expect("nobody panics").push(record.args().to_string());
        }

        fn flush(&self) {}
    }

    #[test]
    fn another_logger_goes_on_as_before() {
        let logger = Logger { other: Some(Box::new(OtherLogger)), other_max: LevelFilter::Info };
        let log = |level: Level, message: &str| {
            let metadata = Metadata::builder().level(level).build();
            assert_eq!(logger.enabled(&metadata), level <= Level::Info);
            logger.log(&Record::builder().level(level).args(format_args!("{message}")).build());
        };
        log(Level::Warn, "warned");
        log(Level::Info, "told");
        log(Level::Debug, "too much");
        assert_eq!(*RECORDED.lock().expect("nobody panics"), ["warned", "told"]);
        // Alone and without the library, the logger enables nothing.
        let alone = Logger { other: None, other_max: LevelFilter::Off };
        assert!(!alone.enabled(&Metadata::builder().level(Level::Error).build()));
    }
}
