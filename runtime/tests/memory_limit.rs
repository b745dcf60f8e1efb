//! The memory limit, the pool's cap and its threads, which belong to the whole process: one test, alone in its
//! process, so that no other test holds a lock or a block.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use retape_runtime::{
    Buffer, ByteCount, Error, Refusal, Shortage, live_bytes, memory_limit, peak_bytes, pool_stats, reset_peak_bytes,
    set_memory_limit, set_pool_capacity, trim,
};

const MIB: usize = 1 << 20;

#[test]
fn limits_hold_and_threads_share() {
    limits_hold();
    freed_memory_crosses_threads();
    small_buffers_are_counted_exactly();
    freed_buffers_pay_for_none_beyond_a_new_limit();
    // Miri gives vectors addresses that are no multiple of 16, so that each is copied; and of its threads, which take
    // turns, those that spin take nearly all.
    if !cfg!(miri) {
        vectors_count_while_a_buffer_has_them();
        a_request_that_is_refused_stands_in_nobodys_way();
    }
}

/// Other threads are granted what there is room for, also in the moment in which one is refused what there is none for.
fn a_request_that_is_refused_stands_in_nobodys_way() {
    let n = 200_000;
    let is_over = AtomicBool::new(false);
    let granted = thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    assert!(Buffer::alloc(1 << 60).is_err());
                }
            });
        }
        // Too large for blocks that are paid for in advance, so that each asks.
        let granted = (0..n).filter(|_| Buffer::alloc(3 * MIB).is_ok()).count();
        is_over.store(true, Relaxed);
        granted
    });
    assert_eq!(granted, n);
    trim();
}

/// The memory of a vector is live while a buffer has it, is asked for like the rest, and is never kept.
fn vectors_count_while_a_buffer_has_them() {
    trim();
    set_pool_capacity(1 << 30);
    let bytes = || {
        let stats = pool_stats();
        (stats.live_bytes, stats.kept_bytes)
    };
    // Room beyond the elements is held, too.
    let mut values = vec![0_u8; MIB];
    values.truncate(MIB - 1000);
    let address = values.as_ptr().addr();
    reset_peak_bytes();
    let buffer = Buffer::from_vec(values).unwrap();
    assert_eq!((buffer.as_ptr().addr(), buffer.len(), bytes()), (address, MIB - 1000, (MIB, 0)));
    assert_eq!(peak_bytes(), MIB);
    let reused = pool_stats().reused;
    drop(buffer);
    assert_eq!(bytes(), (0, 0), "the pool does not keep it");

    // The frees of small ones would be deferred.
    drop(Buffer::from_vec(vec![1.0_f32; 2000]).unwrap());
    assert_eq!(bytes(), (0, 0));
    assert_eq!(pool_stats().reused, reused);

    // Kept memory makes way; live memory does not.
    set_memory_limit(2 * MIB);
    drop(Buffer::alloc(MIB + MIB / 2).unwrap());
    assert_eq!(bytes(), (0, MIB + MIB / 2));
    let first = Buffer::from_vec(vec![0_u8; MIB]).unwrap();
    assert_eq!(bytes(), (MIB, 0));
    let refused = Buffer::from_vec(vec![0_u8; MIB + 1]).unwrap_err().to_string();
    assert_eq!(refused, "cannot allocate: 1.0 MiB asked for, 1.0 MiB in use, limit 2.0 MiB");
    assert_eq!(bytes(), (MIB, 0));
    assert!(Buffer::alloc(MIB + 1).is_err());
    drop(first);
    set_memory_limit(usize::MAX);
    assert_eq!(bytes(), (0, 0));
}

/// Bytes that a thread freed under another limit, or while it was beyond the limit, are no way past the limit.
fn freed_buffers_pay_for_none_beyond_a_new_limit() {
    const SMALL: usize = 40 << 10;
    let held = Buffer::alloc(MIB).unwrap();
    drop(Buffer::alloc(SMALL).unwrap());
    set_memory_limit(live_bytes());
    assert_eq!(memory_limit(), MIB);
    assert!(matches!(
        Buffer::alloc(SMALL),
        Err(Error::Allocation(Shortage { bytes: SMALL, refusal: Refusal::Limit, .. }))
    ));
    assert_eq!(live_bytes(), MIB);

    set_memory_limit(usize::MAX);
    let small = Buffer::alloc(SMALL).unwrap();
    set_memory_limit(MIB / 2);
    drop(small);
    assert!(matches!(
        Buffer::alloc(SMALL),
        Err(Error::Allocation(Shortage { bytes: SMALL, refusal: Refusal::Limit, .. }))
    ));
    // Beneath the limit, freed buffers are to be had again.
    set_memory_limit(MIB + SMALL);
    for _ in 0..3 {
        drop(Buffer::alloc(SMALL).unwrap());
    }
    assert!(Buffer::alloc(SMALL + 1).is_err());
    drop(held);
    set_memory_limit(usize::MAX);
    assert_eq!(live_bytes(), 0);
}

/// Bytes that threads freed count neither as live nor against the limit, whoever asks.
fn small_buffers_are_counted_exactly() {
    trim();
    let held = Buffer::alloc(1 << 10).unwrap();
    let work = |len: usize| {
        let buffers: Vec<Buffer> = (0..50).map(|_| Buffer::alloc(len).unwrap()).collect();
        drop(buffers);
        let again: Vec<Buffer> = (0..20).map(|_| Buffer::alloc(len).unwrap()).collect();
        again.into_iter().skip(10).collect::<Vec<Buffer>>()
    };
    let theirs: Vec<Buffer> = thread::scope(|scope| {
        let threads: Vec<_> = [64, 1 << 10, 40 << 10, 64 << 10].map(|len| scope.spawn(move || work(len))).into();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let expected = (1 << 10) + 10 * (64 + (1 << 10) + (40 << 10) + (64 << 10));
    assert_eq!((live_bytes(), pool_stats().live_bytes), (expected, expected));
    assert!(peak_bytes() >= expected);
    // To the byte: all that they freed is to be had.
    set_memory_limit(expected + MIB);
    let rest = Buffer::alloc(MIB).unwrap();
    let refused = Buffer::alloc(1).unwrap_err().to_string();
    let in_use = expected + MIB;
    let text = ByteCount(in_use);
    assert_eq!(refused, format!("cannot allocate: 1 B asked for, {text} in use, limit {text}"));
    drop((rest, theirs, held));
    set_memory_limit(usize::MAX);
    assert_eq!(live_bytes(), 0);
    trim();
    assert_eq!(pool_stats().kept_bytes, 0);
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
    // Where the system does not say how much memory it has, that of the address space counts.
    let expected = if machine == isize::MAX as usize { Refusal::AddressSpace } else { Refusal::Size };
    let error = Buffer::alloc(machine + 1).unwrap_err();
    assert!(matches!(error, Error::Allocation(Shortage { refusal, .. }) if refusal == expected), "{error}");
    assert_eq!(live_bytes(), 0);

    // Live bytes count against it, kept ones make room.
    set_memory_limit(8 * MIB);
    let first = Buffer::alloc(6 * MIB).unwrap();
    let refused = Buffer::alloc(4 * MIB).unwrap_err();
    assert_eq!(refused.to_string(), "cannot allocate: 4.0 MiB asked for, 6.0 MiB in use, limit 8.0 MiB");
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
