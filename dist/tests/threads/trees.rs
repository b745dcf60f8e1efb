//! Trees over workers: bits for every number of workers, formulas in `f64`, a step of training as one entry.

use std::time::{Duration, Instant};

use retape::nn::{BatchNorm, BatchNormState};
use retape::ops::ConvOptions;
use retape::{DType, Tensor, Tree, accelerate, map, tree, zip_map};
use retape_dist::{Failure, World};

/// Numbers whose sum depends on the order of additions.
fn values(seed: usize, shape: &[usize], dtype: DType) -> Tensor {
    let n: usize = shape.iter().product();
    let value = |i: usize| ((seed * 7919 + i * 104_729) % 1009) as f64 / 1009.0 - 0.5;
    Tensor::from((0..n).map(value).collect::<Vec<f64>>()).reshape(shape).cast(dtype)
}

#[derive(Clone, Tree)]
struct Model {
    filter: Tensor,
    norm: BatchNorm,
    dense: Tensor,
}

impl Model {
    fn new() -> Model {
        let filter = values(1, &[3, 3, 1, 4], DType::F32);
        Model { filter, norm: BatchNorm::new(4), dense: values(2, &[4, 3], DType::F32) }
    }
}

/// The images and targets of a shard.
type Shard = (Tensor, Tensor);

/// A batch of 13 rows in shards of unequal size.
fn shard(step: usize, shard: usize, shards: usize) -> Shard {
    let n = retape::collective::share(13, shard, shards).len();
    (values(100 * step + shard, &[n, 6, 6, 1], DType::F32), values(7 * step + shard, &[n, 3], DType::F32))
}

type State = (Model, Model, BatchNormState);

/// One step of training with momentum, with statistics of the whole batch or of each shard.
fn step(world: &World, (model, velocity, norm): &State, shards: &[Shard], whole: bool) -> (Tensor, State) {
    let rows: Vec<usize> = shards.iter().map(|(x, _)| x.dim(0)).collect();
    let losses = |copies: &Vec<Model>| {
        let images = copies.iter().zip(shards);
        let hidden: Vec<Tensor> = images.map(|(model, (x, _))| x.conv2d(&model.filter, ConvOptions::same())).collect();
        let layers: Vec<&BatchNorm> = copies.iter().map(|model| &model.norm).collect();
        let (hidden, norm) = if whole {
            world.batch_norm(&layers, &hidden, norm)
        } else {
            let each = layers.iter().zip(&hidden).map(|(layer, x)| layer.apply(x, norm));
            let (hidden, norms): (Vec<Tensor>, Vec<BatchNormState>) = each.unzip();
            (hidden, world.combined(&norms.into_iter().map(|norm| vec![norm]).collect::<Vec<_>>(), &rows).remove(0))
        };
        let loss = |((x, (_, y)), model): ((&Tensor, &Shard), &Model)| {
            (x.relu().mean([1, 2]).matmul(&model.dense) - y).square().mean(..)
        };
        (hidden.iter().zip(shards).zip(copies).map(loss).collect(), norm)
    };
    let (loss, gradient, norm) = world.value_and_grad(model, &rows, losses).expect("well-typed");
    let velocity = zip_map([velocity, &gradient], |[v, g]| v * 0.9_f32 + g);
    let model = zip_map([model, &velocity], |[w, v]| w - v * 0.1_f32);
    (loss, (model, velocity, norm))
}

/// Digests of loss and state after each of 20 steps.
fn certificate(size: usize, shards: usize, whole: bool) -> Vec<String> {
    let of_workers = World::threads(size, |world| {
        let world = world.with_shards(shards)?;
        let model = Model::new();
        let mut state = (model.clone(), map(&model, Tensor::zeros_like), BatchNormState::new(4));
        let of = world.clone();
        let step = accelerate(move |state: &State, own: &Vec<Shard>| step(&of, state, own, whole));
        let mut digests = vec![];
        for n in 0..20 {
            let own: Vec<Shard> = world.shards().map(|number| shard(n, number, shards)).collect();
            let (loss, next) = step.call(&state, &own)?;
            digests.push(world.digest(&(loss, next.clone()))?);
            state = next;
        }
        assert_eq!((step.stats().hits, step.stats().misses), (19, 1));
        Ok(digests)
    })
    .unwrap();
    assert!(of_workers.iter().all(|digests| *digests == of_workers[0]), "{size} workers");
    of_workers.into_iter().next().unwrap()
}

#[test]
fn training_has_the_same_bits_for_every_number_of_workers() {
    for whole in [false, true] {
        let alone = certificate(1, 4, whole);
        assert!(alone.windows(2).all(|pair| pair[0] != pair[1]));
        for size in 2..=4 {
            assert_eq!(certificate(size, 4, whole), alone, "{size} workers, statistics of the whole batch: {whole}");
        }
    }
    // Not a power of two.
    assert_eq!(certificate(2, 5, true), certificate(1, 5, true));
}

