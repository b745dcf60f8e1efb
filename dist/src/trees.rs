//! Trees of tensors over all workers: sums, means, copies, and gradients of a loss over the shards of a batch.
//!
//! All of these are ops: on traced tensors they become part of the graph, so that a whole step of training is one entry
//! of the cache; on concrete ones they happen at once. Tensors of one dtype travel as one message.

use retape::collective::{self, Group};
use retape::{DType, Tensor, Tree, map, tree, value_and_grad_aux, zip_map};

use crate::world::World;

impl World {
    /// The sum of the trees of all workers, on each of them. Its bits depend on the number of workers; those of
    /// [`sum_shards`](World::sum_shards) do not.
    ///
    /// Poisoned if the trees of workers do not fit each other, or the world is broken. Needs all workers.
    ///
    /// ```
    /// use retape::Tensor;
    /// use retape_dist::World;
    ///
    /// let sums = World::threads(3, |world| Ok(world.sum(&Tensor::from(world.rank() as f32)).item::<f32>()?))?;
    /// assert_eq!(sums, [3.0, 3.0, 3.0]);
    /// # Ok::<(), retape_dist::Error>(())
    /// ```
    #[track_caller]
    pub fn sum<T: Tree>(&self, tree: &T) -> T {
        like(tree, collective::sum(self.workers(), &[leaves(tree)]))
    }

    /// The mean of the trees of all workers, each counted as many times as it has rows. Poisoned where a tensor is not of
    /// floats, else as [`sum`](World::sum).
    #[track_caller]
    pub fn mean<T: Tree>(&self, tree: &T, n_rows: usize) -> T {
        weighted(self.workers(), std::slice::from_ref(tree), &[n_rows])
    }

    /// The sum over the shards of all workers: `shards` are the trees of those that this worker [holds](World::shards).
    /// Its bits depend on the number of shards, and not on that of the workers.
    ///
    /// Poisoned as [`sum`](World::sum), and if there are not as many trees as the worker holds shards.
    ///
    /// # Panics
    ///
    /// If there are no trees.
    ///
    /// ```
    /// use retape::Tensor;
    /// use retape_dist::World;
    ///
    /// for n_workers in [1, 2, 3] {
    ///     let sums = World::threads(n_workers, |world| {
    ///         let world = world.with_shards(3)?;
    ///         let shards: Vec<Tensor> = world.shards().map(|shard| Tensor::from(0.1_f32 * shard as f32)).collect();
    ///         Ok(world.sum_shards(&shards).item::<f32>()?.to_bits())
    ///     })?;
    ///     assert!(sums.iter().all(|bits| *bits == (0.1_f32 + 0.2_f32).to_bits()));
    /// }
    /// # Ok::<(), retape_dist::Error>(())
    /// ```
    #[track_caller]
    pub fn sum_shards<T: Tree>(&self, shards: &[T]) -> T {
        let parts: Vec<Vec<Tensor>> = shards.iter().map(leaves).collect();
        like(&shards[0], collective::sum(self.over_shards(), &parts))
    }

    /// The mean over the shards of all workers, each counted as many times as it has rows; divided once, at the end.
    /// Poisoned where a tensor is not of floats, else as [`sum_shards`](World::sum_shards).
    ///
    /// # Panics
    ///
    /// If there are no trees, or not as many numbers of rows.
    #[track_caller]
    pub fn mean_shards<T: Tree>(&self, shards: &[T], n_rows: &[usize]) -> T {
        weighted(self.over_shards(), shards, n_rows)
    }

    /// As [`sum_shards`](World::sum_shards), with a sum for each shard of this worker: for statistics in the middle of a
    /// network, whose gradients are then added over shards in the same order. See [`retape::collective::sum_each`].
    #[track_caller]
    pub fn sum_each<T: Tree>(&self, shards: &[T]) -> Vec<T> {
        let parts: Vec<Vec<Tensor>> = shards.iter().map(leaves).collect();
        let sums = collective::sum_each(self.over_shards(), &parts);
        shards.iter().zip(sums).map(|(tree, sums)| like(tree, sums)).collect()
    }

