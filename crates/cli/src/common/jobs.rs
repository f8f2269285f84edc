//! Numbers of worker threads.

use std::num::NonZero;

/// Parses a number of threads.
pub(crate) fn parse_thread_count(text: &str) -> Result<NonZero<usize>, String> {
    let count = text.parse::<usize>().map_err(|_| "it is not a number of threads".to_owned())?;
    NonZero::new(count).ok_or_else(|| "at least one thread is needed".to_owned())
}

/// Returns the number of threads to use: the requested number, but at most the useful number.
pub(crate) fn limit_thread_count(requested: Option<NonZero<usize>>) -> NonZero<usize> {
    const THREADS_MAX: NonZero<usize> = NonZero::new(256).expect("not zero");
    requested.unwrap_or(trackway_reader::Settings::default().jobs).min(THREADS_MAX)
}
