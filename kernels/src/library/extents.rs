//! How many elements descriptors speak of: counts that never wrap, and the bound that verified descriptors keep.

use std::fmt::Display;

use crate::ensure::ensure;

/// The result of the check of a descriptor.
pub(crate) type Checked = Result<(), String>;

/// The product of extents; `usize::MAX` if it does not fit, which it always does in a verified descriptor.
pub(crate) fn count(extents: &[usize]) -> usize {
    if extents.contains(&0) {
        return 0;
    }
    extents.iter().fold(1, |n, &extent| n.saturating_mul(extent))
}

/// Refuses extents whose product, zeros left out, times 16 bytes cannot be addressed.
///
/// With the zeros left out, every partial product of the extents fits as well; and so does a small multiple of it.
/// `what` is printed for a refusal only, since every call of a kernel checks its descriptor.
pub(crate) fn countable(what: impl Display, extents: &[usize]) -> Checked {
    let product = extents.iter().filter(|&&extent| extent > 0).try_fold(16_usize, |n, &extent| n.checked_mul(extent));
    let fits = product.is_some_and(|bytes| isize::try_from(bytes).is_ok());
    ensure!(fits, "{what} of extents {extents:?} has more elements than can be addressed");
    Ok(())
}

/// A stride or an offset of a verified descriptor. One that cannot be counted reaches no element, for there is one
/// position along its axis or none, and is 0.
pub(crate) fn reached(step: usize) -> i64 {
    let most = isize::MAX as usize / 16;
    i64::try_from(step).ok().filter(|_| step <= most).unwrap_or(0)
}

/// Steps and padded images of more positions than this are refused: the sum of two must fit.
const FAR: usize = isize::MAX as usize / 2;

/// Refuses a position that a sum of two like it would leave the integers with.
pub(crate) fn near(what: &str, position: Option<usize>) -> Checked {
    match position {
        Some(position) if position <= FAR => Ok(()),
        Some(position) => Err(format!("{what} is {position}, but {FAR} at most can be counted")),
        None => Err(format!("{what} is more than can be counted")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_stop_at_the_largest_number() {
        assert_eq!(count(&[]), 1);
        assert_eq!(count(&[3, 4, 5]), 60);
        assert_eq!(count(&[usize::MAX, 2]), usize::MAX);
        assert_eq!(count(&[usize::MAX, 2, 0]), 0);
    }

    #[test]
    fn what_cannot_be_counted_is_refused_with_its_numbers() {
        assert_eq!(countable("it", &[1 << 30, 1 << 20]), Ok(()));
        assert_eq!(countable("it", &[0, 1 << 30]), Ok(()));
        for extents in [[1 << 30, 1 << 30, 1], [0, 1 << 40, 1 << 40], [usize::MAX, 1, 1]] {
            let refused = countable("it", &extents).unwrap_err();
            assert!(refused.contains(&format!("{extents:?}")), "{refused}");
        }
        assert_eq!(near("it", Some(FAR)), Ok(()));
        assert!(near("it", Some(FAR + 1)).is_err_and(|refused| refused.contains(&(FAR + 1).to_string())));
        assert!(near("it", None).is_err());
    }
}
