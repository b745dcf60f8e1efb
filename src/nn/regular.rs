//! Regularisation.

use std::panic::Location;

use crate::method::method;
use crate::random::{self, Key};
use crate::tensor::Tensor;

/// In training sets each element to zero with probability `rate` and divides the others by `1 - rate`; otherwise
/// returns `x` as it is. A rate that is no probability is refused.
///
/// ```
/// use retape::{Tensor, nn, random::Key};
///
/// let x = Tensor::ones([1000]);
/// let kept = nn::dropout(&x, &Key::new(1), 0.5, true).to_vec::<f32>()?;
/// assert!(kept.iter().all(|&x| x == 0.0 || x == 2.0));
/// assert_eq!(nn::dropout(&x, &Key::new(1), 0.5, false).to_vec::<f32>()?, vec![1.0; 1000]);
/// # Ok::<(), retape::Error>(())
/// ```
#[track_caller]
pub fn dropout(x: &Tensor, key: &Key, rate: f64, train: bool) -> Tensor {
    let _method = method("dropout");
    if !(0.0..=1.0).contains(&rate) {
        return x.refused(format!("the rate {rate} is not between 0 and 1"), Location::caller());
    }
    if !train || rate == 0.0 {
        return x.clone();
    }
    if rate == 1.0 {
        return x.zeros_like();
    }
    x.unless_poisoned(|x| random::bernoulli(key, 1.0 - rate, x.shape()).select(x * (1.0 / (1.0 - rate)), 0.0))
}
