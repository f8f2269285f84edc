//! Orders the instructions of a function. clang places the common end of several paths behind the
//! first path, so other paths jump backward although nothing loops. The verifier requires forward
//! jumps. So such a function's blocks are sorted topologically, which is possible if it has no
//! loop.

use trackway_jit::insn::{CALL, EXIT, Insn, class, jump};

use super::file::FunctionId;

/// An instruction of a function before linking.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item {
    /// Index in the section.
    pub(super) at: usize,
    pub(super) insn: Insn,
    /// Second half of a wide instruction.
    pub(super) half: Option<Insn>,
    /// Function that the instruction calls, or whose address it loads.
    pub(super) callee: Option<FunctionId>,
    /// Index in the section of the jump target.
    pub(super) target: Option<usize>,
}

impl Item {
    /// Creates a jump to an instruction.
    fn goto(at: usize, target: usize) -> Self {
        let insn = Insn { op: class::JMP | jump::JA, ..Insn::default() };
        Self { at, insn, half: None, callee: None, target: Some(target) }
    }

    fn is_jump(&self) -> bool {
        let is_class = matches!(self.insn.class(), class::JMP | class::JMP32);
        is_class && !matches!(self.insn.op, CALL | EXIT)
    }

    /// Returns true if control may continue with the next instruction.
    fn falls_through(&self) -> bool {
        self.insn.op != EXIT && !(self.is_jump() && self.insn.op & 0xf0 == jump::JA)
    }

    fn width(&self) -> usize {
        1 + usize::from(self.half.is_some())
    }
}

/// Returns the target of a jump at index `at`; `None` for other instructions.
pub(super) fn jump_target(at: usize, insn: Insn) -> Option<usize> {
    let is_class = matches!(insn.class(), class::JMP | class::JMP32);
    if !is_class || matches!(insn.op, CALL | EXIT) {
        return None;
    }
    let is_long = insn.op == class::JMP32 | jump::JA;
    let by = if is_long { i64::from(insn.immediate) } else { insn.offset.into() };
    usize::try_from(at as i64 + 1 + by).ok()
}

/// A basic block: control enters at the first instruction and leaves after the last.
struct Block {
    /// The range of the function's items.
    items: std::ops::Range<usize>,
    /// Following block, if control may fall through to it, and the block of the jump target.
    next: Option<usize>,
    to: Option<usize>,
}

/// Orders the items of a function so that all jumps go forward. Returns them unchanged if they
/// already do, or if no such order exists: then the verifier reports the error.
pub(super) fn order_items(items: Vec<Item>) -> Vec<Item> {
    let is_backward = |item: &Item| item.target.is_some_and(|target| target <= item.at);
    if !items.iter().any(is_backward) {
        return items;
    }
    match split_into_blocks(&items).and_then(|blocks| Some((order_blocks(&blocks)?, blocks))) {
        Some((order, blocks)) => join_blocks(&items, &blocks, &order),
        None => items,
    }
}

/// Splits a function at its jumps and their targets. Returns `None` if a jump leaves it.
fn split_into_blocks(items: &[Item]) -> Option<Vec<Block>> {
    let place = |at: usize| items.binary_search_by_key(&at, |item| item.at).ok();
    let mut begins = vec![false; items.len() + 1];
    begins[0] = true;
    for (index, item) in items.iter().enumerate() {
        if item.is_jump() {
            begins[place(item.target?)?] = true;
        }
        if item.is_jump() || item.insn.op == EXIT {
            begins[index + 1] = true;
        }
    }
    let starts: Vec<usize> = (0..items.len()).filter(|&index| begins[index]).collect();
    let of = |index: usize| starts.binary_search(&index).ok();
    let block = |(number, &start): (usize, &usize)| {
        let end = starts.get(number + 1).copied().unwrap_or(items.len());
        let last = items.get(end.checked_sub(1)?)?;
        let is_last = number + 1 == starts.len();
        if last.falls_through() && is_last {
            return None;
        }
        let next = last.falls_through().then_some(number + 1);
        let to = match last.target {
            Some(target) => Some(of(place(target)?)?),
            None => None,
        };
        Some(Block { items: start..end, next, to })
    };
    starts.iter().enumerate().map(block).collect()
}

/// Sorts the blocks topologically. Returns `None` if there is a loop or an unreachable block.
fn order_blocks(blocks: &[Block]) -> Option<Vec<usize>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        Open,
        Done,
    }
    let mut marks = vec![Mark::New; blocks.len()];
    let mut done = Vec::with_capacity(blocks.len());
    // Blocks on the current path, each with the number of its successors already visited.
    let mut open = vec![(0, 0)];
    marks[0] = Mark::Open;
    while let Some((block, ways)) = open.last_mut() {
        // Visits the fall-through successor last, so that it directly follows if possible.
        let way = match ways {
            0 => blocks[*block].to,
            1 => blocks[*block].next,
            _ => {
                marks[*block] = Mark::Done;
                done.push(*block);
                open.pop();
                continue;
            }
        };
        *ways += 1;
        match way.map(|way| (way, marks[way])) {
            Some((_, Mark::Open)) => return None,
            Some((way, Mark::New)) => {
                marks[way] = Mark::Open;
                open.push((way, 0));
            }
            _ => {}
        }
    }
    done.reverse();
    (done.len() == blocks.len()).then_some(done)
}

