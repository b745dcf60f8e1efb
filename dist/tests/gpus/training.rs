//! A step of training on GPUs: its bits do not depend on the way of the bytes, nor on the number of workers.

use retape::{DType, Tensor, accelerate};
use retape_dist::World;

use crate::device::{Place, stage};

const SHARDS: usize = 4;

fn values(seed: usize, shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    let value = |i: usize| ((seed * 7919 + i * 104_729) % 1009) as f64 / 1009.0 - 0.5;
    Tensor::from((0..n).map(value).collect::<Vec<f64>>()).reshape(shape).cast(DType::F32)
}

type Params = (Tensor, Tensor);

/// Digests after each of some steps, of all workers.
fn certificate(place: Place, size: usize) -> Vec<String> {
    let outcome = World::threads(size, |world| {
        let world = world.with_shards(SHARDS)?;
        let to = place.of(&world);
        let of = world.clone();
        let step = accelerate(move |params: &Params, shards: &Vec<(Tensor, Tensor)>| {
            let n_rows: Vec<usize> = shards.iter().map(|(x, _)| x.dim(0)).collect();
            let losses = |copies: &Vec<Params>| {
                let loss =
                    |((w, b), (x, y)): (&Params, &(Tensor, Tensor))| ((x.matmul(w) + b).tanh() - y).square().mean(..);
                (copies.iter().zip(shards).map(loss).collect(), ())
            };
            let (loss, (w, b), ()) = of.value_and_grad(params, &n_rows, losses).expect("well-typed");
            (loss, (&params.0 - w * 0.1_f32, &params.1 - b * 0.1_f32))
        });
        let mut params = (values(1, &[6, 3]).to(to), values(2, &[3]).to(to));
        let mut digests = vec![];
        for n in 0..3 {
            let rows = |shard: usize| retape::collective::share(13, shard, SHARDS).len();
            let shard = |shard: usize| {
                (values(9 * n + shard, &[rows(shard), 6]).to(to), values(7 * n + shard, &[rows(shard), 3]).to(to))
            };
            let shards: Vec<(Tensor, Tensor)> = world.shards().map(shard).collect();
            let (loss, next) = step.call(&params, &shards)?;
            digests.push(world.digest(&(loss, next.clone()))?);
            params = next;
        }
        assert_eq!((step.stats().hits, step.stats().misses), (2, 1));
        Ok(digests)
    });
    let of_workers = outcome.unwrap_or_else(|error| panic!("{size} workers, {place:?}: {error}"));
    assert!(of_workers.iter().all(|digests| *digests == of_workers[0]), "workers differ");
    of_workers[0].clone()
}

#[test]
fn a_training_has_the_same_bits_on_every_way_for_every_number_of_workers() {
    let stage = stage();
    let alone = certificate(Place::OwnGpu, 1);
    for size in 2..=SHARDS {
        let before = stage.nccl.counters();
        assert_eq!(certificate(Place::OwnGpu, size), alone, "{size} workers");
        let after = stage.nccl.counters();
        assert!(after.bytes > before.bytes);
        // All links have come to a good end.
        let ended = (after.destroyed - before.destroyed, after.aborted - before.aborted, after.alive);
        assert_eq!(ended, (size as u64, 0, 0));
        assert_eq!(certificate(Place::OneGpu, size), alone, "{size} workers through the host");
        assert_eq!(stage.nccl.counters(), after, "nothing went over NCCL");
    }
}
