//! Batch normalisation of a batch that is divided into shards.
//!
//! Two ways: each shard by statistics of its own, which are combined afterwards for the running ones; or all by those of
//! the whole batch, so that any number of workers computes what one does.

use retape::Tensor;
use retape::nn::{BatchNorm, BatchNormState};

use crate::world::World;

impl World {
    /// Normalises the shards that this worker holds by the mean and the variance of all shards of all workers, each
    /// channel (the last axis) apart, and returns the new running statistics. With a copy of the layer for each shard, as
    /// [`value_and_grad`](World::value_and_grad) gives them. Statistics are summed twice: for the mean, then for the
    /// squares of what deviates from it. Needs all workers.
    ///
    /// # Panics
    ///
    /// If there is no shard, or not a layer for each.
    #[track_caller]
    pub fn batch_norm(
        &self,
        layers: &[&BatchNorm],
        shards: &[Tensor],
        state: &BatchNormState,
    ) -> (Vec<Tensor>, BatchNormState) {
        assert_eq!(layers.len(), shards.len(), "layers and shards");
        let by_channel = |x: &Tensor| x.sum(0..x.rank() - 1);
        let parts: Vec<Vec<Tensor>> = shards.iter().map(|x| vec![by_channel(x), by_channel(&x.ones_like())]).collect();
        let sums = self.sum_each(&parts);
        let means: Vec<Tensor> = sums.iter().map(|sums| &sums[0] / &sums[1]).collect();
        let centred: Vec<Tensor> = shards.iter().zip(&means).map(|(x, mean)| x - mean).collect();
        let squares: Vec<Tensor> = centred.iter().map(|x| by_channel(&x.square())).collect();
        let squares = self.sum_each(&squares);
        let variances: Vec<Tensor> = squares.iter().zip(&sums).map(|(squares, sums)| squares / &sums[1]).collect();
        let scaled = |((layer, x), variance): ((&&BatchNorm, &Tensor), &Tensor)| {
            x * (variance + layer.epsilon).rsqrt() * &layer.scale + &layer.offset
        };
        let results = layers.iter().zip(&centred).zip(&variances).map(scaled).collect();
        (results, state.updated(&means[0], &variances[0], layers[0].momentum))
    }

    /// The running statistics of the whole batch, layer by layer, from those of the shards that this worker holds, each
    /// of a number of rows: with f the share of a shard in all rows, the mean is the sum of f m, and the variance the sum
    /// of f (v + (m - mean)^2), the law of total variance. All layers travel together. Needs all workers.
    ///
    /// # Panics
    ///
    /// If there is no shard, or not a number of rows for each.
    #[track_caller]
    pub fn combined(&self, shards: &[Vec<BatchNormState>], n_rows: &[usize]) -> Vec<BatchNormState> {
        let means = |layers: &Vec<BatchNormState>| layers.iter().map(|state| state.mean.clone()).collect();
        let means = self.mean_shards(&shards.iter().map(means).collect::<Vec<Vec<Tensor>>>(), n_rows);
        let spread = |(state, mean): (&BatchNormState, &Tensor)| &state.variance + (&state.mean - mean).square();
        let spreads = |layers: &Vec<BatchNormState>| layers.iter().zip(&means).map(spread).collect();
        let variances = self.mean_shards(&shards.iter().map(spreads).collect::<Vec<Vec<Tensor>>>(), n_rows);
        means.into_iter().zip(variances).map(|(mean, variance)| BatchNormState { mean, variance }).collect()
    }
}
