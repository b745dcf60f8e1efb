//! Groups by number: several worlds at a time, and threads that belong to none.

use std::sync::Mutex;

use retape_dist::World;
use retape_kernels::library::communicator;

#[test]
fn a_thread_that_is_no_worker_is_told_so() {
    let errors = World::threads(2, |world| {
        let group = world.group();
        let other = std::thread::Builder::new().name("stranger".to_owned()).spawn(move || {
            let communicator = communicator(group).expect("the group of the world that runs");
            communicator.exchange("sum", &[&[], &[]], &mut [&mut [], &mut []]).unwrap_err()
        });
        let error = other?.join().map_err(|_| "the thread panicked")?;
        world.barrier()?;
        Ok((error, group))
    });
    for (error, group) in errors.unwrap() {
        assert_eq!(error, format!("the thread stranger is at `sum`, and is none of the 2 threads of group {group}"));
    }
}

#[test]
fn a_group_is_forgotten_at_the_end_of_its_world() {
    let groups = World::threads(2, |world| Ok(world.group())).unwrap();
    assert_eq!(groups[0], groups[1]);
    assert!(communicator(groups[0]).is_none());
    let failed = Mutex::new(0);
    let outcome = World::threads(2, |world| {
        *failed.lock().unwrap() = world.group();
        Err::<(), _>("on purpose".into())
    });
    assert!(outcome.is_err());
    assert!(communicator(*failed.lock().unwrap()).is_none());
}

#[test]
fn worlds_inside_of_workers_are_worlds_of_their_own() {
    let seen = World::threads(2, |outer| {
        let inner = World::threads(3, |inner| {
            inner.barrier()?;
            assert_ne!(inner.group(), outer.group());
            Ok(inner.gather_bytes(&[inner.rank() as u8])?.concat())
        })?;
        outer.barrier()?;
        Ok(inner)
    });
    assert_eq!(seen.unwrap(), vec![vec![vec![0, 1, 2]; 3]; 2]);
}

#[test]
fn worlds_side_by_side_do_not_meet() {
    std::thread::scope(|scope| {
        for size in [2, 3, 4, 5] {
            scope.spawn(move || {
                let seen = World::threads(size, |world| {
                    (0..200).try_for_each(|n| {
                        world.gather_bytes(&[n; 16]).map(|all| assert_eq!(all, vec![[n; 16]; size]))
                    })?;
                    Ok(world.group())
                });
                assert_eq!(seen.map(|groups| groups.len()), Ok(size));
            });
        }
    });
}