    /// The tree of worker 0, on each worker. Poisoned as [`sum`](World::sum). Needs all workers.
    #[track_caller]
    pub fn broadcast<T: Tree>(&self, tree: &T) -> T {
        like(tree, collective::broadcast(self.workers(), &leaves(tree)))
    }

    /// The trees of all workers, by rank, on each worker. Poisoned as [`sum`](World::sum). Needs all workers.
    #[track_caller]
    pub fn gather<T: Tree>(&self, tree: &T) -> Vec<T> {
        let rows = collective::gather(self.workers(), &leaves(tree));
        rows.into_iter().map(|row| like(tree, row)).collect()
    }

    /// The mean loss over all rows of a batch, its gradient, and the other results of the function.
    ///
    /// `losses` gets a copy of the parameters for each shard that this worker holds, so that gradients are added over
    /// shards in one order; it returns the mean loss over the rows of each shard. `n_rows` are the numbers of these rows.
    /// Inside an accelerated function all of it, the sum over the workers included, is part of its graph.
    ///
    /// # Errors
    ///
    /// As [`retape::value_and_grad`].
    ///
    /// # Panics
    ///
    /// If there are not as many losses or numbers of rows as shards.
    ///
    /// ```
    /// use retape::{Tensor, accelerate};
    /// use retape_dist::World;
    ///
    /// let slopes = World::threads(2, |world| {
    ///     let world = world.with_shards(4)?;
    ///     let x: Vec<Tensor> = world.shards().map(|shard| Tensor::from([shard as f32, 1.0])).collect();
    ///     let of = world.clone();
    ///     let step = accelerate(move |w: &Tensor, x: &Vec<Tensor>| {
    ///         let losses = |w: &Vec<Tensor>| (w.iter().zip(x).map(|(w, x)| (w * x).mean(..)).collect(), ());
    ///         let (loss, slope, ()) = of.value_and_grad(w, &vec![2; x.len()], losses).expect("well-typed");
    ///         (loss, slope)
    ///     });
    ///     let (loss, slope) = step.call(Tensor::from(2.0_f32), &x)?;
    ///     Ok((loss.item::<f32>()?, slope.item::<f32>()?))
    /// })?;
    /// assert_eq!(slopes, [(2.5, 1.25); 2]);
    /// # Ok::<(), retape_dist::Error>(())
    /// ```
    #[track_caller]
    pub fn value_and_grad<P: Tree, A: Tree>(
        &self,
        parameters: &P,
        n_rows: &[usize],
        losses: impl Fn(&Vec<P>) -> (Vec<Tensor>, A),
    ) -> retape::Result<(Tensor, P, A)> {
        let copies: Vec<P> = self.shards().map(|_| map(parameters, Tensor::clone)).collect();
        let total = |copies: &Vec<P>| {
            let (losses, aux) = losses(copies);
            assert_eq!((losses.len(), n_rows.len()), (copies.len(), copies.len()), "losses and rows of the shards");
            let weighed: Vec<Tensor> = losses.iter().zip(n_rows).map(|(loss, &rows)| loss * rows as f64).collect();
            let total = weighed.iter().cloned().reduce(|sum, loss| sum + loss).expect("each worker holds a shard");
            (total, (weighed, aux))
        };
        let ((_, (weighed, aux)), gradients) = value_and_grad_aux(total, &copies)?;
        let part = |((gradient, loss), &rows): ((&P, &Tensor), &usize)| {
            // A mean over no rows is NaN, and has no part.
            let counted = |x: &Tensor| if rows == 0 { x.zeros_like() } else { x.clone() };
            (map(gradient, |x| wide(&counted(x))), counted(loss), number_like(loss, rows))
        };
        let parts: Vec<(P, Tensor, Tensor)> = gradients.iter().zip(&weighed).zip(n_rows).map(part).collect();
        let (gradient, loss, rows) = self.sum_shards(&parts);
        let mean = |[sum, parameter]: [&Tensor; 2]| (sum / rows.cast(sum.dtype())).cast(parameter.dtype());
        Ok((loss / &rows, zip_map([&gradient, parameters], mean), aux))
    }

