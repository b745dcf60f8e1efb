//! The numbers that batches follow from.

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use super::Loader;

/// The numbers that the batches of a [`Loader`] follow from, besides its examples.
///
/// A position in a training counts batches: in those of a loader with other numbers it is another place.
///
/// ```
/// use retape_train::data::{Loader, from_fn};
///
/// let loader = |batch_size| Loader::new(from_fn(9, |i| Ok(i as f32)), batch_size);
/// let (before, now) = (loader(4)?.shuffled(7).batching(), loader(3)?.shuffled(7).batching());
/// assert_eq!(before.differences(&now), ["the batch size was 4 and is 3"]);
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batching {
    /// The number of examples.
    pub examples: usize,
    /// The number of examples in a full batch.
    pub batch_size: usize,
    /// The seed of the order of each epoch; none if the examples come in order.
    pub shuffle_seed: Option<u64>,
    /// Whether the last examples of an epoch are left out if they do not fill a batch.
    pub discards_partial: bool,
}

impl Batching {
    /// Where another one differs, in words.
    pub fn differences(&self, now: &Batching) -> Vec<String> {
        let seed = |seed: Option<u64>| seed.map_or("none".to_owned(), |seed| seed.to_string());
        let partial = |is_discarded: bool| if is_discarded { "left out" } else { "kept" }.to_owned();
        let all = |of: &Batching| {
            [
                ("the number of examples", of.examples.to_string()),
                ("the batch size", of.batch_size.to_string()),
                ("the seed of the shuffling", seed(of.shuffle_seed)),
                ("a last batch that is not full", partial(of.discards_partial)),
            ]
        };
        let differing = all(self).into_iter().zip(all(now)).filter(|(before, now)| before != now);
        differing.map(|((name, before), (_, now))| format!("{name} was {before} and is {now}")).collect()
    }
}
