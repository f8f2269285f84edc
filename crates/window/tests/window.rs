//! Tests of the window's tables in the ways that processes use them: opened, refused, filled, and
//! overwritten.

mod support;

use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::sync::atomic::Ordering;

use support::{Folder, encode_event};
use trackway_abi::session::state;
use trackway_abi::window::{DATA_OFFSET, GRANULE_BYTES, event_state, granule};
use trackway_sys::process::Identity;
use trackway_window::{
    AllocateError, Allocator, OpenError, Owner, ProcessSlot, SessionLayout, WriterPath, backed_word,
};

#[test]
fn the_first_makes_it_and_the_second_finds_it() {
    let folder = Folder::new("make");
    assert_eq!(folder.open(false).unwrap_err(), OpenError::Absent);
    let (first, _) = folder.open(true).unwrap();
    first.header().events_revision.store(7, Ordering::Relaxed);
    let (second, _) = folder.open(true).unwrap();
    assert_eq!(second.header().events_revision.load(Ordering::Relaxed), 7);
    let metadata = std::fs::metadata(folder.file()).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    assert_eq!(metadata.len(), DATA_OFFSET as u64);
}

#[test]
fn what_is_not_a_good_window_is_refused() {
    let folder = Folder::new("refuse");
    let path = folder.file();
    std::fs::write(&path, b"short").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(folder.open(true).unwrap_err(), OpenError::Truncated);
    std::fs::write(&path, vec![0; DATA_OFFSET]).unwrap();
    assert_eq!(folder.open(true).unwrap_err(), OpenError::NotAWindow);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(folder.open(true).unwrap_err(), OpenError::NotOurs);
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/dev/null", &path).unwrap();
    let error = folder.open(true).unwrap_err();
    assert_eq!(error, OpenError::System(trackway_sys::Errno(libc::ELOOP)));
    std::fs::remove_file(&path).unwrap();

    let (window, _) = folder.open(true).unwrap();
    window.header().backed.store(backed_word(1 << 30), Ordering::Relaxed);
    assert_eq!(folder.open(true).unwrap_err(), OpenError::Truncated);
}

#[test]
fn root_makes_a_window_for_who_has_none_and_finds_it_again() {
    const USER: u32 = 65_531;
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!("skipped, because only root makes windows for others");
    }
    let folder = Folder::new("others");
    assert_eq!(folder.open_for(USER, false).unwrap_err(), OpenError::Absent);
    let (first, _) = folder.open_for(USER, true).unwrap();
    first.header().events_revision.store(7, Ordering::Relaxed);
    let metadata = std::fs::metadata(folder.file()).unwrap();
    assert_eq!((metadata.uid(), metadata.permissions().mode() & 0o777), (USER, 0o600));
    let (second, _) = folder.open_for(USER, true).unwrap();
    assert_eq!(second.header().events_revision.load(Ordering::Relaxed), 7);
    // A file of another user at the window's path is refused.
    assert_eq!(folder.open_for(USER + 1, true).unwrap_err(), OpenError::NotOurs);
    assert_eq!(folder.open(true).unwrap_err(), OpenError::NotOurs);
}

#[test]
fn nobody_waits_for_whoever_has_a_lease_on_it() {
    let folder = Folder::new("lease");
    // The test needs a file that no other process has mapped.
    std::fs::write(folder.file(), vec![0; DATA_OFFSET]).unwrap();
    std::fs::set_permissions(folder.file(), PermissionsExt::from_mode(0o600)).unwrap();
    let file = std::fs::File::open(folder.file()).unwrap();
    // SAFETY: plain calls on a descriptor of this test. The signal that announces a waiting open
    // would end this process.
    let leased = unsafe {
        libc::signal(libc::SIGIO, libc::SIG_IGN);
        libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK)
    };
    if leased != 0 {
        return eprintln!("skipped, because this file system has no leases");
    }
    let refused = folder.open(true).unwrap_err();
    assert_eq!(refused, OpenError::System(trackway_sys::Errno(libc::EAGAIN)));
    drop(file);
    assert_eq!(folder.open(true).unwrap_err(), OpenError::NotAWindow);
}