    /// One number for the bits of a tree, as 64 hexadecimal digits: equal for equal names, types and bits. A line of it
    /// per step is a certificate of a training.
    ///
    /// # Errors
    ///
    /// Fails if a tensor has no value.
    pub fn digest<T: Tree>(&self, tree: &T) -> retape::Result<String> {
        let mut hash = blake3::Hasher::new();
        for (name, tensor) in tree::named(tree) {
            hash.update(format!("{name} {}{:?}\n", tensor.dtype(), tensor.shape()).as_bytes());
            hash.update(&tensor.to_le_bytes()?);
        }
        Ok(hash.finalize().to_hex().to_string())
    }

    /// The group in which each worker is one shard.
    fn workers(&self) -> Group {
        Group { number: self.group(), size: self.size(), shards: self.size() }
    }

    fn over_shards(&self) -> Group {
        Group { shards: self.n_shards(), ..self.workers() }
    }
}

/// A constant of the dtype of a tensor.
fn number_like(tensor: &Tensor, number: usize) -> Tensor {
    tensor.zeros_like() + number as f64
}

#[track_caller]
fn weighted<T: Tree>(group: Group, shards: &[T], n_rows: &[usize]) -> T {
    assert_eq!(shards.len(), n_rows.len(), "numbers of rows of the shards");
    let own: Vec<Tensor> = leaves(&shards[0]);
    let has_mean = |leaf: &Tensor| leaf.error().is_some() || leaf.dtype().is_float() || leaf.dtype().is_half();
    if let Some(whole) = own.iter().find(|leaf| !has_mean(leaf)) {
        // The engine's own mean has the words for a dtype that has none.
        let refused = whole.mean(..);
        return map(&shards[0], |_| refused.clone());
    }
    let part = |(tree, &rows): (&T, &usize)| {
        let leaves: Vec<Tensor> = leaves(tree).iter().map(wide).collect();
        let weights: Vec<Tensor> = leaves.iter().map(|leaf| number_like(&leaf.sum(..), rows)).collect();
        // A worker of no rows has no part, whatever its values are.
        let weigh = |leaf: &Tensor| if rows == 0 { leaf.zeros_like() } else { leaf * rows as f64 };
        leaves.iter().map(weigh).chain(weights).collect::<Vec<_>>()
    };
    let parts: Vec<Vec<Tensor>> = shards.iter().zip(n_rows).map(part).collect();
    let sums = collective::sum(group, &parts);
    let (sums, weights) = sums.split_at(sums.len() / 2);
    let originals = leaves(&shards[0]);
    let means = sums.iter().zip(weights).zip(&originals);
    like(&shards[0], means.map(|((sum, weight), original)| (sum / weight).cast(original.dtype())).collect())
}

/// As 32 bits, if it has 16: a mean of them is rounded once, at the end.
fn wide(tensor: &Tensor) -> Tensor {
    match tensor.dtype() {
        DType::F16 | DType::Bf16 => tensor.cast(DType::F32),
        _ => tensor.clone(),
    }
}

fn leaves<T: Tree>(tree: &T) -> Vec<Tensor> {
    tree::named(tree).into_iter().map(|(_, tensor)| tensor.clone()).collect()
}

/// A tree of other tensors.
fn like<T: Tree>(tree: &T, tensors: Vec<Tensor>) -> T {
    let mut tensors = tensors.into_iter();
    map(tree, |_| tensors.next().expect("a collective has a result for each array"))
}
