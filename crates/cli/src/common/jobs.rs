//! Numbers of threads.

use std::num::NonZero;

/// A number of threads, as it is typed.
pub(crate) fn parse_thread_count(text: &str) -> Result<NonZero<usize>, String> {
    let count = text.parse::<usize>().map_err(|_| "it is not a number of threads".to_owned())?;
    NonZero::new(count).ok_or_else(|| "at least one thread is needed".to_owned())
}

/// Returns the number of threads to work with: the requested number, but no more than are useful.
pub(crate) fn limit_thread_count(requested: Option<NonZero<usize>>) -> NonZero<usize> {
    const THREADS_MAX: NonZero<usize> = NonZero::new(256).expect("not zero");
    requested.unwrap_or(trackway_reader::Settings::default().jobs).min(THREADS_MAX)
}
