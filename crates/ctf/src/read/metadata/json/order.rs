//! The order in which babeltrace2 shows several labels of one value.
//!
//! JSON objects have no order. Babeltrace2 2.1 keeps the objects, and then the labels, in C++'s
//! `std::unordered_map`, and shows labels in the order of that table. For equal output, this module
//! reproduces libstdc++'s order: its hash (MurmurHash64A with a fixed seed), its bucket counts, and
//! its place of insertion. A new element precedes all others of its bucket; in an empty bucket, it
//! precedes all others of the table.

/// Bucket counts of a growing table. No trace has more labels than the last count.
const BUCKET_COUNTS: [usize; 12] =
    [13, 29, 59, 127, 257, 541, 1109, 2357, 5087, 10273, 20753, 42043];
/// libstdc++'s seed of `std::hash`.
const HASH_SEED: u64 = 0xc70f_6907;
const HASH_MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
/// Position before a table's first element: the start of an empty list.
const LIST_HEAD: usize = 0;

/// A hash table: a list of elements in which the elements of a bucket are adjacent.
struct HashTable {
    hashes: Vec<u64>,
    /// Successor of each element, counted from 1; the first element at [`LIST_HEAD`]; 0 at the end.
    next: Vec<usize>,
    /// Predecessor of the first element of each bucket.
    before: Vec<Option<usize>>,
}

impl HashTable {
    /// Inserts an element.
    fn insert(&mut self, element: usize) {
        let bucket = self.bucket(element);
        if let Some(before) = self.before[bucket] {
            self.next[element] = std::mem::replace(&mut self.next[before], element);
            return;
        }
        let first = std::mem::replace(&mut self.next[LIST_HEAD], element);
        self.next[element] = first;
        if first != 0 {
            let bucket = self.bucket(first);
            self.before[bucket] = Some(element);
        }
        self.before[bucket] = Some(LIST_HEAD);
    }

    fn bucket(&self, element: usize) -> usize {
        (self.hashes[element] % self.before.len() as u64) as usize
    }

    /// Returns the elements in the table's order.
    fn elements(&self) -> Vec<usize> {
        let next = |&element: &usize| Some(self.next[element]).filter(|&next| next != 0);
        std::iter::successors(next(&LIST_HEAD), next).collect()
    }

    /// Rehashes the table to `buckets` buckets.
    fn grow(&mut self, buckets: usize) {
        let elements = self.elements();
        self.next[LIST_HEAD] = 0;
        self.before = vec![None; buckets];
        elements.into_iter().for_each(|element| self.insert(element));
    }
}

/// Returns the order in which a table holds `names`, inserted in the given order and all different,
/// as indexes of `names`.
pub(crate) fn libstdcxx_table_order(names: &[&str]) -> Vec<usize> {
    let hashes = std::iter::once(0).chain(names.iter().map(|name| murmur_hash(name.as_bytes())));
    let next = vec![0; names.len() + 1];
    let mut table = HashTable { hashes: hashes.collect(), next, before: Vec::new() };
    let mut sizes = BUCKET_COUNTS.into_iter();
    for element in 1..=names.len() {
        if element > table.before.len()
            && let Some(buckets) = sizes.next()
        {
            table.grow(buckets);
        }
        table.insert(element);
    }
    table.elements().into_iter().map(|element| element - 1).collect()
}

fn murmur_hash(bytes: &[u8]) -> u64 {
    let mix = |value: u64| value ^ value >> 47;
    let (words, rest) = bytes.as_chunks::<8>();
    let begin = HASH_SEED ^ (bytes.len() as u64).wrapping_mul(HASH_MULTIPLIER);
    let mut hash = words.iter().fold(begin, |hash, word| {
        let word = u64::from_le_bytes(*word).wrapping_mul(HASH_MULTIPLIER);
        (hash ^ mix(word).wrapping_mul(HASH_MULTIPLIER)).wrapping_mul(HASH_MULTIPLIER)
    });
    if !rest.is_empty() {
        let rest = rest.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        hash = (hash ^ rest).wrapping_mul(HASH_MULTIPLIER);
    }
    mix(mix(hash).wrapping_mul(HASH_MULTIPLIER))
}

#[cfg(test)]
mod tests {
    use super::libstdcxx_table_order;

    /// The expected order is the output of a C++ program that put the same strings into a
    /// `std::unordered_map` of GCC 12's libstdc++.
    #[test]
    fn names_are_in_the_order_of_the_table_of_libstdcxx() {
        let names: Vec<String> =
            (0..70).map(|number| format!("name {}", number * number)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        for (count, first, last) in [
            (1, &[0][..], &[0][..]),
            (2, &[1, 0][..], &[1, 0][..]),
            (7, &[6, 5, 4, 3, 2, 1, 0][..], &[6, 5, 4, 3, 2, 1, 0][..]),
            (13, &[12, 8, 10, 6, 5, 4, 11][..], &[11, 9, 3, 2, 7, 1, 0][..]),
            (14, &[0, 13, 7, 2, 3, 1, 4][..], &[9, 5, 11, 6, 10, 8, 12][..]),
            (29, &[28, 26, 25, 24, 21, 18, 19][..], &[5, 20, 11, 6, 10, 8, 12][..]),
            (30, &[29, 12, 8, 10, 6, 11, 20][..], &[15, 21, 24, 18, 25, 26, 28][..]),
            (60, &[59, 28, 26, 25, 18, 15, 19][..], &[44, 45, 50, 47, 49, 14, 54][..]),
            (70, &[69, 68, 64, 63, 62, 59, 28][..], &[44, 45, 50, 47, 49, 14, 54][..]),
        ] {
            let order = libstdcxx_table_order(&names[..count]);
            let shown = |order: &[usize]| order.iter().map(|&at| at as u8).collect::<Vec<_>>();
            let (begin, end) = (&order[..first.len()], &order[count - last.len()..]);
            assert_eq!((shown(begin), shown(end)), (first.to_vec(), last.to_vec()), "{count}");
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..count).collect::<Vec<_>>());
        }
    }
}
