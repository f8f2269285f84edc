//! Which contexts this process has: a place for each, found by the hash of its name.
//!
//! A place is taken by one compare-and-swap, for good, by whoever sets a context first; so there is
//! no lock, and a fork child has its parent's. Two names of one hash would be one context: nobody
//! but the program itself names its contexts, and 64 bits are enough for those.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use trackway_jit::Kind;

/// Places of numbers, which come first.
pub(super) const NUMBERS_MAX: usize = 4;
/// Places of strings.
const TEXTS_MAX: usize = 2;
/// All places.
pub(super) const CONTEXTS_MAX: usize = NUMBERS_MAX + TEXTS_MAX;

/// For each place the hash of the name that it belongs to, and in the lowest bits its kind; 0: of
/// none.
static NAMES: [AtomicU64; CONTEXTS_MAX] = [const { AtomicU64::new(0) }; CONTEXTS_MAX];
const KIND_BITS: u64 = 7;

/// How many of them belong to names: at least those whose declarer has come back.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// A place: its number is in bounds.
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

    /// What it holds.
    pub(crate) fn kind(self) -> Kind {
        let word = NAMES[self.index()].load(Ordering::Relaxed);
        Kind::from_code((word & KIND_BITS) as u8).unwrap_or(Kind::Unsigned)
    }
}

/// FNV-1a of a name, `provider:name`.
pub(crate) fn hash(name: impl Iterator<Item = u8>) -> u64 {
    let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    name.fold(0xcbf2_9ce4_8422_2325_u64, add) & !KIND_BITS
}

/// The place of the context whose name has this hash; it gets one if it has none. `None`: there is
/// no room, or it is of another kind.
pub(super) fn declare(hash: u64, kind: Kind) -> Option<ContextIndex> {
    let place = find_or_take(hash, kind);
    // Also where somebody else has taken it who has not come to this yet.
    count_all();
    crate::state::filter_links::void_context_dependent();
    place
}

fn find_or_take(hash: u64, kind: Kind) -> Option<ContextIndex> {
    let word = hash | kind as u64;
    let range = if kind == Kind::String { NUMBERS_MAX..CONTEXTS_MAX } else { 0..NUMBERS_MAX };
    if let Some(place) = find(hash) {
        return (place.kind() == kind).then_some(place);
    }
    for index in range {
        // ORDERING: SeqCst, a Dekker pair with who links filters: we take the place, count it, then
        // look who has looked for it in vain (`filter_links::void_context_dependent`); he says
        // that he looks, then does.
        let taken = NAMES[index].compare_exchange(0, word, Ordering::SeqCst, Ordering::Relaxed);
        match taken {
            Ok(_) => return ContextIndex::new(index),
            Err(other) if other == word => return ContextIndex::new(index),
            // Another thread's, who has declared it as another kind meanwhile.
            Err(other) if other & !KIND_BITS == hash => return None,
            Err(_) => {}
        }
    }
    None
}

/// The place of the context whose name has this hash, if the process has set it.
pub(crate) fn find(hash: u64) -> Option<ContextIndex> {
    // ORDERING: SeqCst pairs with `declare`.
    let is_it = |name: &AtomicU64| {
        let word = name.load(Ordering::SeqCst);
        word != 0 && word & !KIND_BITS == hash
    };
    NAMES.iter().position(is_it).and_then(ContextIndex::new)
}

/// How many contexts the process has. They only become more; who has [declared](declare) one is
/// counted.
#[inline(always)]
pub(crate) fn count() -> usize {
    // ORDERING: SeqCst pairs with `declare`.
    COUNT.load(Ordering::SeqCst)
}

fn count_all() {
    // ORDERING: SeqCst, as in `declare`.
    let count = NAMES.iter().filter(|name| name.load(Ordering::SeqCst) != 0).count();
    COUNT.fetch_max(count, Ordering::SeqCst);
}
