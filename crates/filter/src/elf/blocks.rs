//! The order of a function's instructions. clang puts what several paths end in where the first of
//! them is, so that others jump backward though nothing loops; the verifier requires jumps that go
//! forward. So the blocks of such a function are put in an order in which each stands behind all
//! that lead to it, which there is if nothing loops.

use trackway_jit::insn::{CALL, EXIT, Insn, class, jump};

use super::file::FunctionId;

/// An instruction on its way into a program.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item {
    /// Its index in its section.
    pub(super) at: usize,
    pub(super) insn: Insn,
    /// Its second half.
    pub(super) half: Option<Insn>,
    /// The function that it calls, or whose address it loads.
    pub(super) callee: Option<FunctionId>,
    /// The instruction that it jumps to, by its index in the section.
    pub(super) target: Option<usize>,
}

impl Item {
    /// A jump to an instruction.
    fn goto(at: usize, target: usize) -> Self {
        let insn = Insn { op: class::JMP | jump::JA, ..Insn::default() };
        Self { at, insn, half: None, callee: None, target: Some(target) }
    }

    fn is_jump(&self) -> bool {
        let is_class = matches!(self.insn.class(), class::JMP | class::JMP32);
        is_class && !matches!(self.insn.op, CALL | EXIT)
    }

    /// Returns true if the next instruction may follow.
    fn falls_through(&self) -> bool {
        self.insn.op != EXIT && !(self.is_jump() && self.insn.op & 0xf0 == jump::JA)
    }

    fn width(&self) -> usize {
        1 + usize::from(self.half.is_some())
    }
}

/// A jump's target, by the index of the jump.
pub(super) fn jump_target(at: usize, insn: Insn) -> Option<usize> {
    let is_class = matches!(insn.class(), class::JMP | class::JMP32);
    if !is_class || matches!(insn.op, CALL | EXIT) {
        return None;
    }
    let is_long = insn.op == class::JMP32 | jump::JA;
    let by = if is_long { i64::from(insn.immediate) } else { insn.offset.into() };
    usize::try_from(at as i64 + 1 + by).ok()
}

/// Instructions that are entered at the first and left behind the last.
struct Block {
    /// The range of the function's items.
    items: std::ops::Range<usize>,
    /// The block behind, if its last instruction may lead there, and the one that it jumps to.
    next: Option<usize>,
    to: Option<usize>,
}

/// The items of a function in an order in which all jumps go forward. As they are if they do so
/// already, or if there is no such order: then the verifier says what is wrong.
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

/// Parts a function at its jumps and their targets. `None` if a jump leads out of it.
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

/// All blocks, each behind those that lead to it. `None` if some lead to each other, or if nothing
/// leads to one.
fn order_blocks(blocks: &[Block]) -> Option<Vec<usize>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        Open,
        Done,
    }
    let mut marks = vec![Mark::New; blocks.len()];
    let mut done = Vec::with_capacity(blocks.len());
    // Blocks that are being looked at, with how many of their two ways were gone.
    let mut open = vec![(0, 0)];
    marks[0] = Mark::Open;
    while let Some((block, ways)) = open.last_mut() {
        // The way on is gone last, so that it comes right behind if nothing else must be between.
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

/// The blocks in their order; where the one behind is another now, a jump leads there.
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

/// Returns the place of each item of a function, from its beginning, and the length of all.
pub(super) fn item_offsets(items: &[Item]) -> (Vec<(usize, usize)>, usize) {
    let mut end = 0;
    let mut places: Vec<(usize, usize)> = Vec::with_capacity(items.len());
    for item in items {
        // Of those with the same index the first is the file's own.
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

    /// Jumps if register 0 has one of these bits.
    fn branch_item(at: usize, immediate: i32, target: usize) -> Item {
        let insn = Insn { op: class::JMP | source::K | jump::JSET, immediate, ..K };
        Item { target: Some(target), ..plain_item(at, insn) }
    }

    /// Returns register 0 at the end; `None` if that is not reached.
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
        // So does what is never reached, and what jumps out of the function.
        for target in [1, 9] {
            let items = vec![Item::goto(0, 3), add_item(1, 1), exit_item(2), Item::goto(3, target)];
            assert_eq!(order_items(items).len(), 4);
        }
    }

    #[test]
    fn a_shared_end_goes_behind_all_that_lead_there() {
        // clang's: the end of two paths is behind the first of them.
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
        /// Blocks that lead to later ones only, in any order: put in order, they do the same.
        #[test]
        fn any_order_can_be_put_right(
            ways in proptest::collection::vec((0_usize..100, 0_usize..100, 1_i32..64), 1..20),
            keys in proptest::collection::vec(any::<u64>(), 20),
        ) {
            // Block n is: a number, a branch, a jump; the last one: a number, an exit.
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
            // What is never reached stays, and so does all of the function then.
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
