//! The contexts of this process: an index for each, found by the hash of its name.
//!
//! The first thread that sets a context takes an index by one compare-and-swap, for ever. So there
//! is no lock, and a fork child has its parent's indices. Two names with one hash would be one
//! context; only the program itself names its contexts, and 64 bits are enough for them.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use trackway_jit::Kind;

/// Number of indices of numbers, which come first.
pub(super) const NUMBERS_MAX: usize = 4;
/// Number of indices of strings.
const TEXTS_MAX: usize = 2;
/// Number of indices.
pub(super) const CONTEXTS_MAX: usize = NUMBERS_MAX + TEXTS_MAX;

/// By index, the hash of its context's name, with the kind in the lowest bits; 0: free.
static NAMES: [AtomicU64; CONTEXTS_MAX] = [const { AtomicU64::new(0) }; CONTEXTS_MAX];
const KIND_BITS: u64 = 7;

/// Number of taken indices; includes at least those whose declaration has returned.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The index of a context, in bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ContextIndex(u8);

impl ContextIndex {
    #[inline(always)]
    pub(crate) const fn new(index: usize) -> Option<Self> {
        if index < CONTEXTS_MAX { Some(Self(index as u8)) } else { None }
    }

    #[inline(always)]
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }

    #[inline(always)]
    pub(crate) const fn is_text(self) -> bool {
        self.index() >= NUMBERS_MAX
    }

    /// Returns the kind of the context's value.
    pub(crate) fn kind(self) -> Kind {
        let word = NAMES[self.index()].load(Ordering::Relaxed);
        Kind::from_code((word & KIND_BITS) as u8).unwrap_or(Kind::Unsigned)
    }
}

/// Hashes a name, `provider:name` (FNV-1a).
pub(crate) fn hash_name(name: impl Iterator<Item = u8>) -> u64 {
    let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    name.fold(0xcbf2_9ce4_8422_2325_u64, add) & !KIND_BITS
}

/// Returns the index of the context whose name has this hash, and takes an index if it has none.
/// `None`: no index is free, or the context has another kind.
pub(super) fn declare_context(hash: u64, kind: Kind) -> Option<ContextIndex> {
    let place = find_or_take_index(hash, kind);
    // Needed even if another thread took the index, which may not have reached this line.
    update_contexts_count();
    crate::state::filter_links::void_context_dependent_links();
    place
}

fn find_or_take_index(hash: u64, kind: Kind) -> Option<ContextIndex> {
    let word = hash | kind as u64;
    let range = if kind == Kind::String { NUMBERS_MAX..CONTEXTS_MAX } else { 0..NUMBERS_MAX };
    if let Some(place) = find_by_hash(hash) {
        return (place.kind() == kind).then_some(place);
    }
    for index in range {
        // ORDERING: SeqCst, a Dekker pair with the linker of filters: this code takes the index,
        // counts it, then checks which sessions have searched in vain
        // (`filter_links::void_context_dependent_links`); the linker notes its search, then
        // searches.
        let taken = NAMES[index].compare_exchange(0, word, Ordering::SeqCst, Ordering::Relaxed);
        match taken {
            Ok(_) => return ContextIndex::new(index),
            Err(other) if other == word => return ContextIndex::new(index),
            // Another thread has declared the context with another kind meanwhile.
            Err(other) if other & !KIND_BITS == hash => return None,
            Err(_) => {}
        }
    }
    None
}

/// Returns the index of the context whose name has this hash, if the process has set it.
pub(crate) fn find_by_hash(hash: u64) -> Option<ContextIndex> {
    // ORDERING: SeqCst pairs with `find_or_take_index`.
    let is_it = |name: &AtomicU64| {
        let word = name.load(Ordering::SeqCst);
        word != 0 && word & !KIND_BITS == hash
    };
    NAMES.iter().position(is_it).and_then(ContextIndex::new)
}

/// Returns the number of contexts, which only grows. It includes each context whose
/// [declaration](declare_context) has returned.
#[inline(always)]
pub(crate) fn contexts_count() -> usize {
    // ORDERING: SeqCst pairs with `declare_context`.
    COUNT.load(Ordering::SeqCst)
}

fn update_contexts_count() {
    // ORDERING: SeqCst, as in `find_or_take_index`.
    let count = NAMES.iter().filter(|name| name.load(Ordering::SeqCst) != 0).count();
    COUNT.fetch_max(count, Ordering::SeqCst);
}
