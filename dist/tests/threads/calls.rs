//! The results of each call, in worlds of several sizes.

use retape_dist::{Error, World};
use retape_kernels::library::communicator;

const SIZES: [usize; 5] = [1, 2, 3, 4, 8];

/// Bytes that no two workers share, of any length.
fn bytes(rank: usize, len: usize) -> Vec<u8> {
    (0..len).map(|n| (n.wrapping_mul(31) ^ (n >> 8) ^ rank.wrapping_mul(97)) as u8).collect()
}

#[test]
fn workers_are_numbered() {
    for size in SIZES {
        let seen = World::threads(size, |world| Ok((world.rank(), world.size(), world.local_rank()))).unwrap();
        assert_eq!(seen, (0..size).map(|rank| (rank, size, rank)).collect::<Vec<_>>());
    }
}

#[test]
fn all_bytes_reach_all_workers() {
    // Lengths around that of a head, and one that needs many pages.
    for (size, scale) in SIZES.into_iter().zip([4000, 3900, 1300, 977, 300_000]) {
        let all: Vec<Vec<u8>> = (0..size).map(|rank| bytes(rank, rank * scale)).collect();
        let seen = World::threads(size, |world| Ok(world.gather_bytes(&bytes(world.rank(), world.rank() * scale))?));
        assert_eq!(seen.unwrap(), vec![all; size], "{size} workers");
    }
}

#[test]
fn a_broadcast_replaces_what_the_others_hold() {
    for size in SIZES {
        for len in [0, 1, 3935, 3936, 3937, 65_536, 65_537, 1_000_003] {
            let seen = World::threads(size, |world| {
                let mut held = bytes(world.rank(), len + world.rank() * 5);
                held.truncate(if world.rank() == 0 { len } else { held.len() });
                world.broadcast_bytes(&mut held)?;
                Ok(held)
            });
            assert!(seen.unwrap().iter().all(|held| *held == bytes(0, len)), "{size} workers, {len} bytes");
        }
    }
}

#[test]
fn any_is_true_if_one_says_so() {
    for size in SIZES {
        let seen = World::threads(size, |world| {
            let nobody = world.any(false)?;
            let each: Result<Vec<bool>, Error> = (0..size).map(|rank| world.any(world.rank() == rank)).collect();
            Ok((nobody, each?))
        });
        assert_eq!(seen.unwrap(), vec![(false, vec![true; size]); size]);
    }
}

#[test]
fn nobody_passes_a_barrier_before_all_have_come() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    for size in SIZES {
        let n_arrived = AtomicUsize::new(0);
        let seen = World::threads(size, |world| {
            let mut counts = vec![];
            for round in 1..=50 {
                n_arrived.fetch_add(1, Ordering::SeqCst);
                world.barrier()?;
                counts.push(n_arrived.load(Ordering::SeqCst) >= round * size);
                world.barrier()?;
            }
            Ok(counts)
        });
        assert_eq!(seen.unwrap(), vec![vec![true; 50]; size]);
    }
}

#[test]
fn an_exchange_carries_a_part_of_its_own_to_each_worker() {
    let part = |from: usize, to: usize| bytes(from * 8 + to, (from + 2 * to) * 1500);
    for size in SIZES {
        let seen = World::threads(size, |world| {
            let rank = world.rank();
            let sends: Vec<Vec<u8>> = (0..size).map(|to| part(rank, to)).collect();
            let mut receives: Vec<Vec<u8>> = (0..size).map(|from| vec![0; part(from, rank).len()]).collect();
            let group = communicator(world.group()).ok_or("the group is not known")?;
            assert_eq!((group.rank(), group.size()), (rank, size));
            let sends: Vec<&[u8]> = sends.iter().map(Vec::as_slice).collect();
            let mut slices: Vec<&mut [u8]> = receives.iter_mut().map(Vec::as_mut_slice).collect();
            group.exchange("parts", &sends, &mut slices)?;
            Ok(receives)
        });
        for (rank, receives) in seen.unwrap().iter().enumerate() {
            for (from, bytes) in receives.iter().enumerate() {
                let wanted = part(from, rank);
                // A worker's own part is left alone.
                let wanted = if from == rank { vec![0; wanted.len()] } else { wanted };
                assert!(*bytes == wanted, "from {from} to {rank} of {size}");
            }
        }
    }
}

#[test]
fn shards_are_shared_out_once_each() {
    for size in SIZES {
        let seen = World::threads(size, |world| {
            assert_eq!((world.n_shards(), world.shards()), (size, world.rank()..world.rank() + 1));
            let refused = world.with_shards(size - 1).unwrap_err().to_string();
            assert!(refused.contains(&format!("{} shards for {size} workers", size - 1)), "{refused}");
            Ok(world.with_shards(11)?.shards().collect::<Vec<_>>())
        });
        assert_eq!(seen.unwrap().concat(), (0..11).collect::<Vec<_>>());
    }
}

#[test]
fn equal_digests_agree_and_make_no_text() {
    for size in SIZES {
        let done = World::threads(size, |world| Ok(world.agree("the graph", b"digest", &|| unreachable!())?));
        assert_eq!(done, Ok(vec![(); size]));
    }
}

#[test]
fn a_world_of_no_threads_is_refused() {
    assert!(matches!(World::threads(0, |_| Ok(())), Err(Error::Argument(_))));
}
