//! The state of filters (`count`, `changed`, `rate`): one for each filter of the process.
//!
//! A filter, identified by its id, keeps its state when it is linked again, for other events or in
//! another generation of its session. If more filters have state than there are entries, the one
//! that was linked longest ago loses its state. Cells are atomics that no memory access depends on,
//! so a late user of a reassigned entry does no harm.

use core::sync::atomic::{AtomicU64, Ordering};

use trackway_jit::CELLS_MAX;
use trackway_jit::frame::Cell;

/// Maximum number of filters with state.
const FILTERS_MAX: usize = 64;

struct State {
    /// The filter's id; 0: the entry is free.
    id: AtomicU64,
    /// Number of the latest request for the entry.
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

/// Returns the first `count` cells of a filter. Only the linker calls this.
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

/// Resets all state, in a fork child: state belongs to a process.
pub(super) fn reset_in_fork_child() {
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