#[test]
fn statistics_of_the_whole_batch_are_those_of_one_piece() {
    let all: Vec<Tensor> = (0..4).map(|n| values(n, &[3, 2, 2, 5], DType::F64)).collect();
    let layer =
        BatchNorm { scale: values(9, &[5], DType::F64), offset: values(8, &[5], DType::F64), ..BatchNorm::new(5) };
    let start = BatchNormState { mean: values(6, &[5], DType::F64), variance: values(5, &[5], DType::F64).abs() };
    let whole = retape::concat(&all.iter().collect::<Vec<_>>(), 0);
    let (wanted, wanted_state) = layer.apply(&whole, &start);
    let found = World::threads(2, |world| {
        let world = world.with_shards(4)?;
        let own = &all[world.shards()];
        Ok(world.batch_norm(&[&layer, &layer], own, &start))
    });
    let (parts, states): (Vec<Vec<Tensor>>, Vec<BatchNormState>) = found.unwrap().into_iter().unzip();
    let parts: Vec<Tensor> = parts.into_iter().flatten().collect();
    let found = retape::concat(&parts.iter().collect::<Vec<_>>(), 0);
    let gap = |a: &Tensor, b: &Tensor| (a - b).abs().max(..).item::<f64>().unwrap();
    assert!(gap(&found, &wanted) < 1e-12, "{}", gap(&found, &wanted));
    for state in &states {
        assert!(gap(&state.mean, &wanted_state.mean) < 1e-14);
        assert!(gap(&state.variance, &wanted_state.variance) < 1e-14);
    }
}

#[test]
fn combined_statistics_are_those_of_all_rows() {
    // Shards of 2, 5 and 1 rows: the law of total variance, against the rows in one piece.
    let rows: Vec<Tensor> = [2, 5, 1].iter().map(|&n| values(n, &[n, 3], DType::F64)).collect();
    let state = |x: &Tensor| {
        let mean = x.mean(0);
        BatchNormState { variance: (x - &mean).square().mean(0), mean }
    };
    let wanted = state(&retape::concat(&rows.iter().collect::<Vec<_>>(), 0));
    let found = World::threads(3, |world| {
        let own = &rows[world.rank()];
        Ok(world.combined(&[vec![state(own), state(&(own * 2.0))]], &[own.dim(0)]))
    });
    let doubled = BatchNormState { mean: &wanted.mean * 2.0, variance: &wanted.variance * 4.0 };
    for found in found.unwrap() {
        assert_eq!(found.len(), 2);
        for (found, wanted) in found.iter().zip([&wanted, &doubled]) {
            for (found, wanted) in [(&found.mean, &wanted.mean), (&found.variance, &wanted.variance)] {
                assert!((found - wanted).abs().max(..).item::<f64>().unwrap() < 4e-15);
            }
        }
    }
}

#[test]
fn means_count_rows_and_dtypes_stay() {
    let found = World::threads(3, |world| {
        let value = Tensor::from([world.rank() as f32 + 1.0]);
        let tree = (value.clone(), value.cast(DType::Bf16), value.cast(DType::F64));
        // A worker of weight 0 has no part, whatever it holds.
        let rows = [1, 0, 3][world.rank()];
        let nan = Tensor::from([f32::NAN]);
        let tree = if rows == 0 { map(&tree, |x| nan.cast(x.dtype())) } else { tree };
        let mean = world.mean(&tree, rows);
        assert_eq!(mean.1.dtype(), DType::Bf16);
        Ok([mean.0, mean.1.cast(DType::F32), mean.2.cast(DType::F32)].map(|x| x.to_vec::<f32>().unwrap()[0]))
    });
    assert_eq!(found.unwrap(), [[2.5, 2.5, 2.5]; 3]);
}

#[test]
fn trees_of_any_dtype_are_copied_and_gathered() {
    World::threads(3, |world| {
        let rank = world.rank();
        let tree = (Tensor::from([rank as i64, -1]), vec![Tensor::from(rank == 0), Tensor::from(rank as f32)]);
        let copied = world.broadcast(&tree);
        assert_eq!((copied.0.to_vec::<i64>()?, copied.1[0].item::<bool>()?), (vec![0, -1], true));
        let all = world.gather(&tree);
        let numbers: Vec<f32> = all.iter().map(|tree| tree.1[1].item().unwrap()).collect();
        assert_eq!(numbers, [0.0, 1.0, 2.0]);
        assert!(tree::same_bits(&all[rank], &tree)?);
        Ok(())
    })
    .unwrap();
}

