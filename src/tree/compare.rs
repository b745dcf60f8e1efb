//! Equality of trees, bit by bit.

use std::panic::Location;

use retape_runtime::Device;

use super::{Tree, Writer, map};
use crate::error::Result;

/// Whether two trees have the same structure, equal static values, and tensors of the same types with equal bits: those
/// of NaN count, and 0.0 is not -0.0. On which devices they are does not matter.
///
/// # Errors
///
/// Fails if a tensor is poisoned, with the error that it carries, or is being traced.
///
/// ```
/// # use retape::{Tensor, tree};
/// let nan = |bits: u32| (Tensor::from([f32::from_bits(bits), 1.0]), 3_u8);
/// assert!(tree::same_bits(&nan(0x7fc0_0001), &nan(0x7fc0_0001))?);
/// assert!(!tree::same_bits(&nan(0x7fc0_0001), &nan(0x7fc0_0002))?);
/// # Ok::<(), retape::Error>(())
/// ```
#[track_caller]
pub fn same_bits<T: Tree>(a: &T, b: &T) -> Result<bool> {
    let at = Location::caller();
    // Devices are part of the words.
    let [a, b] = [a, b].map(|tree| map(tree, |x| if x.is_traced() { x.clone() } else { x.to(Device::Cpu) }));
    let (a, b) = (Writer::of(&a), Writer::of(&b));
    // A tensor without elements to compare is an error, whatever else differs.
    let values = |leaves: &Writer<'_>| {
        leaves.tensors.iter().map(|leaf| leaf.value_for("same_bits", at).cloned()).collect::<Result<Vec<_>>>()
    };
    let (a_values, b_values) = (values(&a)?, values(&b)?);
    for (a, b) in a_values.iter().zip(&b_values) {
        if a.element_bytes()? != b.element_bytes()? {
            return Ok(false);
        }
    }
    Ok(a.words == b.words)
}
