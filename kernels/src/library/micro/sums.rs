//! Partial results, which are added up in order.

use smallvec::SmallVec;

use super::Real;

/// Sums of the elements from `at` on of partial results of `size` elements, in order.
#[inline(always)]
pub(super) fn add_up<T: Real>(to: &mut [T], partial: &[T], at: usize, size: usize) {
    /// Sums that registers hold until they are complete.
    const BLOCK: usize = 64;
    let parts: SmallVec<[&[T]; 16]> = partial.chunks_exact(size).map(|part| &part[at..at + to.len()]).collect();
    let [first, more @ ..] = &parts[..] else { return };
    for (block, to) in to.chunks_mut(BLOCK).enumerate() {
        let block = block * BLOCK..block * BLOCK + to.len();
        to.copy_from_slice(&first[block.clone()]);
        if let Ok(to) = <&mut [T; BLOCK]>::try_from(&mut *to) {
            let mut sums = *to;
            for part in more {
                sums.iter_mut().zip(&part[block.clone()]).for_each(|(sum, y)| *sum = *sum + *y);
            }
            *to = sums;
        } else {
            for part in more {
                to.iter_mut().zip(&part[block.clone()]).for_each(|(sum, y)| *sum = *sum + *y);
            }
        }
    }
}
