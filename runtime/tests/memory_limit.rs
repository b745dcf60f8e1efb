//! The memory limit, the pool's cap and its threads, which belong to the whole process: one test, alone in its
//! process, so that no other test holds a lock or a block.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::thread;

use retape_runtime::{
    Buffer, Error, live_bytes, memory_limit, peak_bytes, pool_stats, set_memory_limit, set_pool_capacity, trim,
};

const MIB: usize = 1 << 20;

#[test]
fn limits_hold_and_threads_share() {
    limits_hold();
    freed_memory_crosses_threads();
}

/// Memory that another thread freed, or kept to itself until it ended, is used again.
fn freed_memory_crosses_threads() {
    set_pool_capacity(1 << 30);
    for len in [100, 100_000, 10_000_000] {
        let first = Buffer::alloc(len).unwrap();
        let address = first.as_ptr() as usize;
        thread::spawn(move || drop(first)).join().unwrap();
        let address_of_next = move || Buffer::alloc(len).unwrap().as_ptr() as usize;
        assert_eq!(address_of_next(), address, "{len}");
        trim();
        let theirs = thread::spawn(address_of_next).join().unwrap();
        assert_eq!(address_of_next(), theirs, "{len}");
    }
    assert_eq!(pool_stats().live_bytes, 0);
}

fn limits_hold() {
    // At first the limit is that of the machine.
    let machine = memory_limit();
    assert!(machine > MIB);
    assert!(matches!(Buffer::alloc(machine + 1), Err(Error::Allocation { .. })));
    assert_eq!(live_bytes(), 0);

    // Live bytes count against it, kept ones make room.
    set_memory_limit(8 * MIB);
    let first = Buffer::alloc(6 * MIB).unwrap();
    let refused = Buffer::alloc(4 * MIB).unwrap_err();
    assert_eq!(refused.to_string(), "cannot allocate 4194304 bytes: 6291456 of 8388608 bytes are in use");
    drop(first);
    assert_eq!((live_bytes(), pool_stats().kept_bytes), (0, 6 * MIB));
    let second = Buffer::alloc(4 * MIB).unwrap();
    assert_eq!(pool_stats().kept_bytes, 0, "held bytes stay under the limit");
    drop(second);

    // Reused memory counts as well.
    set_memory_limit(2 * MIB);
    assert!(Buffer::alloc(4 * MIB).is_err());
    set_memory_limit(usize::MAX);
    assert_eq!(memory_limit(), machine);

    // The cap on kept bytes: the oldest class goes, what is larger than the cap is not kept.
    trim();
    assert_eq!(pool_stats().kept_bytes, 0);
    set_pool_capacity(4 * MIB);
    let buffers = [1, 2, 3].map(|n| Buffer::alloc(n * MIB).unwrap());
    buffers.into_iter().for_each(drop);
    assert_eq!(pool_stats().kept_bytes, 3 * MIB, "1 and 2 made way for 3");
    drop(Buffer::alloc(5 * MIB).unwrap());
    assert_eq!(pool_stats().kept_bytes, 3 * MIB);
    set_pool_capacity(MIB);
    assert_eq!(pool_stats().kept_bytes, 0);

    let stats = pool_stats();
    assert_eq!((stats.live_bytes, stats.peak_bytes), (0, 6 * MIB));
    assert_eq!(peak_bytes(), 6 * MIB);
    assert_eq!((stats.reused, stats.fresh), (0, 6));
}
