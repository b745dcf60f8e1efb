//! Collectives: the order of additions, derivatives, the cache, and errors; workers are threads of this process.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use retape::collective::{Communicator, Group, broadcast, gather, set_communicator, share, sum, sum_each};
use retape::{DType, Tensor, accelerate, tree, value_and_grad};

thread_local! {
    static RANK: Cell<usize> = const { Cell::new(0) };
}

/// Bytes on their way, by sender, receiver and how many went that way before.
type Mail = HashMap<(usize, usize, usize), Vec<u8>>;

struct Threads {
    size: usize,
    mail: Mutex<Mail>,
    came: Condvar,
    n_exchanges: Vec<AtomicUsize>,
    /// The kinds of the exchanges of worker 0.
    kinds: Mutex<Vec<String>>,
}

impl Threads {
    /// Sends a message to each of the others and takes theirs.
    fn round(&self, messages: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, String> {
        let rank = RANK.get();
        let round = self.n_exchanges[rank].fetch_add(1, Ordering::Relaxed);
        let mut mail = self.mail.lock().unwrap();
        for (to, message) in messages.iter().enumerate().filter(|(to, _)| *to != rank) {
            mail.insert((rank, to, round), message.clone());
        }
        self.came.notify_all();
        let mut received = vec![];
        for from in 0..self.size {
            let key = (from, rank, round);
            let wait = |mail: &mut Mail| from != rank && !mail.contains_key(&key);
            let (mut locked, time) = self.came.wait_timeout_while(mail, Duration::from_secs(20), wait).unwrap();
            if time.timed_out() {
                return Err(format!("worker {from} is missing"));
            }
            received.push(locked.remove(&key).unwrap_or_default());
            mail = locked;
        }
        Ok(received)
    }
}

impl Communicator for Threads {
    fn rank(&self) -> usize {
        RANK.get()
    }

    fn size(&self) -> usize {
        self.size
    }

    fn exchange(&self, call: &str, sends: &[&[u8]], receives: &mut [&mut [u8]]) -> Result<(), String> {
        if self.rank() == 0 {
            self.kinds.lock().unwrap().push(call.split(' ').next().unwrap().to_owned());
        }
        let frame = |bytes: &&[u8]| [call.as_bytes(), b"\0", bytes].concat();
        let received = self.round(&sends.iter().map(frame).collect::<Vec<_>>())?;
        for (from, (message, place)) in
            received.iter().zip(receives).enumerate().filter(|(from, _)| *from != self.rank())
        {
            let (theirs, bytes) = message.split_at(message.iter().position(|&byte| byte == 0).unwrap());
            if theirs != call.as_bytes() || bytes.len() != place.len() + 1 {
                return Err(format!("{call} here, {} at worker {from}", String::from_utf8_lossy(theirs)));
            }
            place.copy_from_slice(&bytes[1..]);
        }
        Ok(())
    }