#[test]
fn waits_for_a_lock_are_limited_together() {
    let folder = Folder::new("patience");
    let (window, fd) = folder.open(true).unwrap();
    let (_, held) = folder.open(true).unwrap();
    assert!(held.try_lock().unwrap());
    let allocator = Allocator::new(window, fd);
    allocator.limit_patience(30_000_000);
    // Without the limit, the loop takes 2,000 s.
    for _ in 0..1000 {
        assert_eq!(allocator.exclusively(|| ()), Err(AllocateError::Locked));
    }
    held.unlock();
    assert_eq!(allocator.exclusively(|| ()), Ok(()));
}

#[test]
fn a_scribbled_length_leads_nobody_behind_the_file() {
    let folder = Folder::new("length");
    let (window, _) = folder.open(true).unwrap();
    for word in [0, 1 << 40, u64::MAX, 0x5a5a_5a5a_5a5a_5a5a, 1 << 63] {
        window.header().backed.store(word, Ordering::Relaxed);
        assert_eq!(window.usable_bytes(), DATA_OFFSET as u64, "{word:x}");
        assert_eq!(folder.open(true).unwrap_err(), OpenError::NotAWindow);
    }
    window.header().backed.store(backed_word(DATA_OFFSET as u64), Ordering::Relaxed);
    assert!(folder.open(true).is_ok());
}

#[test]
fn an_event_is_interned_once() {
    let folder = Folder::new("intern");
    let (window, _) = folder.open(true).unwrap();
    let first = window.intern_event(&encode_event("one")).unwrap();
    let other = window.intern_event(&encode_event("two")).unwrap();
    assert_ne!(first, other);
    assert_eq!(window.intern_event(&encode_event("one")), Some(first));
    let copy = window.description(first as usize).unwrap();
    assert_eq!(copy.as_slice(), encode_event("one"));
    assert!(window.description(4095).is_none() || other == 4095 || first == 4095);
}

#[test]
fn a_slot_whose_maker_died_costs_that_slot_only() {
    let folder = Folder::new("filling");
    let (window, _) = folder.open(true).unwrap();
    let encoded = encode_event("victim");
    let first = trackway_schema::fnv1a_hash(&encoded) as usize % 4096;
    window.event(first).state.store(event_state::FILLING, Ordering::Relaxed);
    let index = window.intern_event(&encoded).unwrap();
    assert_ne!(index as usize, first);
    assert_eq!(window.intern_event(&encoded), Some(index));
}