#[test]
fn graphs_that_differ_are_shown() {
    let error = World::threads(2, |world| {
        let of = world.clone();
        let step = accelerate(move |x: &Tensor| {
            let x = if of.rank() == 1 { x.exp2() } else { x.exp() };
            of.sum(&x)
        });
        step.call(1.0_f32)?;
        Ok(())
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains("the graph of a function differs between workers: rank 0 | rank 1"), "{error}");
    assert!(error.contains("exp %0") && error.contains("exp2 %0"), "{error}");
}

#[test]
fn another_signature_on_one_worker_is_an_error_on_all() {
    let error = World::threads(2, |world| {
        let of = world.clone();
        let step = accelerate(move |x: &Tensor| of.sum(&x.sum(..)));
        step.call(Tensor::ones([2]))?;
        // One worker has another shape, and traces; the other one runs what it has.
        step.call(Tensor::ones([2 + world.rank()]))?;
        Ok(())
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains("rank 0 is at `sum of f32[1] over 2 shards in the function accelerated at "), "{error}");
    assert!(error.contains("rank 1 is at `agreement on the graph of a function`"), "{error}");
}

#[test]
fn functions_in_another_order_are_told_apart() {
    let error = World::threads(2, |world| {
        let (first, second) = (world.clone(), world.clone());
        let plain = accelerate(move |x: &Tensor| first.sum(x)).named("plain");
        let doubled = accelerate(move |x: &Tensor| second.sum(&(x * 2.0))).named("doubled");
        let x = Tensor::from([1.0_f32]);
        // Both are in the caches of both workers.
        assert_eq!((plain.call(&x)?.item::<f32>()?, doubled.call(&x)?.item::<f32>()?), (2.0, 4.0));
        if world.rank() == 0 {
            plain.call(&x)?
        } else {
            doubled.call(&x)?
        };
        Ok(())
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains("in `plain` (accelerated at") && error.contains("in `doubled` (accelerated at"), "{error}");
}

#[test]
fn other_static_arguments_are_told_apart() {
    for n_before in [0, 1] {
        let error = World::threads(2, |world| {
            let of = world.clone();
            let scaled = accelerate(move |x: &Tensor, by: &usize| of.sum(&(x * *by as f64)));
            let x = Tensor::from([1.0_f32]);
            for by in 1..=2 * n_before {
                scaled.call(&x, by)?;
            }
            scaled.call(&x, world.rank() + 1)?;
            Ok(())
        });
        let error = error.unwrap_err().to_string();
        assert!(error.contains("argument 1 = 1") && error.contains("argument 1 = 2"), "{error}");
    }
}

#[test]
fn eager_sums_of_other_shapes_are_told_apart() {
    let error = |trees: [Vec<Tensor>; 2]| {
        let sums = World::threads(2, |world| match world.sum(&trees[world.rank()])[0].error() {
            Some(error) => Err(error.clone().into()),
            None => Ok(()),
        });
        sums.unwrap_err().to_string()
    };
    let shapes = error([vec![Tensor::ones([2, 3])], vec![Tensor::ones([3, 2])]]);
    assert!(shapes.contains("with f32[2, 3]") && shapes.contains("with f32[3, 2]"), "{shapes}");
    let (float, int) = (Tensor::ones([1]), Tensor::ones([1]).cast(DType::I32));
    let order = error([vec![float.clone(), int.clone()], vec![int, float]]);
    assert!(order.contains("with f32[1], i32[1]") && order.contains("with i32[1], f32[1]"), "{order}");
}

#[test]
fn a_mean_of_integers_is_refused() {
    let errors = World::threads(2, |world| {
        let mean = world.mean(&Tensor::from([3_i32]), 1);
        Ok(mean.error().map(ToString::to_string))
    });
    for error in errors.unwrap() {
        assert!(error.is_some_and(|error| error.starts_with("mean") && error.contains("i32")));
    }
}

#[test]
fn a_sum_of_many_small_tensors_compiles_nothing_for_each() {
    const N: usize = 10_000;
    let start = Instant::now();
    let sums = World::threads(2, |world| {
        let tree: Vec<Tensor> = (0..N).map(|n| Tensor::from([n as f32, world.rank() as f32])).collect();
        // The second time is as slow where each tensor has code of its own, as not all of it is kept.
        drop(world.sum(&tree));
        world.sum(&tree).iter().map(|sum| Ok(sum.to_vec::<f32>()?)).collect::<Result<Vec<_>, Failure>>()
    });
    let wanted: Vec<[f32; 2]> = (0..N).map(|n| [2.0 * n as f32, 1.0]).collect();
    assert_eq!(sums.unwrap(), [wanted.clone(), wanted]);
    // Half a second; twenty if each tensor compiles a slice.
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
}