    fn agree(&self, class: &str, text: &str) -> Result<(), String> {
        let own = [class, "\0", text].concat().into_bytes();
        let received = self.round(&vec![own.clone(); self.size])?;
        let is_other = |theirs: &[u8]| theirs.starts_with(&own[..=class.len()]) && theirs != own;
        let other = received.iter().enumerate().find(|(from, theirs)| *from != self.rank() && is_other(theirs));
        other.map_or(Ok(()), |(from, _)| Err(format!("worker {from} traced another graph")))
    }
}

/// Runs the work of each worker of a new group, and returns what each returns.
fn workers<T: Send>(size: usize, shards: usize, work: impl Fn(Group, usize) -> T + Sync) -> Vec<T> {
    recorded(size, shards, work).0
}

/// As [`workers`], with the kinds of the exchanges of worker 0.
fn recorded<T: Send>(size: usize, shards: usize, work: impl Fn(Group, usize) -> T + Sync) -> (Vec<T>, Vec<String>) {
    static NUMBER: AtomicUsize = AtomicUsize::new(1000);
    let group = Group { number: NUMBER.fetch_add(1, Ordering::Relaxed), size, shards };
    let n_exchanges = (0..size).map(|_| AtomicUsize::new(0)).collect();
    let kinds = Mutex::default();
    let threads = Arc::new(Threads { size, mail: Mutex::default(), came: Condvar::new(), n_exchanges, kinds });
    set_communicator(group.number, Some(threads.clone()));
    let done = std::thread::scope(|scope| {
        let start = |rank| {
            let work = &work;
            scope.spawn(move || {
                RANK.set(rank);
                work(group, rank)
            })
        };
        let threads: Vec<_> = (0..size).map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    set_communicator(group.number, None);
    let kinds = threads.kinds.lock().unwrap().clone();
    (done, kinds)
}

/// Numbers whose sum depends on the order of additions.
fn values(shard: usize, n: usize, dtype: DType) -> Tensor {
    let value = |i: usize| ((shard * 7919 + i * 104_729) % 1009) as f64 * 10_f64.powi((i + shard) as i32 % 9 - 4) - 3.0;
    Tensor::from((0..n).map(value).collect::<Vec<f64>>()).cast(dtype)
}

fn same_bits(a: &Vec<Tensor>, b: &Vec<Tensor>) -> bool {
    tree::same_bits(a, b).unwrap()
}

/// The sum along the tree, written with ops.
fn tree_sum(shards: &[Tensor]) -> Tensor {
    match shards {
        [one] => one.clone(),
        _ => {
            let (left, right) = shards.split_at(shards.len().next_power_of_two() / 2);
            let (left, right) = (tree_sum(left), tree_sum(right));
            match left.dtype() {
                // Each addition rounds once.
                half @ (DType::F16 | DType::Bf16) => (left.cast(DType::F32) + right.cast(DType::F32)).cast(half),
                _ => left + right,
            }
        }
    }
}

#[test]
fn sums_have_the_same_bits_for_every_number_of_workers() {
    for dtype in [DType::F32, DType::F64, DType::Bf16, DType::F16, DType::I32, DType::U8, DType::I64] {
        for shards in [1, 2, 3, 4, 5, 7] {
            // The longer array travels in two rounds.
            let arrays = |shard| vec![values(shard, 5, dtype), values(shard, 40_001, dtype).reshape([40_001, 1])];
            let all: Vec<Vec<Tensor>> = (0..shards).map(arrays).collect();
            let wanted: Vec<Tensor> =
                [0, 1].map(|n| tree_sum(&all.iter().map(|arrays| arrays[n].clone()).collect::<Vec<_>>())).to_vec();
            for size in 1..=shards.min(4) {
                let sums = workers(size, shards, |group, rank| {
                    let held = share(shards, rank, size);
                    // As a part of a graph, and at once.
                    let own: Vec<Vec<Tensor>> = all[held].to_vec();
                    let step = accelerate(move |own: &Vec<Vec<Tensor>>| sum(group, own));
                    [step.call(&own).unwrap(), sum(group, &own)]
                });
                for sums in sums.iter().flatten() {
                    assert!(same_bits(sums, &wanted), "{dtype}, {shards} shards, {size} workers");
                }
            }
        }
    }
}

#[test]
fn sums_of_several_buckets_have_the_same_bits() {
    // Three workers have 3 MiB in a bucket; arrays begin and end inside of one, and the last bucket is shorter than one
    // element for each.
    for (shards, kind) in [(3, DType::F32), (5, DType::F64)] {
        let n = 3 * (3 << 20) / kind.size() + 2;
        let arrays =
            |shard| vec![values(shard, n / 3, kind), values(shard + 1, 0, kind), values(shard, n - n / 3, kind)];
        let all: Vec<Vec<Tensor>> = (0..shards).map(arrays).collect();
        let sum_of = |n: usize| tree_sum(&all.iter().map(|arrays: &Vec<Tensor>| arrays[n].clone()).collect::<Vec<_>>());
        let wanted: Vec<Tensor> = (0..3).map(sum_of).collect();
        for size in 1..=3 {
            let sums = workers(size, shards, |group, rank| {
                let own = &all[share(shards, rank, size)];
                // In a row of several arrays, and as one that lies in memory as it is.
                let long: Vec<Vec<Tensor>> = own.iter().map(|arrays| vec![arrays[2].clone()]).collect();
                let [long] = sum(group, &long).try_into().unwrap();
                (sum(group, own), sum_each(group, own).swap_remove(0), long)
            });
            for (sums, sums_each, long) in sums {
                let of = format!("{kind}, {shards} shards, {size} workers");
                assert!(same_bits(&sums, &wanted) && same_bits(&sums_each, &wanted), "{of}");
                assert!(same_bits(&vec![long], &wanted[2..].to_vec()), "{of}");
            }
        }
    }
}

/// A network over shards with a statistic of the whole batch in the middle: losses of this worker's shards.
fn losses(group: Group, weights: &[Tensor], inputs: &[Tensor]) -> Vec<Tensor> {
    let hidden: Vec<Tensor> = weights.iter().zip(inputs).map(|(w, x)| x.matmul(w).tanh()).collect();
    let n = (group.shards * inputs[0].dim(0)) as f32;
    let own: Vec<Vec<Tensor>> = hidden.iter().map(|h| vec![h.sum(0), h.square().sum(0)]).collect();
    let sums = sum_each(group, &own);
    let scaled = |(h, sums): (&Tensor, &Vec<Tensor>)| {
        let mean = &sums[0] / n;
        let variance = &sums[1] / n - mean.square();
        ((h - mean) / (variance + 1e-3_f32).sqrt()).exp().sum(..)
    };
    hidden.iter().zip(&sums).map(scaled).collect()
}

#[test]
fn statistics_of_the_whole_batch_have_gradients_with_the_same_bits() {
    const SHARDS: usize = 4;
    let w = values(1, 12, DType::F32).reshape([3, 4]) * 1e-4_f32;
    let x = |shard| values(shard, 15, DType::F32).reshape([5, 3]) * 1e-4_f32;
    let step = |size| {
        let w = &w;
        let done = workers(size, SHARDS, |group, rank| {
            let inputs: Vec<Tensor> = share(SHARDS, rank, size).map(x).collect();
            let step = accelerate(move |w: &Tensor, inputs: &Vec<Tensor>| {
                let copies = vec![w.clone(); inputs.len()];
                let own =
                    |copies: &Vec<Tensor>| losses(group, copies, inputs).into_iter().reduce(|a, b| a + b).unwrap();
                let (_, gradients) = value_and_grad(own, &copies).unwrap();
                let losses = losses(group, &copies, inputs);
                let parts: Vec<Vec<Tensor>> =
                    gradients.into_iter().zip(losses).map(|(g, loss)| vec![g, loss]).collect();
                sum(group, &parts)
            });
            let found = step.call(w, &inputs).unwrap();
            assert!(same_bits(&step.call(w, &inputs).unwrap(), &found));
            assert_eq!((step.stats().hits, step.stats().misses), (1, 1));
            found
        });
        assert!(done.iter().all(|found| same_bits(found, &done[0])), "{size} workers");
        done.into_iter().next().unwrap()
    };
    let alone = step(1);
    for size in 2..=SHARDS {
        assert!(same_bits(&step(size), &alone), "{size} workers");
    }

    // The same batch in one piece, where the statistic is a mean of ops that know of no workers.
    let all: Vec<Tensor> = (0..SHARDS).map(x).collect();
    let all = retape::concat(&all.iter().collect::<Vec<_>>(), 0);
    let whole = |w: &Tensor| {
        let h = all.cast(DType::F64).matmul(w).tanh();
        let mean = h.mean(0);
        let variance = h.square().mean(0) - mean.square();
        ((h - mean) / (variance + 1e-3_f64).sqrt()).exp().sum(..)
    };
    let (loss, gradient) = value_and_grad(whole, &w.cast(DType::F64)).unwrap();
    let gap = |a: &Tensor, b: &Tensor| {
        let scale = b.abs().max(..).item::<f64>().unwrap();
        (a.cast(DType::F64) - b).abs().max(..).item::<f64>().unwrap() / scale
    };
    assert!(gap(&alone[0], &gradient) < 1e-3, "{}", gap(&alone[0], &gradient));
    assert!(gap(&alone[1], &loss) < 1e-5);
}

#[test]
fn the_gradient_of_a_sum_is_the_sum_of_all_workers() {
    let done = workers(2, 2, |group, rank| {
        let x = Tensor::from([1.0_f32 + rank as f32, 2.0]);
        let loss = |x: &Tensor| {
            let total = sum(group, &[vec![x.square()]]).remove(0);
            (total * (rank as f32 + 1.0)).sum(..)
        };
        let (loss, gradient) = value_and_grad(loss, &x).unwrap();
        (loss.item::<f32>().unwrap(), gradient.to_vec::<f32>().unwrap())
    });
    // Losses of 1 and 2 times (1 + 4 + 4 + 4); their sum is 3 (x0^2 + ..), so gradients are 6 x.
    assert_eq!(done, [(13.0, vec![6.0, 12.0]), (26.0, vec![12.0, 12.0])]);
}

#[test]
fn copies_have_gradients_of_all_workers() {
    let done = workers(3, 3, |group, rank| {
        let x = Tensor::from([1.0_f32 + rank as f32, 2.0]);
        let weight = rank as f32 + 1.0;
        // Each worker counts the arrays of worker n by a weight of its own times n + 1.
        let gathered = |x: &Tensor| {
            let rows = gather(group, &[x.square(), x.clone()]);
            let term = |(n, row): (usize, &Vec<Tensor>)| (&row[0] + &row[1]).sum(..) * (weight * (n + 1) as f32);
            rows.iter().enumerate().map(term).reduce(|a, b| a + b).unwrap()
        };
        let copied = |x: &Tensor| (broadcast(group, &[x.square()]).remove(0) * weight).sum(..);
        let gradient = |f: &dyn Fn(&Tensor) -> Tensor| value_and_grad(f, &x).unwrap().1.to_vec::<f32>().unwrap();
        [gradient(&gathered), gradient(&copied)]
    });
    // The weights of all workers add up to 6, and the derivative of x^2 + x is 2 x + 1.
    assert_eq!(done[0], [vec![18.0, 30.0], vec![12.0, 24.0]]);
    assert_eq!(done[1], [vec![60.0, 60.0], vec![0.0, 0.0]]);
    assert_eq!(done[2], [vec![126.0, 90.0], vec![0.0, 0.0]]);
}

#[test]
fn collectives_happen_in_order_on_every_call_and_unused_too() {
    let (done, kinds) = recorded(3, 3, |group, rank| {
        let x = Tensor::from([rank as f32, 10.0]);
        let step = accelerate(move |x: &Tensor| {
            // The order of these is that of the program, not of their uses.
            let all = gather(group, std::slice::from_ref(x));
            let _unused = sum(group, &[vec![x.exp()]]);
            let first = broadcast(group, &[x * 2.0_f32, x.lt(5.0_f32)]);
            let last = sum(group, &[vec![x.clone()]]).remove(0);
            (last, first, all)
        });
        let calls: Vec<_> = (0..3).map(|_| step.call(&x).unwrap()).collect();
        let (last, first, all) = &calls[2];
        assert_eq!(last.to_vec::<f32>().unwrap(), [3.0, 30.0]);
        assert_eq!(first[0].to_vec::<f32>().unwrap(), [0.0, 20.0]);
        assert_eq!(first[1].to_vec::<bool>().unwrap(), [true, false]);
        let all: Vec<f32> = all.iter().flatten().flat_map(|x| x.to_vec::<f32>().unwrap()).collect();
        assert_eq!(all, [0.0, 10.0, 1.0, 10.0, 2.0, 10.0]);
    });
    assert_eq!(done.len(), 3);
    // Truth values and floats are copied apart.
    assert_eq!(kinds, ["gather", "sum", "broadcast", "broadcast", "sum"].repeat(3));
}

#[test]
fn constants_beside_traced_arrays_are_sent_on_every_call() {
    let (done, kinds) = recorded(2, 2, |group, rank| {
        let step = accelerate(move |x: &Tensor| sum(group, &[vec![x.clone(), Tensor::from(5_i64)]]));
        let calls: Vec<Vec<Tensor>> = (0..2).map(|_| step.call(rank as f32).unwrap()).collect();
        (calls[1][0].item::<f32>().unwrap(), calls[1][1].item::<i64>().unwrap())
    });
    assert_eq!((done, kinds), (vec![(1.0, 10); 2], vec!["sum".to_owned(); 4]));
}

#[test]
fn a_step_for_one_worker_is_refused_by_several() {
    let done = workers(2, 2, |group, _| {
        let alone = Group { size: 1, shards: 1, ..group };
        sum(alone, &[vec![Tensor::from(1.0_f32)]])[0].error().unwrap().to_string()
    });
    assert!(done.iter().all(|error| error.ends_with("has 2 workers, the step is for 1")), "{done:?}");
}

#[test]
fn traces_that_differ_are_an_error_on_every_worker() {
    let done = workers(2, 2, |group, rank| {
        let step = accelerate(move |x: &Tensor| {
            let x = if rank == 0 { x.exp() } else { x.exp2() };
            sum(group, &[vec![x]]).remove(0)
        });
        step.call(1.0_f32).unwrap_err().to_string()
    });
    assert_eq!(done[0], "communication: worker 1 traced another graph");
    assert_eq!(done[1], "communication: worker 0 traced another graph");
}

#[test]
fn what_does_not_fit_is_refused() {
    let message = |tensors: Vec<Tensor>| tensors[0].error().unwrap().to_string();
    let x = || Tensor::from([1.0_f32, 2.0]);
    let group = Group { number: 999_999, size: 1, shards: 2 };
    let unlike = message(sum(group, &[vec![x()], vec![Tensor::from(1.0_f32)]]));
    assert!(unlike.contains("array 0 is f32[] for shard 1 of this worker, and f32[2] for shard 0"), "{unlike}");
    assert!(unlike.contains("collective.rs"), "{unlike}");
    let fewer = message(sum(group, &[vec![x()], vec![]]));
    assert!(fewer.contains("0 arrays for shard 1, 1 for shard 0"), "{fewer}");
    let logical = message(sum(group, &[vec![x().lt(1.0_f32)], vec![x().lt(1.0_f32)]]));
    assert!(logical.contains("bool is not added up"), "{logical}");
    let fewer = message(sum(group, &[vec![x()]]));
    assert!(fewer.contains("1 of 2 shards in a group of one"), "{fewer}");
    let short = message(sum(Group { size: 3, ..group }, &[vec![x()]]));
    assert!(short.contains("2 shards for 3 workers"), "{short}");
    let unknown = Group { size: 2, ..group };
    let unknown = accelerate(move |x: &Tensor| sum(unknown, &[vec![x.clone()]]).remove(0)).call(x()).unwrap_err();
    assert_eq!(unknown.to_string(), "communication: group 999999 of 2 workers is not known in this process");
    let poisoned = message(sum(group, &[vec![x() + Tensor::zeros([3])], vec![x()]]));
    assert!(poisoned.starts_with("add:"), "{poisoned}");
}

#[test]
fn a_trap_names_what_one_worker_can_compute_alone_and_says_so_beyond() {
    let done = workers(2, 2, |group, _| {
        let refused = |f: fn(Group, &Tensor) -> Tensor| {
            let step = accelerate(move |x: &Tensor| f(group, x));
            step.configure(|options| options.trap_nonfinite = true);
            step.call(-1.0_f32).unwrap_err().to_string()
        };
        let before = refused(|group, x| sum(group, &[vec![x.log()]]).remove(0));
        [before, refused(|group, x| (sum(group, &[vec![x.clone()]]).remove(0) - 4.0_f32).sqrt())]
    });
    for [before, behind] in done {
        assert!(before.contains("`log` makes NaN"), "{before}");
        assert!(behind.contains("of several workers, or what is computed from it"), "{behind}");
    }
}