#[test]
fn threads_that_intern_the_same_events_agree() {
    let folder = Folder::new("race");
    let (window, _) = folder.open(true).unwrap();
    let names: Vec<_> = (0..64).map(|number| encode_event(&format!("e{number}"))).collect();
    let found: Vec<Vec<u32>> = std::thread::scope(|scope| {
        let intern = || names.iter().map(|name| window.intern_event(name).unwrap()).collect();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(intern)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    // A thread that stopped waiting for a slot in the making may have filled a second one. The same
    // event may thus have two numbers; another event's number is not allowed.
    for numbers in &found {
        for (number, name) in numbers.iter().zip(&names) {
            assert_eq!(window.description(*number as usize).unwrap().as_slice(), name);
        }
    }
}

#[test]
fn a_full_table_refuses_and_counts() {
    let folder = Folder::new("full");
    let (window, _) = folder.open(true).unwrap();
    let mut refused = 0;
    for number in 0..5000 {
        refused += u32::from(window.intern_event(&encode_event(&format!("e{number}"))).is_none());
    }
    assert!(refused >= 5000 - 4096);
    assert_eq!(window.header().events_refused.load(Ordering::Relaxed), refused);
}

#[test]
fn memory_is_handed_out_backed_and_given_back() {
    let folder = Folder::new("memory");
    let (window, file) = folder.open(true).unwrap();
    let allocator = Allocator::new(window, file);
    let owner = granule::DATA;
    let control = allocator.take(1, granule::CONTROL).unwrap();
    assert_eq!(control, DATA_OFFSET as u64, "control lines lie low");
    let first = allocator.take(1, owner).unwrap();
    let second = allocator.take(3 * GRANULE_BYTES, owner + 1).unwrap();
    assert!(first > control);
    assert_eq!(second, first + GRANULE_BYTES);
    assert_eq!(window.usable_bytes(), second + 3 * GRANULE_BYTES);
    assert_eq!(allocator.give_back(owner).unwrap(), GRANULE_BYTES);
    assert_eq!(allocator.take(1, owner).unwrap(), first, "the lowest free place is used again");
    assert_eq!(allocator.bytes_in_use(), 5 * GRANULE_BYTES);
    assert_eq!(allocator.take(1 << 40, owner), Err(AllocateError::NoSpace));
    assert_eq!(allocator.give_back(owner + 1).unwrap(), 3 * GRANULE_BYTES);
    assert_eq!(window.usable_bytes(), first + GRANULE_BYTES, "the file is as long as what is used");
    assert_eq!(std::fs::metadata(folder.file()).unwrap().len(), first + GRANULE_BYTES);
    assert_eq!(allocator.take(1, owner + 1).unwrap(), second);
}

#[test]
fn after_all_sessions_the_file_ends_with_control_lines() {
    let folder = Folder::new("short");
    let (window, file) = folder.open(true).unwrap();
    let allocator = Allocator::new(window, file);
    let sessions = trackway_abi::session::SESSIONS_MAX as u8;
    for session in 0..sessions {
        allocator.take(1, granule::CONTROL + session).unwrap();
        allocator.take(3 * GRANULE_BYTES, granule::DATA + session).unwrap();
    }
    for session in 0..sessions {
        allocator.give_back(granule::DATA + session).unwrap();
    }
    let control_bytes = u64::from(sessions) * GRANULE_BYTES;
    assert_eq!(allocator.bytes_in_use(), control_bytes);
    let length = std::fs::metadata(folder.file()).unwrap().len();
    assert_eq!(length, DATA_OFFSET as u64 + control_bytes);
}

#[test]
fn what_fills_free_memory_is_given_back_when_a_session_ends() {
    let folder = Folder::new("filled");
    let (window, file) = folder.open(true).unwrap();
    let allocator = Allocator::new(window, file);
    let blocks =
        || std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(folder.file()).unwrap());
    let first = allocator.take(1, granule::DATA).unwrap();
    allocator.take(1, granule::DATA + 1).unwrap();
    allocator.take(1, granule::DATA + 2).unwrap();
    allocator.give_back(granule::DATA).unwrap();
    let before = blocks();
    // These calls fill free memory like mlockall(2) in a traced program.
    allocator.file().allocate(first, GRANULE_BYTES).unwrap();
    allocator.file().allocate(DATA_OFFSET as u64, GRANULE_BYTES).unwrap();
    assert!(blocks() > before);
    allocator.give_back(granule::DATA + 2).unwrap();
    assert_eq!(blocks(), before - GRANULE_BYTES / 512);
}

#[test]
fn nobody_waits_for_good_for_a_lock() {
    let folder = Folder::new("lock");
    let (window, file) = folder.open(true).unwrap();
    let allocator = Allocator::new(window, file);
    let (_, other) = folder.open(false).unwrap();
    assert_eq!(other.try_lock(), Ok(true));
    assert_eq!(allocator.try_take(1, granule::DATA), Err(AllocateError::Locked));
    assert_eq!(allocator.take(1, granule::DATA), Err(AllocateError::Locked));
    assert_eq!(allocator.exclusively(|| ()), Err(AllocateError::Locked));
    other.unlock();
    assert!(allocator.try_take(1, granule::DATA).is_ok());
}

#[test]
fn a_session_is_believed_only_if_it_can_be_true() {
    let folder = Folder::new("layout");
    let (window, file) = folder.open(true).unwrap();
    let allocator = Allocator::new(window, file);
    let session = window.session(3);
    assert!(SessionLayout::read(&window, 3).is_none(), "a free slot");
    let control = allocator.take(SessionLayout::control_bytes(2, 0), granule::CONTROL + 3).unwrap();
    session.control_offset.store(control, Ordering::Relaxed);
    session.cpus.store(2, Ordering::Relaxed);
    session.sub_shift.store(12, Ordering::Relaxed);
    session.claim_sub_shift.store(12, Ordering::Relaxed);
    session.count_shift.store(2, Ordering::Relaxed);
    session.state.store(state::ACTIVE, Ordering::SeqCst);
    let layout = SessionLayout::read(&window, 3).unwrap();
    assert!(layout.region(&window, 1, WriterPath::Claim(1)).is_some());
    assert!(layout.region(&window, 2, WriterPath::Sequence).is_none());
    for (word, bad) in [
        (&session.cpus, 0),
        (&session.cpus, 100_000),
        (&session.sub_shift, 11),
        (&session.sub_shift, 63),
        (&session.count_shift, 9),
        (&session.count_shift, 0),
    ] {
        let good = word.swap(bad, Ordering::Relaxed);
        assert!(SessionLayout::read(&window, 3).is_none());
        word.store(good, Ordering::Relaxed);
    }
    for bad in [0, control + 1, u64::MAX - 4096, 1 << 35] {
        session.control_offset.store(bad, Ordering::Relaxed);
        assert!(SessionLayout::read(&window, 3).is_none());
    }
}

#[test]
fn processes_enter_leave_and_are_told_apart() {
    let folder = Folder::new("processes");
    let (window, _) = folder.open(true).unwrap();
    let me = trackway_sys::process::current_identity();
    let slot = window.enter_process(&me);
    assert_ne!(slot, ProcessSlot::NONE);
    // SAFETY: gettid has no preconditions.
    let tid = unsafe { libc::gettid() } as u32;
    assert!(!window.owner_is_dead(Owner::from_word(slot.owner_word(tid))));
    assert!(window.owner_is_dead(Owner::from_word(slot.owner_word(0x3f_fff0))), "no such thread");

    let dead = Identity { pid: 0x3f_fff1, ..me };
    let dead_slot = window.enter_process(&dead);
    assert!(window.owner_is_dead(Owner::from_word(dead_slot.owner_word(dead.pid))));
    assert_eq!(window.sweep_processes(), 1, "this process remains");

    assert_eq!(window.enter_process(&me), slot, "a second library in the process shares it");
    let again = window.enter_process(&Identity { image: me.image ^ 1, ..me });
    let old = Owner::from_word(slot.owner_word(tid));
    assert!(window.owner_is_dead(old), "exec ended every thread of before");
    assert!(!window.owner_is_dead(Owner::from_word(again.owner_word(tid))));
    let again = Owner::from_word(again.owner_word(0));
    assert!(window.holds(again, me.pid) && !window.holds(again, dead.pid));
    assert!(!window.holds(Owner::from_word(slot.owner_word(0)), me.pid), "not after exec");
    assert!(!window.holds(Owner::from_word(ProcessSlot::NONE.owner_word(0)), me.pid));
    let elsewhere = Identity { pid_namespace: me.pid_namespace ^ 1, ..dead };
    let slot = window.enter_process(&elsewhere);
    let word = slot.owner_word(1);
    assert!(!window.owner_is_dead(Owner::from_word(word)), "another namespace proves nothing");
}

/// RUN an allocator over a window that another process first has open, then only has mapped, then
/// has released. EXPECT that the window is compact at the end and keeps its events, and that it has
/// all of its memory when a process opens it again.
#[test]
fn a_window_that_nobody_uses_is_made_compact() {
    const KEPT_BYTES: u64 = 1 << 20;
    let folder = Folder::new("compact");
    let allocated = || std::fs::metadata(folder.file()).unwrap().blocks() * 512;
    let (window, file) = folder.open(true).unwrap();
    let event = window.intern_event(&encode_event("kept")).expect("a place");
    let allocator = Allocator::new(window, file);
    allocator.take(GRANULE_BYTES, granule::CONTROL_FREE).unwrap();
    let (other, other_file) = folder.open(false).unwrap();
    assert_eq!(allocator.compact(), Ok(false), "it is open");
    drop(other_file);
    assert_eq!(allocator.compact(), Ok(false), "it is mapped");
    // SAFETY: no reference into the window was given out.
    unsafe { other.discard() };
    window.session(3).state.store(state::ENDING, Ordering::Relaxed);
    assert_eq!(allocator.compact(), Ok(false), "there is something to recover");
    window.session(3).state.store(state::FREE, Ordering::Relaxed);
    let compacted = allocator.compact();
    if compacted == Err(AllocateError::System(trackway_sys::Errno(libc::EINVAL))) {
        return eprintln!("skipped, because this file system has no leases");
    }
    assert_eq!(compacted, Ok(true));
    assert!(allocated() <= KEPT_BYTES, "{} bytes", allocated());
    assert_eq!(allocator.compact(), Ok(false), "once is enough");
    let (again, _file) = folder.open(false).unwrap();
    assert!(allocated() >= DATA_OFFSET as u64, "{} bytes", allocated());
    assert_eq!(again.usable_bytes(), DATA_OFFSET as u64);
    let kept = again.description(event as usize).expect("a description");
    assert_eq!(kept.as_slice(), encode_event("kept"));
    assert_eq!(again.intern_event(&encode_event("kept")), Some(event));
}

/// RUN two threads that open the window, use its memory, compact it if they are alone, and release
/// it. EXPECT that neither is refused, and that the memory of each is its own and backed.
#[test]
fn whoever_opens_a_window_that_is_made_compact_has_all_of_it() {
    const ROUNDS: usize = 500;
    let folder = Folder::new("compact-race");
    let (window, _) = folder.open(true).unwrap();
    // SAFETY: no reference into the window was given out.
    unsafe { window.discard() };
    let live = |who: u8| {
        let mut compacted = 0;
        for round in 0..ROUNDS {
            let (window, file) = folder.open(false).expect("it opens");
            let status = file.status().unwrap();
            assert!(status.allocated_bytes >= DATA_OFFSET as u64, "{status:?}");
            let allocator = Allocator::new(window, file);
            let at = allocator.take(GRANULE_BYTES, granule::DATA + who).unwrap();
            assert_eq!(allocator.owner_at(at), granule::DATA + who);
            allocator.give_back(granule::DATA + who).unwrap();
            compacted += usize::from(allocator.compact() == Ok(true));
            drop(allocator);
            // SAFETY: no reference into the window was given out.
            unsafe { window.discard() };
            // The delay varies which of the threads has the window alone.
            (0..round % 7 * usize::from(who) * 1000).for_each(|_| std::hint::spin_loop());
        }
        compacted
    };
    let compacted: usize = std::thread::scope(|scope| {
        let lives = [1, 2].map(|who| {
            let live = &live;
            scope.spawn(move || live(who))
        });
        lives.map(|thread| thread.join().expect("a thread")).into_iter().sum()
    });
    if folder.open(false).unwrap().1.try_lease().is_err() {
        return eprintln!("skipped, because this file system has no leases");
    }
    assert!(compacted > 0);
    eprintln!("made compact {compacted} times in {}", 2 * ROUNDS);
}
