//! The state of filters (`count`, `changed`, `rate`): for each filter one for the whole process.
//!
//! A filter goes on with its state when it is linked anew, for other events or in another
//! generation of its session: its id says which it is. Where there are more filters with state than
//! places, that which was linked longest ago begins anew. Cells are atomics that nobody's memory
//! depends on, so whoever still uses a place that was taken away harms nothing.

use core::sync::atomic::{AtomicU64, Ordering};

use trackway_jit::CELLS_MAX;
use trackway_jit::frame::Cell;

/// Filters with state that are remembered.
const FILTERS_MAX: usize = 64;

struct State {
    /// Of which filter; 0: of none.
    id: AtomicU64,
    /// When it was last_request for last, in requests.
    last_request: AtomicU64,
    cells: [Cell; CELLS_MAX],
}

static STATES: [State; FILTERS_MAX] = [const {
    State {
        id: AtomicU64::new(0),
        last_request: AtomicU64::new(0),
        cells: [const { Cell::new(0) }; CELLS_MAX],
    }
}; FILTERS_MAX];
static REQUESTS: AtomicU64 = AtomicU64::new(0);

/// The first `count` cells of a filter. For who links, one at a time.
pub(super) fn find_cells(id: u64, count: usize) -> &'static [Cell] {
    if count == 0 {
        return &[];
    }
    let now = REQUESTS.fetch_add(1, Ordering::Relaxed) + 1;
    let known = STATES.iter().find(|state| state.id.load(Ordering::Relaxed) == id);
    let oldest = || STATES.iter().min_by_key(|state| state.last_request.load(Ordering::Relaxed));
    let Some(state) = known.or_else(oldest) else { return &[] };
    if state.id.load(Ordering::Relaxed) != id {
        state.id.store(id, Ordering::Relaxed);
        state.cells.iter().for_each(|cell| cell.store(0, Ordering::Relaxed));
    }
    state.last_request.store(now, Ordering::Relaxed);
    &state.cells[..count.min(CELLS_MAX)]
}

/// Begins anew, in a fork child: state is a process's.
pub(super) fn reset() {
    for state in &STATES {
        state.id.store(0, Ordering::Relaxed);
        state.last_request.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_finds_its_state_again_until_it_is_the_oldest() {
        let cells = find_cells(7, 2);
        assert_eq!(cells.len(), 2);
        cells[1].store(5, Ordering::Relaxed);
        assert!(find_cells(8, 0).is_empty());
        for other in 100..100 + FILTERS_MAX as u64 - 1 {
            find_cells(other, 1);
        }
        assert_eq!(find_cells(7, 2)[1].load(Ordering::Relaxed), 5);
        for other in 200..200 + FILTERS_MAX as u64 {
            find_cells(other, 1);
        }
        assert_eq!(find_cells(7, 2)[1].load(Ordering::Relaxed), 0);
    }
}
