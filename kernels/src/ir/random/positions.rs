//! Kernels whose positions and masks are computed from coordinates: pads with and without gaps, steps, and flat views.

use retape_runtime::DType;

use super::Rng;
use crate::ir::{Affine, AxisId, Kernel, KernelBuilder, Value};

/// A verified kernel over one to three axes, all of whose results are exact.
pub fn random_kernel_of_positions(seed: u64) -> Kernel {
    let mut rng = Rng::new(seed);
    let k = KernelBuilder::new();
    let extents: Vec<usize> = (0..1 + rng.below(3)).map(|n| 1 + rng.below([9, 40, 90][n])).rev().collect();
    for &extent in &extents {
        k.axis(extent, false);
    }
    let len = extents.iter().product();
    let mut strides = vec![1_i64; extents.len()];
    for axis in (1..extents.len()).rev() {
        strides[axis - 1] = strides[axis] * extents[axis] as i64;
    }
    let here = Affine::new(0, &strides);
    let of_axis = |axis: usize| k.index(AxisId(axis as u32));
    // Coordinates of axes, or the position in all of them, or in some.
    let flat = (0..extents.len()).map(|axis| of_axis(axis) * strides[axis]).reduce(|x, y| x + y);
    let coordinates: Vec<(Value<'_>, usize)> = match flat.filter(|_| rng.one_in(2)) {
        Some(flat) => vec![(flat, len)],
        None => (0..extents.len()).map(|axis| (of_axis(axis), extents[axis])).collect(),
    };
    let dtype = rng.pick(&[DType::F32, DType::F32, DType::F64, DType::I32, DType::U8, DType::I64]);
    let operand = k.load(k.param(dtype, len, false), here.clone());
    let sources: Vec<_> = (0..1 + rng.below(2)).map(|_| padded(&k, &mut rng, &coordinates, dtype)).collect();
    let value = sources.into_iter().fold(operand, |sum, (value, mask)| {
        if rng.one_in(2) { mask.select(value, sum) } else { sum.binary(crate::ir::Binary::Max, value) }
    });
    if rng.one_in(3) {
        let (count, _) = coordinates[rng.below(coordinates.len())];
        let count = (count * 3 - 7).cast(DType::F32);
        k.store(k.param(DType::F32, len, true), here.clone(), count);
    }
    k.store(k.param(dtype, len, true), here, value);
    k.finish()
}

/// An element of a smaller parameter at coordinates that are moved, divided and brought into it, where they are inside,
/// and else a constant; and whether they are.
fn padded<'k>(
    k: &'k KernelBuilder,
    rng: &mut Rng,
    coordinates: &[(Value<'k>, usize)],
    dtype: DType,
) -> (Value<'k>, Value<'k>) {
    let (mut place, mut inside, mut len) = (None, None, 1_usize);
    for &(coordinate, extent) in coordinates {
        let (low, gap) = (rng.below(extent.min(9)) as i64, rng.pick(&[1, 1, 2, 3, 7, 17, 33]));
        let own = 1 + rng.below(extent);
        let from_low = if rng.one_in(5) { coordinate * -1 + (extent as i64 - 1 - low) } else { coordinate - low };
        let distance = if gap == 1 { from_low } else { from_low.binary(crate::ir::Binary::Max, 0) };
        let (position, rest) = if gap == 1 { (distance, None) } else { (distance / gap, Some(distance % gap)) };
        let mut guard = from_low.ge(0) & position.lt(own as i64);
        if let Some(rest) = rest {
            guard = guard & rest.eq(0_i64);
        }
        let within = position.binary(crate::ir::Binary::Max, 0).binary(crate::ir::Binary::Min, own as i64 - 1);
        place = Some(place.map_or(within, |place: Value<'k>| place * own as i64 + within));
        inside = Some(inside.map_or(guard, |inside: Value<'k>| inside & guard));
        len *= own;
    }
    let (place, inside) = (place.expect("there are axes"), inside.expect("there are axes"));
    let element = k.load_at(k.param(dtype, len, false), place);
    (inside.select(element, element.like(3.0)), inside)
}