/// Joins the blocks in this order, and adds jumps to fall-through successors that moved away.
fn join_blocks(items: &[Item], blocks: &[Block], order: &[usize]) -> Vec<Item> {
    let mut joined = Vec::with_capacity(items.len());
    for (place, &number) in order.iter().enumerate() {
        let block = &blocks[number];
        joined.extend_from_slice(&items[block.items.clone()]);
        if let Some(next) = block.next.filter(|next| order.get(place + 1) != Some(next)) {
            let (last, target) = (items[block.items.end - 1].at, &items[blocks[next].items.start]);
            joined.push(Item::goto(last, target.at));
        }
    }
    joined
}

/// Returns the offset of each item from the start of the function, and the total length.
pub(super) fn item_offsets(items: &[Item]) -> (Vec<(usize, usize)>, usize) {
    let mut end = 0;
    let mut places: Vec<(usize, usize)> = Vec::with_capacity(items.len());
    for item in items {
        // The first of several items with the same index is the original one.
        places.push((item.at, end));
        end += item.width();
    }
    places.sort();
    places.dedup_by_key(|place| place.0);
    (places, end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use trackway_jit::insn::{alu, source};

    use super::*;

    const K: Insn = Insn { op: 0, dst: 0, src: 0, offset: 0, immediate: 0 };

    fn plain_item(at: usize, insn: Insn) -> Item {
        Item { at, insn, half: None, callee: None, target: None }
    }

    fn add_item(at: usize, immediate: i32) -> Item {
        plain_item(at, Insn { op: class::ALU64 | alu::ADD, immediate, ..K })
    }

    fn exit_item(at: usize) -> Item {
        plain_item(at, Insn { op: EXIT, ..K })
    }

    /// Creates a jump that is taken if register 0 has one of the bits of `immediate`.
    fn branch_item(at: usize, immediate: i32, target: usize) -> Item {
        let insn = Insn { op: class::JMP | source::K | jump::JSET, immediate, ..K };
        Item { target: Some(target), ..plain_item(at, insn) }
    }

    /// Returns register 0 at the end, or `None` if the exit is not reached.
    fn run(items: &[Item], first: u64) -> Option<u64> {
        let (mut r0, mut index) = (first, 0);
        for _ in 0..1000 {
            let item = items.get(index)?;
            let number = i64::from(item.insn.immediate).cast_unsigned();
            let jumps = match item.insn.op {
                EXIT => return Some(r0),
                op if op == class::ALU64 | alu::ADD => {
                    r0 = r0.wrapping_mul(3).wrapping_add(number);
                    false
                }
                op => op & 0xf0 == jump::JA || r0 & number != 0,
            };
            let target = item.target.filter(|_| jumps);
            let found = |at| items.iter().position(|item| item.at == at);
            index = target.map_or(Some(index + 1), found)?;
        }
        None
    }

    fn jumps_go_forward(items: &[Item]) -> bool {
        let place = |at| items.iter().position(|item| item.at == at);
        items.iter().enumerate().all(|(index, item)| {
            item.target.is_none_or(|target| place(target).is_some_and(|place| place > index))
        })
    }

    #[test]
    fn what_loops_stays_as_it_is() {
        let items = vec![add_item(0, 1), branch_item(1, 1, 0), exit_item(2)];
        let ats: Vec<usize> = order_items(items).iter().map(|item| item.at).collect();
        assert_eq!(ats, [0, 1, 2]);
        // Functions with unreachable code, or with jumps out of the function, stay unchanged.
        for target in [1, 9] {
            let items = vec![Item::goto(0, 3), add_item(1, 1), exit_item(2), Item::goto(3, target)];
            assert_eq!(order_items(items).len(), 4);
        }
    }

    #[test]
    fn a_shared_end_goes_behind_all_that_lead_there() {
        // clang's order: the common end of two paths follows the first path.
        let items = vec![
            branch_item(0, 1, 4),
            add_item(1, 7),
            add_item(2, 8),
            exit_item(3),
            add_item(4, 9),
            Item::goto(5, 2),
        ];
        let sorted = order_items(items.clone());
        assert!(jumps_go_forward(&sorted) && !jumps_go_forward(&items));
        for first in 0..4 {
            assert_eq!(run(&sorted, first), run(&items, first));
        }
    }

    proptest! {
        /// Functions whose blocks only lead forward keep their result when reordered from any
        /// order.
        #[test]
        fn any_order_can_be_put_right(
            ways in proptest::collection::vec((0_usize..100, 0_usize..100, 1_i32..64), 1..20),
            keys in proptest::collection::vec(any::<u64>(), 20),
        ) {
            // Block n is a number, a branch and a jump; the last block is a number and an exit.
            let count = ways.len();
            let mut order: Vec<usize> = (1..=count).collect();
            order.sort_by_key(|&block| keys[block - 1]);
            order.insert(0, 0);
            let place = |block: usize| order.iter().position(|&other| other == block);
            let start = |block: usize| 3 * place(block).expect("it is there");
            let mut items = Vec::new();
            for &block in &order {
                let at = 3 * place(block).expect("it is there");
                items.push(add_item(at, block as i32));
                let Some(&(a, b, bits)) = ways.get(block) else {
                    items.push(exit_item(at + 1));
                    continue;
                };
                let later = |way: usize| start(block + 1 + way % (count - block));
                items.push(branch_item(at + 1, bits, later(a)));
                items.push(Item::goto(at + 2, later(b)));
            }
            let sorted = order_items(items.clone());
            // Unreachable code stays, and then the whole function stays unchanged.
            let is_whole = sorted.len() >= items.len();
            prop_assert!(is_whole);
            for first in 0..64 {
                prop_assert_eq!(run(&sorted, first), run(&items, first));
            }
            let has_order = |blocks: Vec<_>| super::order_blocks(&blocks).is_some();
            if split_into_blocks(&items).is_some_and(has_order) {
                prop_assert!(jumps_go_forward(&sorted));
            }
        }
    }
}
