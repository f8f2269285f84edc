//! Runs with figures for several rows: the first row that needs a run makes it, and the other rows
//! of the same round take their figures from the same run.
//!
//! Main invariant: no row takes figures from the same run twice. So figures of different rounds are
//! from different runs, in any order of turns.

use trackway_bench_engine::error::{Error, Result};

/// Results of runs of several kinds, the latest of each kind.
#[derive(Debug)]
pub(crate) struct SharedRuns<K, T> {
    runs: Vec<Run<K, T>>,
}

#[derive(Debug)]
struct Run<K, T> {
    kind: K,
    /// The result of the run, or the reason of its failure.
    result: std::result::Result<T, String>,
    /// Rows that have taken their figures from the run.
    taken_by: Vec<usize>,
}

impl<K: PartialEq, T> SharedRuns<K, T> {
    /// Makes an empty store.
    pub(crate) const fn new() -> Self {
        Self { runs: Vec::new() }
    }

    /// Returns the result of the latest run of a kind if `row` has not taken it yet; otherwise of a
    /// new run.
    ///
    /// # Errors
    ///
    /// Errors of `run`: each row of a failed run gets the error once.
    pub(crate) fn take_or_run(
        &mut self,
        kind: K,
        row: usize,
        run: impl FnOnce() -> Result<T>,
    ) -> Result<&T> {
        let known = self.runs.iter().position(|one| one.kind == kind);
        let is_new = known.is_none_or(|at| self.runs[at].taken_by.contains(&row));
        if is_new {
            let result = match run() {
                Ok(found) => Ok(found),
                // These errors concern the whole suite or tracer.
                Err(error @ (Error::Interrupted | Error::Overdue { .. })) => return Err(error),
                Err(error) => Err(error.to_string()),
            };
            self.runs.retain(|one| one.kind != kind);
            self.runs.push(Run { kind, result, taken_by: vec![row] });
        } else if let Some(at) = known {
            let latest = self.runs.remove(at);
            self.runs.push(latest);
        }
        let latest = self.runs.last_mut().ok_or_else(|| Error::output("a run", "none"))?;
        if !is_new {
            latest.taken_by.push(row);
        }
        latest.result.as_ref().map_err(|why| Error::output("a run", why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_round_have_one_run_and_the_next_round_has_another() {
        let mut shared_runs: SharedRuns<char, u32> = SharedRuns::new();
        let mut runs = 0;
        let mut take = |kind, row| {
            let run = || {
                runs += 1;
                Ok(runs)
            };
            *shared_runs.take_or_run(kind, row, run).expect("a run")
        };
        assert_eq!([take('a', 0), take('b', 9), take('a', 1)], [1, 2, 1]);
        // The rows of the next round, in another order.
        assert_eq!([take('a', 1), take('a', 0), take('b', 9)], [3, 3, 4]);
    }

    #[test]
    fn each_row_of_a_run_that_failed_is_told_so() {
        let mut shared_runs: SharedRuns<char, u32> = SharedRuns::new();
        let fails = || Err(Error::output("it", "broken"));
        for row in 0..2 {
            let error =
                shared_runs.take_or_run('a', row, fails).expect_err("it failed").to_string();
            assert!(error.contains("broken"), "{error}");
        }
        assert_eq!(*shared_runs.take_or_run('a', 0, || Ok(7)).expect("another"), 7);
    }
}
