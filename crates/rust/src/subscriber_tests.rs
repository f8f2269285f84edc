//! Tests of module `subscriber`.

use super::*;

/// Returns the number of free slots, of this thread and of the shared list.
fn free_slots() -> usize {
    let spare = walk_free_list(SHARED_FREE_LIST.head.load(Ordering::Relaxed) as u32, usize::MAX)
        .map_or(0, |(_, count)| count);
    spare + THREAD.with(|thread| thread.free_count.get())
}

/// A single test, because all tests would share the list of free slots.
#[test]
fn slots_are_used_again_wherever_spans_end() {
    let take = || THREAD.with(ThreadState::take_slot);
    let give = |number: u32| {
        let slot = find_slot(number.into()).expect("it is there");
        THREAD.with(|thread| thread.give_slot(number, slot));
    };
    let taken: Vec<u32> = (0..1000).map(|_| take()).collect();
    let mut distinct = taken.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert!(distinct.len() == 1000 && distinct[0] != NO_SLOT);
    taken.into_iter().for_each(give);
    let made = CHUNKS_BEGUN.load(Ordering::Relaxed) * CHUNK_SLOTS;
    assert_eq!(free_slots(), made);
    // Spans begin here and end elsewhere: no slot is lost, and no unnecessary chunk is created.
    for _ in 0..100 {
        let taken: Vec<u32> = (0..100).map(|_| take()).collect();
        std::thread::spawn(move || taken.into_iter().for_each(give)).join().expect("it ends");
    }
    assert_eq!(free_slots(), made);
    assert_eq!(CHUNKS_BEGUN.load(Ordering::Relaxed) * CHUNK_SLOTS, made);
    // A thread-local value that was created first outlives its thread's free list: its destructor
    // can return slots and take new ones.
    struct Late(Vec<u32>);
    impl Drop for Late {
        fn drop(&mut self) {
            let give = |number: u32| {
                let slot = find_slot(number.into()).expect("it is there");
                THREAD.with(|thread| thread.give_slot(number, slot));
            };
            self.0.drain(..).for_each(give);
            let taken: Vec<u32> = (0..10).map(|_| THREAD.with(ThreadState::take_slot)).collect();
            assert!(!taken.contains(&NO_SLOT) && THREAD.with(|it| it.free_count.get() == 0));
            taken.into_iter().for_each(give);
            THREAD.with(|thread| {
                thread.enter(Entered { number: 1, id: 1 });
                assert_eq!(thread.entered.borrow().len(), 1);
                thread.exit(1);
                assert_eq!(thread.entered.borrow().capacity(), 0);
            });
        }
    }
    thread_local! { static LATE: RefCell<Late> = const { RefCell::new(Late(Vec::new())) }; }
    for _ in 0..100 {
        let late = move || {
            LATE.with(|late| late.borrow_mut().0.extend((0..100).map(|_| take())));
        };
        std::thread::spawn(late).join().expect("it ends");
    }
    assert_eq!(free_slots(), made);
    assert_eq!(CHUNKS_BEGUN.load(Ordering::Relaxed) * CHUNK_SLOTS, made);
    // Numbers that were never assigned lead to no slot.
    assert!(
        find_slot(0).is_none()
            && find_slot(u64::MAX).is_none()
            && find_slot(made as u64 + 1).is_none()
    );
    assert!(find_slot(made as u64).is_some());
}
